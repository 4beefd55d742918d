// Keys with one open task. `skip` answers with the open one, `replace` cancels it, and a debounce gives it the input of
// the last call while it waits. The claim of a key is a row, so it holds for all schedulers and outlives Redis.
// Invariants: a call is answered with a task that was there only if it is to be skipped, or if that task has its input
// now. An input that comes too late for a task, because it has begun meanwhile, becomes a task of its own.
import { sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Log } from '#shared/log.ts';
import type { TaskFlow } from '../../domain/flow.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { InputState } from '../../domain/task-inputs.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import { encodeTaskJob } from '../../stores/queues/jobs.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { ReplacedInput, SinglePlace } from '../../stores/store/queries/task-singles.ts';
import { inputBytesOf, inputStateOf } from '../records/recording.ts';
import type { TaskRecord } from '../records/task-record.ts';
import type { TaskRecords } from '../records/records.ts';
import type { Submission } from './calls.ts';
import { mayHaveTask } from './calls.ts';

/** Most calls that wait for others of their keys in this process. */
const MOST_WAITING = 10_000;
/** Looks at a task that is being accepted, or changes hands, and the pause between two. */
const LOOKS = 40;
const PAUSE_MS = 50;
const RETRY_AFTER_S = 1;
/** Most time from a claim to the commit of its task, which is shorter than the claim lasts (task-singles.ts). */
const COMMITTED_WITHIN_MS = 5_000;

export interface SinglesParts {
  readonly rows: SingleRows;
  readonly records: Pick<TaskRecords, 'read'>;
  readonly queues: Pick<TaskQueues, 'read' | 'putOff'>;
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  readonly log: Log;
  /** Aborted when the process stops. */
  readonly signal: AbortSignal;
}

export interface SingleRows {
  readonly claim: (place: SinglePlace, taskId: TaskId, replaced: TaskId | undefined) => Promise<TaskId | undefined>;
  readonly release: (place: SinglePlace, taskId: TaskId) => Promise<void>;
  readonly replaceInput: (replaced: ReplacedInput) => Promise<boolean>;
}

/** The input of a call, as a job has it. */
export type GivenInput = Pick<TaskJob, 'input' | 'inputObjectId' | 'inputBytes' | 'forgetsInput' | 'query'>;

export interface SingleCall {
  readonly target: Target;
  readonly flow: TaskFlow;
  readonly taskId: TaskId;
  /** Stores the input of the call under that task. */
  readonly inputFor: (taskId: TaskId) => Promise<GivenInput>;
}

/** @param isLate - whether the claim may lapse before the task is committed, which is then refused */
type Accept = (isLate: () => boolean) => Promise<Submission>;

type Answer = Exclude<Submission, { kind: 'accepted' }>;
/** Cancels a task that a later one replaces. @returns false: it changed hands again and again */
export type CancelReplaced = (record: TaskRecord) => Promise<boolean>;

const BUSY: Answer = { kind: 'unavailable', reason: 'single_in_doubt', retryAfterSeconds: RETRY_AFTER_S };

export class Singles {
  readonly #parts: SinglesParts;
  /** The last call of each key under way in this process: calls of a key take turns. */
  readonly #turns = new Map<string, Promise<unknown>>();
  #waiting = 0;
  #cancel: CancelReplaced = () => Promise.resolve(false);

  constructor(parts: SinglesParts) {
    this.#parts = parts;
  }

  /** Whether tasks of the target are one for a key. */
  static holdFor({ config: { flow } }: Target): boolean {
    return flow?.singleton !== undefined || flow?.debounce !== undefined;
  }

  /** Says how a task is cancelled that a later one replaces. */
  cancelBy(cancel: CancelReplaced): void {
    this.#cancel = cancel;
  }

