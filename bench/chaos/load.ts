// The load under the kill rounds: loops that call and put without end, and record the
// answer to each request. A request that dies with the scheduler has no answer, which is
// no fault. A wrong answer is a fault, and so is a missing one while all daemons are up.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { sleep } from '#shared/backoff.ts';
import type { Client } from '#cli/client.ts';
import { deploySoakApp, uploadApp } from '../soak/apps.ts';
import type { SoakApp } from '../soak/apps.ts';
import { causes } from '../program.ts';
import type { Caller, SoakAnswer } from '../soak/caller.ts';
import { objectOf, textOf } from '../soak/caller.ts';
import type { Intended, Ledger } from '../soak/ledger.ts';
import { deployChurn } from './churn.ts';
import type { Churn, IsAway } from './churn.ts';
import { resultOf } from './audit.ts';
import type { Sent } from './audit.ts';
import type { RealKind } from './options.ts';

/** Reason why daemons end; `upgrade`: each ends at a signal, and another release takes its place. */
export type Disturbance = RealKind | 'upgrade';

export interface ChaosStage {
  readonly caller: Caller;
  readonly ledger: Ledger;
  readonly kind: Disturbance;
  readonly sent: Sent[];
  /** Whether containers of the load end for another workspace. */
  readonly preempts?: boolean;
  /** For `upgrade`: a request may be refused, or stay without an answer, only while the scheduler is away. */
  readonly isAway: IsAway;
}

/** For disturbances during which the scheduler never ends on purpose. */
export const neverAway: IsAway = () => false;

export interface ChaosApps {
  readonly calls: SoakApp;
  readonly puts: SoakApp;
  /** Deployments whose containers come and go. */
  readonly coldPuts: readonly SoakApp[];
  /** A deployment whose handler fails at first; two retries. */
  readonly retried: SoakApp;
  readonly volumeId: string;
  /** Deployments without calls that start and stop while an agent is killed. */
  readonly churn: Churn | undefined;
}

/** The deployments that the load calls. */
export const calledApps = ({ calls, puts, coldPuts, retried }: ChaosApps): readonly SoakApp[] => [
  calls,
  puts,
  ...coldPuts,
  retried,
];

/** Directory of the handlers. */
export const CHAOS_APP = join(fileURLToPath(new URL('.', import.meta.url)), 'app');
const RETRIES = 2;
const CALL_LANES = 5;
const PUT_LANES = 3;
/** Pause between two requests of a loop, so that puts come no faster than they are worked off. */
const CALL_PAUSE_MS = 40;
const PUT_PAUSE_MS = 250;
/**
 * Puts go to so many deployments without keep-warm, and so far apart,
 * that each finds its container gone. The first of them ask for a GPU.
 */
const COLD_APPS = 6;
const COLD_GPU_APPS = 4;
const AGENT_PUT_PAUSE_MS = 1_200;
/** Millicores, so few that all containers have room beside those that are kept on every machine. */
const UPGRADE_CPU = 100;
/** Part of the puts that run for seconds, so that interruptions find tasks, and for how long they run. */
const LONG = { share: 0.45, least: 2, most: 5 };
/** Calls are sparse, so that the machine's time goes to starts and stops. */
const AGENT_CALL_PAUSE_MS = 150;
/** Pause after a call without an answer. */
const DOWN_PAUSE_MS = 250;

