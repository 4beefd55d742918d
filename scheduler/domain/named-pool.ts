// Shortcomings of the pool that an app names, for deploys and explanations: the pool does not exist,
// has no machine, or none that ever joined. Pure. Calls do not use this; control/placement/feasibility.ts refuses them.
import { poolNameProblem } from './pools.ts';

export interface PoolMachine {
  readonly id: string;
  /** State of the machine's link, such as `PENDING`. */
  readonly health: string;
}

/** Reason why nothing can run in a pool now, and the remedy. */
export interface PoolLack {
  readonly says: string;
  readonly step: string;
  /** The workspace may use no pool of that name. */
  readonly isUnknown?: true;
}

/** Pool that an app names; `name` empty: it names none. */
export interface NamedPool {
  readonly name: string;
  /** Shortcoming of the pool; undefined: a machine of it has joined, whatever its state since. */
  readonly lack: PoolLack | undefined;
}
export const NO_POOL: NamedPool = { name: '', lack: undefined };

/** Settings of a pool whose provider could make no machine. */
export interface IdleProvider {
  readonly provider: string;
  readonly maxMachines: number;
}

/** Command that admits a machine to the pool. */
export const admitTo = (poolName: string): string =>
  `\`longshore machine create${poolName === '' ? '' : ` --pool ${poolName}`}\``;

/**
 * Shortcoming of a pool; undefined: none.
 * @param machines - those of the pools of that name that the workspace may use
 * @param idle - the pool names a provider, which could make no machine for it; undefined: it names none
 */
export function lackOf(
  name: string,
  isThere: boolean,
  machines: readonly PoolMachine[],
  idle?: IdleProvider,
): PoolLack | undefined {
  if (!isThere) {
    if (poolNameProblem('', name) !== undefined) {
      const says = `there is no pool ${JSON.stringify(name.slice(0, 60))}, nor can one be called that`;
      return { says, step: 'correct the name of the pool, and deploy again', isUnknown: true };
    }
    const says = `there is no pool ${name} that this workspace may use`;
    return { says, step: `correct its name, or make it with its first machine: ${admitTo(name)}`, isUnknown: true };
  }
  const absent = machines.filter(({ health }) => health === 'PENDING' || health === 'EXPIRED');
  if (absent.length < machines.length) return undefined;
  const expected = absent.filter(({ health }) => health === 'PENDING');
  if (expected.length > 0) {
    const says = `no machine of pool ${name} has joined yet, though ${listed(expected)} admitted`;
    return {
      says,
      step: `run on its host the line that \`longshore machine create\` printed, or admit another machine: ${admitTo(name)}`,
    };
  }
  if (idle !== undefined) return unmakeable(name, idle);
  const late = absent.length === 0 ? '' : ` that joined: ${listed(absent)} admitted, and did not come in time`;
  return { says: `pool ${name} has no machine${late}`, step: `admit one to it: ${admitTo(name)}` };
}

function unmakeable(name: string, { provider, maxMachines }: IdleProvider): PoolLack {
  const says = `pool ${name} has no machine, and provider ${provider} makes none for it`;
  return maxMachines === 0
    ? {
        says: `${says}: maxMachines is 0`,
        step: `have an administrator let it have some: \`longshore pool set ${name} --max-machines N\``,
      }
    : {
        says,
        step: `have an administrator see why (\`longshore pool show ${name}\`, \`longshore provider list\`), or admit a machine: ${admitTo(name)}`,
      };
}

/** Most machines named in a sentence. */
const MOST_NAMED = 3;

function listed(machines: readonly PoolMachine[]): string {
  const names = machines.slice(0, MOST_NAMED).map(({ id }) => id);
  const more = machines.length - names.length;
  const all = more > 0 ? [...names, `${more} more`] : names;
  return all.length === 1 ? `${all[0]} was` : `${all.slice(0, -1).join(', ')} and ${all.at(-1)} were`;
}

/** Warning about the pool, for the user who deploys. */
export const warningOf = ({ says, step }: PoolLack): string =>
  `${says.charAt(0).toUpperCase()}${says.slice(1)}; ${step}.`;
