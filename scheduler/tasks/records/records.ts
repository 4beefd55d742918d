// Records of tasks on their way to the database: written to Redis in the turn of the change,
// drained in batches by the leader. Dispatch and the service append, reads by id look here
// first, and the drainer hands the store whole batches. Invariants: a record is in Redis until
// the database has it. Writing it twice, or an older one after a newer one, changes nothing.
import type { Redis } from 'ioredis';
import type { TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { Counter, Gauge } from '#shared/metrics.ts';
import type { Registry } from '#shared/metrics.ts';
import type { Keys } from '../../stores/queues/keys.ts';
import { unavailable } from '../../stores/queues/answers.ts';
import { defineScript } from '../../stores/queues/scripts.ts';
import type { Script } from '../../stores/queues/scripts.ts';
import { atTurnEnd } from '../../stores/queues/turns.ts';
import { RecentRecords } from './recent-records.ts';
import { encodeTaskRecord, isNewer, parseTaskRecord } from './task-record.ts';
import type { TaskRecord } from './task-record.ts';

/** Most bytes of a result's text in a record; a larger one goes to an object. */
export const MAX_INLINE_RESULT_BYTES = 256 * 1024;
/** Seconds for which a task's newest record stays readable in Redis. */
const RECORD_TTL_S = 3600;
/** Length up to which a final record gets a short life in Redis at once; a larger one gets it from the drainer. */
export const SMALL_RECORD = 8 * 1024;
const FINAL_TTL_S = 300;
/**
 * Milliseconds of a turn. Records of tasks whose id nobody knows yet
 * are written after one to two turns, unless a newer one came first.
 */
const SOON_MS = 100;
/** Records on their way to the database above which nothing new is admitted. */
export const OVERLOADED_RECORDS = 1_000_000;
/** Bytes above which nothing new is admitted, by the mean size of this replica's appends. */
export const OVERLOADED_BYTES = 1024 ** 3;
/** Most entries of the stream: four times the admission bound, so that only a fault reaches it. */
const MOST_RECORDS = 4 * OVERLOADED_RECORDS;
/** Script answer for a record that the lease of a newer attempt refuses. */
const REFUSED_BY_ATTEMPT = -2;
/** Most records kept here while Redis does not take them. */
const MAX_UNSENT = 20_000;
const RESEND_AFTER_MS = 500;
const RECHECK_AFTER_MS = 1000;
/** Most records in one command, and their characters. */
const MOST_AT_ONCE = 200;
const MOST_TEXT_AT_ONCE = 512 * 1024;

/** Records of this turn of the event loop. */
interface Batch {
  readonly records: TaskRecord[];
  /** Resolves to true when Redis has them all; records of a failed command are kept. Never rejects. */
  readonly sent: Promise<boolean>;
}

export interface TaskRecordsOptions {
  /** Client that fails fast (no offline queue, a command timeout). The caller closes it. */
  readonly client: Redis;
  readonly keys: Keys;
  readonly log: Log;
  /** Loads the record as the database has it. */
  readonly loadFromDb: (taskId: TaskId) => Promise<TaskRecord | undefined>;
  readonly registry?: Registry;
  readonly overloadedRecords?: number;
}

/** Appends and reads task records. */
export class TaskRecords {
  readonly #client: Redis;
  readonly #keys: Keys;
  readonly #log: Log;
  readonly #loadFromDb: TaskRecordsOptions['loadFromDb'];
  readonly #script: Script;
  readonly #overloadedRecords: number;
  readonly #failures: Counter | undefined;
  readonly #backlog: Gauge | undefined;
  readonly #listeners = new Set<() => void>();
  /** Newest record of each task that Redis did not take. */
  readonly #unsent = new Map<TaskId, TaskRecord>();
  /** Newest record of each task that is on its way to Redis and not yet confirmed. */
  readonly #sending = new Map<TaskId, TaskRecord>();
  readonly #underWay = new Set<Promise<void>>();
  readonly #recent = new RecentRecords();
  readonly #onClose = (): void => this.#recent.away();
  readonly #onReady = (): void => this.#recent.back();
  /** Time of the last loss of data; the start counts, since a new process does not know what Redis lost before. */
  #lostAtMs = performance.now();
  #batch: Batch | undefined;
  #soon = new Map<TaskId, TaskRecord>();
  #older = new Map<TaskId, TaskRecord>();
  #soonTimer: NodeJS.Timeout | undefined;
  #resendTimer: NodeJS.Timeout | undefined;
  #length = 0;
  #meanBytes = 0;
  #checkedAtMs = 0;
  #wasOverloaded = false;
  #closed = false;

  constructor(options: TaskRecordsOptions) {
    this.#client = options.client;
    this.#keys = options.keys;
    this.#log = options.log;
    this.#loadFromDb = options.loadFromDb;
    this.#script = defineScript(options.client, 'longshoreAppendRecords');
    this.#overloadedRecords = options.overloadedRecords ?? OVERLOADED_RECORDS;
    options.client.on('close', this.#onClose);
    options.client.on('ready', this.#onReady);
    if (options.registry !== undefined) {
      const registers = [options.registry];
      this.#failures = new Counter({
        name: 'longshore_task_record_failures_total',
        help: 'Task records that Redis did not take, by what became of them; stale: they came after the end, or from an attempt that another one followed.',
        labelNames: ['result'],
        registers,
      });
      this.#backlog = new Gauge({
        name: 'longshore_task_records_backlog',
        help: 'Task records in Redis that the database does not have yet.',
        registers,
      });
    }
  }

  /**
   * Writes the record to Redis before this turn ends, together with the turn's
   * others: its key and its entry on the stream. A record that Redis does not take
   * is kept here and sent again. No caller need await the promise; it never rejects.
   * @returns true when Redis has it, false when it is kept for another try
   * @throws TypeError when the result is larger than {@link MAX_INLINE_RESULT_BYTES}: it belongs in an object
   */
  append(record: TaskRecord): Promise<boolean> {
    this.#soon.delete(record.taskId);
    this.#older.delete(record.taskId);
    return this.#append(record);
  }

  #append(record: TaskRecord): Promise<boolean> {
    if (record.result !== undefined && Buffer.byteLength(record.result) > MAX_INLINE_RESULT_BYTES) {
      throw new TypeError(`the result of task ${record.taskId} is too large for its record`);
    }
    return this.#send(record);
  }

  /**
   * Appends a record that may wait a moment, because nobody knows the task's id yet; a
   * newer record replaces it. Most synchronous tasks end before that and are written once.
   */
  appendSoon(record: TaskRecord): void {
    const held = this.#soon.get(record.taskId) ?? this.#older.get(record.taskId);
    if (held !== undefined && !isNewer(record, held)) return;
    this.#soon.set(record.taskId, record);
    if (this.#soonTimer !== undefined || this.#closed) return;
    this.#soonTimer = setInterval(() => this.#turnSoon(), SOON_MS);
    this.#soonTimer.unref();
  }

  /** Sends records that waited a whole turn; newer ones wait one turn more. */
  #turnSoon(): void {
    const due = this.#older;
    this.#older = this.#soon;
    this.#soon = new Map();
    for (const record of due.values()) if (!this.#older.has(record.taskId)) void this.#append(record);
    if (this.#older.size > 0) return;
    clearInterval(this.#soonTimer);
    this.#soonTimer = undefined;
  }

  /**
   * Newest record: here, in Redis, else in the database.
   * @throws AppError `queues_unavailable` when neither here nor the database knows it and Redis does not answer
   */
  async read(taskId: TaskId): Promise<TaskRecord | undefined> {
    const here = this.#newestHere(taskId);
    let text: string | null = null;
    let unread: unknown;
    try {
      text = await this.#client.get(this.#keys.task(taskId));
    } catch (error) {
      unread = error;
      this.#log.debug({ err: error, taskId }, 'record not readable in Redis, asking the database');
    }
    const held = text === null ? undefined : parseTaskRecord(text);
    const newest = held === undefined ? await this.#loadFromDb(taskId) : await this.#orItsRow(held);
    if (here !== undefined && (newest === undefined || isNewer(here, newest))) return here;
    // The record may be in Redis alone, on its way to the database. So the task must not be reported as unknown.
    if (newest === undefined && unread !== undefined) throw unavailable(`read the record of task ${taskId}`, unread);
    return newest;
  }

  /**
   * Newer one of the record and the task's row. A Redis that came back
   * older has older records, too, for as long as records live there.
   */
  async #orItsRow(held: TaskRecord): Promise<TaskRecord> {
    if (held.rank >= 3 || performance.now() - this.#lostAtMs > RECORD_TTL_S * 1000) return held;
    const row = await this.#loadFromDb(held.taskId).catch(() => undefined);
    return row !== undefined && isNewer(row, held) ? row : held;
  }

  /**
   * Writes the latest records to Redis again, with those that it has not taken yet,
   * after it may have lost some. Redis refuses a record if it has a newer one.
   * @returns records of tasks among them that are over
   * @throws AppError `queues_unavailable` when it does not take all of them
   */
  async redisLost(): Promise<readonly TaskRecord[]> {
    this.#lostAtMs = performance.now();
    const recent = this.#recent.all().map(parseTaskRecord);
    const taken = await Promise.all(recent.map((record) => this.#send(record)));
    while (this.#unsent.size > 0) {
      const before = this.#unsent.size;
      await this.#resend();
      if (this.#unsent.size >= before) break;
    }
    if (!taken.every(Boolean) || this.#unsent.size > 0)
      throw unavailable('write task records again', new Error(`${this.#unsent.size} were not taken`));
    return recent.filter(({ rank }) => rank >= 3);
  }

  /** Newest record here of those that Redis may not have. */
  #newestHere(taskId: TaskId): TaskRecord | undefined {
    const soon = this.#soon.get(taskId) ?? this.#older.get(taskId);
    if (soon !== undefined) return soon;
    const [sending, unsent] = [this.#sending.get(taskId), this.#unsent.get(taskId)];
    return sending !== undefined && (unsent === undefined || isNewer(sending, unsent)) ? sending : unsent;
  }

  /**
   * Newest records of those tasks that Redis has, in no order; for tasks that ended a moment ago.
   * @throws when Redis does not answer
   */
  async readHeld(taskIds: readonly TaskId[]): Promise<readonly TaskRecord[]> {
    if (taskIds.length === 0) return [];
    const texts = await this.#client.mget(taskIds.map((taskId) => this.#keys.task(taskId)));
    return texts.filter((text) => text !== null).map(parseTaskRecord);
  }

  /** Drops records that still wait here, because the task's end is recorded elsewhere. */
  endedElsewhere(taskId: TaskId): void {
    this.#soon.delete(taskId);
    this.#older.delete(taskId);
  }

  /** Whether so many records wait for the database that nothing new may be admitted. */
  isOverloaded(): boolean {
    const overloaded =
      this.#length > this.#overloadedRecords ||
      this.#length * this.#meanBytes > OVERLOADED_BYTES ||
      this.#unsent.size >= MAX_UNSENT / 2;
    if (overloaded !== this.#wasOverloaded) {
      this.#wasOverloaded = overloaded;
      const facts = { records: this.#length, unsent: this.#unsent.size };
      if (overloaded) this.#log.error(facts, 'task records do not reach the database; admission is closed');
      else this.#log.info(facts, 'task records reach the database again; admission is open');
    }
    // While admission is closed nothing is appended, so only this check notices that the stream is short again.
    if (overloaded) this.#recheck();
    return overloaded;
  }

  /** Takes the stream's length after a drain, so that the gauge is right even when nothing is appended. */
  drained(left: number): void {
    this.#sawLength(left);
  }

  /** Called after the appends of a turn; the drainer of this process listens. */
  onAppended(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Waits for the appends under way and retries those that failed. @returns how many Redis still did not take */
  async flush(): Promise<number> {
    this.#turnSoon();
    this.#turnSoon();
    await Promise.all(this.#underWay);
    await this.#resend();
    return this.#unsent.size;
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#resendTimer);
    clearInterval(this.#soonTimer);
    this.#soonTimer = undefined;
    this.#client.off('close', this.#onClose);
    this.#client.off('ready', this.#onReady);
    const lost = await this.flush();
    if (lost > 0) this.#log.error({ records: lost }, 'task records not written: Redis did not take them');
  }

  #send(record: TaskRecord): Promise<boolean> {
    const batch = (this.#batch ??= this.#newBatch());
    batch.records.push(record);
    const before = this.#sending.get(record.taskId);
    if (before === undefined || isNewer(record, before)) this.#sending.set(record.taskId, record);
    return batch.sent;
  }

  #newBatch(): Batch {
    const records: TaskRecord[] = [];
    const sent = new Promise<boolean>((resolve) => {
      atTurnEnd(
        this.#client,
        () => {
          this.#batch = undefined;
          void this.#sendAll(records).then(resolve);
          for (const listener of this.#listeners) listener();
        },
        true,
      );
    });
    const settled = sent.then(() => undefined);
    this.#underWay.add(settled);
    void settled.finally(() => this.#underWay.delete(settled));
    return { records, sent };
  }

  async #sendAll(records: readonly TaskRecord[]): Promise<boolean> {
    const commands: Promise<boolean>[] = [];
    let some: TaskRecord[] = [];
    let keys = [this.#keys.records, this.#keys.leased];
    let values: (string | number)[] = [MOST_RECORDS];
    let characters = 0;
    for (const record of records) {
      const text = encodeTaskRecord(record);
      this.#meanBytes += (text.length - this.#meanBytes) / 32;
      if (some.length >= MOST_AT_ONCE || (some.length > 0 && characters + text.length > MOST_TEXT_AT_ONCE)) {
        commands.push(this.#sendSome(some, keys, values));
        some = [];
        keys = [this.#keys.records, this.#keys.leased];
        values = [MOST_RECORDS];
        characters = 0;
      }
      some.push(record);
      this.#recent.note(record.taskId, text);
      characters += text.length;
      keys.push(this.#keys.task(record.taskId), this.#keys.lease(record.taskId), this.#keys.localQueue(record.queue));
      const isSmallEnd = record.rank >= 3 && text.length <= SMALL_RECORD;
      const saysHowItEnded = record.status === 'COMPLETE' || record.status === 'ERROR' ? 1 : 0;
      const lifeS = isSmallEnd ? FINAL_TTL_S : RECORD_TTL_S;
      const inLocalQueue = record.sync && record.rank >= 3 ? record.taskId : '';
      values.push(record.attempt, record.rank, text, lifeS, saysHowItEnded, inLocalQueue);
    }
    commands.push(this.#sendSome(some, keys, values));
    return (await Promise.all(commands)).every(Boolean);
  }

  async #sendSome(
    records: readonly TaskRecord[],
    keys: readonly string[],
    values: readonly (string | number)[],
  ): Promise<boolean> {
    try {
      const [length = 0, ...refused] = (await this.#script.run(keys.length, ...keys, ...values)) as number[];
      this.#sawLength(length);
      for (let at = 0; at < refused.length; at += 2) {
        const record = records[refused[at] ?? -1];
        if (record !== undefined) this.#sawRefused(record, refused[at + 1] === REFUSED_BY_ATTEMPT);
      }
      return true;
    } catch (error) {
      for (const record of records) this.#keep(record, error);
      return false;
    } finally {
      for (const record of records) {
        if (this.#sending.get(record.taskId) === record) this.#sending.delete(record.taskId);
      }
    }
  }

  /**
   * Counts a refused record, which changes nothing: one of a superseded
   * attempt in the turn of its end, or one that came after the end.
   */
  #sawRefused(record: TaskRecord, newerAttempt: boolean): void {
    this.#failures?.inc({ result: 'stale' });
    const { taskId, status, attempt } = record;
    this.#log.info({ taskId, status, attempt, newerAttempt }, 'a stale task record was refused');
  }

  #sawLength(length: number): void {
    this.#length = length;
    this.#checkedAtMs = performance.now();
    this.#backlog?.set(length);
    if (length >= MOST_RECORDS) {
      this.#failures?.inc({ result: 'dropped' });
      this.#log.error({ records: length }, 'the stream of task records is full; the oldest are dropped');
    }
  }

  #keep(record: TaskRecord, error: unknown): void {
    const held = this.#unsent.get(record.taskId);
    if (held !== undefined && !isNewer(record, held)) return;
    if (this.#unsent.size === 0) this.#log.warn({ err: error }, 'Redis takes no task records; keeping them');
    if (held === undefined && this.#unsent.size >= MAX_UNSENT) {
      const oldest = this.#unsent.keys().next().value;
      if (oldest !== undefined) this.#unsent.delete(oldest);
      this.#failures?.inc({ result: 'dropped' });
      this.#log.error({ taskId: oldest, limit: MAX_UNSENT }, 'task record dropped: too many wait for Redis');
    }
    this.#failures?.inc({ result: 'kept' });
    this.#unsent.set(record.taskId, record);
    if (this.#closed || this.#resendTimer !== undefined) return;
    this.#resendTimer = setTimeout(() => {
      this.#resendTimer = undefined;
      void this.#resend();
    }, RESEND_AFTER_MS);
    this.#resendTimer.unref();
  }

  async #resend(): Promise<void> {
    // The records are taken out first: a failed one is put back, and arms the next try.
    const records = [...this.#unsent.values()].slice(0, 1000);
    for (const record of records) this.#unsent.delete(record.taskId);
    await Promise.all(records.map((record) => this.#send(record)));
    if (records.length === 1000 && this.#unsent.size === 0) return;
    if (records.length === 1000 && this.#resendTimer === undefined) await this.#resend();
  }

  #recheck(): void {
    const nowMs = performance.now();
    if (nowMs - this.#checkedAtMs < RECHECK_AFTER_MS) return;
    this.#checkedAtMs = nowMs;
    void this.#client.xlen(this.#keys.records).then(
      (length) => this.#sawLength(length),
      () => undefined,
    );
  }
}
