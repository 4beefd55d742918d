// Rounds of two schedulers on servers: calls and puts at both, a disturbance, again and again. Then the same audit
// follows as after the kill rounds, and nothing may be left in a queue.
import { cpSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { sleep } from '#shared/backoff.ts';
import { causes } from '../program.ts';
import type { Caller } from '../soak/caller.ts';
import { objectOf, textOf } from '../soak/caller.ts';
import type { Intended } from '../soak/ledger.ts';
import { Ledger } from '../soak/ledger.ts';
import { settle } from '../soak/settle.ts';
import type { Workplace } from '../workplace.ts';
import { notServed, overlaps, tallyOf, tallyText } from './absence.ts';
import type { Asked, Window } from './absence.ts';
import type { Sent } from './audit.ts';
import { audit, repeatedRuns, resultOf } from './audit.ts';
import type { ChaosOptions, PairKind } from './options.ts';
import { DISTURB, LAYOUTS } from './pair-kinds.ts';
import type { Layout } from './pair-kinds.ts';
import { startPair } from './pair.ts';
import type { Pair, Replica } from './pair.ts';
import { readBack } from './read-back.ts';
import type { ChaosOutcome, ChaosReport } from './rounds.ts';

const LOAD_MS = { least: 1_500, most: 5_000 };
const CALL_PAUSE_MS = 20;
const PUT_PAUSE_MS = 200;
const DOWN_PAUSE_MS = 250;
const LOSSES = 5;
/** Containers of the calls that stay, so that a call never waits for a start. */
const CALL_CONTAINERS = 4;
/**
 * Bound for Redis to be empty once every task has ended: entries
 * are looked through every few seconds, a while after a loss.
 */
const EMPTY_WITHIN_MS = 90_000;
const SERVED_MS = 60_000;
const POLL_MS = 100;

interface App {
  readonly stubId: string;
  readonly deploymentId: string;
  readonly path: string;
}

interface Stage {
  readonly layout: Layout;
  readonly ledger: Ledger;
  readonly sent: Sent[];
  readonly asked: Asked[];
  readonly windows: Window[];
}

/** @throws Error when the installation cannot be started, or does not come back */
export async function pairRounds(
  options: ChaosOptions<PairKind>,
  place: Workplace,
  report: ChaosReport,
): Promise<ChaosOutcome> {
  const layout = LAYOUTS[options.kind];
  const pair = await startPair(place, layout.machines, options.absenceMs);
  const { caller } = pair.replicas[0];
  if (options.keepLogsIn !== undefined) {
    const to = options.keepLogsIn;
    place.later(async () => {
      mkdirSync(to, { recursive: true });
      for (const name of readdirSync(place.directory))
        if (name.endsWith('.log')) cpSync(join(place.directory, name), join(to, name));
    });
  }
  const calls = await deploy(caller, 'chaos-calls', 'endpoint/deployment', CALL_CONTAINERS);
  const puts = await deploy(caller, 'chaos-puts', 'taskqueue/deployment', 0);
  const stage: Stage = { layout, ledger: new Ledger(), sent: [], asked: [], windows: [] };
  for (const what of ['call', 'far call']) stage.ledger.mayComeLate.add(what);
  const ends = new AbortController();
  const working = work(stage, pair, calls, puts, AbortSignal.any([ends.signal, place.signal]));
  try {
    await untilServed(stage, place.signal);
    for (let round = 1; round <= options.rounds; round += 1) {
      await sleep(LOAD_MS.least + Math.random() * (LOAD_MS.most - LOAD_MS.least), place.signal);
      place.signal.throwIfAborted();
      const { what, replica, work: disturb } = DISTURB[options.kind](pair, options, round, place.signal);
      const fromMs = performance.now();
      const at = stage.windows.push({ fromMs, untilMs: Number.POSITIVE_INFINITY, replica }) - 1;
      await disturb();
      const untilMs = performance.now();
      const window = (stage.windows[at] = { fromMs, untilMs, replica });
      place.signal.throwIfAborted();
      const tookMs = Math.round(untilMs - fromMs);
      const { sent, ledger } = stage;
      const during = tallyText(tallyOf(stage.asked, [window]));
      report.say(
        `round ${round}: ${what}, over after ${tookMs} ms (${during}); ${sent.length} requests sent; ${ledger.failed} findings`,
      );
      report.json('disturbance', { round, what, tookMs, during, sent: sent.length, found: ledger.failed });
    }
    // Callers also meet the effects of the last disturbance.
    await sleep(LOAD_MS.most, place.signal);
  } finally {
    ends.abort();
  }
  await working;
  const loadEndedAt = performance.now();
  await settle(caller, stage.ledger, options.settleMs, place.signal);
  const settledMs = performance.now() - loadEndedAt;
  const left = await leftIn(pair.redis.connect(), [calls, puts], place.signal);
  const { ledger, sent } = stage;
  const { runs } = pair;
  const books = { sent, runs, lossesAllowed: LOSSES, ...(await readBack(stage, caller, [calls, puts])) };
  const during = tallyOf(stage.asked, stage.windows);
  return {
    findings: [
      ...ledger.failures,
      ...audit(books).map(({ fault, text }) => `${fault}: ${text}`),
      ...left,
      ...(options.mustServe ? notServed(during, layout.mustServe) : []),
    ],
    accepted: ledger.settled.size + ledger.open.size,
    unanswered: sent.filter(({ taskId }) => taskId === '').length,
    runs: runs.length,
    repeated: repeatedRuns(books),
    settledMs,
    counts: Object.fromEntries([...ledger.counts].toSorted(([a], [b]) => a.localeCompare(b))),
    during,
    machine: undefined,
  };
}

/** Deploys without code: simulated containers have their handler already. */
async function deploy(caller: Caller, name: string, stubType: string, minContainers: number): Promise<App> {
  const autoscaler = { type: 'queue_depth', minContainers, maxContainers: 4, tasksPerContainer: 1 };
  const limits = { cpu: 100, memory: 64, timeout: 60, keepWarmSeconds: 600, maxPendingTasks: 10_000, autoscaler };
  const recipe = { objectId: '', stubType, name, handler: 'app:handler', ...limits };
  const stubId = textOf(await caller.gateway('/stubs', { body: recipe }), 'stubId');
  const deployed = await caller.gateway('/stubs/deploy', { body: { stubId, name } });
  return { stubId, deploymentId: textOf(deployed, 'deploymentId'), path: `/${stubType.split('/')[0]}/${name}` };
}

/** Mostly short; some run through a short disturbance. */
const secondsOf = (): number => (Math.random() < 0.15 ? 0.5 + Math.random() * 2 : Math.random() * 0.15);

async function work(stage: Stage, { replicas }: Pair, calls: App, puts: App, signal: AbortSignal): Promise<void> {
  const { layout } = stage;
  const lanes = [
    ...layout.calls.map((at) => repeat(() => request(stage, replicas, at, calls, 'call'), CALL_PAUSE_MS, signal)),
    ...layout.puts.map((at) => repeat(() => request(stage, replicas, at, puts, 'put'), PUT_PAUSE_MS, signal)),
  ];
  await Promise.all(lanes);
}

async function repeat(turn: () => Promise<boolean>, pauseMs: number, until: AbortSignal): Promise<void> {
  while (!until.aborted) await sleep((await turn()) ? pauseMs : DOWN_PAUSE_MS, until);
}

/** @returns false: the request was not accepted */
async function request(
  stage: Stage,
  replicas: readonly Replica[],
  at: number,
  app: App,
  kind: 'call' | 'put',
): Promise<boolean> {
  const { layout, ledger, sent, asked } = stage;
  const sync = kind === 'call';
  // No machine dials this scheduler, so its calls cross to the other one.
  const isFar = sync && !layout.machines.some((dialled) => dialled.includes(at));
  const what = isFar ? 'far call' : kind;
  const n = sent.length + 1;
  const one = { n, sync, attempts: 1, fails: 0 };
  const place = sent.push({ ...one, taskId: '' }) - 1;
  const askedMs = performance.now();
  const noted = asked.push({ what, askedMs, answeredMs: Number.POSITIVE_INFINITY, outcome: 'unanswered' }) - 1;
  const note = (outcome: string): void => {
    asked[noted] = { what, askedMs, answeredMs: performance.now(), outcome };
  };
  try {
    const answer = await (replicas[at] as Replica).caller.ask(app.path, { body: { n, seconds: secondsOf() } });
    note(`${answer.status} ${textOf(objectOf(answer.text), 'code')}`.trim());
    const text = sync ? resultOf(n) : JSON.stringify({ task_id: answer.taskId });
    const judged = ledger.judge(what, answer, [
      { status: 200, text, states: ['COMPLETE'] },
      ...refusals(stage, at, askedMs),
    ]);
    if (judged?.status !== 200) return false;
    sent[place] = { ...one, taskId: sync ? answer.taskId : textOf(objectOf(answer.text), 'task_id') };
    return true;
  } catch (error) {
    note('unanswered');
    const why = causes(error);
    if (mayBeSilent(stage, at, askedMs) && !why.includes('no answer within')) ledger.count(`${what}: not answered`);
    else ledger.fail(`${what}: ${why}`);
    return false;
  }
}

/** Refusals that a disturbance excuses: callers may learn that their task has ended without them. */
function refusals({ layout, windows }: Stage, at: number, askedMs: number): readonly Intended[] {
  const isExcused = windows.some(
    (window) =>
      overlaps(window, askedMs, performance.now(), layout.graceMs) &&
      (!layout.onlyOwn || window.replica === undefined || window.replica === at),
  );
  if (!isExcused) return [];
  const text = /^\{"error":"[^"]+"(?:,"code":"[a-z_]+")?\}$/;
  return layout.refusals.map((status) => ({ status, text, states: ['CANCELLED', 'ERROR', 'COMPLETE', 'TIMEOUT'] }));
}

/** A scheduler that lives answers every caller. One that ends by its signal answers whoever asked before it. */
function mayBeSilent({ layout, windows }: Stage, at: number, askedMs: number): boolean {
  if (layout.ends === 'never') return false;
  return windows.some(
    (window) =>
      window.replica === at &&
      overlaps(window, askedMs, performance.now()) &&
      (layout.ends === 'killed' || askedMs >= window.fromMs),
  );
}

async function untilServed({ ledger }: Stage, signal: AbortSignal): Promise<void> {
  const deadlineMs = performance.now() + SERVED_MS;
  while (![...ledger.counts.keys()].some((what) => what.endsWith('call: 200'))) {
    signal.throwIfAborted();
    if (performance.now() > deadlineMs) throw new Error(`no call was served: ${ledger.failures.join('; ')}`);
    await sleep(POLL_MS);
  }
}

/** Checks after all tasks have ended that no queue has a job. @returns the leftovers */
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
      };
      for (const [kind, ids] of Object.entries(found))
        if (ids.length > 0)
          left.push(`left_behind: ${queue} has ${ids.length} in ${kind}: ${ids.slice(0, 5).join(', ')}`);
    }
    if (left.length === 0 || performance.now() > untilMs) return left;
    if (!(await sleep(1_000, signal))) return left;
  }
}
