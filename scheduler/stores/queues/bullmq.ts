// BullMQ behind our own interface; the only file that imports its task queues. One root backend
// on one client, and per queue only what `forQueue` gives: no Worker, no loop, no timer and no
// connection of its own. Invariants: every queue's settings stand before its first add, else it
// keeps 10 000 events with their results. Every call on a fetched job carries a real lock token.
import type { IQueueBackend, JobJson, MinimalJob, QueueBaseOptions, RedisQueueBackend } from 'bullmq';
import { createRedisBackend } from 'bullmq';
import type { Redis } from 'ioredis';
import { withDeadline } from '#shared/backoff.ts';
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { QueueControl } from '../../domain/flow.ts';
import { fenceOf, isAnswerLost, requireLock, unavailable } from './answers.ts';
import { FlowBook } from './flow-book.ts';
import { FlowQueues } from './flow-queues.ts';
import type { Gate, PlainQueues } from './flow-queues.ts';
import { encodeTaskJob, parseTaskJob, TASK_JOB_NAME } from './jobs.ts';
import type { TaskJob } from './jobs.ts';
import { keysOf } from './keys.ts';
import type { Keys } from './keys.ts';
import { Repairs } from './repairs.ts';
import { defineScript } from './scripts.ts';
import type { Script } from './scripts.ts';
import type { Fence, Fetched, HeldLock, JobPlace, JobState, QueueDepth, TaskQueues } from './task-queues.ts';
import { DUE_SOON_MS, LOCK_MS } from './task-queues.ts';

const STALLED_INTERVAL_MS = 30_000;
/** Stalls that BullMQ allows a job. Past its maximum it would only mark the job for a Worker, and there is none. */
const MAX_STALLED_COUNT = 1_000_000;
/** Most queues kept open; the least recently used one is opened again when it is needed. */
const MAX_OPEN = 20_000;
/** Bound on commands that go out together. */
const MOST_AT_ONCE = 500;
const READY_DEADLINE_MS = 10_000;
const UNUSABLE_IN_A_ROW = 10;
/** Last place in a queue that is counted. */
const MAX_PLACES = 10_000;
/** Factor of BullMQ's score of a delayed job: its due time times this, plus twelve bits. */
const DELAYED_SCALE = 0x1000;

export interface BullmqQueuesOptions {
  /**
   * Client of its own role: `maxRetriesPerRequest: 1`, `enableOfflineQueue: false`,
   * and no command unanswered for more than about 2 s. The caller closes it.
   */
  readonly client: Redis;
  readonly log: Log;
  /** Keys are `<prefix>:<queue>:…`. */
  readonly prefix?: string;
  readonly lockMs?: number;
  readonly stalledIntervalMs?: number;
  /** Milliseconds before each look for jobs of lost fetches; tests shorten them. */
  readonly lookAfterMs?: readonly number[];
}

/** Opens the task queues on this Redis. @throws AppError `queues_unavailable` when it does not answer */
export async function openTaskQueues(options: BullmqQueuesOptions): Promise<TaskQueues> {
  const rootOptions = {
    connection: options.client,
    prefix: options.prefix ?? 'ls',
    lockDuration: options.lockMs ?? LOCK_MS,
    stalledInterval: options.stalledIntervalMs ?? STALLED_INTERVAL_MS,
    maxStalledCount: MAX_STALLED_COUNT,
  } satisfies QueueBaseOptions & Record<string, unknown>;
  const root = createRedisBackend('root', rootOptions);
  // Without a listener a single lost command would end the process.
  root.on('error', (error: unknown) => options.log.warn({ err: error }, 'queue connection failed'));
  try {
    await withDeadline(root.waitUntilReady(), READY_DEADLINE_MS, () => new Error('Redis is not ready'));
  } catch (error) {
    throw unavailable('open the task queues', error);
  }
  const keys = keysOf(rootOptions.prefix);
  return new FlowQueues(new BullmqTaskQueues(root, options, keys), new FlowBook(options.client, keys), options.log);
}

interface OpenQueue {
  readonly name: QueueName;
  readonly backend: IQueueBackend;
  /** Resolves when the queue's settings are written; absent: they must be written before the next add. */
  opened: Promise<void> | undefined;
}

