// The stream of one task: its status at once, then each change, until it is over. Changes come from the workspace's
// events; the task itself is read from Redis first, so that its end has the result. Source: reference, REST §10.1.
// Invariant: the numbers of frames grow. A change whose event never comes is found by a look at the task every few
// seconds.
import type { FastifyRequest } from 'fastify';
import { RestTask } from '#shared/api/rest/tasks.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { stringifyExactly } from '#shared/json-text.ts';
import { TASK_STATUSES, isTerminalTask } from '#shared/domain/status.ts';
import type { Log } from '#shared/log.ts';
import type { EventRow } from '../../../stores/store/queries/events.ts';
import { RANK } from '../../../tasks/state.ts';
import type { TaskRecord } from '../../../tasks/records/task-record.ts';
import type { Reader, Subscription, Taken } from '../../../workspaces/events/hub.ts';
import type { EventHub } from '../../../workspaces/events/source.ts';
import { sseFrame } from '../sse.ts';
import type { SseOut, SseSource } from '../sse.ts';
import { streamRoute } from './route.ts';
import type { RestRoute } from './route.ts';
import { QUEUES_AWAY, taskFor, wholeTask } from './tasks.ts';
import type { TaskRouteParts } from './tasks.ts';

export interface SubscribeParts extends TaskRouteParts {
  readonly events: { readonly hub: Pick<EventHub, 'subscribe'> };
  readonly log: Log;
}

/** Seconds between two looks at a task that no event tells of. */
const LOOK_TICKS = 5;
/** Numbers of frames within an attempt; ranks are below it. */
const RANKS = 8;

export function subscribeTask(parts: SubscribeParts): RestRoute {
  return streamRoute({
    http: 'GET /task/{ws}/{taskId}/subscribe',
    summary: 'Status of a task, now and at each change, until it is over',
    kind: 'task',
    containers: true,
    grants: { scopes: ['invoke', 'read'], confinesToApp: true },
    frames: {
      description: 'id: a number that grows, event: status, data: the task as GET answers it.',
      data: RestTask,
    },
    errors: ['task_not_found', QUEUES_AWAY],
    open: async (request) => {
      const record = await taskFor(parts, request);
      const follower = new TaskFollower(parts, record, request.http);
      if (!isTerminalTask(record.status)) {
        const { workspaceId, taskId } = record;
        const filter = { types: ['task.*'], taskId };
        follower.subscription = await parts.events.hub.subscribe(workspaceId, filter, undefined, follower);
      }
      return follower;
    },
  });
}

const isTaskStatus = (text: unknown): text is TaskStatus => TASK_STATUSES.some((status) => status === text);

type State = Pick<TaskRecord, 'status' | 'attempt' | 'rank'>;
const numberOf = ({ attempt, rank }: State): number => attempt * RANKS + rank;

class TaskFollower implements SseSource, Reader<EventRow> {
  readonly #parts: SubscribeParts;
  readonly #http: FastifyRequest;
  readonly #first: TaskRecord;
  subscription: Subscription | undefined;
  #stream: SseOut | undefined;
  /** Number of the last frame. */
  #sent = -1;
  #ticks = 0;
  /** Frames in the order in which they were asked for; the last one's promise. */
  #sending: Promise<void> = Promise.resolve();

  constructor(parts: SubscribeParts, first: TaskRecord, http: FastifyRequest) {
    this.#parts = parts;
    this.#first = first;
    this.#http = http;
  }

  begin(stream: SseOut): void {
    this.#stream = stream;
    // The task may have changed between its first reading and the subscription.
    if (this.subscription === undefined) this.#tell(() => Promise.resolve(this.#first));
    else this.#look();
    this.subscription?.start();
  }

  drained(): void {
    this.subscription?.resume();
  }

  closed(): void {
    this.subscription?.end();
  }

  take(event: EventRow): Taken {
    if (this.#stream?.isOpen !== true) return 'over';
    this.#tell(() => this.#changed(event));
    return 'more';
  }

  tick(): void {
    this.#ticks += 1;
    if (this.#ticks % LOOK_TICKS === 0) this.#look();
  }

  failed(error: unknown): void {
    this.#parts.log.info({ err: error, taskId: this.#first.taskId }, 'a task is followed without its events');
  }

  #look(): void {
    this.#tell(() => this.#parts.tasks.read(this.#first.workspaceId, this.#first.taskId));
  }

  /** Sends a frame of the record, unless that change, or a later one, was sent. */
  #tell(read: () => Promise<TaskRecord | undefined>): void {
    this.#sending = this.#sending.then(() => this.#send(read)).catch((error: unknown) => this.#fail(error));
  }

  async #send(read: () => Promise<TaskRecord | undefined>): Promise<void> {
    const record = this.#stream?.isOpen === true ? await read() : undefined;
    if (record === undefined || numberOf(record) <= this.#sent) return;
    const task = await wholeTask(this.#parts, record, this.#http);
    const stream = this.#stream;
    if (stream === undefined) return;
    this.#sent = numberOf(record);
    stream.write(sseFrame({ id: this.#sent, event: 'status', data: stringifyExactly(task) }));
    if (!isTerminalTask(record.status)) return;
    this.subscription?.end();
    // A result may be larger than what else may lie unsent.
    stream.finish();
  }

  #fail(error: unknown): void {
    this.#parts.log.info({ err: error, taskId: this.#first.taskId }, 'a task can be followed no further');
    this.subscription?.end();
    this.#stream?.fail('the task cannot be read now: dial again');
  }

  /** The task as the event tells of it; an end as the task is now, with its result. */
  async #changed({ data, containerId }: EventRow): Promise<TaskRecord | undefined> {
    const now = await this.#parts.tasks.read(this.#first.workspaceId, this.#first.taskId);
    const { status, attempt } = data;
    if (now === undefined || !isTaskStatus(status) || typeof attempt !== 'number' || isTerminalTask(status)) return now;
    const { result: _result, resultObjectId: _object, ...before } = now;
    return { ...before, ...stateOf(status, attempt, data), containerId: containerId ?? null };
  }
}

/** Fields of a record at a change that is over by now. */
function stateOf(
  status: TaskStatus,
  attempt: number,
  data: EventRow['data'],
): State & Pick<TaskRecord, 'startedAtMs' | 'endedAtMs' | 'durationMs' | 'failureReason'> {
  const { started_at: startedAt, failure_reason: failureReason } = data;
  // A task that went back to its queue says PENDING, behind its attempt's RUNNING.
  const rank = status === 'PENDING' && attempt > 0 ? RANK.RETRY : RANK[status];
  return {
    status,
    attempt,
    rank: rank as TaskRecord['rank'],
    startedAtMs: typeof startedAt === 'string' ? Date.parse(startedAt) : null,
    endedAtMs: null,
    durationMs: null,
    failureReason: typeof failureReason === 'string' ? failureReason : '',
  };
}
