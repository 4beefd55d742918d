// The platform's own few queues: an ordinary BullMQ queue with an ordinary Worker, behind a small interface. A job is only the alarm: what it is about stands in a row, so a job that is lost, late or comes
// twice changes nothing. Must stay true: a queue keeps no results, no events and no finished jobs, and no more jobs than its bound.
import { Queue, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import { withDeadline } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';

/** What a job carries: a few small values. */
export type JobFacts = Readonly<Record<string, string | number>>;

export interface PlatformJob<T extends JobFacts> {
  /** A job of this id that is still there is left as it is. Without `:`. */
  readonly id: string;
  readonly facts: T;
  /** Absent: at once. */
  readonly delayMs?: number;
}

export interface PlatformQueueOptions<T extends JobFacts> {
  /** Letters, digits and `-`; the keys are `<prefix>:<name>:…`. */
  readonly name: string;
  readonly prefix: string;
  /** A client that fails fast, for adding; the worker has connections of its own, made from it. The caller closes it. */
  readonly client: Redis;
  readonly log: Log;
  /** Jobs under way here at once. */
  readonly concurrency: number;
  /** More waiting and delayed jobs than this are not added: whoever has the rows looks for them again. */
  readonly mostJobs: number;
  /** Does what the job is about, which is gone after it, whatever came of it. */
  readonly process: (facts: T) => Promise<void>;
}

/** A job whose process died is given to another one after this. */
const LOCK_MS = 60_000;
/** How long a worker waits for a job before it asks anew; a new job wakes it at once. */
const IDLE_WAIT_S = 30;
const CLOSE_MS = 5_000;
const KEEP_NOTHING = { removeOnComplete: true, removeOnFail: true } as const;

/** A worker waits for Redis, and for jobs, instead of failing, so it cannot share a client that fails fast. Whoever asks for it ends it. */
export const waitingClient = (client: Redis, name: string): Redis =>
  client.duplicate({
    connectionName: `longshore-${name}`,
    maxRetriesPerRequest: null,
    enableOfflineQueue: true,
    lazyConnect: false,
  });

export class PlatformQueue<T extends JobFacts> {
  readonly #options: PlatformQueueOptions<T>;
  readonly #queue: Queue;
  #worker: Worker | undefined;
  #client: Redis | undefined;

  constructor(options: PlatformQueueOptions<T>) {
    this.#options = options;
    this.#queue = new Queue(options.name, {
      connection: options.client,
      prefix: options.prefix,
      streams: { events: { maxLen: 0 } },
      defaultJobOptions: { ...KEEP_NOTHING, attempts: 1 },
    });
    this.#queue.on('error', (error) =>
      options.log.warn({ err: error, queue: options.name }, 'queue connection failed'),
    );
  }

  /** @returns how many were taken, from the first on: as many as there was room for @throws when Redis does not answer */
  async add(jobs: readonly PlatformJob<T>[]): Promise<number> {
    if (jobs.length === 0) return 0;
    const { waiting = 0, delayed = 0 } = await this.#queue.getJobCounts('waiting', 'delayed');
    const taken = jobs.slice(0, Math.max(0, this.#options.mostJobs - waiting - delayed));
    if (taken.length === 0) return 0;
    await this.#queue.addBulk(
      taken.map(({ id, facts, delayMs }) => ({
        name: this.#options.name,
        data: facts,
        opts: { jobId: id, ...(delayMs === undefined ? {} : { delay: delayMs }) },
      })),
    );
    return taken.length;
  }

  /** Jobs are taken from now on. */
  start(): void {
    const { client, log, name, prefix, concurrency } = this.#options;
    this.#client = waitingClient(client, name);
    this.#client.on('error', () => undefined);
    const worker = new Worker(name, (job) => this.#options.process(job.data as T), {
      connection: this.#client,
      prefix,
      concurrency,
      lockDuration: LOCK_MS,
      drainDelay: IDLE_WAIT_S,
      ...{ removeOnComplete: { count: 0 }, removeOnFail: { count: 0 } },
    });
    worker.on('error', (error) =>
      log.info({ err: error, queue: name }, 'queue worker has no connection, trying again'),
    );
    worker.on('failed', (job, error) => log.warn({ err: error, queue: name, job: job?.id }, 'job failed'));
    this.#worker = worker;
  }

  /** No new jobs; those under way are waited for a moment. */
  async stop(): Promise<void> {
    const closing = this.#worker?.close() ?? Promise.resolve();
    await withDeadline(closing, CLOSE_MS, () => new Error('jobs are still under way')).catch(() => undefined);
    this.#client?.disconnect();
    await this.#queue.close();
  }
}