interface FetchUnderWay {
  /** True when the connection broke meanwhile: the client may have sent the fetch twice. */
  doubtful: boolean;
}

class BullmqTaskQueues implements PlainQueues {
  readonly #root: RedisQueueBackend;
  readonly #client: Redis;
  readonly #log: Log;
  readonly #depthScript: Script;
  /** Number of held tasks by queue. */
  readonly #heldCounts: string;
  readonly #repairs: Repairs;
  /** Open queues, the least recently used first. */
  readonly #queues = new Map<QueueName, OpenQueue>();
  readonly #fetches = new Set<FetchUnderWay>();
  /** Queues that an operator paused or bounded. */
  readonly #controls = new Map<QueueName, QueueControl>();
  readonly #onClose = (): void => {
    for (const fetch of this.#fetches) fetch.doubtful = true;
    // Redis may come back without its data: each queue's settings are written again before its next add.
    for (const queue of this.#queues.values()) queue.opened = undefined;
  };

  /** Tells Redis again of queues that are paused or bounded, because it was away. */
  readonly #onReady = (): void => {
    for (const name of this.#controls.keys())
      this.open(name).catch((error: unknown) => {
        this.#log.info({ err: error, queue: name }, 'a queue is not paused or bounded yet');
      });
  };

  constructor(root: RedisQueueBackend, options: BullmqQueuesOptions, { flow }: Pick<Keys, 'flow'>) {
    this.#root = root;
    this.#heldCounts = flow[3];
    this.#client = options.client;
    this.#log = options.log;
    this.#depthScript = defineScript(options.client, 'longshoreDepth');
    this.#client.on('close', this.#onClose);
    this.#client.on('ready', this.#onReady);
    this.#repairs = new Repairs(
      {
        heldBy: (queue, locks) => this.#heldBy(queue, locks),
        giveBack: (queue, taskId, lock) => this.giveBack(queue, taskId, lock),
      },
      { log: options.log, ...(options.lookAfterMs === undefined ? {} : { lookAfterMs: options.lookAfterMs }) },
    );
  }

  open(name: QueueName): Promise<void> {
    const queue = this.#queue(name);
    queue.opened ??= this.#writeSettings(queue);
    return queue.opened;
  }

