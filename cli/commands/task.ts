// `longshore task`: tasks as the scheduler knows them now.
import { isTerminalTask } from '#shared/domain/status.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { stringifyExactly } from '#shared/json-text.ts';
import type { Client } from '../client.ts';
import { painted, styleOfState } from '../colours.ts';
import { CliError, usageError } from '../errors.ts';
import type { TaskGetFlags, TaskListFlags } from '../flags.ts';
import { ageOf, counted, durationOf } from '../format.ts';
import { listField, numberField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { print, printBytes, printJson, withoutControls } from '../print.ts';
import { sinceMsOf } from '../since.ts';
import { attemptLines } from './attempts.ts';
import { deploymentsNamed } from './deployment-reference.ts';
import { wholeId } from './logs.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { taskIdOf, taskIdsOf } from './whole-ids.ts';

const STATUSES = ['PENDING', 'RUNNING', 'COMPLETE', 'ERROR', 'CANCELLED', 'EXPIRED', 'TIMEOUT', 'RETRY'];
/** Statuses that `failed` stands for. */
const FAILED = ['ERROR', 'TIMEOUT', 'EXPIRED'];

/** The newest tasks, filtered. */
export async function runTaskList(flags: TaskListFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const tasks = await foundTasks(client, flags);
    const nowMs = Date.now();
    showList(invocation, tasks, ['ID', 'STATUS', 'HANDLER', 'CREATED', 'LAST TRY', 'CONTAINER'], (task) => [
      textField(task, 'id'),
      textField(task, 'status'),
      textField(task, 'stubName') || '-',
      `${ageOf(textField(task, 'createdAt'), nowMs)} ago`,
      durationOf(textField(task, 'startedAt'), textField(task, 'endedAt'), nowMs),
      textField(task, 'containerId').slice(-8) || '-',
    ]);
  });
}

/** The newest tasks that a filter means, as ListTasks tells them. */
export async function foundTasks(client: Client, flags: TaskListFlags): Promise<readonly JsonObject[]> {
  const statuses = checkedStatuses(flags.status);
  const sinceMs = flags.since === undefined ? undefined : sinceMsOf(flags.since, Date.now());
  const filters: Record<string, readonly string[]> = {
    ...(statuses.length > 0 ? { status: statuses } : {}),
    ...(flags.container === undefined ? {} : { 'container-id': [await wholeId(client, flags.container)] }),
    ...(flags.deployment === undefined ? {} : { 'stub-id': await stubsOf(client, flags.deployment) }),
  };
  const query = new URLSearchParams({ limit: String(flags.limit), filters: JSON.stringify(filters) });
  const tasks = listField(await client.gateway('GET', `/tasks?${query.toString()}`), 'tasks');
  // The newest come first, so the older ones are the tail.
  return sinceMs === undefined ? tasks : tasks.filter((task) => Date.parse(textField(task, 'createdAt')) >= sinceMs);
}

export async function runTaskGet(
  reference: string,
  { input: wantsInput }: TaskGetFlags,
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await taskIdOf(client, reference);
    if (wantsInput === true) {
      const found = await client.taskInput(id).catch(hinted(id));
      if (invocation.options.json === true) printJson(found);
      else printBytes(Buffer.from(textField(found, 'input')));
      return;
    }
    const task = await client.task(id).catch(hinted(id));
    if (invocation.options.json === true) {
      printJson(task);
      return;
    }
    const deployment = objectField(task, 'deployment');
    const name = textField(deployment, 'name');
    const rows = {
      id: textField(task, 'id'),
      status: textField(task, 'status'),
      failure_reason: textField(task, 'failure_reason'),
      handler: textField(task, 'handler'),
      deployment: name === '' ? '' : `${name}/v${String(deployment['version'])}`,
      rerun_of: textField(task, 'rerun_of'),
      container_id: textField(task, 'container_id'),
      created_at: textField(task, 'created_at'),
      started_at: textField(task, 'started_at'),
      ended_at: textField(task, 'ended_at'),
      input: await inputText(client, id, objectField(task, 'input')),
    };
    for (const [row, text] of Object.entries(rows)) {
      const style = row === 'status' ? styleOfState(text) : undefined;
      if (text !== '') print(`${`${row}:`.padEnd(16)}${painted(style, text, process.stdout)}`);
    }
    for (const line of attemptLines(listField(task, 'attempts'), (one) => numberField(one, 'attempt'), attemptText))
      print(line);
    if (task['result'] !== null && task['result'] !== undefined)
      print(`result:         ${stringifyExactly(task['result'])}`);
  });
}

