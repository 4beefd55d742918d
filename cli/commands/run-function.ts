// `longshore run` of a function: a task of its file as it is, with live output, until it ended and its container left.
// Invariant: Ctrl-C stops the task. Output of the function goes to stderr, its result to stdout.
import { sleep } from '#shared/backoff.ts';
import { TASK_STATUSES, isTerminalTask } from '#shared/domain/status.ts';
import { plainOf, stringifyExactly } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import type { Client } from '../client.ts';
import { prepareDefinition } from '../deploy/deploy.ts';
import type { HandlerDefinition } from '../deploy/describe.ts';
import { CliError } from '../errors.ts';
import { follow } from '../follow.ts';
import { listField, taskOf, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note, print, printError, printJson, withoutControls } from '../print.ts';
import { failureText } from './invoke.ts';
import { interrupted } from './interrupt.ts';
import { explainedTask, sayReasons } from './waiting.ts';

/** Longest wait for the container to leave, and for the last lines of its output with it. */
const LEAVE_MS = 20_000;
const LOOK_MS = 300;

export async function runFunction(
  client: Client,
  { handler, root, inputs }: { readonly handler: HandlerDefinition; readonly root: string; readonly inputs: string },
  isJson: boolean,
): Promise<number> {
  // No retries, and no container that is kept for another call.
  const once = { ...handler, stubType: 'function', keepWarmSeconds: 0, retries: 0, autoscaler: null };
  const { stubId } = await prepareDefinition(client, once, root, note);
  const taskId = await put(client, stubId, handler.name, inputs);
  note(`task ${taskId}`);
  const workspaceId = await client.workspaceId();
  const { signal, release } = interrupted();
  const logs = new AbortController();
  const showing = follow(client, `/logs/${workspaceId}/stream?task_id=${taskId}&seq_num=1`, {
    onRecord: ({ event, data }) => {
      if (event === 'log') note(withoutControls(textField(JSON.parse(data) as JsonObject, 'message')));
    },
    signal: logs.signal,
    onNote: () => {},
  }).catch(() => undefined);
  const over = new AbortController();
  try {
    const reason = (): Promise<string> => explainedTask(client, taskId, stubId);
    const task = await ended(client, `/task/${workspaceId}/${taskId}/subscribe`, { reason, signal, over });
    if (task === undefined) {
      await client.gateway('POST', '/tasks/stop', { taskIds: [taskId] }).catch(() => undefined);
      note('stopped');
      return 130;
    }
    await leave(client, textField(task, 'container_id'));
    return show(task, handler.name, isJson);
  } finally {
    over.abort();
    logs.abort();
    release();
    await showing;
  }
}

async function put(client: Client, stubId: string, name: string, body: string): Promise<string> {
  const answer = await client.call(`/function/id/${stubId}`, { method: 'POST', body });
  if (answer.status !== 200) throw new CliError(`${name} was refused with ${answer.status}: ${failureText(answer)}`);
  return textField(JSON.parse(answer.body.toString('utf8')) as JsonObject, 'task_id');
}

/** The task once it ended; undefined: the signal came first. */
async function ended(
  client: Client,
  path: string,
  {
    reason,
    signal,
    over,
  }: { readonly reason: () => Promise<string>; readonly signal: AbortSignal; readonly over: AbortController },
): Promise<JsonObject | undefined> {
  let last: JsonObject | undefined;
  let isStarted = false;
  const stop = (): void => over.abort();
  signal.addEventListener('abort', stop, { once: true });
  void sayReasons(() => (isStarted ? Promise.resolve('') : reason()), note, over.signal);
  await follow(client, path, {
    onRecord: ({ event, data }) => {
      if (event !== 'status') return false;
      last = taskOf(data);
      isStarted = textField(last, 'status') === 'RUNNING';
      return isOver(last);
    },
    signal,
  });
  return last !== undefined && isOver(last) ? last : undefined;
}

const OVER: ReadonlySet<string> = new Set(TASK_STATUSES.filter(isTerminalTask));
const isOver = (task: JsonObject): boolean => OVER.has(textField(task, 'status'));

/** Stops the task's container unless it serves another task, and waits until it left. */
async function leave(client: Client, containerId: string): Promise<void> {
  if (containerId === '') return;
  const filters = JSON.stringify({ 'container-id': [containerId], status: ['RUNNING'] });
  const query = new URLSearchParams({ limit: '1', filters });
  const busy = listField(await client.gateway('GET', `/tasks?${query.toString()}`), 'tasks').length > 0;
  if (busy) return;
  const isThere = async (): Promise<boolean> =>
    listField(await client.gateway('GET', '/containers'), 'containers').some(
      (container) => textField(container, 'containerId') === containerId,
    );
  await client.gateway('POST', `/containers/${encodeURIComponent(containerId)}/stop`).catch(() => undefined);
  const untilMs = performance.now() + LEAVE_MS;
  while ((await isThere()) && performance.now() < untilMs) await sleep(LOOK_MS);
  await sleep(LOOK_MS);
}

function show(task: JsonObject, name: string, isJson: boolean): number {
  const status = textField(task, 'status');
  const reason = textField(task, 'failure_reason');
  const { result } = task;
  const value = plainOf(result);
  const isComplete = status === 'COMPLETE';
  if (isJson) {
    const [taskId, containerId] = [textField(task, 'id'), textField(task, 'container_id')];
    printJson({ taskId, containerId, status, failureReason: reason, result: result ?? null });
    return isComplete ? 0 : 1;
  }
  if (!isComplete) {
    const text = isRecord(value) ? textField(value, 'error') : '';
    printError(`${name} ended as ${status}${reason === '' ? '' : ` (${reason})`}${text === '' ? '' : `: ${text}`}`);
    return 1;
  }
  if (isRecord(value) && typeof value['base64'] === 'string')
    note('the result is no JSON: it is shown as it is kept; `.remote()` in Python reads it');
  print(stringifyExactly(result ?? null));
  return 0;
}