  async reopenAll(): Promise<void> {
    const opened = [...this.#queues.values()].filter((queue) => queue.opened !== undefined);
    for (const queue of opened) queue.opened = undefined;
    for (let at = 0; at < opened.length; at += MOST_AT_ONCE) {
      await Promise.all(opened.slice(at, at + MOST_AT_ONCE).map((queue) => this.open(queue.name)));
    }
  }

  async add(name: QueueName, job: TaskJob, heldToMs?: number): Promise<void> {
    await this.open(name);
    try {
      await this.#queue(name).backend.addJob(jobJson(job, heldToMs), job.taskId);
    } catch (error) {
      throw unavailable(`add task ${job.taskId} to ${name}`, error);
    }
  }

  async remove(name: QueueName, taskId: TaskId): Promise<boolean> {
    const { backend } = this.#queue(name);
    // BullMQ answers 1 for an unknown id, too. Both commands are
    // sent together and see the same state, so `exists` decides.
    const [existed, removed] = await this.#asking(
      `remove task ${taskId} from ${name}`,
      Promise.all([this.#client.exists(backend.toKey(taskId)), backend.remove(taskId, false)]),
    );
    return existed === 1 && removed === 1;
  }

  async fetch(name: QueueName, lock: LockToken, gate: Gate): Promise<Fetched> {
    requireLock(lock);
    const { backend } = this.#queue(name);
    for (let unusable = 0; unusable < UNUSABLE_IN_A_ROW; unusable += 1) {
      const [json, id, nextDueMs] = await this.#moveToActive(name, backend, lock);
      if (json === undefined || id === undefined) return { job: undefined, starts: 0, nextDueMs };
      let job: TaskJob;
      try {
        job = parseTaskJob(json.data);
      } catch (error) {
        // No attempt can run the job, and given back it would come
        // first again. So it leaves the queue; its row keeps the task.
        this.#log.error({ err: error, queue: name, taskId: id }, 'malformed job taken out of its queue');
        await this.fail(name, id as TaskId, lock, messageOf(error));
        continue;
      }
      if (job.flow === undefined || (await this.#mayRun(name, job, lock, gate)))
        return { job, starts: json.attemptsStarted, nextDueMs: undefined };
    }
    return { job: undefined, starts: 0, nextDueMs: Date.now() };
  }

  /** Delays a fetched job that may not run now. */
  async #mayRun(name: QueueName, job: TaskJob, lock: LockToken, gate: Gate): Promise<boolean> {
    try {
      const hold = await gate(job);
      if (hold === undefined) return true;
      await this.delay(name, job.taskId, lock, hold.untilMs, hold.changed);
      await hold.after();
      return false;
    } catch (error) {
      this.#repairs.note({ queue: name, lock, keep: undefined });
      throw unavailable(`fetch from ${name}`, error);
    }
  }

  async putOff(name: QueueName, job: TaskJob, untilMs: number): Promise<boolean> {
    const { backend } = this.#queue(name);
    try {
      await backend.updateData(skeleton(job.taskId), job);
      await backend.changeDelay(job.taskId, Math.max(0, untilMs - Date.now()));
      return true;
    } catch (error) {
      if (fenceOf(error) !== undefined) return false;
      throw unavailable(`put off task ${job.taskId}`, error);
    }
  }

  async promote(name: QueueName, taskId: TaskId): Promise<boolean> {
    try {
      await this.#queue(name).backend.promote(taskId);
      return true;
    } catch (error) {
      if (fenceOf(error) !== undefined) return false;
      throw unavailable(`promote task ${taskId}`, error);
    }
  }

  async jobsOf(tasks: readonly { readonly queue: QueueName; readonly taskId: TaskId }[]): Promise<readonly JobState[]> {
    return await this.#asking(
      'look for jobs',
      Promise.all(
        tasks.map(async ({ queue, taskId }) => {
          const { backend } = this.#queue(queue);
          const [exists, score] = await Promise.all([
            this.#client.exists(backend.toKey(taskId)),
            this.#client.zscore(String(backend.keys['delayed']), taskId),
          ]);
          return { exists: exists === 1, dueMs: score === null ? undefined : dueOf(score) };
        }),
      ),
    );
  }

  async renew(held: readonly HeldLock[], ms: number): Promise<readonly HeldLock[]> {
    for (const { lock } of held) requireLock(lock);
    const byQueue = [...Map.groupBy(held, ({ queue }) => queue)];
    const failed = await this.#asking(
      'renew locks',
      Promise.all(
        byQueue.map(async ([name, locks]) => {
          const ids = locks.map(({ taskId }) => taskId as string);
          const tokens = locks.map(({ lock }) => lock as string);
          const lost = new Set(await this.#queue(name).backend.extendLocks(ids, tokens, ms));
          return locks.filter(({ taskId }) => lost.has(taskId));
        }),
      ),
    );
    return failed.flat();
  }

  complete(name: QueueName, taskId: TaskId, lock: LockToken): Promise<Fence> {
    return this.#fenced(`complete task ${taskId}`, lock, () =>
      this.#queue(name).backend.moveToCompleted(skeleton(taskId), null, true, lock, false),
    );
  }

  fail(name: QueueName, taskId: TaskId, lock: LockToken, reason: string): Promise<Fence> {
    return this.#fenced(`end task ${taskId}`, lock, () =>
      this.#queue(name).backend.moveToFailed(skeleton(taskId), reason.slice(0, 512), true, lock, false),
    );
  }

