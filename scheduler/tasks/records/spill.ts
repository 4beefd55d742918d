// Task records that the database could not take: a list of batches in Redis, which the leader moves back. An agent
// forgets a result once its record is here. Redis may come back without its last seconds. So a batch also stays in
// memory for a while, and is appended again after a loss. A batch that is there twice changes nothing.
import type { Redis } from 'ioredis';
import { newId } from '#shared/domain/ids.ts';
import type { Keys } from '../../stores/queues/keys.ts';
import { unavailable } from '../../stores/queues/answers.ts';
import { defineScript } from '../../stores/queues/scripts.ts';
import type { Script } from '../../stores/queues/scripts.ts';
import type { RecordedChange } from './task-events.ts';

/** How long a batch stays in memory while Redis answers. It comes back at most two seconds older. */
const KEPT_MS = 10_000;
/** The same after Redis came back: the data are compared within this time, and the batches appended again. */
const BACK_MS = 15_000;
/** Most bytes that stay in memory; beyond this the oldest batches leave early. */
const MOST_KEPT_BYTES = 64 * 1024 ** 2;

/** A batch as the list has it. The id comes first, because the script looks for it there. */
interface Batch {
  readonly id: string;
  readonly records: number;
  readonly changes: readonly RecordedChange[];
}

interface Kept {
  readonly text: string;
  readonly records: number;
  readonly atMs: number;
}

export class Spill {
  readonly #client: Redis;
  readonly #keys: Pick<Keys, 'spilledRecords' | 'spilledTotals'>;
  readonly #append: Script;
  readonly #take: Script;
  readonly #keptMs: number;
  readonly #onClose = (): void => {
    this.#forgetOld();
    this.#heldUntilMs = Infinity;
  };
  readonly #onReady = (): void => void (this.#heldUntilMs = performance.now() + BACK_MS);
  #kept: Kept[] = [];
  #keptBytes = 0;
  #heldUntilMs = -Infinity;
  /** When Redis answered last: a loss that this process has not noticed yet was later. */
  #answeredAtMs = -Infinity;
  #timer: NodeJS.Timeout | undefined;
  /** Records and bytes in the list, as of the last look. */
  records = 0;
  bytes = 0;

  constructor(parts: { readonly client: Redis; readonly keys: Keys; readonly keptMs?: number }) {
    this.#keptMs = parts.keptMs ?? KEPT_MS;
    this.#client = parts.client;
    this.#keys = parts.keys;
    this.#append = defineScript(parts.client, 'longshoreSpillRecords');
    this.#take = defineScript(parts.client, 'longshoreTakeSpilled');
    parts.client.on('close', this.#onClose);
    parts.client.on('ready', this.#onReady);
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#kept = [];
    this.#client.off('close', this.#onClose);
    this.#client.off('ready', this.#onReady);
  }

  /** Appends a batch: every change of its tasks, in order. @throws AppError `queues_unavailable` */
  async append(changes: readonly RecordedChange[]): Promise<void> {
    const records = new Set(changes.map(({ record }) => record.taskId)).size;
    const one: Kept = {
      text: JSON.stringify({ id: newId(), records, changes } satisfies Batch),
      records,
      atMs: performance.now(),
    };
    await this.#push(one);
    this.#kept.push(one);
    this.#keptBytes += one.text.length;
    this.#forgetOld();
    this.#forgetLater();
  }

  /**
   * Appends the batches of the last seconds again, after Redis may have lost them.
   * @throws AppError `queues_unavailable`
   */
  async redisLost(): Promise<void> {
    for (const one of [...this.#kept]) await this.#push(one);
  }

  /** Whether the database has all that was ever spilled. @throws AppError `queues_unavailable` */
  async isEmpty(): Promise<boolean> {
    try {
      return (await this.#client.exists(this.#keys.spilledRecords)) === 0;
    } catch (error) {
      throw unavailable('look for task records on their way to the database', error);
    }
  }

  /** Looks how much is in the list. */
  async look(): Promise<void> {
    const [records, bytes] = await this.#client.hmget(this.#keys.spilledTotals, 'records', 'bytes');
    this.records = Number(records ?? 0);
    this.bytes = Number(bytes ?? 0);
    this.#answeredAtMs = performance.now();
  }

  /**
   * Moves the first batch to the database. The leader calls this.
   * @returns false: there was none
   * @throws when Redis does not answer, or the database does not take the batch
   */
  async moveOne(write: (changes: readonly RecordedChange[]) => Promise<unknown>): Promise<boolean> {
    const text = await this.#client.lindex(this.#keys.spilledRecords, 0);
    if (text === null) {
      this.records = this.bytes = 0;
      return false;
    }
    const { id, records, changes } = JSON.parse(text) as Batch;
    await write(changes);
    this.#saw(await this.#take.run(this.#keys.spilledRecords, this.#keys.spilledTotals, id, records));
    return true;
  }

  async #push({ text, records }: Kept): Promise<void> {
    try {
      this.#saw(await this.#append.run(this.#keys.spilledRecords, this.#keys.spilledTotals, text, records));
    } catch (error) {
      throw unavailable('keep task records while the database is away', error);
    }
  }

  #saw(answer: unknown): void {
    [this.records = 0, this.bytes = 0] = answer as number[];
    this.#answeredAtMs = performance.now();
  }

  /** Forgets also without a later batch: one that is appended again days later brings back rows that were deleted. */
  #forgetLater(): void {
    clearTimeout(this.#timer);
    if (this.#kept.length === 0) return;
    const forget = (): void => {
      this.#forgetOld();
      this.#forgetLater();
    };
    this.#timer = setTimeout(
      () =>
        void this.look()
          .catch(() => undefined)
          .then(forget),
      this.#keptMs,
    );
    this.#timer.unref();
  }

  #forgetOld(): void {
    const mayForget = performance.now() >= this.#heldUntilMs;
    const isOver = ({ atMs }: Kept): boolean => mayForget && this.#answeredAtMs - atMs >= this.#keptMs;
    let first = this.#kept[0];
    while (first !== undefined && (isOver(first) || this.#keptBytes > MOST_KEPT_BYTES)) {
      this.#kept.shift();
      this.#keptBytes -= first.text.length;
      first = this.#kept[0];
    }
  }
}
