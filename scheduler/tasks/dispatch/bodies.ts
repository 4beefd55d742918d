// Inputs and results that are too large for a job or a record:
// kept as objects of the installation, named by their task.
import type { ObjectId, TaskId } from '#shared/domain/ids.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import { INLINE_INPUT_BYTES } from '../../domain/task-inputs.ts';
import { MAX_INLINE_RESULT_BYTES } from '../records/records.ts';
import type { TaskRecord } from '../records/task-record.ts';

/** Most bytes of a result within its record; a larger one is kept as an object. */
const INLINE_RESULT_BYTES = MAX_INLINE_RESULT_BYTES;

const INPUT_PREFIX = 'input-';
export const inputKeyOf = (taskId: TaskId): ObjectId => `${INPUT_PREFIX}${taskId}` as ObjectId;
/** Task of an input's key; undefined: not an input's key. */
export const taskOfInputKey = (key: string): TaskId | undefined =>
  key.startsWith(INPUT_PREFIX) ? (key.slice(INPUT_PREFIX.length) as TaskId) : undefined;

/** Whether an input travels in its job. A UTF-16 unit is at most three bytes, so short texts need no count. */
export const isInline = (input: string): boolean =>
  input.length * 3 <= INLINE_INPUT_BYTES || Buffer.byteLength(input) <= INLINE_INPUT_BYTES;

/** Store of bytes under ids of their own, as objects/ keeps them. */
export interface ByteStore {
  /** @param key - absent: a new id */
  putBytes(bytes: Uint8Array, key?: ObjectId): Promise<ObjectId>;
  getBytes(id: ObjectId, maxBytes: number): Promise<Uint8Array | undefined>;
  removeBytes(id: ObjectId): Promise<void>;
}

export class TaskBodies {
  readonly #store: ByteStore;
  /** Most bytes of a result; a larger one ends its task with an error that says so. */
  readonly maxResultBytes: number;
  readonly #maxInputBytes: number;
  /** Most bytes as stored: Base64 of the largest result, and the braces around it. */
  readonly #maxStoredBytes: number;

  constructor(store: ByteStore, limits: { readonly maxResultBytes: number; readonly maxInputBytes: number }) {
    this.#store = store;
    this.maxResultBytes = limits.maxResultBytes;
    this.#maxInputBytes = limits.maxInputBytes;
    this.#maxStoredBytes = Math.ceil((limits.maxResultBytes * 4) / 3) + 1024;
  }

  /** Stores an input. @param taskId - names the object, so that the input of a task that is over can be found */
  async storeInput(
    input: string,
    taskId: TaskId,
  ): Promise<{ input?: string; inputObjectId?: ObjectId; inputBytes?: number }> {
    if (input === '') return {};
    if (isInline(input)) return { input };
    const bytes = Buffer.from(input, 'utf8');
    return { inputObjectId: await this.#store.putBytes(bytes, inputKeyOf(taskId)), inputBytes: bytes.length };
  }

  async loadInput(id: ObjectId): Promise<string> {
    const input = await this.#load(id);
    if (input === undefined) throw new Error(`task input ${id} is gone`);
    return input;
  }

  /** The input of a queue entry, from it or its object; undefined: the object is gone. */
  async findInput({
    input = '',
    inputObjectId,
  }: Pick<TaskJob, 'input' | 'inputObjectId'>): Promise<string | undefined> {
    return inputObjectId === undefined ? input : await this.#load(inputObjectId);
  }

  async #load(id: ObjectId): Promise<string | undefined> {
    const bytes = await this.#store.getBytes(id, this.#maxInputBytes);
    return bytes === undefined ? undefined : Buffer.from(bytes).toString('utf8');
  }

  /** Keeps a result in its record, or as an object. @throws when the object store does not take it */
  async storeResult(text: string): Promise<{ result?: string; resultObjectId?: ObjectId }> {
    if (text.length * 3 <= INLINE_RESULT_BYTES || Buffer.byteLength(text) <= INLINE_RESULT_BYTES)
      return { result: text };
    return { resultObjectId: await this.#store.putBytes(Buffer.from(text, 'utf8')) };
  }

  async loadResult(id: ObjectId): Promise<string | undefined> {
    const bytes = await this.#store.getBytes(id, this.#maxStoredBytes);
    return bytes === undefined ? undefined : Buffer.from(bytes).toString('utf8');
  }

  /** Result of a task as text, from its record or its object; undefined: there is none. */
  async resultText({ result, resultObjectId }: TaskRecord): Promise<string | undefined> {
    if (result !== undefined) return result;
    return resultObjectId === undefined ? undefined : await this.loadResult(resultObjectId);
  }

  /** Drops the input of a task that ended, because nobody reads it again. */
  async dropInput(id: ObjectId | undefined): Promise<void> {
    if (id !== undefined) await this.#store.removeBytes(id);
  }
}
