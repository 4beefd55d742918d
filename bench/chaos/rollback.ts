// Rounds of a Redis that comes back a second older, under two real schedulers on a Postgres and a Redis server. Each
// round copies the append-only files; a second later the server is killed and started on that copy. A crash of its
// host, or a failover to a replica that lagged, looks the same. Machines are simulated agents on both schedulers, which
// write down every run. The same audit as after kills follows, and nothing may be left in a queue.
import { cpSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { sleep } from '#shared/backoff.ts';
import { aPostgres } from '../../test/helpers/postgres.ts';
import { aRedis } from '../../test/helpers/redis.ts';
import { SimulatedAgent } from '../../test/helpers/simulated-agent.ts';
import type { SimulatedHandler } from '../../test/helpers/simulated-agent.ts';
import type { BenchChild, Message } from '../child.ts';
import { startScheduler } from '../product.ts';
import { causes } from '../program.ts';
import { Caller, objectOf, textOf } from '../soak/caller.ts';
import type { Intended } from '../soak/ledger.ts';
import { Ledger } from '../soak/ledger.ts';
import { settle } from '../soak/settle.ts';
import type { Workplace } from '../workplace.ts';
import type { Run, Sent } from './audit.ts';
import { audit, repeatedRuns, resultOf } from './audit.ts';
import type { ChaosOptions } from './options.ts';
import { readBack } from './read-back.ts';
import type { ChaosOutcome, ChaosReport } from './rounds.ts';

/** Age of the data with which Redis comes back. */
const OLDER_MS = 1_000;
const LOAD_MS = { least: 1_500, most: 5_000 };
const AGENTS_EACH = 2;
/** More callers than slots: some of their tasks wait in the local queue, some are lent, some go through BullMQ. */
const CALL_LANES = 6;
const PUT_LANES = 2;
const CALL_PAUSE_MS = 20;
const PUT_PAUSE_MS = 200;
const DOWN_PAUSE_MS = 250;
const MOST_REQUESTS = 32;
const LOSSES = 5;
/**
 * Bound for Redis to be empty once every task has ended: entries
 * are looked through every few seconds, a while after a loss.
 */
const EMPTY_WITHIN_MS = 90_000;

interface App {
  readonly stubId: string;
  readonly deploymentId: string;
  readonly path: string;
}

interface Stage {
  readonly callers: readonly Caller[];
  readonly ledger: Ledger;
  readonly sent: Sent[];
}

/** While Redis is away, callers are refused, or learn that their task has ended without them. */
const AWAY: Intended = { status: 503, text: /^\{"error":"[^"]+"\}$/, states: ['CANCELLED', 'ERROR', 'COMPLETE'] };

/** @throws Error when the installation cannot be started, or does not come back */
export async function rollbackRounds(
  options: ChaosOptions,
  place: Workplace,
  report: ChaosReport,
): Promise<ChaosOutcome> {
  const postgres = await aPostgres({ durable: true });
  place.later(() => postgres.stop());
  const redis = await aRedis();
  place.later(() => redis.stop());
  const schedulers = [startOn(place, postgres.url, redis.url), startOn(place, postgres.url, redis.url)] as const;
  const ready: Message[] = [];
  for (const scheduler of schedulers) ready.push(await scheduler.ready());
  const [first] = schedulers;
  const workspace = await first.request({ kind: 'ensureFirstWorkspace' });
  const runs: Run[] = [];
  for (const { agentAddress } of ready) {
    for (let n = 0; n < AGENTS_EACH; n += 1) {
      const { joinToken } = await first.request({ kind: 'createLocalMachine' });
      const addresses = (): string[] => [String(agentAddress)];
      const agent = new SimulatedAgent({ addresses, joinToken: String(joinToken), handle: writing(runs) });
      place.later(() => agent.stop());
      await agent.start();
    }
  }
  const context = { token: String(workspace['token']), workspaceId: String(workspace['workspaceId']) };
  const callers = ready.map(
    ({ httpAddress }) => new Caller({ ...context, url: `http://${String(httpAddress)}` }, MOST_REQUESTS),
  );
  for (const caller of callers) place.later(() => caller.close());
  if (options.keepLogsIn !== undefined) {
    const to = options.keepLogsIn;
    place.later(async () => {
      mkdirSync(to, { recursive: true });
      for (const name of readdirSync(place.directory))
        if (name.endsWith('.log')) cpSync(join(place.directory, name), join(to, name));
    });
  }
  const [caller] = callers as [Caller];
  const calls = await deploy(caller, 'chaos-calls', 'endpoint/deployment');
  const puts = await deploy(caller, 'chaos-puts', 'taskqueue/deployment');
  const stage: Stage = { callers, ledger: new Ledger(), sent: [] };
  const ends = new AbortController();
  const working = work(stage, calls, puts, AbortSignal.any([ends.signal, place.signal]));
  try {
    for (let round = 1; round <= options.rounds; round += 1) {
      await sleep(LOAD_MS.least + Math.random() * (LOAD_MS.most - LOAD_MS.least), place.signal);
      const rollBack = redis.keep();
      await sleep(OLDER_MS, place.signal);
      place.signal.throwIfAborted();
      const startedAt = performance.now();
      await rollBack();
      const tookMs = Math.round(performance.now() - startedAt);
      const { sent, ledger } = stage;
      report.say(
        `round ${round}: Redis came back ${OLDER_MS} ms older after ${tookMs} ms; ${sent.length} requests sent; ${ledger.failed} findings`,
      );
      report.json('rollback', { round, tookMs, sent: sent.length, found: ledger.failed });
    }
    // Callers also meet the effects of the last loss.
    await sleep(LOAD_MS.most, place.signal);
  } finally {
    ends.abort();
  }
  await working;
  const loadEndedAt = performance.now();
  await settle(caller, stage.ledger, options.settleMs, place.signal);
  const settledMs = performance.now() - loadEndedAt;
  const left = await leftIn(redis.connect(), [calls, puts], place.signal);
  const books = { ...stage, runs, lossesAllowed: LOSSES, ...(await readBack(stage, caller, [calls, puts])) };
  const findings = [...stage.ledger.failures, ...audit(books).map(({ fault, text }) => `${fault}: ${text}`), ...left];
  return {
    findings,
    accepted: stage.ledger.settled.size + stage.ledger.open.size,
    unanswered: stage.sent.filter(({ taskId }) => taskId === '').length,
    runs: runs.length,
    repeated: repeatedRuns(books),
    settledMs,
    counts: Object.fromEntries([...stage.ledger.counts].toSorted(([a], [b]) => a.localeCompare(b))),
    machine: undefined,
  };
}

function startOn(place: Workplace, databaseUrl: string, redisUrl: string): BenchChild {
  return startScheduler(place, {
    ...place.env,
    LONGSHORE_DATA_DIR: join(place.directory, 'd'),
    DATABASE_URL: databaseUrl,
    REDIS_URL: redisUrl,
    LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
    LONGSHORE_RATE_LIMITS: 'off',
    LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
  });
}

/** Deploys without code: simulated containers have their handler already. */
async function deploy(caller: Caller, name: string, stubType: string): Promise<App> {
  const autoscaler = { type: 'queue_depth', maxContainers: 4, tasksPerContainer: 1 };
  const limits = { cpu: 100, memory: 64, timeout: 60, keepWarmSeconds: 600, maxPendingTasks: 10_000, autoscaler };
  const recipe = { objectId: '', stubType, name, handler: 'app:handler', ...limits };
  const stubId = textOf(await caller.gateway('/stubs', { body: recipe }), 'stubId');
  const deployed = await caller.gateway('/stubs/deploy', { body: { stubId, name } });
  return { stubId, deploymentId: textOf(deployed, 'deploymentId'), path: `/${stubType.split('/')[0]}/${name}` };
}

/** The handler of every container: writes down that it began, and takes its time. */
const writing =
  (runs: Run[]): SimulatedHandler =>
  async ({ taskId, input, signal }) => {
    const { n, seconds } = JSON.parse(input) as { readonly n: number; readonly seconds: number };
    runs.push({ n, taskId });
    await sleep(seconds * 1000, signal);
    return resultOf(n);
  };

/** Mostly short; some run while Redis goes and comes back. */
const secondsOf = (): number => (Math.random() < 0.15 ? 0.5 + Math.random() * 2 : Math.random() * 0.15);

async function work(stage: Stage, calls: App, puts: App, signal: AbortSignal): Promise<void> {
  const lanes: Promise<void>[] = [];
  const at = (lane: number): Caller => stage.callers[lane % stage.callers.length] as Caller;
  for (let n = 0; n < CALL_LANES; n += 1) lanes.push(repeat(() => request(stage, at(n), calls), CALL_PAUSE_MS, signal));
  for (let n = 0; n < PUT_LANES; n += 1) lanes.push(repeat(() => request(stage, at(n), puts), PUT_PAUSE_MS, signal));
  await Promise.all(lanes);

  async function repeat(turn: () => Promise<boolean>, pauseMs: number, until: AbortSignal): Promise<void> {
    while (!until.aborted) await sleep((await turn()) ? pauseMs : DOWN_PAUSE_MS, until);
  }

  /** @returns false: the request was not accepted */
  async function request({ ledger, sent }: Stage, caller: Caller, app: App): Promise<boolean> {
    const sync = app === calls;
    const what = sync ? 'call' : 'put';
    const n = sent.length + 1;
    const one = { n, sync, attempts: 1, fails: 0 };
    const place = sent.push({ ...one, taskId: '' }) - 1;
    try {
      const answer = await caller.ask(app.path, { body: { n, seconds: secondsOf() } });
      const text = sync ? resultOf(n) : JSON.stringify({ task_id: answer.taskId });
      const judged = ledger.judge(what, answer, [{ status: 200, text, states: ['COMPLETE'] }, AWAY]);
      if (judged?.status !== 200) return false;
      sent[place] = { ...one, taskId: sync ? answer.taskId : textOf(objectOf(answer.text), 'task_id') };
      return true;
    } catch (error) {
      // The schedulers live, so every caller must get an answer.
      ledger.fail(`${what}: ${causes(error)}`);
      return false;
    }
  }
}

/** Checks after all tasks have ended that no queue has a job, and no local queue an entry. @returns the leftovers */
async function leftIn(redis: Redis, apps: readonly App[], signal: AbortSignal): Promise<readonly string[]> {
  const untilMs = performance.now() + EMPTY_WITHIN_MS;
  for (;;) {
    const left: string[] = [];
    for (const { deploymentId } of apps) {
      const queue = `tq-${deploymentId}`;
      const of = (kind: string): string => `ls:${queue}:${kind}`;
      const found = {
        wait: await redis.lrange(of('wait'), 0, -1),
        active: await redis.lrange(of('active'), 0, -1),
        delayed: await redis.zrange(of('delayed'), '0', '-1'),
        prioritized: await redis.zrange(of('prioritized'), '0', '-1'),
        lane: await redis.hkeys(`ls:lane:${queue}`),
      };
      for (const [kind, ids] of Object.entries(found))
        if (ids.length > 0)
          left.push(`left_behind: ${queue} has ${ids.length} in ${kind}: ${ids.slice(0, 5).join(', ')}`);
    }
    if (left.length === 0 || performance.now() > untilMs) return left;
    if (!(await sleep(1_000, signal))) return left;
  }
}
