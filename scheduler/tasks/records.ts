// The records of tasks on their way to the database: written to Redis in the turn of the change, drained in batches by the leader. Dispatch
// and the service append, reads by id look here first, and the drainer hands the store whole batches. What must stay true: a record is in
// Redis until the database has it; writing it twice, or an older one after a newer one, changes nothing.
import type { Redis } from 'ioredis';
import type {
  ContainerId,
  DeploymentId,
  InstanceId,
  ObjectId,
  QueueName,
  StubId,
  TaskId,
  WorkspaceId,
} from '#shared/domain/ids.ts';
import type { StubKind, TaskStatus } from '#shared/domain/status.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { Counter, Gauge } from '#shared/metrics.ts';
import type { Registry } from '#shared/metrics.ts';
import type { TaskJob } from '../queues/jobs.ts';
import type { Keys } from '../queues/keys.ts';
import { unavailable } from '../queues/answers.ts';
import { defineScript } from '../queues/scripts.ts';
import type { Script } from '../queues/scripts.ts';
import { atTurnEnd } from '../queues/turns.ts';
import { RecentRecords } from './recent-records.ts';
import { mayReplace } from './state.ts';

/**
 * Order of the records of one attempt: the higher wins, and a higher attempt wins over both. 0 pending, 1 running, 2 waiting for a retry,
 * 3 final, 4 a completion that came after the end.
 */
export type RecordRank = 0 | 1 | 2 | 3 | 4;

/** A task as it stands after one change; whole, never a difference. Times are epoch milliseconds. */
export interface TaskRecord {
  readonly taskId: TaskId;
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  readonly queue: QueueName;
  readonly kind: StubKind;
  readonly sync: boolean;
  readonly status: TaskStatus;
  /** 0 before the first fetch. */
  readonly attempt: number;
  readonly rank: RecordRank;
  readonly containerId: ContainerId | null;
  /** A sentence; empty unless the task failed. */
  readonly failureReason: string;
  readonly createdAtMs: number;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
  readonly durationMs: number | null;
  /** The result's JSON text, at most 256 KiB. */
  readonly result?: string;
  readonly resultObjectId?: ObjectId;
  readonly deadlineMs: number;
  /** Where its end is told. Absent: nowhere. */
  readonly callbackUrl?: string;
  /** The stub whose container put it. */
  readonly putBy?: StubId;
  /** As EndTask said it. */
  readonly containerHostname?: string;
  /** Where the caller of a synchronous task waits; only in Redis, never in the database. */
  readonly replica?: InstanceId;
  /** Earlier attempts, as the job has them; only in Redis, never in the database. */
  readonly past?: NonNullable<TaskJob['past']>;
}

/** True when `a` must win over `b` of the same task; equal ones do not. */
export function isNewer(a: Pick<TaskRecord, 'attempt' | 'rank'>, b: Pick<TaskRecord, 'attempt' | 'rank'>): boolean {
  return mayReplace(a, b) && (a.attempt !== b.attempt || a.rank !== b.rank);
}

/** Text of a result that a record may carry; a larger one goes to an object. */
export const MAX_INLINE_RESULT_BYTES = 256 * 1024;
/** A task's newest record stays readable in Redis this long. */
const RECORD_TTL_S = 3600;
/** A small final one needs no second look to go soon after the database has it; a large one is told to go by the drainer. */
export const SMALL_RECORD = 8 * 1024;
const FINAL_TTL_S = 300;
/** Records of tasks whose id nobody knows yet are written after one to two of these, unless a newer one came first. */
const SOON_MS = 100;
/** Above this many records on their way nothing new is admitted. */
export const OVERLOADED_RECORDS = 1_000_000;
/** And above this many bytes, by the mean size of what this replica appended. */
export const OVERLOADED_BYTES = 1024 ** 3;
/** The stream's own bound: four times what stops admission, so that only a fault reaches it. */
const MOST_RECORDS = 4 * OVERLOADED_RECORDS;
/** Why the script refuses a record that came too late. */
const REFUSED_BY_ATTEMPT = -2;
/** Records kept here while Redis does not take them. */
const MAX_UNSENT = 20_000;
const RESEND_AFTER_MS = 500;
const RECHECK_AFTER_MS = 1000;
/** Records in one command, and their characters. */
const MOST_AT_ONCE = 200;
const MOST_TEXT_AT_ONCE = 512 * 1024;

/** Records of this turn of the event loop. */
interface Batch {
  readonly records: TaskRecord[];
  /** True when Redis has them all; where one failed each is kept. Never rejects. */
  readonly sent: Promise<boolean>;
}

