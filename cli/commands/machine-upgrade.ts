// `longshore machine upgrade --pool`: brings the agents of a pool to a release by a command of the operator: the first
// machine alone, then several at once. It begins no other once too many do not come back. Source: decisions 0267, 0316.
import { sleep } from '#shared/backoff.ts';
import type { Client } from '../client.ts';
import { CliError, usageError } from '../errors.ts';
import type { JsonObject } from '../json.ts';
import { listField, objectField, textField, textsField } from '../json.ts';
import { canShowProgress, endProgress, note, print, printJson, progress } from '../print.ts';
import { runFor } from '../upgrade/command.ts';
import type { PoolMachine, UpgradePlan } from '../upgrade/plan.ts';
import { commandFor, isUpgraded, newBlocks, planUpgrade, stateOf } from '../upgrade/plan.ts';
import { unknownPool } from './pool-words.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';

export interface UpgradeFlags {
  readonly pool?: string;
  readonly run?: string;
  readonly to?: string;
  readonly deadline: number;
  /** Machines at once, after the first one. */
  readonly parallel: number;
  /** Failed machines after which no other is begun. */
  readonly maxFailures: number;
}

/** The release that the scheduler gives out: the line for hosts (empty without one), and its versions. */
export interface GivenOut {
  readonly line: string;
  readonly versions: readonly string[];
}

interface Failed {
  readonly machineId: string;
  readonly host: string;
  readonly why: string;
}

interface Result {
  readonly versions: readonly string[];
  readonly upgraded: readonly string[];
  readonly already: readonly string[];
  readonly away: readonly string[];
  /** The first that failed. */
  readonly failed: Failed | null;
  readonly failures: readonly Failed[];
  readonly notTried: readonly string[];
}

const POLL_MS = 500;

/** @param givenOut - asks the scheduler for its release */
export async function runPoolUpgrade(
  pool: string,
  flags: UpgradeFlags,
  invocation: Invocation,
  givenOut: (client: Client) => Promise<GivenOut>,
): Promise<void> {
  const { run } = flags;
  if (run === undefined || run.trim() === '')
    throw usageError("--pool needs --run, the command that reaches a host: --run 'ssh {host} sh'");
  await withClient(invocation, async (client) => {
    const given = await givenOut(client);
    const versions = flags.to === undefined ? given.versions : [flags.to];
    if (versions.length === 0) {
      throw new CliError(
        'this scheduler has no release to give out, so nothing says which version is the new one: --to names it',
      );
    }
    const plan = planUpgrade(await machinesOf(client, pool), versions);
    const { upgraded, failures } = await goThrough(client, pool, plan, { run, line: given.line, versions, flags });
    const [failed = null] = failures;
    const tried = new Set([...upgraded, ...failures.map(({ machineId }) => machineId)]);
    const result: Result = {
      versions,
      upgraded,
      already: plan.already.map(({ id }) => id),
      away: plan.away.map(({ id }) => id),
      failed,
      failures,
      notTried: plan.todo.map(({ id }) => id).filter((id) => !tried.has(id)),
    };
    if (invocation.options.json === true) printJson(result);
    else for (const line of sentences(pool, result)) print(line);
    if (failed !== null) throw new CliError(cureOf(failed, failures.slice(1), result.notTried.length));
  });
}

interface Task {
  readonly run: string;
  readonly line: string;
  readonly versions: readonly string[];
  readonly flags: UpgradeFlags;
}

/** The first machine alone, then the others side by side, until too many have failed. */
async function goThrough(
  client: Client,
  pool: string,
  plan: UpgradePlan,
  task: Task,
): Promise<{ readonly upgraded: readonly string[]; readonly failures: readonly Failed[] }> {
  const { parallel, maxFailures } = task.flags;
  const upgraded: string[] = [];
  const failures: Failed[] = [];
  const waiting = [...plan.todo.entries()];
  const next = async ([at, machine]: readonly [number, PoolMachine]): Promise<void> => {
    // A scheduler that does not answer for a moment fails this machine, and leaves the others alone.
    const host = await hostnameOf(client, machine.id).catch(() => '');
    const shown = `${machine.id}${host === '' ? '' : ` (${host})`}`;
    const isFirst = at === 0 && plan.todo.length > 1 ? ', the canary' : '';
    const count = `${at + 1} of ${plan.todo.length}`;
    if (canShowProgress()) progress(`${count}: ${shown}${isFirst} ...`);
    const why = await upgradeOne(client, pool, machine, host, task);
    if (canShowProgress()) endProgress();
    if (why === '') upgraded.push(machine.id);
    else failures.push({ machineId: machine.id, host, why });
    note(
      why === ''
        ? `${count}: ${shown}${isFirst} is connected with ${task.versions.join(' or ')}`
        : `${count}: ${shown}${isFirst} is not upgraded: ${why}`,
    );
  };
  const canary = waiting.shift();
  if (canary !== undefined) await next(canary);
  if (failures.length > 0) return { upgraded, failures };
  const lane = async (): Promise<void> => {
    while (failures.length < maxFailures) {
      const machine = waiting.shift();
      if (machine === undefined) return;
      await next(machine);
    }
  };
  await Promise.all(Array.from({ length: parallel }, lane));
  return { upgraded, failures };
}