export async function deployChaosApps(
  client: Client,
  caller: Caller,
  ledger: Ledger,
  kind: Disturbance,
  isAway: IsAway = neverAway,
  claims?: Churn,
): Promise<ChaosApps> {
  const objectId = await uploadApp(client, CHAOS_APP);
  const made = await caller.gateway('/volumes', { body: { name: 'chaos' } });
  const volumeId = textOf(made['volume'] as Readonly<Record<string, unknown>>, 'id');
  const common = {
    handler: 'compute',
    volumes: [{ id: volumeId, mountPath: 'chaos' }],
    keepWarmSeconds: 600,
    maxPendingTasks: 10_000,
    timeout: 60,
    workers: 2,
    ...(kind === 'upgrade' ? { cpu: UPGRADE_CPU } : {}),
  };
  const autoscaler = { type: 'queue_depth', maxContainers: 2, tasksPerContainer: 2 };
  // A container has one task at a time and ends with the last one. So those that hold GPUs are busy: a claim interrupts
  // them, because nobody is only kept warm.
  const interruptible = {
    gpu: 'H100',
    gpuCount: 1,
    cpu: 100,
    workers: 1,
    keepWarmSeconds: 0,
    autoscaler: { ...autoscaler, tasksPerContainer: 1 },
    extra: JSON.stringify({ interruptible: true }),
  };
  const queue = {
    ...common,
    kind: 'taskqueue',
    autoscaler,
    ...(claims === undefined ? {} : interruptible),
  } as const;
  return {
    calls: await deploySoakApp(caller, objectId, { ...common, name: 'chaos-calls' }),
    puts: await deploySoakApp(caller, objectId, { ...queue, name: 'chaos-puts' }),
    coldPuts: await Promise.all(
      Array.from({ length: hasGpus(kind) ? COLD_APPS : 1 }, (_, at) =>
        deploySoakApp(caller, objectId, {
          ...queue,
          name: `chaos-cold-${at + 1}`,
          workers: 1,
          keepWarmSeconds: 0,
          ...(hasGpus(kind) && at < COLD_GPU_APPS ? { gpu: 'H100', gpuCount: 1 } : {}),
        }),
      ),
    ),
    retried: await deploySoakApp(caller, objectId, { ...queue, name: 'chaos-retried', retries: RETRIES }),
    volumeId,
    churn:
      claims !== undefined ? claims : hasGpus(kind) ? await deployChurn(caller, ledger, objectId, isAway) : undefined,
  };
}

/** Containers come and go, with and without GPUs, while agents end. */
const hasGpus = (kind: Disturbance): boolean => kind === 'kill agent' || kind === 'upgrade';

/** Runs the load until the signal; requests under way are finished. */
export async function work(stage: ChaosStage, apps: ChaosApps, signal: AbortSignal): Promise<void> {
  const lanes: Promise<void>[] = [];
  const isAgent = hasGpus(stage.kind) || stage.preempts === true;
  const putPauseMs = isAgent ? AGENT_PUT_PAUSE_MS : PUT_PAUSE_MS;
  const callPauseMs = isAgent ? AGENT_CALL_PAUSE_MS : CALL_PAUSE_MS;
  for (let lane = 0; lane < CALL_LANES; lane += 1)
    lanes.push(repeat(() => call(stage, apps.calls), callPauseMs, signal));
  for (let lane = 0; lane < PUT_LANES; lane += 1) lanes.push(repeat(() => put(stage, apps), putPauseMs, signal));
  if (apps.churn !== undefined) lanes.push(apps.churn.run(signal));
  await Promise.all(lanes);
}

async function repeat(turn: () => Promise<boolean>, pauseMs: number, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) await sleep((await turn()) ? pauseMs : DOWN_PAUSE_MS, signal);
}

/** Duration of a handler: mostly short, sometimes longer than the start of a scheduler. */
const secondsOf = (): number => (Math.random() < 0.15 ? 0.5 + Math.random() * 2 : Math.random() * 0.15);

/** Calls an app of its own, as the load calls its apps, until the signal. */
export async function callOn(stage: ChaosStage, app: SoakApp, lanes: number, signal: AbortSignal): Promise<void> {
  await Promise.all(Array.from({ length: lanes }, () => repeat(() => call(stage, app), AGENT_CALL_PAUSE_MS, signal)));
}