export interface TaskRecordsOptions {
  /** A client that fails fast (no offline queue, a command timeout). The caller closes it. */
  readonly client: Redis;
  readonly keys: Keys;
  readonly log: Log;
  /** The record as the database has it. */
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
  /** Newest record of each task that is on its way to Redis: nobody knows yet whether it arrives. */
  readonly #sending = new Map<TaskId, TaskRecord>();
  readonly #underWay = new Set<Promise<void>>();
  readonly #recent = new RecentRecords();
  /** A process that starts does not know what Redis lost before. */
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
   * Writes the record to Redis before this turn ends, with the others of it: its key and the way to the database. One that Redis does not take is kept here and
   * sent again; nobody has to wait for it. The promise is for those who want to know: it never rejects.
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
   * For a task whose id nobody has been told: its record may wait a moment, and a newer one replaces it. Most synchronous tasks end before that and are written once.
   */
  appendSoon(record: TaskRecord): void {
    const held = this.#soon.get(record.taskId) ?? this.#older.get(record.taskId);
    if (held !== undefined && !isNewer(record, held)) return;
    this.#soon.set(record.taskId, record);
    if (this.#soonTimer !== undefined || this.#closed) return;
    this.#soonTimer = setInterval(() => this.#turnSoon(), SOON_MS);
    this.#soonTimer.unref();
  }

  /** What waited a whole turn goes out; what came meanwhile waits one. */
  #turnSoon(): void {
    const due = this.#older;
    this.#older = this.#soon;
    this.#soon = new Map();
    for (const record of due.values()) if (!this.#older.has(record.taskId)) void this.#append(record);
    if (this.#older.size > 0) return;
    clearInterval(this.#soonTimer);
    this.#soonTimer = undefined;
  }

  /** The newest record: here, in Redis, else in the database. @throws AppError `queues_unavailable` when neither here nor the database knows it and Redis does not answer */
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
    // It may be in Redis alone, on its way to the database: that nobody knows it cannot be said.
    if (newest === undefined && unread !== undefined) throw unavailable(`read the record of task ${taskId}`, unread);
    return newest;
  }

  /** A Redis that came back older has an older record, too, for as long as records live there. */
  async #orItsRow(held: TaskRecord): Promise<TaskRecord> {
    if (held.rank >= 3 || performance.now() - this.#lostAtMs > RECORD_TTL_S * 1000) return held;
    const row = await this.#loadFromDb(held.taskId).catch(() => undefined);
    return row !== undefined && isNewer(row, held) ? row : held;
  }

  /**
   * Redis may have lost what it was told last: it is told again, with what it has not taken yet, and refuses what it has newer.
   * @returns tasks among them that are over
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

  /** Of those that Redis does not have, as far as is known here. */
  #newestHere(taskId: TaskId): TaskRecord | undefined {
    const soon = this.#soon.get(taskId) ?? this.#older.get(taskId);
    if (soon !== undefined) return soon;
    const [sending, unsent] = [this.#sending.get(taskId), this.#unsent.get(taskId)];
    return sending !== undefined && (unsent === undefined || isNewer(sending, unsent)) ? sending : unsent;
  }

  /** Newest records of those tasks as far as Redis has them, in no order; for tasks that ended a moment ago. @throws when Redis does not answer */
  async readHeld(taskIds: readonly TaskId[]): Promise<readonly TaskRecord[]> {
    if (taskIds.length === 0) return [];
    const texts = await this.#client.mget(taskIds.map((taskId) => this.#keys.task(taskId)));
    return texts.filter((text) => text !== null).map(parseTaskRecord);
  }

  /** Its end is recorded elsewhere: what still waits to be written here says nothing new. */
  endedElsewhere(taskId: TaskId): void {
    this.#soon.delete(taskId);
    this.#older.delete(taskId);
  }

  /** True while so many records wait for the database that nothing new may be admitted (answer 503, retry later). */
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
    // While admission is closed nothing is appended, so nobody else would notice that the stream is short again.
    if (overloaded) this.#recheck();
    return overloaded;
  }

  /** What the drainer left on the stream: the gauge is right also when nothing is appended. */
  drained(left: number): void {
    this.#sawLength(left);
  }

  /** Called after the appends of a turn; the drainer of this process listens. */
  onAppended(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Waits for the appends under way and tries those that failed once more. @returns how many Redis still did not take */
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
      keys.push(this.#keys.task(record.taskId), this.#keys.lease(record.taskId), this.#keys.lane(record.queue));
      const isSmallEnd = record.rank >= 3 && text.length <= SMALL_RECORD;
      const saysHowItEnded = record.status === 'COMPLETE' || record.status === 'ERROR' ? 1 : 0;
      const lifeS = isSmallEnd ? FINAL_TTL_S : RECORD_TTL_S;
      const inLane = record.sync && record.rank >= 3 ? record.taskId : '';
      values.push(record.attempt, record.rank, text, lifeS, saysHowItEnded, inLane);
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

  /** What a superseded attempt said in the turn of its end, or what came after the end: it changes nothing. */
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
    // Taken out first: what fails again is put back, and arms the next try.
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

/** The script compares by what the text starts with, so `attempt` and `rank` come first. */
export function encodeTaskRecord(record: TaskRecord): string {
  const { attempt, rank, ...rest } = record;
  return JSON.stringify({ attempt, rank, ...rest });
}

/** @throws AppError `bad_record` */
export function parseTaskRecord(text: string): TaskRecord {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new AppError('bad_record', 'a task record is not JSON', { cause: error });
  }
  const record = value as Partial<TaskRecord> | null;
  const usable =
    typeof record === 'object' &&
    typeof record?.taskId === 'string' &&
    Number.isSafeInteger(record.attempt) &&
    Number.isSafeInteger(record.rank) &&
    typeof record.status === 'string';
  if (!usable) throw new AppError('bad_record', 'a task record lacks its task, attempt, rank or status');
  return record as TaskRecord;
}