/** Most characters of an input that are shown with its task. */
const MOST_PREVIEW = 200;
/** Largest input that is fetched to show its beginning. */
const MOST_FETCHED = 256 * 1024;

/** The beginning of the input on one line, or why there is none. */
async function inputText(client: Client, id: string, about: JsonObject): Promise<string> {
  if (about['kept'] !== true) return `none: ${textField(about, 'why_not')}`;
  const bytes = numberField(about, 'bytes');
  const whole = `${bytes} bytes: \`longshore task get ${id} --input\` prints them`;
  if (bytes > MOST_FETCHED) return whole;
  const found = await client.taskInput(id).catch(() => undefined);
  if (found === undefined) return `${bytes} bytes, which this token may not read`;
  const line = textField(found, 'input')
    .replaceAll(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ')
    .trim();
  if (line === '') return '(empty)';
  return line.length <= MOST_PREVIEW ? line : `${line.slice(0, MOST_PREVIEW).toWellFormed()}… (${whole})`;
}

function attemptText(attempt: JsonObject): string {
  const error = textField(attempt, 'error');
  const took = durationOf(textField(attempt, 'started_at'), textField(attempt, 'ended_at'), Date.now());
  const what = `${textField(attempt, 'outcome')} in ${textField(attempt, 'container_id')}, ${took}`;
  return `${`attempt ${numberField(attempt, 'attempt')}:`.padEnd(16)}${what}${error === '' ? '' : `: ${withoutControls(error)}`}`;
}

/** Cancels tasks in turn; the first failure ends the command with an error that names the task. */
export async function runTaskStop(references: readonly string[], invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const ids = await taskIdsOf(client, references);
    const stopped: string[] = [];
    const ended: string[] = [];
    for (const id of ids) {
      // The operation takes a task that has ended, too, and changes nothing.
      const status = textField(await client.task(id).catch(() => ({})), 'status') as TaskStatus;
      if (isTerminalTask(status)) {
        ended.push(`${id} is ${status} already: nothing to stop`);
        continue;
      }
      // A call per task: the operation stops at its first failure without naming it.
      await client.gateway('POST', '/tasks/stop', { taskIds: [id] }).catch((error: unknown) => {
        const before = stopped.length === 0 ? '' : ` (${counted(stopped.length, 'task')} before it stopped)`;
        throw new CliError(`task ${id} was not stopped${before}: ${sentence(error)}`, { cause: error });
      });
      stopped.push(id);
    }
    showDone(invocation, { stopped }, [...stopped.map((id) => `stopped ${id}`), ...ended]);
  });
}

function checkedStatuses(text: string | undefined): readonly string[] {
  const named = (text ?? '').split(',').flatMap((part) => (part.trim() === '' ? [] : [part.trim().toUpperCase()]));
  const statuses = [...new Set(named.flatMap((one) => (one === 'FAILED' ? FAILED : [one])))];
  const unknown = statuses.find((status) => !STATUSES.includes(status));
  if (unknown !== undefined) {
    throw usageError(`--status ${unknown} is not a task's status: one or more of ${STATUSES.join(', ')}, or failed`);
  }
  return statuses;
}

export async function stubsOf(client: Client, reference: string): Promise<readonly string[]> {
  const stubIds = (await deploymentsNamed(client, reference)).map((deployment) => deployment.stubId);
  return [...new Set(stubIds)];
}

function hinted(id: string): (error: unknown) => never {
  return (error) => {
    if (error instanceof CliError && error.answerCode === 'input_not_kept')
      throw new CliError(error.answerText, { cause: error });
    throw new CliError(`cannot show task ${id}: ${sentence(error)}`, { cause: error });
  };
}

export function sentence(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return /not found|no such thing/i.test(text) ? `${text}; \`longshore task list\` shows those there are` : text;
}