/** @returns false: no answer came */
async function call(stage: ChaosStage, app: SoakApp): Promise<boolean> {
  const n = stage.sent.length + 1;
  const at = stage.sent.push({ n, sync: true, taskId: '', attempts: 1, fails: 0 }) - 1;
  const askedMs = performance.now();
  const answer = await ask(stage, app, { n, seconds: secondsOf() });
  if (answer === undefined) return false;
  const meant: Intended[] = [{ status: 200, text: resultOf(n), states: ['COMPLETE'] }, ...unavailable(stage, askedMs)];
  const judged = stage.ledger.judge('call', answer, meant);
  // A refusal that names its task is held to that task's state by the ledger alone.
  if (judged?.status === 200) stage.sent[at] = { n, sync: true, taskId: answer.taskId, attempts: 1, fails: 0 };
  return answer.status === 200;
}

async function put(stage: ChaosStage, apps: ChaosApps): Promise<boolean> {
  const n = stage.sent.length + 1;
  const choice = Math.random();
  // The agent should die while containers start and stop.
  const cold = hasGpus(stage.kind) ? 0.7 : 0.1;
  const app = choice < cold ? oneOf(apps.coldPuts) : choice < cold + 0.5 ? apps.puts : apps.retried;
  const isRetried = app === apps.retried;
  const attempts = isRetried ? RETRIES + 1 : 1;
  // Most tasks fail once or twice and succeed; some never do. Where containers are interrupted all succeed, so that a
  // task whose interruption used a retry shows.
  const fails = isRetried ? Math.floor(Math.random() * (RETRIES + (stage.preempts === true ? 1 : 2))) : 0;
  const at = stage.sent.push({ n, sync: false, taskId: '', attempts, fails }) - 1;
  const askedMs = performance.now();
  const isLong = stage.preempts === true && Math.random() < LONG.share;
  const seconds = isLong ? LONG.least + Math.random() * (LONG.most - LONG.least) : secondsOf();
  const answer = await ask(stage, app, { n, seconds, fails });
  if (answer === undefined) return false;
  const states = fails < attempts ? ['COMPLETE'] : ['ERROR'];
  const accepted: Intended = { status: 200, text: JSON.stringify({ task_id: answer.taskId }), states };
  stage.ledger.judge('put', answer, [accepted, ...unavailable(stage, askedMs)]);
  const taskId = textOf(objectOf(answer.text), 'task_id');
  if (answer.status === 200) stage.sent[at] = { n, sync: false, taskId, attempts, fails };
  return answer.status === 200;
}

/** While a store or an agent is gone, callers are refused, or learn that their task has ended without them. */
const unavailable = ({ kind, isAway }: ChaosStage, askedMs: number): readonly Intended[] => {
  const text = /^\{"error":"[^"]+"(?:,"code":"[a-z_]+")?\}$/;
  // The task was with an agent that died before a runner had it: a synchronous task never runs twice.
  if (kind === 'kill agent') return [{ status: 502, text, states: ['ERROR'] }];
  if (kind === 'kill redis' || kind === 'kill postgres')
    return [{ status: 503, text, states: ['CANCELLED', 'ERROR', 'COMPLETE'] }];
  return kind === 'upgrade' && isAway(askedMs) ? [{ status: 503, text, states: [] }] : [];
};

async function ask(stage: ChaosStage, app: SoakApp, body: object): Promise<SoakAnswer | undefined> {
  const askedMs = performance.now();
  try {
    return await stage.caller.ask(app.url, { body });
  } catch (error) {
    const why = causes(error);
    // The scheduler lives on when a store or an agent dies, and a living scheduler answers every caller.
    const isMeant = stage.kind === 'kill scheduler' || (stage.kind === 'upgrade' && stage.isAway(askedMs));
    if (!isMeant || why.includes('no answer within')) stage.ledger.fail(`${app.name}: ${why}`);
    else stage.ledger.count(`${app.name}: not answered`);
    return undefined;
  }
}

const oneOf = (apps: readonly SoakApp[]): SoakApp => apps[Math.floor(Math.random() * apps.length)] as SoakApp;
