// Removal of local queue entries that no replica has. The leader ends the unsent tasks of
// replicas that died, because their callers are gone. Each replica removes entries
// under its own name that it does not know, such as one whose answer was lost.
// A task that was sent is left to the replica that adopts it, or to the loss of its machine; when its lease
// runs out unadopted, it ends as lost. On stop, this file also ends the tasks that wait in this replica's local queue.
import type { InstanceId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Log } from '#shared/log.ts';
import { CALLER_GONE, LOST, SCHEDULER_STOPPING } from '../../domain/endings.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Completion } from '../completion/completion.ts';
import type { TaskRecords } from '../records/records.ts';
import type { LocalQueues } from './queues.ts';
import { entryDecision } from './rules.ts';
import type { LocalQueueStore } from './store.ts';

const EVERY_MS = 3_000;
/**
 * Age at which an unknown entry is judged: a task on its way into the local queue, or out of it, is known again by
 * then.
 */
const UNKNOWN_AFTER_MS = 10_000;

/** Immutable part of an entry, from which it is judged. */
type Head = Pick<TaskJob, 'taskId' | 'replica' | 'createdAtMs'>;

export interface LocalQueueSweepParts {
  readonly localQueues: Pick<LocalQueues, 'isResponsibleFor' | 'waiting' | 'recover' | 'checkAll'>;
  readonly store: LocalQueueStore;
  readonly records: Pick<TaskRecords, 'readSurely'>;
  readonly completion: Pick<Completion, 'endQueued' | 'takeOut'>;
  readonly instance: InstanceId;
  readonly isAlive: (replica: InstanceId) => boolean | Promise<boolean>;
  readonly isLeader: () => boolean;
  /**
   * False for a while after Redis lost its data: meanwhile every replica says that it lives, and which tasks it has.
   */
  readonly mayJudge: () => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

export class LocalQueueSweep {
  readonly name = 'lanes';
  readonly #parts: LocalQueueSweepParts;
  readonly #abort = new AbortController();
  /**
   * Entries of the last round that this local queue does not know. Each is read only when it
   * is seen a second time, because most have ended by then and each carries its input.
   */
  #seen = new Map<TaskId, Head | undefined>();

  constructor(parts: LocalQueueSweepParts) {
    this.#parts = parts;
  }

  start(): void {
    void repeat(
      EVERY_MS,
      this.#abort.signal,
      () => this.round(),
      (error) => this.#parts.log.info({ err: error }, 'local queues not looked through, trying again'),
    );
  }

  /** Ends the tasks that wait here and tells their callers that the scheduler stops; none of them runs any more. */
  async stop(): Promise<void> {
    this.#abort.abort();
    const { localQueues, completion, log } = this.#parts;
    const ending = [...localQueues.waiting()].map(({ queue, job }) =>
      completion.takeOut(queue, job, SCHEDULER_STOPPING).catch((error: unknown) => {
        log.info({ err: error, taskId: job.taskId }, 'a waiting task is ended by whoever comes next');
      }),
    );
    await Promise.all(ending);
  }

  /** Runs one round, for the timer and for tests. @returns how many tasks were ended or taken out */
  async round(): Promise<number> {
    const { localQueues, store, mayJudge } = this.#parts;
    localQueues.checkAll();
    if (!mayJudge()) return 0;
    let seenTo = 0;
    const before = this.#seen;
    this.#seen = new Map();
    for (const queue of await store.queues()) {
      for (const taskId of await store.ids(queue)) {
        if (localQueues.isResponsibleFor(taskId)) continue;
        const head = before.has(taskId) ? (before.get(taskId) ?? (await this.#headOf(queue, taskId))) : undefined;
        this.#seen.set(taskId, head);
        if (head !== undefined && (await this.#check(queue, head))) seenTo += 1;
      }
    }
    return seenTo;
  }

  async #headOf(queue: QueueName, taskId: TaskId): Promise<Head | undefined> {
    const job = await this.#parts.store.read(queue, taskId);
    return job && { taskId, replica: job.replica, createdAtMs: job.createdAtMs };
  }

  async #check(queue: QueueName, { taskId, replica, createdAtMs }: Head): Promise<boolean> {
    const { instance, localQueues, store, records, completion, isAlive, isLeader, clock, log } = this.#parts;
    const isOwn = replica === instance;
    const decision = entryDecision({
      isOwn,
      isKnown: localQueues.isResponsibleFor(taskId),
      isOld: clock.nowMs() - createdAtMs >= UNKNOWN_AFTER_MS,
      ownerLives: isOwn || (await isAlive(replica)),
      isLeader: isLeader(),
    });
    // A sent task is left alone. The lease is checked before the input is read, because the task may run for long.
    if (decision === 'leave' || (await store.locks(queue, [taskId])).size > 0) return false;
    const job = await store.read(queue, taskId);
    const known = await records.readSurely(taskId);
    if (job === undefined) return false;
    // The task was forwarded and given back unsent, and the origin did not hear of it: its caller waits.
    const isOver = known !== undefined && (isTerminalTask(known.status) || known.status === 'RUNNING');
    if (decision === 'drop' && !isOver && (await localQueues.recover(queue, taskId))) return true;
    // The task may have come back into the local queue while it was looked at.
    if (localQueues.isResponsibleFor(taskId) || !(await store.removeUnsent(queue, taskId))) return false;
    if (known !== undefined && isTerminalTask(known.status)) return true;
    // Nobody has a lease of the task: when its record says RUNNING, it was sent and is lost.
    const wasSent = known?.status === 'RUNNING';
    if (decision === 'drop' && !wasSent) return true;
    log.warn({ taskId, replica, wasSent }, 'a task in a local queue has nobody who sees to it, ending it');
    await completion.endQueued(queue, job, wasSent ? LOST : CALLER_GONE, known ?? { status: 'PENDING', attempt: 0 });
    return true;
  }
}
