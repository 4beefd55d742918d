// The load of a soak: each actor does one thing over and over until it is told to stop, and judges every answer.
// Together the actors never exceed the requests that the caller lets through at a time. An error thrown by an actor is
// a finding: the ledger records it, and the actor goes on.
import { sleep } from '#shared/backoff.ts';
import type { BenchEngine } from '../engine.ts';
import { causes } from '../program.ts';
import { deploySoakApp } from './apps.ts';
import type { AppFields, SoakApp } from './apps.ts';
import { HungUp, objectOf, textOf } from './caller.ts';
import type { AskOptions, Caller, SoakAnswer } from './caller.ts';
import type { Intended, Ledger } from './ledger.ts';
import { finalStates, isFinal } from './tasks.ts';

export interface Stage {
  readonly caller: Caller;
  readonly ledger: Ledger;
  readonly engine: BenchEngine;
  readonly objectId: string;
}

/** A single turn; actors keep their state between turns. */
export type Turn = () => Promise<void>;

export interface Actor {
  readonly name: string;
  readonly turn: Turn;
  /** Pause between two turns. */
  readonly pauseMs: number;
  /** Check that runs when the load has ended and every task is settled. */
  readonly after?: Turn;
}

/** Pauses after a failure, so that a broken installation does not fill the report in a second. */
const AFTER_FAILURE_MS = 500;
const GONE_MS = 30_000;
const POLL_MS = 100;

const ok = (text: string | RegExp): Intended => ({ status: 200, text, states: ['COMPLETE'] });
/** @param text - JSON as its writer formats it: Python puts a space after the colon, our code none */
const failed = (text: string): Intended => ({ status: 500, text, states: ['ERROR'] });
/** A handler that has returned before its container was gone may still report it. */
const STOPPED: Intended = { status: 503, text: '{"error":"deployment stopped"}', states: ['CANCELLED', 'COMPLETE'] };
const INACTIVE: Intended = { status: 400, text: '{"message":"Deployment is not active"}', states: [] };
const NO_DEPLOYMENT: Intended = { status: 400, text: '{"message":"Invalid deployment"}', states: [] };
const NOT_A_NUMBER =
  'ValueError: the handler returned a value that is not JSON: Out of range float values are not JSON compliant';

/** Runs until the signal; the turn under way is finished. */
export async function perform(actor: Actor, ledger: Ledger, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      await actor.turn();
      await sleep(actor.pauseMs, signal);
    } catch (error) {
      ledger.fail(`${actor.name}: ${causes(error)}`);
      await sleep(AFTER_FAILURE_MS, signal);
    }
  }
}

/** Makes the actors, and deploys their apps. */
export async function actorsOf(stage: Stage): Promise<readonly Actor[]> {
  const deploy = (fields: AppFields): Promise<SoakApp> => deploySoakApp(stage.caller, stage.objectId, fields);
  const warm = await deploy({ name: 'soak-warm', handler: 'echo', workers: 2 });
  return [
    ...[1, 2, 3, 4].map((lane): Actor => ({ name: `warm ${lane}`, turn: warmCalls(stage, warm), pauseMs: 40 })),
    {
      name: 'cold',
      turn: coldStarts(stage, await deploy({ name: 'soak-cold', handler: 'echo', keepWarmSeconds: 0 })),
      pauseMs: 500,
    },
    { name: 'puts', turn: puts(stage, await deploy(queueOf('soak-queue'))), pauseMs: 100 },
    { name: 'cancels', turn: cancels(stage, await deploy(queueOf('soak-cancels', { handler: 'slow' }))), pauseMs: 500 },
    { name: 'stops', turn: stops(stage, await deploy({ name: 'soak-stops', handler: 'slow' })), pauseMs: 1000 },
    { name: 'redeploys', turn: redeploys(stage, deploy), pauseMs: 1000 },
    { name: 'queue deletes', turn: queueDeletes(stage, deploy), pauseMs: 2000 },
    { name: 'failures', turn: failures(stage, await deploy({ name: 'soak-fails', handler: 'fails' })), pauseMs: 300 },
    { name: 'bad starts', turn: badStarts(stage, deploy), pauseMs: 20_000 },
    hangUps(stage, await deploy({ name: 'soak-left', handler: 'slow' })),
    {
      name: 'bounded',
      turn: bounded(stage, await deploy({ name: 'soak-bounded', handler: 'slow', maxPendingTasks: 3 })),
      pauseMs: 500,
    },
  ];
}

const queueOf = (name: string, fields: Partial<AppFields> = {}): AppFields => ({
  name,
  handler: 'echo',
  kind: 'taskqueue',
  keepWarmSeconds: 3,
  ...fields,
});

let counted = 0;
/** Each call has a number of its own, so that no answer can belong to another call. */
const next = (): number => ++counted;

