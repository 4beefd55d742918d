// Answers that cross replicas: the replica that ended a synchronous task publishes the
// answer on the channel of the caller's replica. A lost answer is found in the task's row, which is written soon after.
// The row is looked up after each gap in the messages, and
// every few seconds for callers that have waited that long and whose task does not run here.
// An answer counts for the attempt that is under way: the task may have come back from an earlier one.
import type { InstanceId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { CANCELLED } from '../domain/endings.ts';
import type { Replies } from '../tasks/dispatch/replies.ts';
import type { Attempts } from '../tasks/dispatch/attempts.ts';
import type { TaskBodies } from '../tasks/dispatch/bodies.ts';
import type { Line } from '../tasks/lines/line.ts';
import type { Completion } from '../tasks/completion/completion.ts';
import type { TaskRecords } from '../tasks/records/records.ts';
import type { Bus } from '../cluster/bus.ts';
import { answerMessage, readAnswer } from './outcome-messages.ts';
import type { AnswerMessage } from './outcome-messages.ts';

/** Most bytes of a body in a message; a larger one is read from the record, or from its object. */
const MOST_INLINE = 64 * 1024;
const LOOK_UP_EVERY_MS = 5_000;
const LOOK_UP_BATCH = 500;

/** Task, the item's place in the generator's sequence, its event, workspace. */
type Item = readonly [TaskId, 'item', number, string, WorkspaceId];

export interface AnswersParts {
  readonly bus: Bus;
  readonly channelOf: (replica: InstanceId) => string;
  readonly instance: InstanceId;
  readonly replies: Replies;
  readonly lines: { readonly line: Pick<Line, 'get'> };
  readonly attempts: Attempts;
  readonly completion: Pick<Completion, 'answerFrom' | 'revoke'>;
  readonly bodies: Pick<TaskBodies, 'resultText'>;
  readonly records: Pick<TaskRecords, 'read' | 'readOver' | 'endedElsewhere'>;
  readonly log: Log;
  /** Milliseconds between look-ups; tests shorten it. */
  readonly lookUpEveryMs?: number;
}

export class Answers {
  readonly name = 'answers';
  readonly #parts: AnswersParts;
  readonly #abort = new AbortController();
  #lookingUp = false;

  constructor(parts: AnswersParts) {
    this.#parts = parts;
    const { bus, channelOf, instance, replies } = parts;
    replies.connect({
      finished: (task, finished, attempt) => {
        if (task.replica === instance) return;
        bus.publish(channelOf(task.replica), answerMessage(task, finished, attempt, MOST_INLINE));
      },
      item: ({ taskId, replica, workspaceId }, seq, event) => {
        // Large items, and those behind them, reach the caller with the result.
        if (replica === instance || event.length > MOST_INLINE) return;
        bus.publish(channelOf(replica), [taskId, 'item', seq, event, workspaceId] satisfies Item);
      },
    });
    bus.on(channelOf(instance), (message) => {
      const said = message as AnswerMessage | Item;
      if (said[1] === 'item') {
        const [taskId, , seq, event, workspaceId] = said;
        replies.item({ taskId, replica: instance, workspaceId }, seq, event);
      } else void this.#heard(said);
    });
    bus.onGap(() => void this.lookUp(0));
  }

  start(): void {
    void this.#loop();
  }

  stop(): void {
    this.#abort.abort();
  }

  async #heard(message: AnswerMessage): Promise<void> {
    const { taskId, finished, body: inline, attempt, workspaceId } = readAnswer(message);
    const { replies, lines, records, log } = this.#parts;
    const task = lines.line.get(taskId);
    if (task !== undefined && task.place.attempt !== attempt) return;
    if (!replies.isOf({ taskId, workspaceId })) return;
    records.endedElsewhere(taskId);
    try {
      const body = inline ?? (await this.#bodyOf(taskId));
      // No row says so yet: the next look-up finds it.
      if (body !== undefined) replies.settle(taskId, { ...finished, body });
      if (finished.status !== 'COMPLETE') this.#stop(taskId);
    } catch (error) {
      log.warn({ err: error, taskId }, 'the result of a task that ran at another replica is not readable yet');
    }
  }

  /** Stops the handler here of a task that another replica ended in the moment in which it was sent. */
  #stop(taskId: TaskId): void {
    const { attempts, completion } = this.#parts;
    const attempt = attempts.current(taskId);
    if (attempt === undefined) return;
    void completion.revoke(attempt, 'cancelled', CANCELLED, 0);
  }

  async #bodyOf(taskId: TaskId): Promise<string | undefined> {
    const record = await this.#parts.records.read(taskId);
    if (record === undefined || !isTerminalTask(record.status)) return undefined;
    return await this.#parts.bodies.resultText(record);
  }

  async #loop(): Promise<void> {
    const everyMs = this.#parts.lookUpEveryMs ?? LOOK_UP_EVERY_MS;
    while (await sleep(everyMs, this.#abort.signal)) await this.lookUp(everyMs);
  }

  /**
   * Answers callers whose task ended without their replica hearing of it.
   * @param waitedMs - shortest wait of the callers to look up
   */
  async lookUp(waitedMs: number): Promise<void> {
    if (this.#lookingUp) return;
    this.#lookingUp = true;
    const { replies, attempts, records, completion, log } = this.#parts;
    try {
      const ids = [...replies.waitingSince(waitedMs)]
        .map(({ taskId }) => taskId)
        .filter((taskId) => attempts.current(taskId) === undefined);
      for (let at = 0; at < ids.length; at += LOOK_UP_BATCH) {
        const { over } = await records.readOver(ids.slice(at, at + LOOK_UP_BATCH));
        for (const record of over.values()) await completion.answerFrom(record);
      }
    } catch (error) {
      log.info({ err: error }, 'answers not looked up, trying again');
    } finally {
      this.#lookingUp = false;
    }
  }
}
