// Which machines of a pool an upgrade goes through, in which order, and when one of them is done. Pure.
import { conditionOf } from '#shared/domain/conditions.ts';

/** A machine as `ListMachines` tells it. */
export interface PoolMachine {
  readonly id: string;
  readonly status: string;
  readonly agentVersion: string;
  readonly lastKeepalive: string;
  readonly conditions: readonly string[];
}

export interface UpgradePlan {
  /** In the order in which they are upgraded; the first is the canary. */
  readonly todo: readonly PoolMachine[];
  readonly already: readonly PoolMachine[];
  /** They never joined, or do not answer now. */
  readonly away: readonly PoolMachine[];
}

/** Machines in service come first: the first one shows whether the release serves. */
export function planUpgrade(machines: readonly PoolMachine[], versions: readonly string[]): UpgradePlan {
  const isAway = ({ status }: PoolMachine): boolean => status === 'pending' || status === 'registered';
  const isNew = ({ agentVersion }: PoolMachine): boolean => versions.includes(agentVersion);
  const rank = ({ status }: PoolMachine): number => (status === 'available' ? 0 : 1);
  const here = machines.filter((machine) => !isAway(machine));
  return {
    todo: here.filter((machine) => !isNew(machine)).toSorted((a, b) => rank(a) - rank(b) || (a.id < b.id ? -1 : 1)),
    already: here.filter(isNew),
    away: machines.filter(isAway),
  };
}

/**
 * Whether an upgrade of a machine is good: the new agent is connected, the machine serves if it served before, and
 * nothing keeps new work away that did not before. A second sign of life counts: an agent finds some faults only once
 * it is connected.
 * @param firstSeen - `lastKeepalive` of the first reading with the new version; undefined: there was none
 */
export function isUpgraded(
  before: PoolMachine,
  now: PoolMachine,
  versions: readonly string[],
  firstSeen: string | undefined,
): boolean {
  if (!versions.includes(now.agentVersion) || newBlocks(before, now).length > 0) return false;
  const serves = now.status === 'available' || (before.status === 'disabled' && now.status === 'disabled');
  return serves && firstSeen !== undefined && now.lastKeepalive > firstSeen;
}

/** Conditions by which the machine takes no new containers, and which it had not before. */
export const newBlocks = (before: PoolMachine, now: PoolMachine): readonly string[] =>
  now.conditions.filter((name) => conditionOf(name)?.blocks === true && !before.conditions.includes(name));

/** A machine in words, for an upgrade that did not succeed. */
export function stateOf({ status, agentVersion, conditions }: PoolMachine): string {
  const wrong = conditions.length === 0 ? '' : `, ${conditions.join(', ')}`;
  return `${status}, agent ${agentVersion || 'unknown'}${wrong}`;
}

/** Hostnames come from machines: nothing else may reach the arguments of a command. */
export const isHostname = (text: string): boolean => /^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$/.test(text);

/**
 * The operator's command with the machine's names in it.
 * @returns undefined when there is none, or it asks for a name that the machine lacks
 */
export function commandFor(
  command: string,
  names: { readonly host: string; readonly id: string },
): readonly string[] | undefined {
  const words = command.split(/\s+/).filter((word) => word !== '');
  if (words.length === 0 || (command.includes('{host}') && !isHostname(names.host))) return undefined;
  return words.map((word) => word.replaceAll('{host}', names.host).replaceAll('{id}', names.id));
}

/** Versions of the releases in the installer's script, one for each architecture. */
export function versionsIn(script: string): readonly string[] {
  const found = [...script.matchAll(/^RELEASE_(?:ARM64_)?VERSION='([^']+)'$/gm)].map(([, version = '']) => version);
  return [...new Set(found)];
}