  delay(name: QueueName, taskId: TaskId, lock: LockToken, untilMs: number, changed?: TaskJob): Promise<Fence> {
    return this.#fenced(`put off task ${taskId}`, lock, () => {
      const nowMs = Date.now();
      const fieldsToUpdate = changed === undefined ? {} : { fieldsToUpdate: { data: encodeTaskJob(changed) } };
      const options = { skipAttempt: true, ...fieldsToUpdate };
      return this.#queue(name).backend.moveToDelayed(taskId, nowMs, Math.max(0, untilMs - nowMs), lock, options);
    });
  }

  giveBack(name: QueueName, taskId: TaskId, lock: LockToken, changed?: TaskJob): Promise<Fence> {
    return this.#fenced(`give back task ${taskId}`, lock, async () => {
      const { backend } = this.#queue(name);
      if (changed !== undefined) await backend.updateData(skeleton(taskId), changed);
      return await backend.moveJobFromActiveToWait(taskId, lock);
    });
  }

  async lockOf(name: QueueName, taskId: TaskId): Promise<LockToken | undefined> {
    const key = this.#queue(name).backend.toKey(`${taskId}:lock`);
    const token = await this.#asking(`read the lock of task ${taskId}`, this.#client.get(key));
    return token === null ? undefined : (token as LockToken);
  }

  async locksOf(
    tasks: readonly { readonly queue: QueueName; readonly taskId: TaskId }[],
  ): Promise<readonly (LockToken | undefined)[]> {
    if (tasks.length === 0) return [];
    const keys = tasks.map(({ queue, taskId }) => this.#queue(queue).backend.toKey(`${taskId}:lock`));
    const tokens = await this.#asking('read locks', this.#client.mget(keys));
    return tokens.map((token) => (token === null ? undefined : (token as LockToken)));
  }

  async read(name: QueueName, taskId: TaskId): Promise<TaskJob | undefined> {
    const key = this.#queue(name).backend.toKey(taskId);
    const data = await this.#asking(`read task ${taskId}`, this.#client.hget(key, 'data'));
    return data === null ? undefined : parseTaskJob(data);
  }

  async missing(tasks: readonly { readonly queue: QueueName; readonly taskId: TaskId }[]): Promise<readonly TaskId[]> {
    const found = await this.#asking(
      'look for jobs',
      Promise.all(tasks.map(({ queue, taskId }) => this.#client.exists(this.#queue(queue).backend.toKey(taskId)))),
    );
    return tasks.filter((_task, at) => found[at] === 0).map(({ taskId }) => taskId);
  }

  async placeOf(name: QueueName, taskId: TaskId): Promise<JobPlace> {
    const { wait, delayed, active, prioritized } = this.#queue(name).backend.keys;
    const [index, length, score, held, rank, exists] = await this.#asking(
      `find task ${taskId}`,
      Promise.all([
        // BullMQ takes jobs from the right.
        this.#client.lpos(String(wait), taskId, 'RANK', -1, 'MAXLEN', MAX_PLACES),
        this.#client.llen(String(wait)),
        this.#client.zscore(String(delayed), taskId),
        this.#client.lpos(String(active), taskId, 'MAXLEN', MAX_PLACES),
        this.#client.zrank(String(prioritized), taskId),
        this.#client.exists(this.#queue(name).backend.toKey(taskId)),
      ]),
    );
    if (index !== null) return { kind: 'waiting', position: length - index };
    if (rank !== null) return { kind: 'waiting', position: length + rank + 1 };
    if (score !== null) return { kind: 'delayed', dueMs: dueOf(score) };
    if (held !== null) return { kind: 'active' };
    return exists === 1 ? { kind: 'waiting', position: undefined } : { kind: 'gone' };
  }

  depth(name: QueueName): Promise<QueueDepth> {
    return this.#asking(`count ${name}`, this.#readDepth(name));
  }

  async depths(names: readonly QueueName[]): Promise<readonly QueueDepth[]> {
    const found: QueueDepth[] = [];
    for (let at = 0; at < names.length; at += MOST_AT_ONCE) {
      const counting = names.slice(at, at + MOST_AT_ONCE).map((name) => this.#countOf(name));
      found.push(...(await this.#asking('count the queues', Promise.all(counting))).map(depthOf));
    }
    return found;
  }

  async activeIds(name: QueueName, limit = 1000): Promise<readonly TaskId[]> {
    const { active } = this.#queue(name).backend.keys;
    const ids = await this.#asking(`list ${name}`, this.#client.lrange(String(active), 0, limit - 1));
    return ids as TaskId[];
  }

  async held(name: QueueName, limit = 1000): Promise<readonly HeldLock[]> {
    const ids = await this.activeIds(name, limit);
    const { backend } = this.#queue(name);
    const held: HeldLock[] = [];
    for (let at = 0; at < ids.length; at += MOST_AT_ONCE) {
      const batch = ids.slice(at, at + MOST_AT_ONCE);
      const keys = batch.map((id) => backend.toKey(`${id}:lock`));
      const tokens = await this.#asking(`read the locks of ${name}`, this.#client.mget(keys));
      for (const [index, taskId] of batch.entries()) {
        const lock = tokens[index];
        if (typeof lock === 'string') held.push({ queue: name, taskId, lock: lock as LockToken });
      }
    }
    return held;
  }

  async waitingIds(name: QueueName, limit = 100_000): Promise<readonly TaskId[]> {
    const { wait, delayed, prioritized } = this.#queue(name).backend.keys;
    const lists = await this.#asking(
      `list ${name}`,
      Promise.all([
        this.#client.lrange(String(wait), 0, limit - 1),
        this.#client.zrange(String(delayed), '0', String(limit - 1)),
        this.#client.zrange(String(prioritized), '0', String(limit - 1)),
      ]),
    );
    return lists.flat() as TaskId[];
  }

  async scanStalled(name: QueueName): Promise<readonly TaskId[]> {
    const moved = await this.#asking(`scan ${name}`, this.#queue(name).backend.moveStalledJobsToWait());
    return moved as TaskId[];
  }

  async obliterate(name: QueueName): Promise<void> {
    const { backend } = this.#queue(name);
    await this.#asking(`delete ${name}`, deleteAll(backend));
    this.#queues.delete(name);
    this.#controls.delete(name);
  }

  async close(): Promise<void> {
    this.#client.off('close', this.#onClose);
    this.#client.off('ready', this.#onReady);
    await this.#repairs.close();
    await this.#root.close();
  }

  async #moveToActive(
    name: QueueName,
    backend: IQueueBackend,
    lock: LockToken,
  ): Promise<[JobJson | undefined, string | undefined, number | undefined]> {
    const underWay: FetchUnderWay = { doubtful: false };
    this.#fetches.add(underWay);
    try {
      const [json, id, , nextDue] = (await backend.moveToActive(lock)) as [
        JobJson | null | undefined,
        string | number | undefined,
        unknown,
        number | undefined,
      ];
      const found = json ?? undefined;
      const keep = found === undefined ? undefined : String(id);
      if (underWay.doubtful) {
        this.#repairs.note({ queue: name, lock, keep: keep as TaskId | undefined });
      }
      return [found, keep, nextDue === undefined || nextDue <= 0 ? undefined : nextDue];
    } catch (error) {
      if (isAnswerLost(error)) this.#repairs.note({ queue: name, lock, keep: undefined });
      throw unavailable(`fetch from ${name}`, error);
    } finally {
      this.#fetches.delete(underWay);
    }
  }

  async #heldBy(name: QueueName, locks: ReadonlySet<string>): Promise<readonly HeldLock[]> {
    return (await this.held(name, 100_000)).filter(({ lock }) => locks.has(lock));
  }

  async #readDepth(name: QueueName): Promise<QueueDepth> {
    return depthOf(await this.#countOf(name));
  }

  #countOf(name: QueueName): Promise<unknown> {
    const soon = (Date.now() + DUE_SOON_MS) * DELAYED_SCALE;
    return this.#depthScript.run(...depthKeys(this.#queue(name).backend), this.#heldCounts, name, soon);
  }

  #queue(name: QueueName): OpenQueue {
    let queue = this.#queues.get(name);
    if (queue === undefined) {
      if (name === '' || name.includes(':')) throw new TypeError(`queue name ${JSON.stringify(name)} is not usable`);
      const oldest = this.#queues.size >= MAX_OPEN ? this.#queues.keys().next().value : undefined;
      if (oldest !== undefined) this.#queues.delete(oldest);
      queue = { name, backend: this.#root.forQueue(name), opened: undefined };
    } else if (this.#queues.size > MAX_OPEN / 2) {
      this.#queues.delete(name);
    } else {
      return queue;
    }
    this.#queues.set(name, queue);
    return queue;
  }

  async control(name: QueueName, control: QueueControl): Promise<void> {
    const known = this.#controls.get(name);
    if (known?.paused === control.paused && known.limit === control.limit) return await this.open(name);
    this.#controls.set(name, control);
    const queue = this.#queue(name);
    queue.opened = undefined;
    await this.open(name);
    // A queue that Redis knows as free needs no word after each break.
    if (!control.paused && control.limit === null && this.#controls.get(name) === control) this.#controls.delete(name);
  }

  async #writeSettings(queue: OpenQueue): Promise<void> {
    try {
      const { backend } = queue;
      const control = this.#controls.get(queue.name);
      const { paused = false, limit = null } = control ?? {};
      const free = [...(paused ? [] : ['paused']), ...(limit === null ? ['concurrency'] : [])];
      await Promise.all([
        backend.setQueueMeta({
          'opts.maxLenEvents': 0,
          ...(paused ? { paused: 1 } : {}),
          ...(limit === null ? {} : { concurrency: limit }),
        }),
        ...(control === undefined || free.length === 0 ? [] : [backend.removeQueueMetaFields(free)]),
      ]);
    } catch (error) {
      queue.opened = undefined;
      throw unavailable(`open ${queue.name}`, error);
    }
  }

  async #fenced(what: string, lock: LockToken, act: () => Promise<unknown>): Promise<Fence> {
    requireLock(lock);
    try {
      await act();
      return { kind: 'done' };
    } catch (error) {
      const fence = fenceOf(error);
      if (fence !== undefined) return fence;
      throw unavailable(what, error);
    }
  }

  async #asking<T>(what: string, answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      throw unavailable(what, error);
    }
  }
}

