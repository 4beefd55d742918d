// Inputs and results that are too large to travel inside a job or a record live as objects of the installation, named by their task.
import type { ObjectId, TaskId } from '#shared/domain/ids.ts';

/** Above this, a task's input is kept as an object. */
const INLINE_INPUT_BYTES = 64 * 1024;
/** Above this, a task's result is. */
const INLINE_RESULT_BYTES = 256 * 1024;

/** Bytes by id, as objects/ keeps them. */
export interface ByteStore {
  putBytes(id: ObjectId, bytes: Buffer): Promise<void>;
  getBytes(id: ObjectId): Promise<Buffer | undefined>;
}

export class Bodies {
  readonly #store: ByteStore;
  /** A larger result ends its task with an error that says so. */
  readonly maxResultBytes: number;

  constructor(store: ByteStore, maxResultBytes: number) {
    this.#store = store;
    this.maxResultBytes = maxResultBytes;
  }

  async storeInput(taskId: TaskId, input: string): Promise<{ input?: string; inputObjectId?: ObjectId }> {
    if (input === '') return {};
    // A UTF-16 unit is at most three bytes, so short texts need no count.
    if (input.length * 3 <= INLINE_INPUT_BYTES || Buffer.byteLength(input) <= INLINE_INPUT_BYTES) return { input };
    const inputObjectId = `task-input-${taskId}` as ObjectId;
    await this.#store.putBytes(inputObjectId, Buffer.from(input, 'utf8'));
    return { inputObjectId };
  }

  async loadInput(id: ObjectId): Promise<string> {
    const bytes = await this.#store.getBytes(id);
    if (bytes === undefined) throw new Error(`task input ${id} is gone`);
    return bytes.toString('utf8');
  }

  async storeResult(taskId: TaskId, text: string): Promise<{ result?: string; resultObjectId?: ObjectId }> {
    if (text.length * 3 <= INLINE_RESULT_BYTES || Buffer.byteLength(text) <= INLINE_RESULT_BYTES)
      return { result: text };
    const resultObjectId = `task-result-${taskId}` as ObjectId;
    await this.#store.putBytes(resultObjectId, Buffer.from(text, 'utf8'));
    return { resultObjectId };
  }

  async loadResult(id: ObjectId): Promise<string | undefined> {
    return (await this.#store.getBytes(id))?.toString('utf8');
  }
}
