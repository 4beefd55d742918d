// Alarms: BullMQ's job schedulers, with one ordinary Worker for each replica; their queue is one of the platform's
// own few. An alarm only says that a time may have come. The replica that receives it reads and decides what it
// means, so a late, lost, doubled or outdated alarm does no harm. Nothing is opened before an alarm is needed.
import { Queue, Worker } from 'bullmq';
import type { RepeatOptions } from 'bullmq';
import type { Redis } from 'ioredis';
import { withDeadline } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { waitingClient } from './platform-queue.ts';

const QUEUE = 'schedules';
/** Alarms handled at a time; each costs a few statements. */
const CONCURRENCY = 8;
const CLOSE_MS = 5_000;
/**
 * Delay past which an alarm counts as lost. BullMQ sets the next alarm
 * when it hands one out: a process that dies just then leaves none.
 */
const LATE_MS = 60_000;
const DONE = { removeOnComplete: true, removeOnFail: true };

export interface Alarm {
  readonly id: string;
  readonly pattern: string;
  readonly timezone: string;
}

export interface AlarmsOptions {
  /** Client that fails fast, for setting alarms. The worker has connections of its own, made like it. */
  readonly client: Redis;
  readonly prefix: string;
  readonly log: Log;
  /** Next time of the pattern after that moment. */
  readonly next: (pattern: string, timezone: string, afterMs: number) => number | undefined;
}

export class Alarms {
  readonly #options: AlarmsOptions;
  #handle: (id: string) => Promise<void> = () => Promise.resolve();
  #open: { readonly client: Redis; readonly queue: Queue; readonly worker: Worker } | undefined;

  constructor(options: AlarmsOptions) {
    this.#options = options;
  }

  /** Sets the handler of alarms, which never rejects. */
  onAlarm(handle: (id: string) => Promise<void>): void {
    this.#handle = handle;
  }

  /** Starts to receive alarms here. */
  listen(): void {
    void this.#opened();
  }

  /**
   * Makes the given alarms the only ones: sets those that are missing, late or different, and removes the rest.
   * @throws when Redis does not answer
   */
  async setAll(alarms: readonly Alarm[]): Promise<void> {
    if (alarms.length === 0 && this.#open === undefined) return;
    const { queue } = this.#opened();
    const wanted = new Map(alarms.map((alarm) => [alarm.id, alarm]));
    const lateMs = Date.now() - LATE_MS;
    for (const { key, pattern, tz, next = 0 } of await queue.getJobSchedulers()) {
      const alarm = wanted.get(key);
      if (alarm === undefined) await queue.removeJobScheduler(key);
      else if (alarm.pattern === pattern && alarm.timezone === tz && next > lateMs) wanted.delete(key);
    }
    for (const { id, pattern, timezone: tz } of wanted.values()) {
      await queue.upsertJobScheduler(id, { pattern, tz }, { name: 'tick', opts: DONE });
    }
  }

  async close(): Promise<void> {
    const open = this.#open;
    this.#open = undefined;
    if (open === undefined) return;
    try {
      await withDeadline(
        open.worker.close().then(() => open.queue.close()),
        CLOSE_MS,
        () => new Error('Redis does not answer'),
      );
    } finally {
      open.client.disconnect();
    }
  }

  #opened(): { readonly client: Redis; readonly queue: Queue; readonly worker: Worker } {
    if (this.#open !== undefined) return this.#open;
    const { log, prefix, next } = this.#options;
    const client = waitingClient(this.#options.client, 'alarms');
    const unanswered = (error: unknown): void => log.debug({ reason: messageOf(error) }, 'alarms have no Redis');
    client.on('error', unanswered);
    const settings = {
      repeatStrategy: (afterMs: number, { pattern = '', tz = 'UTC' }: RepeatOptions) => {
        try {
          return next(pattern, tz, afterMs);
        } catch (error) {
          // This pattern gets no alarm; the alarms after it do.
          log.warn({ err: error, pattern, timezone: tz }, 'an alarm is not set: when it should be cannot be read');
          return undefined;
        }
      },
    };
    const shared = { prefix, settings };
    const queue = new Queue(QUEUE, { ...shared, connection: this.#options.client, streams: { events: { maxLen: 0 } } });
    const hear = async ({ repeatJobKey }: { readonly repeatJobKey?: string | undefined }): Promise<void> => {
      if (repeatJobKey !== undefined) await this.#handle(repeatJobKey);
    };
    const worker = new Worker(QUEUE, hear, { ...shared, connection: client, concurrency: CONCURRENCY });
    queue.on('error', unanswered);
    worker.on('error', unanswered);
    this.#open = { client, queue, worker };
    return this.#open;
  }
}
