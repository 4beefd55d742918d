// Records of tasks: their owner writes them to the database in batches (writer.ts), to the spill while it is away
// (spill.ts), and readers see the rows, after all replicas have written what they hold (pending-reads.ts).
import type { Redis } from 'ioredis';
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import { sleep } from '#shared/backoff.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { Counter, Gauge } from '#shared/metrics.ts';
import type { Registry } from '#shared/metrics.ts';
import type { Bus } from '../../cluster/bus.ts';
import { ALONE } from '../../cluster/bus.ts';
import { writeHalved } from '../../stores/queues/drain-loop.ts';
import type { Keys } from '../../stores/queues/keys.ts';
import { isDataRefused } from '../../stores/store/limits.ts';
import { defineScript } from '../../stores/queues/scripts.ts';
import type { Script } from '../../stores/queues/scripts.ts';
import { PendingReads } from './pending-reads.ts';
import { Spill } from './spill.ts';
import type { RecordedChange } from './task-events.ts';
import { isNewer } from './task-record.ts';
import type { TaskRecord } from './task-record.ts';
import { RecordWriter } from './writer.ts';
import { mayReplace } from '../state.ts';

/** Most bytes of a result's text in a record; a larger one goes to an object. */
export const MAX_INLINE_RESULT_BYTES = 256 * 1024;
/** Records on their way to the database above which nothing new is admitted. */
export const OVERLOADED_RECORDS = 1_000_000;
/** Bytes in the spill above which nothing new is admitted. */
export const OVERLOADED_BYTES = 1024 ** 3;
/** Bytes in the memory of this process above which nothing new is admitted: Redis is away, too. */
const OVERLOADED_MEMORY_BYTES = 64 * 1024 ** 2;
const LOOK_EVERY_MS = 1_000;
/** Longest wait of a reader for the leader to move spilled records back. */
const SPILL_WAIT_MS = 2_000;
const SPILL_LOOK_MS = 50;
const MAX_SET_ASIDE = 10_000;
/** Tasks that are remembered as over: more than end in the seconds by which Redis may come back older. */
const MOST_OVER = 20_000;
const OVER_AT_ONCE = 200;

export interface TaskRecordsOptions {
  /** Client that fails fast (no offline queue, a command timeout). The caller closes it. */
  readonly client: Redis;
  readonly keys: Keys;
  readonly log: Log;
  /** Reads the task's row. */
  readonly load: (taskId: TaskId) => Promise<TaskRecord | undefined>;
  /** Filters tasks to those whose row says that they ended. */
  readonly ended: (taskIds: readonly TaskId[]) => Promise<readonly TaskId[]>;
  /** The attempt of each of these tasks whose row says that it runs. */
  readonly running: (taskIds: readonly TaskId[]) => Promise<ReadonlyMap<TaskId, number>>;
  /** Writes the newest record of each task, sorted by task, and the events of the changes, in one transaction. */
  readonly write: (records: readonly TaskRecord[], changes: readonly RecordedChange[]) => Promise<unknown>;
  readonly instance: InstanceId;
  /** Absent: there are no other replicas. */
  readonly bus?: Bus;
  readonly present?: () => Promise<readonly InstanceId[]>;
  readonly registry?: Registry;
  readonly overloadedRecords?: number;
  /** Tests shorten these. */
  readonly collectMs?: number;
  readonly patienceMs?: number;
  readonly keptMs?: number;
}

type EndedTask = Pick<TaskRecord, 'taskId' | 'attempt'>;

/** Writes and reads task records. */
export class TaskRecords {
  readonly #options: TaskRecordsOptions;
  readonly #writer: RecordWriter;
  readonly #spill: Spill;
  readonly #pending: PendingReads;
  readonly #endTasks: Script;
  /** The tasks that ended last: Redis was away, or comes back older, and has something of them. */
  #over: EndedTask[] = [];
  readonly #onReady = (): void => this.#endAll(this.#over);
  readonly #metrics: { readonly written: Counter; readonly setAside: Counter; readonly spilled: Counter } | undefined;
  #lookedAtMs = -Infinity;
  #wasOverloaded = false;