async function call(
  stage: Stage,
  what: string,
  url: string,
  body: Record<string, unknown>,
  meant: readonly Intended[],
) {
  return stage.ledger.judge(what, await stage.caller.ask(url, { body }), meant);
}

function warmCalls(stage: Stage, app: SoakApp): Turn {
  return async () => {
    const n = next();
    await call(stage, 'warm call', app.url, { n }, [ok(JSON.stringify({ n }))]);
  };
}

function coldStarts(stage: Stage, app: SoakApp): Turn {
  return async () => {
    const n = next();
    await call(stage, 'cold start', app.url, { n }, [ok(JSON.stringify({ n }))]);
    await gone(stage, app);
  };
}

/** Puts some tasks and reads each of them back until it has ended, with its result. */
function puts(stage: Stage, app: SoakApp): Turn {
  return async () => {
    const sent = await Promise.all(
      [next(), next(), next(), next()].map((n) => put(stage, 'put', app, { n }, ['COMPLETE'])),
    );
    for (const { n, taskId } of sent) {
      const task = await ended(stage, taskId);
      const result = JSON.stringify(task['result']);
      if (result !== JSON.stringify({ n }))
        stage.ledger.fail(`put: task ${taskId} with n ${n} has the result ${result}`);
    }
  };
}

/** Puts three slow tasks and cancels the last. */
function cancels(stage: Stage, app: SoakApp): Turn {
  return async () => {
    const states = ['COMPLETE', 'CANCELLED'];
    const sent = await Promise.all(
      [next(), next(), next()].map((n) => put(stage, 'put to cancel', app, { n }, states)),
    );
    await stage.caller.gateway('/tasks/stop', { body: { taskIds: [sent[2]?.taskId ?? ''] } });
    for (const { taskId } of sent) await ended(stage, taskId);
    stage.ledger.count('cancel');
  };
}

/**
 * Stops a deployment under its callers: they are answered at
 * once; the very next call is refused; started again, it serves.
 */
function stops(stage: Stage, app: SoakApp): Turn {
  return async () => {
    const meanwhile = [next(), next(), next()].map((n) => {
      const meant = [ok(JSON.stringify({ n })), STOPPED, INACTIVE];
      return call(stage, 'call of a deployment that is stopped', app.url, { n }, meant);
    });
    await sleep(Math.random() * 600);
    await change(stage, 'stop', `/deployments/${app.deploymentId}/stop`);
    await call(stage, 'call after the stop', app.url, { n: next() }, [INACTIVE]);
    await Promise.all(meanwhile);
    await change(stage, 'start', `/deployments/${app.deploymentId}/start`);
    const n = next();
    await call(stage, 'call after the start', app.url, { n }, [ok(JSON.stringify({ n }))]);
  };
}

/** A new version, seen by the very next `latest`; the one before serves by its own name until it is deleted. */
function redeploys(stage: Stage, deploy: (fields: AppFields) => Promise<SoakApp>): Turn {
  let release = 0;
  let before: SoakApp | undefined;
  const answer = (n: number, of: number): Intended => ok(JSON.stringify({ n, release: String(of) }));
  return async () => {
    release += 1;
    const app = await deploy({
      name: 'soak-release',
      handler: 'release',
      keepWarmSeconds: 2,
      env: [`SOAK_RELEASE=${release}`],
    });
    stage.ledger.count('redeploy');
    const n = next();
    await call(stage, 'call of latest', app.url.replace(/\/v\d+$/, '/latest'), { n }, [answer(n, release)]);
    const old = before;
    before = app;
    if (old === undefined) return;
    const again = next();
    await call(stage, 'call of the version before', old.url, { n: again }, [answer(again, release - 1)]);
    await change(stage, 'delete', `/deployments/${old.deploymentId}`, 'DELETE');
    await call(stage, 'call of a deleted version', old.url, { n: next() }, [NO_DEPLOYMENT]);
    await gone(stage, old);
  };
}

/** A queue that is deleted while tasks wait in it and one runs. */
function queueDeletes(stage: Stage, deploy: (fields: AppFields) => Promise<SoakApp>): Turn {
  return async () => {
    const app = await deploy(queueOf('soak-short-lived', { handler: 'slow' }));
    const states = ['COMPLETE', 'CANCELLED'];
    const sent = await Promise.all(
      [next(), next(), next()].map((n) => put(stage, 'put to delete', app, { n }, states)),
    );
    await sleep(Math.random() * 1000);
    await change(stage, 'delete', `/deployments/${app.deploymentId}`, 'DELETE');
    for (const { taskId } of sent) await ended(stage, taskId);
    await gone(stage, app);
  };
}

