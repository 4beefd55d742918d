// Inputs of synchronous calls that failed: each goes with the last record of its task. A call that succeeds costs
// nothing: its job is thrown away as before. A deployment that fails all calls must not fill the database, so each
// workspace has a budget for a minute.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import { encodeTaskJob } from '../../stores/queues/jobs.ts';
import { inputBytesOf, inputStateOf } from '../records/recording.ts';
import type { TaskRecord } from '../records/task-record.ts';

const MINUTE_MS = 60_000;
/** Most bytes of such inputs that a replica keeps for a workspace in a minute. */
const BYTES_A_MINUTE = 8 * 1024 * 1024;
/** Least bytes that an input counts. */
const LEAST_BYTES = 1024;

export type KeptInput = Pick<TaskRecord, 'inputState' | 'inputBytes' | 'keptJob'>;

export class FailedInputs {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  readonly #mostBytes: number;
  /** Bytes of this minute; cleared when the next one begins. */
  readonly #spent = new Map<WorkspaceId, number>();
  #minute = 0;

  constructor(clock: Pick<Clock, 'monotonicMs'>, mostBytes = BYTES_A_MINUTE) {
    this.#clock = clock;
    this.#mostBytes = mostBytes;
  }

  /** Fields of the last record of a task about its input; empty unless it is a synchronous call that failed. */
  of(job: TaskJob, status: TaskStatus): KeptInput {
    if (!job.sync || (status !== 'ERROR' && status !== 'TIMEOUT')) return {};
    const inputState = inputStateOf(job);
    const inputBytes = inputBytesOf(job);
    if (inputState !== 'kept') return { inputState, inputBytes };
    if (!this.#mayKeep(job.workspaceId, Math.max(LEAST_BYTES, inputBytes)))
      return { inputState: 'too_many', inputBytes };
    return { inputState, inputBytes, keptJob: encodeTaskJob(job) };
  }

  #mayKeep(workspaceId: WorkspaceId, bytes: number): boolean {
    const minute = Math.floor(this.#clock.monotonicMs() / MINUTE_MS);
    if (minute !== this.#minute) this.#spent.clear();
    this.#minute = minute;
    const spent = (this.#spent.get(workspaceId) ?? 0) + bytes;
    if (spent > this.#mostBytes) return false;
    this.#spent.set(workspaceId, spent);
    return true;
  }
}
