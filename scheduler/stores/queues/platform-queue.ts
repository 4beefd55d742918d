// Queues for the platform's own work: an ordinary BullMQ queue with an ordinary Worker, behind a small
// interface. A job is only an alarm about a row, so a job that is lost, late or doubled changes nothing.
// Invariant: a queue keeps no results, no events and no finished jobs, and no more jobs than its bound.
import { Queue, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import { withDeadline } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';

/** Data of a job: a few small values. */
export type JobFacts = Readonly<Record<string, string | number>>;

export interface PlatformJob<T extends JobFacts> {
  /** Id of the job, without `:`. An existing job of the same id stays as it is. */
  readonly id: string;
  readonly facts: T;
  /** Delay in milliseconds; absent: none. */
  readonly delayMs?: number;
}

export interface PlatformQueueOptions {
  /** Letters, digits and `-`; the keys are `<prefix>:<name>:…`. */
  readonly name: string;
  readonly prefix: string;
  /** Client that fails fast, for adding; the worker has connections of its own, made from it. The caller closes it. */
  readonly client: Redis;
  readonly log: Log;
  /** Most jobs under way here at once. */
  readonly concurrency: number;
  /** Most waiting and delayed jobs; beyond it none is added, and the owner of the rows adds them later. */
  readonly mostJobs: number;
}

/** Milliseconds until a job whose process died is given to another one. */
const LOCK_MS = 60_000;
/** Seconds a worker waits for a job before it asks again; a new job wakes it at once. */
const IDLE_WAIT_S = 30;
const CLOSE_MS = 5_000;
const KEEP_NOTHING = { removeOnComplete: true, removeOnFail: true } as const;

/**
 * Makes a client for a worker, which waits for Redis and for
 * jobs instead of failing fast. The caller closes the client.
 */
export const waitingClient = (client: Redis, name: string): Redis =>
  client.duplicate({
    connectionName: `longshore-${name}`,
    maxRetriesPerRequest: null,
    enableOfflineQueue: true,
    lazyConnect: false,
  });

export class PlatformQueue<T extends JobFacts> {
  readonly #options: PlatformQueueOptions;
  readonly #queue: Queue;
  #process: (facts: T) => Promise<void> = () => Promise.resolve();
  #worker: Worker | undefined;
  #client: Redis | undefined;

  constructor(options: PlatformQueueOptions) {
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

  /** Sets the work of a job. The job is gone afterwards, whatever the outcome. */
  onJob(process: (facts: T) => Promise<void>): void {
    this.#process = process;
  }

  /**
   * Adds jobs in the order given, as many as there is room for.
   * @returns how many were added
   * @throws when Redis does not answer
   */
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

  /** Starts to process jobs. */
  start(): void {
    const { client, log, name, prefix, concurrency } = this.#options;
    this.#client = waitingClient(client, name);
    this.#client.on('error', () => undefined);
    const worker = new Worker(name, (job) => this.#process(job.data as T), {
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

  /** Takes no new jobs, and waits a moment for those under way. */
  async stop(): Promise<void> {
    const closing = this.#worker?.close() ?? Promise.resolve();
    await withDeadline(closing, CLOSE_MS, () => new Error('jobs are still under way')).catch(() => undefined);
    this.#client?.disconnect();
    await this.#queue.close();
  }
}