  constructor(options: TaskRecordsOptions) {
    this.#options = options;
    const { client, keys, log, instance, bus = ALONE, present = () => Promise.resolve([]), registry } = options;
    this.#endTasks = defineScript(client, 'longshoreEndTasks');
    client.on('ready', this.#onReady);
    this.#spill = new Spill(options);
    this.#metrics = registry === undefined ? undefined : this.#register(registry);
    this.#writer = new RecordWriter({
      write: (records, changes) => this.#write(records, changes),
      spill: async (changes) => {
        await this.#spill.append(changes);
        this.#metrics?.spilled.inc(newestOf(changes).length);
      },
      onSafe: (records) => this.#endInRedis(records),
      log,
      collectMs: options.collectMs,
      patienceMs: options.patienceMs,
    });
    this.#pending = new PendingReads({
      bus,
      channel: keys.pendingRecordsChannel,
      answersOf: keys.pendingRepliesChannel,
      instance,
      present,
      holds: (taskId) => this.#writer.holds(taskId),
      flush: () => this.#writer.flush(),
    });
  }

  #register(registry: Registry): { written: Counter; setAside: Counter; spilled: Counter } {
    const registers = [registry];
    const collect = (): number => {
      if (this.#spill.records > 0) this.#lookAgain();
      return this.#writer.size + this.#spill.records;
    };
    void new Gauge({
      name: 'longshore_task_records_backlog',
      help: 'Task records that the database does not have yet: those in the memory of this process, and those that all processes have spilled to Redis.',
      registers,
      collect() {
        this.set(collect());
      },
    });
    return {
      written: new Counter({
        name: 'longshore_task_records_written_total',
        help: 'Task records that this process wrote to the database, after collapsing those of one task.',
        registers,
      }),
      spilled: new Counter({
        name: 'longshore_task_records_spilled_total',
        help: 'Task records that this process wrote to Redis, because the database did not take them for two seconds.',
        registers,
      }),
      setAside: new Counter({
        name: 'longshore_task_records_set_aside_total',
        help: 'Task records that the database refuses, kept in Redis for a person to look at.',
        registers,
      }),
    };
  }

  /**
   * Takes a task's new record, to be written with the next batch.
   * @param isUrgent - somebody waits until it is written
   * @returns true once the database or the spill has it; false: this process ends without that. It never rejects
   * @throws TypeError when the result is larger than {@link MAX_INLINE_RESULT_BYTES}: it belongs in an object
   */
  append(record: TaskRecord, isUrgent = false): Promise<boolean> {
    if (record.result !== undefined && Buffer.byteLength(record.result) > MAX_INLINE_RESULT_BYTES) {
      throw new TypeError(`the result of task ${record.taskId} is too large for its record`);
    }
    return this.#writer.append(record, isUrgent);
  }

  /** Resolves like {@link append} for what this process has of the task. */
  safe(taskId: TaskId): Promise<boolean> {
    return this.#writer.safe(taskId);
  }

  /** Drops records that still wait here, because the task's end is recorded elsewhere. */
  endedElsewhere(taskId: TaskId): void {
    this.#writer.endedElsewhere(taskId);
  }

  /**
   * The task's row. Unless it is final, all replicas write first what they hold of the task. A replica that does not
   * answer within a second, and records that are spilled for longer than two, are missing from the answer.
   */
  read(taskId: TaskId): Promise<TaskRecord | undefined> {
    return this.#read(taskId, false);
  }

  /**
   * Reads like {@link read}, for the decision whether a task may be sent again.
   * @throws AppError `queues_unavailable` while this process, another replica or the spill may have a newer record
   */
  readSurely(taskId: TaskId): Promise<TaskRecord | undefined> {
    return this.#read(taskId, true);
  }

  async #read(taskId: TaskId, isSure: boolean): Promise<TaskRecord | undefined> {
    const { load } = this.#options;
    const held = this.#writer.newestOf(taskId);
    const row = await load(taskId);
    if (row !== undefined && row.rank >= 3) return row;
    const isHeld = held !== undefined && (row === undefined || isNewer(held, row));
    const isOut = isHeld && !(await this.#writer.urge([taskId]));
    const asked = await this.#pending.ask([taskId]);
    const spill = await this.#lookAtSpill();
    const mayLack = isOut || asked === 'silent' || spill === 'full';
    if (isSure && mayLack) throw notComplete(taskId);
    const now = isHeld || asked !== 'alone' || spill !== 'empty' ? await load(taskId) : row;
    // A record may be elsewhere alone. So the task must not be reported as unknown.
    if (now === undefined && mayLack) throw notComplete(taskId);
    return now;
  }

  /** Filters tasks to those whose row says that they are over. */
  ended(taskIds: readonly TaskId[]): Promise<readonly TaskId[]> {
    return this.#options.ended(taskIds);
  }

  /** The attempt of each of these tasks whose row says that it runs. */
  running(taskIds: readonly TaskId[]): Promise<ReadonlyMap<TaskId, number>> {
    return this.#options.running(taskIds);
  }

  /**
   * Filters tasks to those that are over, after all replicas have written what they hold of them.
   * @returns `isComplete`: no record of them can be elsewhere, so that the others are not over
   */
  async endedSurely(
    taskIds: readonly TaskId[],
  ): Promise<{ readonly over: readonly TaskId[]; readonly isComplete: boolean }> {
    const [isOwn, asked] = await Promise.all([this.#writer.urge(taskIds), this.#pending.ask(taskIds)]);
    const isComplete = isOwn && asked !== 'silent' && (await this.#lookAtSpill()) !== 'full';
    return { over: await this.ended(taskIds), isComplete };
  }

  /** Reads which of these tasks are over, like {@link endedSurely}, with their rows. */
  async readOver(
    taskIds: readonly TaskId[],
  ): Promise<{ readonly over: ReadonlyMap<TaskId, TaskRecord>; readonly isComplete: boolean }> {
    const { over, isComplete } = await this.endedSurely(taskIds);
    const rows = await Promise.all(over.map(this.#options.load));
    return { over: new Map(rows.filter((row) => row !== undefined).map((row) => [row.taskId, row])), isComplete };
  }

  /**
   * Has all replicas write what they hold, before a list is read from the database.
   * @returns false: the list may lack tasks, because a replica is silent, or records are spilled for longer than 2 s
   */
  async caughtUp(): Promise<boolean> {
    const [isOwn, asked] = await Promise.all([this.#writer.flush(), this.#pending.ask(undefined)]);
    return isOwn && asked !== 'silent' && (await this.#lookAtSpill()) !== 'full';
  }

  /** Gives the leader a moment to move what is spilled. @returns `full`: something is, or Redis does not answer */
  async #lookAtSpill(): Promise<'empty' | 'moved' | 'full'> {
    const untilMs = performance.now() + SPILL_WAIT_MS;
    for (let isMoved = false; ; isMoved = true) {
      const isEmpty = await this.#spill.isEmpty().catch(() => undefined);
      if (isEmpty === true) return isMoved ? 'moved' : 'empty';
      if (isEmpty === undefined || performance.now() >= untilMs) return 'full';
      await sleep(SPILL_LOOK_MS);
    }
  }

  /** Moves spilled records to the database, on the leader. @throws when Redis or the database does not answer */
  async moveSpilled(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await this.#spill.moveOne((changes) => this.#write(newestOf(changes), changes))))
      continue;
  }

  /**
   * Writes what is held here, and spills again what Redis may have lost.
   * @throws AppError `queues_unavailable`
   */
  async redisLost(): Promise<void> {
    await this.#writer.flush();
    await this.#spill.redisLost();
    // Leases that were written again for attempts whose records came to be safe meanwhile.
    this.#endAll(this.#over);
  }

  /** Whether so many records wait for the database that nothing new may be admitted. */
  isOverloaded(): boolean {
    const { log, overloadedRecords = OVERLOADED_RECORDS } = this.#options;
    const facts = { records: this.#writer.size, bytes: this.#writer.bytes, spilled: this.#spill.records };
    const overloaded =
      facts.bytes > OVERLOADED_MEMORY_BYTES ||
      facts.records + facts.spilled > overloadedRecords ||
      this.#spill.bytes > OVERLOADED_BYTES;
    if (overloaded !== this.#wasOverloaded) {
      this.#wasOverloaded = overloaded;
      if (overloaded) log.error(facts, 'task records do not reach the database; admission is closed');
      else log.info(facts, 'task records reach the database again; admission is open');
    }
    if (this.#spill.records > 0) this.#lookAgain();
    return overloaded;
  }

  /** Looks how much is still spilled: the leader moves it, which may be another process. */
  #lookAgain(): void {
    const nowMs = performance.now();
    if (nowMs - this.#lookedAtMs < LOOK_EVERY_MS) return;
    this.#lookedAtMs = nowMs;
    this.#spill.look().catch(() => undefined);
  }

  /** Writes what is held here. @returns false: the stores are away */
  flush(): Promise<boolean> {
    return this.#writer.flush();
  }

  async close(): Promise<void> {
    const lost = await this.#writer.close();
    this.#spill.close();
    this.#options.client.off('ready', this.#onReady);
    if (lost > 0) this.#options.log.error({ records: lost }, 'task records not written: no store took them');
  }

  /** Writes a batch; a record that the database refuses holds up no other. */
  #write(records: readonly TaskRecord[], changes: readonly RecordedChange[]): Promise<void> {
    const { log, write } = this.#options;
    return writeHalved(records, {
      write: async (some) => {
        const tasks = new Set(some.map(({ taskId }) => taskId));
        await write(some, some === records ? changes : changes.filter(({ record }) => tasks.has(record.taskId)));
        this.#metrics?.written.inc(some.length);
      },
      refused: async (record, error) => {
        log.error({ err: error, taskId: record.taskId }, 'the database refuses a task record');
        await this.#putAside(record, messageOf(error));
      },
      isRefusal: isRefused,
    });
  }

  async #putAside(record: TaskRecord, reason: string): Promise<void> {
    const { client, keys } = this.#options;
    const fields = ['record', JSON.stringify(record), 'reason', reason];
    await client.xadd(keys.recordsAside, 'MAXLEN', '~', MAX_SET_ASIDE, '*', ...fields);
    this.#metrics?.setAside.inc();
  }

  /** Removes the leases of asynchronous tasks: until now, an agent's repeated result would have been taken. */
  #endInRedis(records: readonly TaskRecord[]): void {
    const over = records.filter(({ rank, sync }) => rank >= 3 && !sync);
    for (const { taskId, attempt } of over) this.#over.push({ taskId, attempt });
    if (this.#over.length > 2 * MOST_OVER) this.#over = this.#over.slice(-MOST_OVER);
    if (this.#options.client.status === 'ready') this.#endAll(over);
  }

  #endAll(all: readonly EndedTask[]): void {
    const { keys, log } = this.#options;
    for (let at = 0; at < all.length; at += OVER_AT_ONCE) {
      const over = all.slice(at, at + OVER_AT_ONCE);
      const names = over.map(({ taskId }) => keys.lease(taskId));
      const given = over.map(({ attempt }) => attempt);
      this.#endTasks.run(names.length + 1, keys.leased, ...names, ...given).catch((error: unknown) => {
        log.info({ err: error, tasks: over.length }, 'Redis still has leases of ended tasks');
      });
    }
  }
}

/** Whether the database will never take a batch. The query may refuse it, too: then it never reaches the database. */
const isRefused = (error: unknown): boolean =>
  isDataRefused(error) || error instanceof RangeError || error instanceof TypeError;

const notComplete = (taskId: TaskId): AppError =>
  new AppError('queues_unavailable', `cannot read task ${taskId}: a newer record may be on its way to the database`);

/** The newest record of each task, sorted by task. */
function newestOf(changes: readonly RecordedChange[]): readonly TaskRecord[] {
  const newest = new Map<TaskId, TaskRecord>();
  for (const { record } of changes) {
    const held = newest.get(record.taskId);
    // The later of two equal records wins: it was written with more knowledge.
    if (held === undefined || mayReplace(record, held)) newest.set(record.taskId, record);
  }
  return [...newest.values()].toSorted((a, b) => (a.taskId < b.taskId ? -1 : 1));
}
