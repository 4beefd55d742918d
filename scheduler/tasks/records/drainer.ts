// Drain of task records from the stream in Redis to the database, in batches, by the leader.
// Invariant: an entry leaves the stream only after the database has it, so a crash in between
// only repeats the write; the store's guard (attempt, rank) makes that harmless. There is no
// consumer group: the one reader deletes everything up to the last entry read after the commit.
import type { Redis } from 'ioredis';
import type { TaskId } from '#shared/domain/ids.ts';
import { messageOf } from '#shared/errors.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import { Counter } from '#shared/metrics.ts';
import type { Registry } from '#shared/metrics.ts';
import type { Keys } from '../../stores/queues/keys.ts';
import { DrainLoop, writeHalved } from '../../stores/queues/drain-loop.ts';
import type { StreamedRecord } from './task-events.ts';
import { parseTaskRecord } from './task-record.ts';
import { SMALL_RECORD } from './records.ts';
import type { TaskRecord } from './task-record.ts';
import { mayReplace } from '../state.ts';

export const DRAIN_BATCH = 500;
/** Bytes at which a batch of large results is cut, so that one statement stays small. */
const BATCH_BYTES = 8 * 1024 * 1024;
const SWEEP_MS = 250;
/**
 * Milliseconds in which appends are collected into one batch. Lists lag by this time,
 * reads by id do not. The database writes a row per task instead of one per change.
 */
const COALESCE_MS = 200;
/** Seconds for which Redis keeps a final record that the database has: readers under way still find it. */
const DRAINED_TTL_S = 60;
const MAX_SET_ASIDE = 10_000;

export interface DrainerOptions {
  readonly client: Redis;
  readonly keys: Keys;
  readonly log: Log;
  /**
   * Writes the whole batch at once, at most one record per task; an older record never replaces a newer one.
   * @param streamed - every entry of these tasks in the batch, in order
   */
  readonly write: (records: readonly TaskRecord[], streamed: readonly StreamedRecord[]) => Promise<unknown>;
  /**
   * Whether the database will never take this record, in any state. The default checks for SQLSTATE classes 22 and 23.
   */
  readonly isRefusal?: (error: unknown) => boolean;
  readonly registry?: Registry;
  readonly batch?: number;
  readonly sweepMs?: number;
  readonly coalesceMs?: number;
}

interface Batch {
  readonly lastId: string;
  readonly entries: number;
  readonly full: boolean;
  readonly records: readonly TaskRecord[];
  readonly streamed: readonly StreamedRecord[];
  readonly unreadable: readonly Unreadable[];
}

/** An entry that is no record. */
interface Unreadable {
  readonly text: string;
  readonly reason: string;
}

export class Drainer {
  readonly #options: DrainerOptions;
  readonly #batchSize: number;
  readonly #written: Counter | undefined;
  readonly #setAside: Counter | undefined;
  readonly #drained = new Listeners<[number]>();
  readonly #loop: DrainLoop<number>;

