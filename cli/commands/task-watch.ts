// `longshore task watch`: a task until its end, or the tasks of a deployment as they change.
import { TASK_STATUSES, isTerminalTask } from '#shared/domain/status.ts';
import { plainOf, stringifyExactly } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import type { Client } from '../client.ts';
import { painted, styleOfState } from '../colours.ts';
import { CliError, usageError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import { follow } from '../follow.ts';
import { ageOf, durationOf } from '../format.ts';
import { listField, numberField, taskOf, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { canShowProgress, formatTable, isTerminal, note, paintCell, print, printError } from '../print.ts';
import { openScreen } from '../screen.ts';
import { deploymentsNamed } from './deployment-reference.ts';
import { interrupted } from './interrupt.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { taskIdOf } from './whole-ids.ts';

/** Exit codes of the ends of a task. */
export const CODES: Readonly<Record<string, number>> = {
  COMPLETE: EXIT.ok,
  ERROR: EXIT.failed,
  TIMEOUT: EXIT.timedOut,
  EXPIRED: EXIT.timedOut,
  CANCELLED: EXIT.cancelled,
};
const OVER: ReadonlySet<string> = new Set(TASK_STATUSES.filter(isTerminalTask));
/** Tasks of a deployment that are kept for the table. */
const MOST_TASKS = 100;
/** Least time between two looks at which stubs a deployment has: a new version brings another. */
const STUBS_EVERY_MS = 5_000;
const DRAW_EVERY_MS = 1_000;

export interface TaskWatchFlags {
  readonly deployment?: string;
}

/** @returns the exit code: by the status of the task's end, or 0 when a person leaves a deployment's table */
export async function runTaskWatch(
  id: string | undefined,
  { deployment }: TaskWatchFlags,
  invocation: Invocation,
): Promise<number> {
  if ((id === undefined) === (deployment === undefined))
    throw usageError('name a task by its id, or a deployment by --deployment: one of the two');
  return withClient(invocation, async (client) => {
    const isJson = invocation.options.json === true;
    if (id !== undefined) return watchTask(client, await taskIdOf(client, id), isJson);
    return watchDeployment(client, deployment ?? '', isJson);
  });
}

async function watchTask(client: Client, id: string, isJson: boolean): Promise<number> {
  const { signal, release } = interrupted();
  let last: JsonObject | undefined;
  try {
    const path = `/task/${await client.workspaceId()}/${encodeURIComponent(id)}/subscribe`;
    await follow(client, path, {
      onRecord: ({ event, data }) => {
        if (event !== 'status') return false;
        const task = taskOf(data);
        const isNews = textField(task, 'status') !== textField(last ?? {}, 'status');
        last = task;
        if (isJson) print(stringifyExactly(task));
        else if (isNews) print(changeLine(task));
        return isOver(task);
      },
      signal,
    }).catch((error: unknown) => {
      if (!(error instanceof CliError) || error.status !== 404) throw error;
      throw new CliError(`there is no task ${id}: \`longshore task list\` shows those there are`, { cause: error });
    });
  } finally {
    release();
  }
  if (last === undefined || !isOver(last)) return 130;
  const { result } = last;
  const value = plainOf(result);
  const status = textField(last, 'status');
  if (!isJson && status === 'COMPLETE' && result !== null && result !== undefined) print(stringifyExactly(result));
  if (!isJson && isRecord(value) && status !== 'COMPLETE' && textField(value, 'error') !== '')
    printError(textField(value, 'error'));
  return CODES[status] ?? 1;
}

/** `12:03:44 RUNNING   function-…`, or an end with its reason. */
function changeLine(task: JsonObject): string {
  const at = textField(task, 'updated_at').slice(11, 19);
  const status = textField(task, 'status');
  const reason = textField(task, 'failure_reason');
  const took = OVER.has(status)
    ? `took ${durationOf(textField(task, 'started_at'), textField(task, 'ended_at'), Date.now())}`
    : textField(task, 'container_id');
  const shown = painted(styleOfState(status), status, process.stdout) + ' '.repeat(Math.max(0, 9 - status.length));
  return [at, shown, reason, took]
    .filter((part) => part !== '' && part !== 'took -')
    .join(' ')
    .trimEnd();
}

const isOver = (task: JsonObject): boolean => OVER.has(textField(task, 'status'));

async function watchDeployment(client: Client, reference: string, isJson: boolean): Promise<number> {
  const workspaceId = await client.workspaceId();
  const stubs = new Stubs(client, reference);
  await stubs.look();
  const newest = listField(await client.rest(`/events/${workspaceId}/history?limit=1`), 'events');
  const after = newest.reduce((last, event) => Math.max(last, numberField(event, 'seq_num')), 0);
  const tasks = new Map<string, JsonObject>();
  const filters = JSON.stringify({ 'stub-id': [...stubs.ids] });
  const query = new URLSearchParams({ limit: String(MOST_TASKS), filters });
  for (const task of listField(await client.gateway('GET', `/tasks?${query.toString()}`), 'tasks').toReversed())
    tasks.set(textField(task, 'id'), task);
  const isLive = isTerminal() && !isJson;
  const view = isLive ? liveTable(reference, tasks) : lines(isJson);
  try {
    await follow(client, `/events/${workspaceId}/stream?event_types=task.*&seq_num=${after + 1}`, {
      onRecord: ({ event, data }) => {
        if (event !== 'task.created' && event !== 'task.updated') return;
        const record = JSON.parse(data) as JsonObject;
        const task = isRecord(record['data']) ? record['data'] : {};
        void stubs.has(textField(task, 'stub_id')).then((isOurs) => {
          if (!isOurs) return;
          const id = textField(task, 'id');
          tasks.delete(id);
          tasks.set(id, task);
          const [oldest] = tasks.keys();
          if (tasks.size > MOST_TASKS && oldest !== undefined) tasks.delete(oldest);
          view.changed(task);
        });
      },
      signal: view.signal,
      onNote: (text) => {
        if (!isLive && canShowProgress()) note(text);
      },
    });
  } finally {
    view.close();
  }
  return 0;
}

interface View {
  readonly signal: AbortSignal;
  readonly changed: (task: JsonObject) => void;
  readonly close: () => void;
}

/** A line for each change. */
function lines(isJson: boolean): View {
  const { signal, release } = interrupted();
  return {
    signal,
    changed: (task) => print(isJson ? JSON.stringify(task) : `${textField(task, 'id')} ${changeLine(task)}`),
    close: release,
  };
}

/** A table, the newest change first. */
function liveTable(reference: string, tasks: ReadonlyMap<string, JsonObject>): View {
  const draw = (): void => screen.draw(tableLines(reference, [...tasks.values()].toReversed(), Date.now(), paintCell));
  const screen = openScreen(draw);
  const timer = setInterval(draw, DRAW_EVERY_MS);
  draw();
  return {
    signal: screen.signal,
    changed: draw,
    close: () => {
      clearInterval(timer);
      screen.close();
    },
  };
}

/** @internal exported for its test */
export function tableLines(
  reference: string,
  tasks: readonly JsonObject[],
  nowMs: number,
  paint: typeof paintCell = (_, cell) => cell,
): readonly string[] {
  const counts = TASK_STATUSES.map((status) => ({
    status,
    count: tasks.filter((task) => textField(task, 'status') === status).length,
  })).flatMap(({ status, count }) => (count === 0 ? [] : [`${count} ${status}`]));
  const time = (task: JsonObject, snake: string, camel: string): string =>
    textField(task, snake) || textField(task, camel);
  const rows = tasks.map((task) => [
    textField(task, 'id'),
    textField(task, 'status'),
    `${ageOf(time(task, 'created_at', 'createdAt'), nowMs)} ago`,
    durationOf(time(task, 'started_at', 'startedAt'), time(task, 'ended_at', 'endedAt'), nowMs),
    time(task, 'container_id', 'containerId').slice(-8) || '-',
  ]);
  return [
    `${reference}: ${counts.length === 0 ? 'no task yet' : counts.join(', ')}   q: leave`,
    '',
    ...formatTable(['ID', 'STATUS', 'CREATED', 'LAST TRY', 'IN'], rows, undefined, paint).split('\n'),
  ];
}

/** Stubs of all versions of a deployment. */
class Stubs {
  readonly #client: Client;
  readonly #reference: string;
  #ids: ReadonlySet<string> = new Set();
  #lookedMs = -Infinity;

  constructor(client: Client, reference: string) {
    this.#client = client;
    this.#reference = reference;
  }

  get ids(): ReadonlySet<string> {
    return this.#ids;
  }

  async look(): Promise<void> {
    this.#lookedMs = performance.now();
    const found = await deploymentsNamed(this.#client, this.#reference);
    this.#ids = new Set(found.map(({ stubId }) => stubId));
  }

  /** Whether the stub is one of them. An unknown one may be of a version that is new. */
  async has(id: string): Promise<boolean> {
    if (this.#ids.has(id)) return true;
    if (performance.now() - this.#lookedMs < STUBS_EVERY_MS) return false;
    await this.look().catch(() => undefined);
    return this.#ids.has(id);
  }
}