/** @returns why the machine is not upgraded; empty: it is */
async function upgradeOne(
  client: Client,
  pool: string,
  before: PoolMachine,
  host: string,
  { run, line, versions, flags }: Task,
): Promise<string> {
  const words = commandFor(run, { host, id: before.id });
  if (words === undefined)
    return `its hostname, ${JSON.stringify(host)}, is none that a command may get as {host}: use {id}`;
  const endsAtMs = Date.now() + flags.deadline * 1000;
  const ended = await runFor(words, line, flags.deadline * 1000);
  if (ended.kind === 'failed') return ended.why;
  let firstSeen: string | undefined;
  let now = before;
  for (;;) {
    // A scheduler that does not answer for a moment is asked again.
    const machines = await machinesOf(client, pool).catch(() => []);
    now = machines.find(({ id }) => id === before.id) ?? now;
    if (isUpgraded(before, now, versions, firstSeen)) return '';
    if (versions.includes(now.agentVersion)) firstSeen ??= now.lastKeepalive;
    if (Date.now() >= endsAtMs) break;
    await sleep(Math.min(POLL_MS, Math.max(1, endsAtMs - Date.now())));
  }
  const blocks = newBlocks(before, now);
  if (versions.includes(now.agentVersion) && blocks.length > 0)
    return `with the new agent it takes no containers: ${blocks.join(', ')}, which it had not before (now ${stateOf(now)})`;
  return `its agent is not in service with ${versions.join(' or ')} within ${flags.deadline} s (now ${stateOf(now)})`;
}

async function machinesOf(client: Client, pool: string): Promise<readonly PoolMachine[]> {
  const path = `/machines?poolName=${encodeURIComponent(pool)}`;
  const answer = await client.gateway('GET', path).catch(unknownPool(pool));
  return listField(answer, 'machines').map((machine) => ({
    id: textField(machine, 'id'),
    status: textField(machine, 'status'),
    agentVersion: textField(machine, 'agentVersion'),
    lastKeepalive: textField(machine, 'lastKeepalive'),
    conditions: textsField(machine, 'conditions'),
  }));
}

/** The list has no hostnames; the answer for one machine does. */
async function hostnameOf(client: Client, id: string): Promise<string> {
  const answer = await client.gateway('GET', `/machines?machineId=${encodeURIComponent(id)}`);
  const [machine] = listField(answer, 'machines');
  const host: JsonObject = machine === undefined || machine['host'] === null ? {} : objectField(machine, 'host');
  return textField(host, 'hostname');
}

function sentences(pool: string, { upgraded, already, away }: Result): readonly string[] {
  const machines = (count: number): string => `${count} machine${count === 1 ? '' : 's'}`;
  return [
    `${pool}: ${machines(upgraded.length)} upgraded, ${machines(already.length)} had the version before`,
    ...(away.length === 0 ? [] : [`away, to be upgraded once they are back: ${away.join(', ')}`]),
  ];
}

function cureOf({ machineId, host, why }: Failed, others: readonly Failed[], notTried: number): string {
  const shown = `${machineId}${host === '' ? '' : ` (${host})`}`;
  const left = notTried === 0 ? '' : ` ${notTried} more were not tried.`;
  const more =
    others.length === 0 ? '' : `; nor are ${others.length} more: ${others.map((one) => one.machineId).join(', ')}`;
  return (
    `machine ${shown} is not upgraded: ${why}${more}.${left} Its containers go on. See \`journalctl -u longshore-agent\` there; ` +
    '`sudo longshore-agent rollback` goes back (a package: `apt install` of the one before). Then run this again: machines with the new version are left alone'
  );
}