async function deleteAll(backend: IQueueBackend): Promise<void> {
  // BullMQ obliterates only a paused queue, a thousand jobs at a time. A job added meanwhile goes, too.
  await backend.pause(true);
  for (let rounds = 0; rounds < 10_000; rounds += 1) {
    if ((await backend.obliterate({ force: true, count: 1000 })) === 0) return;
  }
  throw new Error('the queue does not get empty');
}

/** Job object for finishing, which reads only the id and these options; `attempts: 1` always ends the job. */
const skeleton = (taskId: TaskId): MinimalJob => ({ id: taskId, opts: { attempts: 1 } }) as unknown as MinimalJob;

/** Begin of the ranks of prioritised jobs, and their unit: BullMQ adds a counter to 2^32 times the rank. */
const RANKS_FROM_MS = Date.UTC(2026, 0, 1);
const RANK_MS = 2 ** 17;
/** Turns of a rank: 2^24 of a score are one, so that the counter of 16 million adds is less than a turn. */
const TURNS = 2 ** 8;

/**
 * Rank of a job in a queue with priorities: its creation less its head start. The scores of BullMQ stay exact until
 * 2034: a millisecond is 2^15 of them, and jobs of one millisecond are told apart by the counter.
 */
function rankOf({ createdAtMs, flow }: TaskJob): number | undefined {
  if (flow?.turn !== undefined) return (flow.turn + 1) / TURNS;
  if (flow?.headStart === undefined) return undefined;
  return Math.max(1, createdAtMs - flow.headStart * 1000 - RANKS_FROM_MS) / RANK_MS;
}

function jobJson(job: TaskJob, heldToMs = 0): JobJson {
  const timestamp = Date.now();
  const delay = Math.max(0, heldToMs - timestamp);
  const priority = rankOf(job);
  return {
    id: job.taskId,
    name: TASK_JOB_NAME,
    data: encodeTaskJob(job),
    opts: {
      attempts: 1,
      removeOnComplete: true,
      removeOnFail: true,
      ...(delay === 0 ? {} : { delay }),
      ...(priority === undefined ? {} : { priority }),
    },
    progress: 0,
    attemptsMade: 0,
    attemptsStarted: 0,
    stalledCounter: 0,
    timestamp,
    failedReason: '',
    returnvalue: '',
  };
}

/** Due time of a delayed job: its score has a part of the id in its low bits. */
const dueOf = (score: string): number => Math.floor(Number(score) / DELAYED_SCALE);

const depthKeys = ({ keys }: IQueueBackend): string[] =>
  [keys['wait'], keys['active'], keys['delayed'], keys['prioritized']].map(String);

function depthOf(counts: unknown): QueueDepth {
  const [waiting = 0, active = 0, delayed = 0, prioritized = 0, held = 0, soon = 0] = counts as number[];
  return { waiting, active, delayed, prioritized, held, soon };
}
