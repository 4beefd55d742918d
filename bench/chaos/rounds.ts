// The kill rounds: a load, a kill at a random moment, a restart, again and again; then the books of all three parties are closed and compared.
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import { startProduct } from '../product.ts';
import type { Product } from '../product.ts';
import { Caller, objectOf } from '../soak/caller.ts';
import { Ledger } from '../soak/ledger.ts';
import { readAll, settle } from '../soak/settle.ts';
import { rowsOf } from '../soak/tasks.ts';
import type { Workplace } from '../workplace.ts';
import { audit, repeatedRuns } from './audit.ts';
import type { Books, Kept, Run } from './audit.ts';
import { deployChaosApps, work } from './load.ts';
import type { ChaosApps, ChaosStage } from './load.ts';
import type { ChaosOptions } from './options.ts';
import { watchMachine } from './machine.ts';
import type { MachineWatch } from './machine.ts';
import { openChaosStores } from './stores.ts';

export interface ChaosOutcome {
  readonly findings: readonly string[];
  readonly accepted: number;
  readonly unanswered: number;
  readonly runs: number;
  /** Beyond those that the handlers' failures asked for. */
  readonly repeated: number;
  /** From the end of the load to the end of the last task. */
  readonly settledMs: number;
}

export interface ChaosReport {
  say(line: string): void;
}

/** Attempts that lost machines or containers may cost beside the user's; nothing here loses one, but an attempt may count as lost. */
const LOSSES = 5;
const MOST_REQUESTS = 16;
const FIRST_CALLS_MS = 60_000;
const FOLLOW_EVERY_MS = 1_000;
const LOAD_MS = { least: 300, most: 4_000 };
/** A scheduler is killed again before it is ready so often. */
const KILL_IN_START = 0.25;
const START_MS = 1_500;
/** An agent is killed more often: what it must survive are starts and stops of containers, of which each second has some. */
const AGENT_LOAD_MS = 1_500;
/** What nobody wants and nobody knows goes within the time that an audit waits. */
const AGENT_SETTINGS = { LONGSHORE_AGENT_ORPHAN_SECONDS: '10' };

/** @throws Error when the installation cannot be started, or does not come back */
export async function killRounds(options: ChaosOptions, place: Workplace, report: ChaosReport): Promise<ChaosOutcome> {
  const stores = await openChaosStores(options.stores, place);
  const product = await startProduct(place, undefined, stores.env, AGENT_SETTINGS);
  const caller = new Caller(product.client.context, MOST_REQUESTS);
  place.later(() => caller.close());
  const ledger = new Ledger();
  const stage: ChaosStage = { caller, ledger, kill: options.kill, sent: [] };
  const apps = await deployChaosApps(product.client, caller, options.kill);
  const ends = new AbortController();
  const stop = AbortSignal.any([ends.signal, place.signal]);
  const working = work(stage, apps, stop);
  const following = follow(caller, ledger, stop);
  await untilServed(ledger);
  const watch = options.kill === 'agent' ? await watchMachine(place, product.machineId, product.image) : undefined;
  try {
    for (let round = 1; round <= options.rounds; round += 1) {
      place.signal.throwIfAborted();
      await sleep(between(LOAD_MS.least, options.kill === 'agent' ? AGENT_LOAD_MS : LOAD_MS.most), place.signal);
      const startedAt = performance.now();
      if (options.kill === 'redis') await stores.killRedis(product.dataDir);
      else if (options.kill === 'agent') await killAgent(product);
      else await killScheduler(product);
      const tookMs = Math.round(performance.now() - startedAt);
      report.say(
        `round ${round}: killed the ${options.kill}, back after ${tookMs} ms; ${stage.sent.length} requests sent`,
      );
    }
  } finally {
    ends.abort();
    await Promise.all([working, following]);
  }
  const loadEndedAt = performance.now();
  await settle(caller, ledger, options.settleMs);
  const settledMs = performance.now() - loadEndedAt;
  const books = await closeBooks(stage, product, apps);
  if (options.keepLogsIn !== undefined) keep(place, product, apps, options.keepLogsIn);
  const machine = await closeMachine(watch, caller, apps);
  const findings = [
    ...ledger.failures,
    ...audit(books).map(({ fault, text }) => `${fault}: ${text}`),
    ...(machine?.findings ?? []),
  ];
  if (machine !== undefined)
    report.say(`the machine was looked at ${machine.looks} times; it had ${machine.containers} containers in all`);
  return {
    findings,
    accepted: ledger.settled.size + ledger.open.size,
    unanswered: stage.sent.filter(({ taskId }) => taskId === '').length,
    runs: books.runs.length,
    repeated: repeatedRuns(books),
    settledMs,
  };
}

