// What is left in lanes without anybody who has it: the leader ends the unsent tasks of replicas that died (their callers are gone), and each replica takes out what stands under its name and it does
// not know, such as an entry whose answer was lost. What was sent is left to whoever adopts it, or to the loss of its machine; where nobody came and its lease ran out, it ends as lost. Here, too: what
// waits in this replica's lane while it stops is ended.
import type { InstanceId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Log } from '#shared/log.ts';
import { SENT_BEFORE } from '../dispatch/precheck.ts';
import type { TaskJob } from '../queues/jobs.ts';
import type { Ender, QueuedEnding } from '../tasks/ender.ts';
import type { TaskRecords } from '../tasks/records.ts';
import type { LaneQueues } from './queues.ts';
import { entryVerdict } from './rules.ts';
import type { LaneStore } from './store.ts';

const EVERY_MS = 3_000;
/** A task of ours that is on its way into the lane, or out of it, is known again by then. */
const UNKNOWN_AFTER_MS = 10_000;

const CALLER_GONE: QueuedEnding = {
  status: 'CANCELLED',
  httpStatus: 503,
  text: 'caller is gone',
  failureReason: 'caller_gone',
};
const STOPPING: QueuedEnding = { ...CALLER_GONE, text: 'scheduler is stopping' };
const LOST: QueuedEnding = { ...SENT_BEFORE, text: SENT_BEFORE.errorText };

/** What is judged of an entry; it never changes. */
type Head = Pick<TaskJob, 'taskId' | 'replica' | 'createdAtMs'>;

export interface LaneSweepParts {
  readonly lanes: Pick<LaneQueues, 'seesTo' | 'waiting' | 'recover' | 'lookAll'>;
  readonly store: LaneStore;
  readonly records: Pick<TaskRecords, 'read'>;
  readonly ender: Pick<Ender, 'endQueued' | 'takeOut'>;
  readonly instance: InstanceId;
  readonly isAlive: (replica: InstanceId) => boolean | Promise<boolean>;
  readonly isLeader: () => boolean;
  /** False for a while after Redis lost its data: every replica says first that it lives, and what it has. */
  readonly mayJudge: () => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

export class LaneSweep {
  readonly name = 'lanes';
  readonly #parts: LaneSweepParts;
  readonly #abort = new AbortController();
  /** Entries of the last round that this lane does not know: each is read once, when it is seen a second time, because most have ended by then and each carries its input. */
  #seen = new Map<TaskId, Head | undefined>();

  constructor(parts: LaneSweepParts) {
    this.#parts = parts;
  }

  start(): void {
    void repeat(
      EVERY_MS,
      this.#abort.signal,
      () => this.round(),
      (error) => this.#parts.log.info({ err: error }, 'lanes not looked through, trying again'),
    );
  }

  /** Callers of what waits here hear that the scheduler stops; nothing of it runs any more. */
  async stop(): Promise<void> {
    this.#abort.abort();
    const { lanes, ender, log } = this.#parts;
    for (const { queue, job } of lanes.waiting()) {
      await ender.takeOut(queue, job, STOPPING).catch((error: unknown) => {
        log.info({ err: error, taskId: job.taskId }, 'a waiting task is ended by whoever comes next');
      });
    }
  }

  /** One round; the timer's, and the tests'. @returns how many tasks were ended or taken out */
  async round(): Promise<number> {
    const { lanes, store, mayJudge } = this.#parts;
    lanes.lookAll();
    if (!mayJudge()) return 0;
    let seenTo = 0;
    const before = this.#seen;
    this.#seen = new Map();
    for (const queue of await store.queues()) {
      for (const taskId of await store.ids(queue)) {
        if (lanes.seesTo(taskId)) continue;
        const head = before.has(taskId) ? (before.get(taskId) ?? (await this.#headOf(queue, taskId))) : undefined;
        this.#seen.set(taskId, head);
        if (head !== undefined && (await this.#look(queue, head))) seenTo += 1;
      }
    }
    return seenTo;
  }

  async #headOf(queue: QueueName, taskId: TaskId): Promise<Head | undefined> {
    const job = await this.#parts.store.read(queue, taskId);
    return job && { taskId, replica: job.replica, createdAtMs: job.createdAtMs };
  }

  async #look(queue: QueueName, { taskId, replica, createdAtMs }: Head): Promise<boolean> {
    const { instance, lanes, store, records, ender, isAlive, isLeader, clock, log } = this.#parts;
    const isOwn = replica === instance;
    const verdict = entryVerdict({
      isOwn,
      isKnown: lanes.seesTo(taskId),
      isOld: clock.nowMs() - createdAtMs >= UNKNOWN_AFTER_MS,
      ownerLives: isOwn || (await isAlive(replica)),
      isLeader: isLeader(),
    });
    // What was sent is left; told before its input is read, for this may go on for long.
    if (verdict === 'leave' || (await store.locks(queue, [taskId])).size > 0) return false;
    const job = await store.read(queue, taskId);
    const known = await records.read(taskId);
    if (job === undefined) return false;
    // Lent, given back unsent, and nobody heard of it: its caller waits.
    const isOver = known !== undefined && (isTerminalTask(known.status) || known.status === 'RUNNING');
    if (verdict === 'drop' && !isOver && (await lanes.recover(queue, taskId))) return true;
    // It may have come back while it was looked at.
    if (lanes.seesTo(taskId) || !(await store.removeUnsent(queue, taskId))) return false;
    if (known !== undefined && isTerminalTask(known.status)) return true;
    // Nobody has a lease of it: what its record says runs was sent, and is lost.
    const wasSent = known?.status === 'RUNNING';
    if (verdict === 'drop' && !wasSent) return true;
    log.warn({ taskId, replica, wasSent }, 'a task in a lane has nobody who sees to it, ending it');
    await ender.endQueued(queue, job, wasSent ? LOST : CALLER_GONE, known ?? { status: 'PENDING', attempt: 0 });
    return true;
  }
}
