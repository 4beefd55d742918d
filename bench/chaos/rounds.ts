// The kill rounds: a load, a kill at a random moment, a restart, again
// and again. Then the books of all three parties are closed and compared.
import { join } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import { MOST_PREEMPTIONS } from '#scheduler/tasks/state.ts';
import { causes } from '../program.ts';
import { startProduct } from '../product.ts';
import type { Product } from '../product.ts';
import { writeBenchRelease } from '../release.ts';
import { Caller } from '../soak/caller.ts';
import { Ledger } from '../soak/ledger.ts';
import { readAll, settle } from '../soak/settle.ts';
import type { Workplace } from '../workplace.ts';
import type { Tally } from './absence.ts';
import { audit } from './audit.ts';
import { closeBooks, keepLogs, totalsOf } from './books.ts';
import type { Totals } from './books.ts';
import { countEnds, readContainerEnds, wrongEnds } from './ends.ts';
import { CLAIM_SETTINGS, deployClaims } from './claims.ts';
import { CHAOS_APP, calledApps, deployChaosApps, neverAway, work } from './load.ts';
import type { IsAway } from './churn.ts';
import type { ChaosApps, ChaosStage } from './load.ts';
import type { ChaosOptions, RealKind } from './options.ts';
import { MachineWatch, startGpuHosts } from './machine.ts';
import type { GpuHost } from './machine.ts';
import { HandlerRecords } from './runs.ts';
import { openChaosStores } from './stores.ts';
import type { Stores } from './stores.ts';
import { WITNESS_SETTINGS, Witnesses } from './witnesses.ts';
import type { EventOutcome } from './witnesses.ts';

export interface ChaosOutcome extends Totals {
  readonly findings: readonly string[];
  /** Milliseconds from the end of the load to the end of the last task. */
  readonly settledMs: number;
  /** Answers to requests that were put while a scheduler or a store was disturbed; of two schedulers only. */
  readonly during?: Tally;
  /** Present for `--kill agent` only. */
  readonly machine: MachineOutcome | undefined;
  /** Events of tasks, as a subscriber and a receiver of webhooks got them; absent where there were none. */
  readonly events?: Omit<EventOutcome, 'findings'>;
}

export interface MachineOutcome {
  readonly looks: number;
  /** Containers in the engine's list, and those of them with devices. */
  readonly containers: number;
  readonly leases: number;
  /** Number of times that a device was given out. */
  readonly gpus: number;
  /** Number of containers by their end. */
  readonly ends: Readonly<Record<string, number>>;
}

export interface ChaosReport {
  say(line: string): void;
  json(kind: string, value: object): void;
}

const MOST_REQUESTS = 16;
const FIRST_CALLS_MS = 60_000;
const FOLLOW_EVERY_MS = 1_000;
const LOAD_MS = { least: 300, most: 4_000 };
/** The same where containers end for others, which takes a start of the leader, a claim and a notice. */
const CLAIMS_MS = { least: 2_000, most: 8_000 };
/** Share of kills that hit a scheduler before it is ready. */
const KILL_IN_START = 0.25;
const START_MS = 1_500;
/** An agent that lives so briefly is killed while it takes things up. */
const AGENT_BRIEF_MS = 1_000;
/**
 * Every third agent is killed a moment after some starts and stops of
 * containers, however long those take on this machine: these it must survive.
 */
const AGENT_TURNS = { share: 1 / 3, most: 4, withinMs: 8_000, thenMs: 400 };

