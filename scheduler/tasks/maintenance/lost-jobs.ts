// Repair of synchronous tasks that were never sent and whose job is gone with the data of
// Redis. The replica that their caller waits on adds them again under their id. The repair
// takes only tasks that no attempt has and that were never reported as running. Before it,
// every replica must have said what it runs, because a synchronous task never runs twice.
import type { TaskId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Completion } from '../completion/completion.ts';
import type { Attempts } from '../dispatch/attempts.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { Leases } from '../dispatch/leases.ts';
import type { Replies, Waiting } from '../dispatch/replies.ts';
import type { TaskRecords } from '../records/records.ts';
import type { GracePeriods } from './grace-periods.ts';

const LOOK_EVERY_MS = 15_000;
/** Most callers looked at in one round; the others come in the next ones. */
const MOST_LOOKS = 500;

export interface LostJobsParts {
  readonly replies: Pick<Replies, 'all' | 'has'>;
  readonly attempts: Pick<Attempts, 'current'>;
  readonly queues: Pick<TaskQueues, 'open' | 'add' | 'read'>;
  readonly records: Pick<TaskRecords, 'readSurely'>;
  readonly leases: Pick<Leases, 'isHeld'>;
  readonly completion: Pick<Completion, 'answerFrom'>;
  readonly dispatcher: Pick<Dispatcher, 'wake'>;
  readonly graces: Pick<GracePeriods, 'goneMs'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export class LostJobs {
  readonly #parts: LostJobsParts;
  /** Time since which a caller's job is not seen, by task. */
  #goneSince = new Map<TaskId, number>();

  constructor(parts: LostJobsParts) {
    this.#parts = parts;
  }

  start(): void {
    const { graces, signal, log } = this.#parts;
    const round = (): Promise<void> => this.check();
    void repeat(Math.min(LOOK_EVERY_MS, graces.goneMs), signal, round, (error) =>
      log.info({ err: error }, 'jobs of waiting callers not looked at, trying again'),
    );
  }

  /**
   * Runs one round over the callers who wait here.
   * @param lostAtMs - time when Redis lost data (epoch milliseconds), if
   * every replica has since said what it runs: older tasks get no grace
   */
  async check(lostAtMs = -Infinity): Promise<void> {
    const { replies, queues, clock, graces } = this.#parts;
    const nowMs = clock.monotonicMs();
    const wallMs = clock.nowMs();
    const goneSince = new Map<TaskId, number>();
    let looks = 0;
    for (const waiting of [...replies.all()]) {
      const graceMs = waiting.job.createdAtMs <= lostAtMs ? 0 : graces.goneMs;
      if (wallMs - waiting.job.createdAtMs < graceMs || this.#hasIt(waiting)) continue;
      looks += 1;
      if (looks > MOST_LOOKS) break;
      if ((await queues.read(waiting.queue, waiting.taskId)) !== undefined) continue;
      const sinceMs = this.#goneSince.get(waiting.taskId) ?? nowMs;
      if (nowMs - sinceMs < graceMs || !(await this.#addAgain(waiting))) goneSince.set(waiting.taskId, sinceMs);
    }
    this.#goneSince = goneSince;
  }

  #hasIt({ taskId }: Waiting): boolean {
    return this.#parts.attempts.current(taskId) !== undefined;
  }

  /** Queues the task again, or answers its caller. @returns false: not now */
  async #addAgain(waiting: Waiting): Promise<boolean> {
    const { records, leases, queues, replies, completion, dispatcher, log } = this.#parts;
    const { taskId, queue, job } = waiting;
    if (await leases.isHeld(taskId)) return false;
    const record = await records.readSurely(taskId);
    if (record !== undefined && isTerminalTask(record.status)) {
      await completion.answerFrom(record);
      return true;
    }
    // A running task is ended by the replica that has it; the caller's wait limit applies in any case.
    if (record?.status === 'RUNNING' || this.#hasIt(waiting) || !replies.has(taskId)) return false;
    await queues.open(queue);
    await queues.add(queue, { ...job, attempts: record?.attempt ?? 0 });
    log.warn({ taskId }, 'a waiting task whose job was lost is queued again');
    dispatcher.wake(queue, taskId);
    return true;
  }
}