  constructor(options: DrainerOptions) {
    this.#options = options;
    this.#batchSize = options.batch ?? DRAIN_BATCH;
    this.#loop = new DrainLoop({
      drain: (signal) => this.#drainAll(signal),
      onFailed: (error, failures) =>
        options.log.warn({ err: error, failures }, 'task records cannot be drained; trying again'),
      sweepMs: options.sweepMs ?? SWEEP_MS,
      coalesceMs: options.coalesceMs ?? COALESCE_MS,
    });
    if (options.registry !== undefined) {
      const registers = [options.registry];
      this.#written = new Counter({
        name: 'longshore_task_records_written_total',
        help: 'Task records that reached the database, after collapsing those of one task.',
        registers,
      });
      this.#setAside = new Counter({
        name: 'longshore_task_records_set_aside_total',
        help: 'Task records that the database refuses or nobody can read, kept in Redis for a person to look at.',
        registers,
      });
    }
  }

  /** Told after each batch how many records are left in the stream. */
  onDrained(listener: (left: number) => void): void {
    this.#drained.add(listener);
  }

  /** Drains within a few milliseconds, because something was appended. */
  wake(): void {
    this.#loop.wake();
  }

  /** Drains until the signal ends it; runs on the leader. Resolves when it has stopped. */
  start(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal);
  }

  /**
   * Drains all entries there are now.
   * @returns entries taken off the stream
   * @throws when Redis or the database fails
   */
  flush(signal?: AbortSignal): Promise<number> {
    return this.#loop.flush(signal);
  }

  async #drainAll(signal: AbortSignal | undefined): Promise<number> {
    let drained = 0;
    let batch = await this.#readBatch('-');
    while (batch !== undefined) {
      const from = `(${batch.lastId}`;
      // Redis and this process prepare the next batch while the database writes this one. Large records wait.
      const ahead = batch.entries === this.#batchSize ? this.#readBatch(from) : undefined;
      ahead?.catch(() => undefined);
      await this.#take(batch);
      drained += batch.entries;
      if (!batch.full || signal?.aborted === true) break;
      batch = await (ahead ?? this.#readBatch(from));
    }
    return drained;
  }

  /** Writes a batch, and removes it from the stream. */
  async #take(batch: Batch): Promise<void> {
    await this.#write(batch.records, batch.streamed);
    for (const { text, reason } of batch.unreadable) await this.#putAside(text, reason);
    await this.#forget(batch);
  }

  /** @param from - start of a range of the stream, as XRANGE takes it */
  async #readBatch(from: string): Promise<Batch | undefined> {
    const { client, keys } = this.#options;
    const entries = await client.xrange(keys.records, from, '+', 'COUNT', this.#batchSize);
    const newest = new Map<TaskId, TaskRecord>();
    const streamed: StreamedRecord[] = [];
    const unreadable: Unreadable[] = [];
    let lastId: string | undefined;
    let taken = 0;
    let bytes = 0;
    for (const [id, fields] of entries) {
      const text = fields[1] ?? '';
      if (taken > 0 && bytes + text.length > BATCH_BYTES) break;
      bytes += text.length;
      taken += 1;
      lastId = id;
      try {
        const record = parseTaskRecord(text);
        streamed.push({ record, atMs: Number.parseInt(id, 10) });
        const held = newest.get(record.taskId);
        // The later of two equal records wins: it was written with more knowledge.
        if (held === undefined || mayReplace(record, held)) newest.set(record.taskId, record);
      } catch (error) {
        unreadable.push({ text, reason: messageOf(error) });
      }
    }
    if (lastId === undefined) return undefined;
    return {
      lastId,
      entries: taken,
      full: taken < entries.length || taken === this.#batchSize,
      records: [...newest.values()],
      streamed,
      unreadable,
    };
  }

  /** Writes a batch; a record that the database refuses holds up no other. */
  #write(records: readonly TaskRecord[], streamed: readonly StreamedRecord[]): Promise<void> {
    const { isRefusal, log, write } = this.#options;
    return writeHalved(records, {
      write: async (some) => {
        const tasks = new Set(some.map(({ taskId }) => taskId));
        const ofThese = some === records ? streamed : streamed.filter(({ record }) => tasks.has(record.taskId));
        await write(some, ofThese);
        this.#written?.inc(some.length);
      },
      refused: async (record, error) => {
        log.error({ err: error, taskId: record.taskId }, 'the database refuses a task record');
        await this.#putAside(JSON.stringify(record), messageOf(error));
      },
      ...(isRefusal === undefined ? {} : { isRefusal }),
    });
  }

  async #forget(batch: Batch): Promise<void> {
    const { client, keys } = this.#options;
    const trimmed = client.xtrim(keys.records, 'MINID', '=', idAfter(batch.lastId));
    const large = batch.records.filter(({ rank, result }) => rank >= 3 && (result?.length ?? 0) > SMALL_RECORD / 2);
    const expiring = large.map(({ taskId }) => client.expire(keys.task(taskId), DRAINED_TTL_S));
    const [left] = await Promise.all([client.xlen(keys.records), trimmed, ...expiring]);
    this.#drained.tell(left);
  }

  async #putAside(text: string, reason: string): Promise<void> {
    const { client, keys } = this.#options;
    this.#setAside?.inc();
    await client.xadd(keys.recordsAside, 'MAXLEN', '~', MAX_SET_ASIDE, '*', 'record', text, 'reason', reason);
  }
}

/** Smallest stream id after this one. */
function idAfter(id: string): string {
  const [ms = '0', sequence = '0'] = id.split('-');
  return `${ms}-${BigInt(sequence) + 1n}`;
}
