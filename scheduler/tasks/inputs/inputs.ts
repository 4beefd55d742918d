// The input of a task, for people and for another run of it.
import type { TaskId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { DEFERRED_CALLS_QUEUE } from '../../domain/inference.ts';
import type { InputBounds } from '../../domain/task-inputs.ts';
import { whyNoInput } from '../../domain/task-inputs.ts';
import { parseTaskJob } from '../../stores/queues/jobs.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { TaskBodies } from '../dispatch/bodies.ts';
import { inputStateOf } from '../records/recording.ts';
import type { TaskRecord } from '../records/task-record.ts';

export interface TaskInputsParts {
  readonly bodies: Pick<TaskBodies, 'findInput'>;
  /** The queue entry in the row of an asynchronous task that has not ended, if its deployment is not deleted. */
  readonly jobOf: (taskId: TaskId) => Promise<string | undefined>;
  /** The queue entry of a task that ended, if its input is kept. */
  readonly keptJobOf: (taskId: TaskId) => Promise<string | undefined>;
  /** Resolves when the database has the records that Redis held by now. */
  readonly caughtUp: () => Promise<unknown>;
  readonly bounds: InputBounds;
}

/** The input with its queue entry. */
export interface FoundInput {
  readonly job: TaskJob;
  /** Body exactly as it came. */
  readonly input: string;
}

export class TaskInputs {
  readonly #parts: TaskInputsParts;

  constructor(parts: TaskInputsParts) {
    this.#parts = parts;
  }

  /** Whether a task's input can be had, and the reason if not. */
  async about(record: TaskRecord): Promise<{ readonly job: TaskJob } | { readonly why: string }> {
    const job = await this.#jobOf(record);
    return job === undefined ? { why: this.#why(record) } : { job };
  }

  /** @returns the input; or the reason why there is none, as a sentence without its subject */
  async read(record: TaskRecord): Promise<FoundInput | { readonly why: string }> {
    const job = await this.#jobOf(record);
    if (job === undefined) return { why: this.#why(record) };
    const input = await this.#parts.bodies.findInput(job);
    return input === undefined ? { why: this.#why({ ...record, inputState: 'kept' }) } : { job, input };
  }

  async #jobOf({
    taskId,
    queue,
    sync,
    inputState = sync ? undefined : 'kept',
  }: TaskRecord): Promise<TaskJob | undefined> {
    if (queue === DEFERRED_CALLS_QUEUE || inputState !== 'kept') return undefined;
    const { jobOf, keptJobOf, caughtUp } = this.#parts;
    // An input moves from the row of its task to the kept ones, so it is looked for in this order.
    let text = (sync ? undefined : await jobOf(taskId)) ?? (await keptJobOf(taskId));
    if (text === undefined && sync) {
      // The input of a synchronous call comes with its last record, which may be on its way.
      await caughtUp();
      text = await keptJobOf(taskId);
    }
    if (text === undefined) return undefined;
    const job = parseTaskJob(text);
    return inputStateOf(job) === 'kept' ? job : undefined;
  }

  #why({ queue, status, sync, inputState }: TaskRecord): string {
    const isOfModel = queue === DEFERRED_CALLS_QUEUE;
    return whyNoInput({ inputState, sync, status, isOver: isTerminalTask(status), isOfModel }, this.#parts.bounds);
  }
}