/** @throws Error when the installation cannot be started, or does not come back */
export async function killRounds(
  options: ChaosOptions<RealKind>,
  place: Workplace,
  report: ChaosReport,
): Promise<ChaosOutcome> {
  const stores = await openChaosStores(options.stores, place);
  const { preempts } = options;
  const [host] = options.kind === 'kill agent' || preempts ? await startGpuHosts(place, 1) : [];
  // The bundled release, as an operator's, is back at work within a second, so kills hit the work and not the start.
  const release = host && (await writeBenchRelease(join(place.directory, 'release'), {}));
  const product = await startProduct(place, {
    settings: { ...stores.env, ...WITNESS_SETTINGS, ...(preempts ? CLAIM_SETTINGS : {}) },
    agentSettings: host?.settings,
    release,
  });
  const caller = new Caller(product.client.context, MOST_REQUESTS);
  place.later(() => caller.close());
  const ledger = new Ledger();
  ledger.mayComeLate.add('call');
  const stage: ChaosStage = { caller, ledger, kind: options.kind, sent: [], preempts, isAway: neverAway };
  const claims = preempts ? await deployClaims(product.client, ledger, CHAOS_APP, place) : undefined;
  const apps = await deployChaosApps(product.client, caller, ledger, options.kind, neverAway, claims);
  const witnesses = await Witnesses.start(product.client, caller, place);
  const records = new HandlerRecords(recordsOf(product, apps));
  if (options.keepLogsIn !== undefined) {
    const to = options.keepLogsIn;
    place.later(async () => keepLogs(place, records, to));
  }
  const ends = new AbortController();
  const stop = AbortSignal.any([ends.signal, place.signal]);
  const working = Promise.all([work(stage, apps, stop), follow(caller, ledger, stop)]);
  let watch: MachineWatch | undefined;
  try {
    await untilServed(ledger, place.signal);
    if (host !== undefined) watch = await watchMachine(place, product, host);
    for (let round = 1; round <= options.rounds; round += 1) {
      if (watch === undefined || options.kind !== 'kill agent')
        await sleep(
          preempts ? between(CLAIMS_MS.least, CLAIMS_MS.most) : between(LOAD_MS.least, LOAD_MS.most),
          place.signal,
        );
      else await agentLives(watch, place.signal);
      place.signal.throwIfAborted();
      const startedAt = performance.now();
      await KILLS[options.kind](product, stores);
      const tookMs = Math.round(performance.now() - startedAt);
      await watch?.check();
      const lost = records.lost();
      if (lost !== undefined) ledger.fail(lost);
      const found = ledger.failed + (watch?.findings.length ?? 0);
      const there = watch === undefined ? '' : `, ${watch.counts.containers} containers so far`;
      report.say(
        `round ${round}: ${options.kind}, back after ${tookMs} ms; ${stage.sent.length} requests sent${there}; ${found} findings`,
      );
      report.json('kill', { round, tookMs, sent: stage.sent.length, found, ...watch?.counts });
    }
  } catch (error) {
    // Requests that wait for a dead machine end with the workplace.
    working.catch(() => undefined);
    throw error;
  } finally {
    ends.abort();
  }
  await working;
  const loadEndedAt = performance.now();
  await settle(caller, ledger, options.settleMs, place.signal);
  const settledMs = performance.now() - loadEndedAt;
  const books = await closeBooks(stage, calledApps(apps), records, preempts ? MOST_PREEMPTIONS : 0);
  const statuses = new Map([...books.kept].map(([taskId, { status }]) => [taskId, status]));
  const { findings: told, ...events } = await witnesses.close(statuses, place.signal);
  const machine =
    watch && (await closeMachine(watch, caller, product, apps, { databaseUrl: stores.env['DATABASE_URL'], preempts }));
  const findings = [
    ...ledger.failures,
    ...audit(books).map(({ fault, text }) => `${fault}: ${text}`),
    ...told,
    ...(machine?.findings ?? []),
    ...(preempts && machine?.outcome.ends['STOPPED preempted'] === undefined ? ['nothing_preempted: by any row'] : []),
  ];
  return {
    findings,
    ...totalsOf(stage, books),
    settledMs,
    machine: machine?.outcome,
    events,
  };
}

async function watchMachine(place: Workplace, product: Product, { engine }: GpuHost): Promise<MachineWatch> {
  const { machineId, image, network, dataDir } = product;
  const journalPath = join(dataDir, 'agent', 'journal.json');
  const watch = await MachineWatch.start({ engine, image, machineId, network, journalPath });
  place.later(() => watch.end());
  return watch;
}

async function agentLives(watch: MachineWatch, signal: AbortSignal): Promise<void> {
  const { share, most, withinMs, thenMs } = AGENT_TURNS;
  const isLong = Math.random() < share;
  if (isLong) await watch.untilTurns(1 + Math.floor(Math.random() * most), withinMs, signal);
  await sleep(between(0, isLong ? thenMs : AGENT_BRIEF_MS), signal);
}

const KILLS: Readonly<Record<RealKind, (product: Product, stores: Stores) => Promise<void>>> = {
  'kill scheduler': killScheduler,
  'kill redis': (product, stores) => stores.killRedis(product.dataDir),
  'kill postgres': (_product, stores) => stores.killPostgres(),
  'kill agent': killAgent,
};

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

/**
 * Ends all demand, then checks that the machine is empty. Ends
 * the product, so that no other process has its books open.
 */
async function closeMachine(
  watch: MachineWatch,
  caller: Caller,
  product: Product,
  apps: ChaosApps,
  { databaseUrl, preempts }: { readonly databaseUrl: string | undefined; readonly preempts: boolean },
): Promise<{ readonly findings: readonly string[]; readonly outcome: MachineOutcome }> {
  for (const { deploymentId } of calledApps(apps))
    await caller.gateway(`/deployments/${deploymentId}/stop`, { body: {} });
  await apps.churn?.stop();
  await watch.untilEmpty();
  await product.stop();
  await watch.untilGone();
  const ends = await readContainerEnds(product.dataDir, databaseUrl);
  return {
    findings: [...watch.findings, ...wrongEnds(ends, preempts)],
    outcome: { ...watch.counts, ends: countEnds(ends) },
  };
}

/** The first containers take their time. */
export async function untilServed(ledger: Ledger, signal: AbortSignal): Promise<void> {
  const deadlineMs = performance.now() + FIRST_CALLS_MS;
  while (!ledger.counts.has('call: 200')) {
    signal.throwIfAborted();
    if (performance.now() > deadlineMs) throw new Error(`no call was served: ${ledger.failures.join('; ')}`);
    await sleep(50);
  }
}

/**
 * Reads open tasks every second.
 * @param isAway - whether a missing answer is no fault; by default it never is one, because a daemon may be dead
 */
export async function follow(
  caller: Caller,
  ledger: Ledger,
  signal: AbortSignal,
  isAway: IsAway = () => true,
): Promise<void> {
  while (await sleep(FOLLOW_EVERY_MS, signal)) {
    const askedMs = performance.now();
    try {
      await readAll(caller, ledger, [...ledger.open.keys()]);
    } catch (error) {
      if (isAway(askedMs)) ledger.count('tasks could not be read');
      else ledger.fail(`reading tasks back: ${causes(error)}`);
    }
  }
}

const recordsOf = (product: Product, apps: ChaosApps): string =>
  join(product.dataDir, 'volumes', product.client.context.workspaceId, apps.volumeId, 'runs.jsonl');

const between = (least: number, most: number): number => least + Math.random() * (most - least);