function failures(stage: Stage, app: SoakApp): Turn {
  const ways: readonly (readonly [string, Intended])[] = [
    ['raises', failed(`{"error": "KeyError: 'x'"}`)],
    ['raises', failed(`{"error": "KeyError: 'x'"}`)],
    ['nan', failed(`{"error": "${NOT_A_NUMBER}"}`)],
    ['exits', failed('{"error":"process exited (code 3)"}')],
  ];
  let turn = 0;
  return async () => {
    const way = ways[turn++ % ways.length];
    if (way !== undefined) await call(stage, `handler that fails (${way[0]})`, app.url, { how: way[0] }, [way[1]]);
  };
}

/** A deployment whose `on_start` raises: its caller is told so, and nothing of it stays. */
function badStarts(stage: Stage, deploy: (fields: AppFields) => Promise<SoakApp>): Turn {
  return async () => {
    const app = await deploy({ name: 'soak-bad-start', handler: 'echo', onStart: 'app:bad_start' });
    const meant: Intended = { status: 500, text: /the model is not there/, states: ['ERROR'] };
    await call(stage, 'call with a failing on_start', app.url, {}, [meant]);
    await change(stage, 'delete', `/deployments/${app.deploymentId}`, 'DELETE');
    await gone(stage, app);
  };
}

/**
 * Callers that leave before they are answered. They never learn their task's id, so the end of the run looks at all
 * tasks of the stub. Waiting tasks were cancelled, others ran on.
 */
function hangUps(stage: Stage, app: SoakApp): Actor {
  let calls = 0;
  const turn = async (): Promise<void> => {
    const n = next();
    calls += 1;
    const meant = [ok(JSON.stringify({ n }))];
    try {
      const options: AskOptions = { body: { n, seconds: 0.3 }, hangUpMs: 10 + Math.random() * 400 };
      stage.ledger.judge('call that may hang up', await stage.caller.ask(app.url, options), meant);
    } catch (error) {
      if (!(error instanceof HungUp)) throw error;
      stage.ledger.count('hang-up');
    }
  };
  const after = async (): Promise<void> => {
    const { CANCELLED: cancelled = 0, COMPLETE: complete = 0, ...others } = await finalStates(stage.caller, app.stubId);
    if (Object.keys(others).length > 0) stage.ledger.fail(`hang-ups: tasks are ${JSON.stringify(others)}`);
    const tasks = cancelled + complete;
    if (tasks > calls) stage.ledger.fail(`hang-ups: ${calls} calls made ${tasks} tasks`);
  };
  return { name: 'hang-ups', turn, after, pauseMs: 200 };
}

/** More callers than may be pending. */
function bounded(stage: Stage, app: SoakApp): Turn {
  const full: Intended = { status: 429, text: '{"error":"exceeded max pending tasks: 3"}', states: [] };
  return async () => {
    await Promise.all(
      [next(), next(), next(), next(), next()].map((n) =>
        call(stage, 'call above the bound', app.url, { n, seconds: 0.1 }, [ok(JSON.stringify({ n })), full]),
      ),
    );
  };
}

async function put(
  stage: Stage,
  what: string,
  app: SoakApp,
  body: { readonly n: number },
  states: readonly string[],
): Promise<{ readonly n: number; readonly taskId: string }> {
  const answer = await stage.caller.ask(app.url, { body });
  const taskId = textOf(objectOf(answer.text), 'task_id');
  const meant: Intended = { status: 200, text: JSON.stringify({ task_id: answer.taskId }), states };
  if (stage.ledger.judge(what, answer, [meant]) === undefined) throw new Error(`${answer.asked} was not accepted`);
  return { n: body.n, taskId };
}

/** Reads a task until it has ended. */
async function ended(stage: Stage, taskId: string): Promise<Readonly<Record<string, unknown>>> {
  const deadlineMs = performance.now() + GONE_MS;
  for (;;) {
    const askedMs = performance.now();
    const answer: SoakAnswer = await stage.caller.ask(`/api/v1/task/${stage.caller.workspaceId}/${taskId}`);
    const task = objectOf(answer.text);
    if (answer.status !== 200 || task === undefined)
      throw new Error(`${answer.asked} was answered ${answer.status} ${answer.text}`);
    const status = String(task['status']);
    stage.ledger.saw(taskId, status, askedMs);
    if (isFinal(status)) return task;
    if (performance.now() > deadlineMs) throw new Error(`task ${taskId} is ${status} after ${GONE_MS / 1000} s`);
    await sleep(POLL_MS);
  }
}

async function change(stage: Stage, what: string, path: string, method: 'POST' | 'DELETE' = 'POST'): Promise<void> {
  await stage.caller.gateway(path, { method });
  stage.ledger.count(what);
}

async function gone(stage: Stage, app: SoakApp): Promise<void> {
  const deadlineMs = performance.now() + GONE_MS;
  while ((await stage.engine.countOfDeployment(app.deploymentId)) > 0) {
    if (performance.now() > deadlineMs)
      throw new Error(`${app.name} (${app.deploymentId}) still has a container after ${GONE_MS / 1000} s`);
    await sleep(POLL_MS);
  }
}