async function killAgent(product: Product): Promise<void> {
  await product.killAgent();
  while (Math.random() < KILL_IN_START) {
    await product.restartAgent(false);
    await sleep(between(0, START_MS));
    await product.killAgent();
  }
  await product.restartAgent(true);
}

async function killScheduler(product: Product): Promise<void> {
  await product.killScheduler();
  while (Math.random() < KILL_IN_START) {
    await product.restartScheduler(false);
    await sleep(between(0, START_MS));
    await product.killScheduler();
  }
  await product.restartScheduler(true);
}

/** Nothing is wanted any more: then nothing may be there. */
async function closeMachine(
  watch: MachineWatch | undefined,
  caller: Caller,
  apps: ChaosApps,
): Promise<Awaited<ReturnType<MachineWatch['close']>> | undefined> {
  if (watch === undefined) return undefined;
  for (const { deploymentId } of [apps.calls, apps.puts, ...apps.coldPuts, apps.retried])
    await caller.gateway(`/deployments/${deploymentId}/stop`, { body: {} });
  return await watch.close();
}

/** The first containers take their time. */
async function untilServed(ledger: Ledger): Promise<void> {
  const deadlineMs = performance.now() + FIRST_CALLS_MS;
  while (!ledger.counts.has('call: 200')) {
    if (performance.now() > deadlineMs) throw new Error(`no call was served: ${ledger.failures.join('; ')}`);
    await sleep(50);
  }
}

/** Reads open tasks every second; while somebody is dead nobody answers, which is no fault. */
async function follow(caller: Caller, ledger: Ledger, signal: AbortSignal): Promise<void> {
  while (await sleep(FOLLOW_EVERY_MS, signal)) {
    try {
      await readAll(caller, ledger, [...ledger.open.keys()]);
    } catch {
      ledger.count('tasks could not be read');
    }
  }
}

async function closeBooks(stage: ChaosStage, product: Product, apps: ChaosApps): Promise<Books> {
  const { caller, ledger, sent } = stage;
  const kept = new Map<string, Kept>();
  const listed = new Map<string, string>();
  for (const app of [apps.calls, apps.puts, ...apps.coldPuts, apps.retried])
    for (const row of await rowsOf(caller, app.stubId)) listed.set(String(row['id']), String(row['status']));
  for (const { taskId } of sent.filter((one) => one.taskId !== '')) {
    const answer = await caller.ask(`/api/v1/task/${caller.workspaceId}/${taskId}`);
    const task = answer.status === 200 ? objectOf(answer.text) : undefined;
    if (task === undefined) continue;
    const status = String(task['status']);
    kept.set(taskId, { status, result: JSON.stringify(task['result']), listed: listed.get(taskId) });
  }
  const seen = new Map([...ledger.settled].map(([taskId, status]) => [taskId, [status, ...again(kept.get(taskId))]]));
  return { sent, kept, seen, runs: runsIn(recordsOf(product, apps)), lossesAllowed: LOSSES };
}

const again = (kept: Kept | undefined): readonly string[] => (kept === undefined ? [] : [kept.status]);

const recordsOf = (product: Product, apps: ChaosApps): string =>
  join(product.dataDir, 'volumes', product.client.context.workspaceId, apps.volumeId, 'runs.jsonl');

function runsIn(path: string): readonly Run[] {
  if (!existsSync(path)) throw new Error(`the handlers wrote nothing down: ${path} is not there`);
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n');
  return lines
    .map((line) => JSON.parse(line) as Run & { readonly event: string })
    .filter(({ event }) => event === 'began');
}

const between = (least: number, most: number): number => least + Math.random() * (most - least);

function keep(place: Workplace, product: Product, apps: ChaosApps, to: string): void {
  mkdirSync(to, { recursive: true });
  for (const name of readdirSync(place.directory))
    if (name.endsWith('.log')) cpSync(join(place.directory, name), join(to, name));
  const records = recordsOf(product, apps);
  if (existsSync(records)) cpSync(records, join(to, 'runs.jsonl'));
}