  /**
   * Accepts the task of a call by `accept`, if its key has no open task, or one that it replaces.
   * @returns what became of the call
   */
  async submit(call: SingleCall, accept: Accept): Promise<Submission> {
    if (this.#waiting >= MOST_WAITING) return BUSY;
    const { queue, workspaceId } = call.target;
    const place: SinglePlace = { queue, workspaceId, key: call.flow.key };
    const name = `${queue}\0${place.key}`;
    const before = this.#turns.get(name);
    const turn = (async (): Promise<Submission> => {
      await before?.catch(() => undefined);
      return await this.#inTurn(place, call, accept);
    })();
    this.#turns.set(name, turn);
    this.#waiting += 1;
    try {
      return await turn;
    } finally {
      this.#waiting -= 1;
      if (this.#turns.get(name) === turn) this.#turns.delete(name);
    }
  }

  async #inTurn(place: SinglePlace, call: SingleCall, accept: Accept): Promise<Submission> {
    const { rows, clock, log } = this.#parts;
    const claimed = await this.#claimed(place, call);
    if ('kind' in claimed) return claimed;
    let hasTask = false;
    try {
      const submission = await accept(() => clock.monotonicMs() - claimed.askedAtMs > COMMITTED_WITHIN_MS);
      // The claim lapses by itself if it was not committed.
      hasTask = mayHaveTask(submission);
      return submission;
    } finally {
      if (!hasTask)
        await rows.release(place, call.taskId).catch((error: unknown) => {
          log.info(
            { err: error, queue: place.queue },
            'the claim of a key by a task that was not accepted lapses later',
          );
        });
    }
  }

  /** Claims the key for the call. `askedAtMs`: monotonic milliseconds, before the claim was written. */
  async #claimed(place: SinglePlace, call: SingleCall): Promise<Answer | { readonly askedAtMs: number }> {
    const { rows, records, clock, signal } = this.#parts;
    const { singleton, cancelsRunning } = call.target.config.flow ?? {};
    let replaced: TaskId | undefined;
    for (let looks = 0; looks < LOOKS; looks += 1) {
      const askedAtMs = clock.monotonicMs();
      const holder = await rows.claim(place, call.taskId, replaced);
      if (holder === call.taskId) return { askedAtMs };
      const record = holder === undefined ? undefined : await records.read(holder);
      if (holder !== undefined && record !== undefined) {
        replaced = undefined;
        // The row has ended by now, so that the next claim finds the key free.
        if (isTerminalTask(record.status)) continue;
        if (singleton === 'skip') return { kind: 'skipped', by: 'singleton', taskId: holder };
        if (singleton === 'replace') {
          const mayCancel = record.status !== 'RUNNING' || cancelsRunning === true;
          if (!mayCancel || (await this.#cancel(record))) {
            replaced = holder;
            continue;
          }
        } else {
          const gathered = await this.#gather(record, call);
          if (gathered === 'yes') return { kind: 'skipped', by: 'debounce', taskId: holder };
          if (gathered === 'begun') {
            replaced = holder;
            continue;
          }
        }
      }
      // Another call of the key is being accepted, or its task is on its way to its queue.
      if (!(await sleep(PAUSE_MS, signal))) break;
    }
    return BUSY;
  }

  /**
   * Gives a task that waits the input of this call, and puts it off.
   * @returns `begun`: the task may have begun with an earlier input; `later`: it is not in its queue yet
   */
  async #gather({ taskId, queue, attempt, status }: TaskRecord, call: SingleCall): Promise<'yes' | 'begun' | 'later'> {
    const { rows, queues, clock } = this.#parts;
    const { debounce = 0, debounceMax } = call.target.config.flow ?? {};
    if (status !== 'PENDING' || attempt > 0) return 'begun';
    const job = await queues.read(queue, taskId);
    if (job === undefined) return 'later';
    const {
      input: _input,
      inputObjectId: _object,
      inputBytes: _bytes,
      forgetsInput: _forgets,
      query: _query,
      ...rest
    } = job;
    const lastMs = debounceMax === undefined ? Infinity : job.createdAtMs + debounceMax * 1000;
    const atMs = Math.min(clock.nowMs() + debounce * 1000, lastMs);
    // The task is due.
    if (atMs <= clock.nowMs()) return 'begun';
    const next: TaskJob = {
      ...rest,
      ...(await call.inputFor(taskId)),
      flow: { ...call.flow, isGathered: true, atMs },
    };
    const inputState: InputState = inputStateOf(next);
    const isWritten = await rows.replaceInput({
      taskId,
      job: encodeTaskJob(next),
      inputState,
      inputBytes: inputBytesOf(next),
    });
    if (!isWritten) return 'begun';
    // A task that was fetched meanwhile may have either input, so this one gets its own task.
    return (await queues.putOff(queue, next, atMs)) ? 'yes' : 'begun';
  }
}
