// Batches of task records from this process to the database. Records are collected for a moment, so that most
// synchronous tasks are one row, written once. Invariants: a batch is sorted by task, because two writers with opposite
// orders would deadlock. One write is under way. A record leaves this process when the database has it, or, while the
// database is away, the spill. Writing a record twice, or an older one after a newer one, changes nothing.
import type { TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { withDeadline } from '#shared/backoff.ts';
import { MOST_EVENTS_OF_RECORD } from '../../domain/task-changes.ts';
import { MAX_EVENT_BATCH } from '../../stores/store/queries/events.ts';
import { isNewer } from './task-record.ts';
import type { TaskRecord } from './task-record.ts';
import type { RecordedChange } from './task-events.ts';
import { standsFor } from './task-events.ts';
import { mayReplace } from '../state.ts';

/** How long records are collected. */
const COLLECT_MS = 200;
/** How long records wait in memory for a database that does not take them. */
const PATIENCE_MS = 2_000;
const PROBE_MS = 1_000;
const MOST_RECORDS = 500;
const MOST_BYTES = 8 * 1024 ** 2;
/** Most changes in one write: each may be as many events as a record shows. */
const MOST_CHANGES = Math.floor(MAX_EVENT_BATCH / MOST_EVENTS_OF_RECORD);
/** Size of a record without its texts. */
const RECORD_BYTES = 700;

export interface RecordWriterParts {
  /** Writes the newest record of each task, and the events of all changes, in one transaction. */
  readonly write: (records: readonly TaskRecord[], changes: readonly RecordedChange[]) => Promise<unknown>;
  /** Keeps changes while the database is away. @throws when it cannot */
  readonly spill: (changes: readonly RecordedChange[]) => Promise<void>;
  /** Told of records that this process need not keep any more. */
  readonly onSafe: (records: readonly TaskRecord[]) => void;
  readonly log: Log;
  /** Tests shorten these. */
  readonly collectMs?: number | undefined;
  readonly patienceMs?: number | undefined;
}

/** Records of one task that are not safe yet. */
interface Entry {
  /** The newest one. */
  record: TaskRecord;
  /** All changes that are told of, oldest first, as many as one write takes: beyond that, early ones are left out. */
  changes: RecordedChange[];
  readonly sinceMs: number;
  readonly safe: PromiseWithResolvers<boolean>;
  bytes: number;
}

export class RecordWriter {
  readonly #parts: RecordWriterParts;
  readonly #collectMs: number;
  readonly #patienceMs: number;
  /** Oldest first. */
  #held = new Map<TaskId, Entry>();
  #writing = new Map<TaskId, Entry>();
  #bytes = 0;
  #timer: NodeJS.Timeout | undefined;
  #timerMs = Infinity;
  #round: Promise<void> | undefined;
  /** Records held since then or before go out without delay. */
  #urgentMs = -Infinity;
  /** Open synchronous tasks that the last batch left. */
  #left = 0;
  /** Since when the database fails, and when it was asked last; undefined: it works. */
  #failing: { askedAtMs: number } | undefined;
  /** When the spill failed last. */
  #spillFailedMs = -Infinity;
  /** A write that the database has not answered in time. */
  #unanswered: Promise<unknown> | undefined;
  #isClosed = false;

  constructor(parts: RecordWriterParts) {
    this.#parts = parts;
    this.#collectMs = parts.collectMs ?? COLLECT_MS;
    this.#patienceMs = parts.patienceMs ?? PATIENCE_MS;
  }

  /** Records that are not safe yet. */
  get size(): number {
    return this.#held.size + this.#writing.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Takes a record. An older one than the newest here is left out.
   * @param isUrgent - somebody waits for it: it goes out with the next write
   * @returns true: the database or the spill has it; false: this process ends without that. It never rejects
   */
  append(record: TaskRecord, isUrgent = false): Promise<boolean> {
    if (this.#isClosed) return Promise.resolve(false);
    const held = this.#held.get(record.taskId);
    if (held !== undefined && !mayReplace(record, held.record)) return held.safe.promise;
    const entry = held ?? newEntry(record);
    const change = { record, atMs: Date.now() };
    const last = entry.changes.at(-1);
    if (last !== undefined && standsFor(change, last)) entry.changes.pop();
    addChanges(entry, [change]);
    entry.record = record;
    const bytes = sizeOf(record);
    this.#bytes += bytes;
    entry.bytes += bytes;
    this.#held.set(record.taskId, entry);
    if (isUrgent) this.#urgentMs = performance.now();
    this.#schedule();
    return entry.safe.promise;
  }

  /** Resolves like {@link append} for what is known of the task here; true when nothing is, until this process ends. */
  safe(taskId: TaskId): Promise<boolean> {
    const entry = this.#held.get(taskId) ?? this.#writing.get(taskId);
    return entry === undefined ? Promise.resolve(!this.#isClosed) : entry.safe.promise;
  }

  holds(taskId: TaskId): boolean {
    return this.#held.has(taskId) || this.#writing.has(taskId);
  }

  /** The newest record that is held of the task. */
  newestOf(taskId: TaskId): TaskRecord | undefined {
    const [held, writing] = [this.#held.get(taskId)?.record, this.#writing.get(taskId)?.record];
    return held === undefined || (writing !== undefined && isNewer(writing, held)) ? writing : held;
  }

  /** Drops what is held of a task that has not ended as far as is known here: its end is recorded elsewhere. */
  endedElsewhere(taskId: TaskId): void {
    const entry = this.#held.get(taskId);
    if (entry === undefined || entry.record.rank >= 3) return;
    this.#held.delete(taskId);
    this.#bytes -= entry.bytes;
    entry.safe.resolve(true);
  }

  /** Writes what is held now. @returns false: some of it is not safe, because the stores are away */
  async flush(): Promise<boolean> {
    return await this.#urge([...this.#writing.values(), ...this.#held.values()]);
  }

  /** Writes what is held now, and waits for these tasks alone. @returns like {@link flush} */
  async urge(taskIds: readonly TaskId[]): Promise<boolean> {
    const entries = taskIds.flatMap((taskId) => [this.#writing.get(taskId), this.#held.get(taskId)]);
    return await this.#urge(entries.filter((one) => one !== undefined));
  }

  async #urge(waiting: readonly Entry[]): Promise<boolean> {
    if (waiting.length === 0) return true;
    this.#urgentMs = performance.now();
    this.#schedule();
    const all = Promise.all(waiting.map(({ safe }) => safe.promise)).then((safe) => safe.every(Boolean));
    return await withDeadline(all, this.#patienceMs + PROBE_MS, silence).catch(() => false);
  }

  /** Writes what is held. @returns how many records are lost, because neither the database nor Redis takes them */
  async close(): Promise<number> {
    // More records come while the last ones are written.
    const drain = async (): Promise<void> => {
      while (this.size > 0 && (await this.flush())) continue;
    };
    await withDeadline(drain(), this.#patienceMs + PROBE_MS, silence).catch(() => undefined);
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#round;
    const lost = this.size;
    for (const { safe } of [...this.#held.values(), ...this.#writing.values()]) safe.resolve(false);
    return lost;
  }

  #schedule(): void {
    if (this.#round !== undefined || this.#isClosed || this.#held.size === 0) return;
    const inMs = this.#isDue() && this.#failing === undefined ? 0 : this.#collectMs;
    const atMs = performance.now() + inMs;
    if (atMs >= this.#timerMs) return;
    clearTimeout(this.#timer);
    this.#timerMs = atMs;
    this.#timer = setTimeout(() => {
      this.#timerMs = Infinity;
      this.#round = this.#write().finally(() => {
        this.#round = undefined;
        this.#schedule();
      });
    }, inMs);
  }

  /** Whether a batch is full, or somebody waits for the oldest record. */
  #isDue(): boolean {
    const oldest = this.#held.values().next().value;
    if (oldest === undefined) return false;
    return oldest.sinceMs <= this.#urgentMs || this.#held.size - this.#left >= MOST_RECORDS;
  }

  /** Writes one batch, and further ones that are due. */
  async #write(): Promise<void> {
    do {
      if (this.#areStoresAway()) return;
      const batch = this.#take();
      if (batch.length === 0) return;
      const isSafe = await this.#store(batch);
      this.#writing = new Map();
      if (!isSafe) return this.#putBack(batch);
      this.#settle(batch);
    } while (this.#isDue());
  }

  /** Whether to ask the database: one that is away is asked once a second. */
  #mayAsk(): boolean {
    if (this.#unanswered !== undefined) return false;
    return this.#failing === undefined || performance.now() - this.#failing.askedAtMs >= PROBE_MS;
  }

  /** Whether no store is asked now: to take a batch and to put it back costs as much as all records that are held. */
  #areStoresAway(): boolean {
    const oldest = this.#held.values().next().value;
    if (oldest === undefined || this.#mayAsk()) return false;
    const nowMs = performance.now();
    return nowMs - oldest.sinceMs < this.#patienceMs || nowMs - this.#spillFailedMs < PROBE_MS;
  }

  /** Open synchronous tasks are left for a moment, because most of them end within it, unless somebody waits. */
  #take(): readonly Entry[] {
    const openSinceMs = Math.max(this.#urgentMs, performance.now() - this.#collectMs);
    const batch: Entry[] = [];
    let [bytes, changes] = [0, 0];
    this.#left = 0;
    for (const entry of this.#held.values()) {
      const { record, sinceMs } = entry;
      if (record.sync && record.rank < 3 && sinceMs > openSinceMs) {
        this.#left += 1;
        continue;
      }
      const isOver = bytes + entry.bytes > MOST_BYTES || changes + entry.changes.length > MOST_CHANGES;
      if (batch.length >= MOST_RECORDS || (batch.length > 0 && isOver)) break;
      bytes += entry.bytes;
      changes += entry.changes.length;
      batch.push(entry);
    }
    for (const { record } of batch) this.#held.delete(record.taskId);
    batch.sort((a, b) => (a.record.taskId < b.record.taskId ? -1 : 1));
    this.#writing = new Map(batch.map((entry) => [entry.record.taskId, entry]));
    return batch;
  }

  /** @returns false: the batch is neither in the database nor in the spill */
  async #store(batch: readonly Entry[]): Promise<boolean> {
    if (await this.#reaches(batch)) return true;
    const oldestMs = Math.min(...batch.map(({ sinceMs }) => sinceMs));
    if (performance.now() - oldestMs < this.#patienceMs) return false;
    try {
      await this.#parts.spill(changesOf(batch));
      return true;
    } catch (error) {
      this.#spillFailedMs = performance.now();
      this.#parts.log.warn({ err: error, records: this.size }, 'neither the database nor Redis takes task records');
      return false;
    }
  }

  /** Whether the database takes the batch. */
  async #reaches(batch: readonly Entry[]): Promise<boolean> {
    const { write, log } = this.#parts;
    if (!this.#mayAsk()) return false;
    let isOver = false;
    const writing = write(
      batch.map(({ record }) => record),
      changesOf(batch),
    ).finally(() => {
      isOver = true;
      this.#unanswered = undefined;
    });
    try {
      await withDeadline(writing, this.#patienceMs, silence);
      if (this.#failing !== undefined) log.info('task records reach the database again');
      this.#failing = undefined;
      return true;
    } catch (error) {
      if (!isOver) this.#unanswered = writing.catch(() => undefined);
      if (this.#failing === undefined) log.warn({ err: error }, 'task records do not reach the database, trying again');
      this.#failing = { askedAtMs: performance.now() };
      return false;
    }
  }

  #putBack(batch: readonly Entry[]): void {
    const newer = this.#held;
    this.#held = new Map(batch.toSorted((a, b) => a.sinceMs - b.sinceMs).map((entry) => [entry.record.taskId, entry]));
    for (const [taskId, entry] of newer) {
      const older = this.#held.get(taskId);
      if (older === undefined) {
        this.#held.set(taskId, entry);
        continue;
      }
      addChanges(older, entry.changes);
      older.bytes += entry.bytes;
      if (isNewer(entry.record, older.record)) older.record = entry.record;
      void older.safe.promise.then((safe) => entry.safe.resolve(safe));
    }
  }

  #settle(batch: readonly Entry[]): void {
    for (const { bytes } of batch) this.#bytes -= bytes;
    this.#parts.onSafe(batch.map(({ record }) => record));
    for (const { safe } of batch) safe.resolve(true);
  }
}

const silence = (): Error => new Error('the database does not answer');

const newEntry = (record: TaskRecord): Entry => ({
  record,
  changes: [],
  sinceMs: performance.now(),
  safe: Promise.withResolvers(),
  bytes: 0,
});

/** The first change stays, because it tells that the task was created, and so do the last ones. */
function addChanges({ changes }: Entry, later: readonly RecordedChange[]): void {
  changes.push(...later);
  if (changes.length > MOST_CHANGES) changes.splice(1, changes.length - MOST_CHANGES);
}

const sizeOf = ({ result, keptJob, past }: TaskRecord): number =>
  RECORD_BYTES + (result?.length ?? 0) + (keptJob?.length ?? 0) + (past === undefined ? 0 : past.length * RECORD_BYTES);

/** The changes of a batch, in the order in which they were noted. */
const changesOf = (batch: readonly Entry[]): readonly RecordedChange[] =>
  batch.flatMap(({ changes }) => changes).sort((a, b) => a.atMs - b.atMs);
