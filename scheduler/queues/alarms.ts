// Alarms: BullMQ's job schedulers on one ordinary Worker for each replica, which is one of the platform's own few queues. An alarm says that a time may have come and nothing else: what it means is read and decided where it
// is heard, so one that is late, lost, doubled or out of date does no harm. Nothing is opened before there is something to be woken for.
import { Queue, Worker } from 'bullmq';
import type { RepeatOptions } from 'bullmq';
import type { Redis } from 'ioredis';
import { withDeadline } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { waitingClient } from './platform-queue.ts';

const QUEUE = 'schedules';
/** Heard at a time; each is a few statements. */
const CONCURRENCY = 8;
const CLOSE_MS = 5_000;
/** BullMQ sets the next alarm when it hands one out: a process that dies just then leaves none. */
const LATE_MS = 60_000;
const DONE = { removeOnComplete: true, removeOnFail: true };

export interface Alarm {
  readonly id: string;
  readonly pattern: string;
  readonly timezone: string;
}

export interface AlarmsOptions {
  /** Fails fast: alarms are set by it. Those who wait for one have connections of their own, made like it. */
  readonly client: Redis;
  readonly prefix: string;
  readonly log: Log;
  /** When the next one of that pattern is, after that moment. */
  readonly next: (pattern: string, timezone: string, afterMs: number) => number | undefined;
  /** Never rejects. */
  readonly onAlarm: (id: string) => Promise<void>;
}

export class Alarms {
  readonly #options: AlarmsOptions;
  #open: { readonly client: Redis; readonly queue: Queue; readonly worker: Worker } | undefined;

  constructor(options: AlarmsOptions) {
    this.#options = options;
  }

  /** Alarms are heard here from now on. */
  listen(): void {
    void this.#opened();
  }

  /** Makes them all there are: what is missing, late or says something else is set, what is more is taken away. @throws when Redis does not answer */
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
    const { log, prefix, next, onAlarm } = this.#options;
    const client = waitingClient(this.#options.client, 'alarms');
    const unanswered = (error: unknown): void => log.debug({ reason: messageOf(error) }, 'alarms have no Redis');
    client.on('error', unanswered);
    const settings = {
      repeatStrategy: (afterMs: number, { pattern = '', tz = 'UTC' }: RepeatOptions) => {
        try {
          return next(pattern, tz, afterMs);
        } catch (error) {
          // It has no alarm then, and those after it have theirs.
          log.warn({ err: error, pattern, timezone: tz }, 'an alarm is not set: when it should be cannot be read');
          return undefined;
        }
      },
    };
    const shared = { prefix, settings };
    const queue = new Queue(QUEUE, { ...shared, connection: this.#options.client, streams: { events: { maxLen: 0 } } });
    const hear = async ({ repeatJobKey }: { readonly repeatJobKey?: string | undefined }): Promise<void> => {
      if (repeatJobKey !== undefined) await onAlarm(repeatJobKey);
    };
    const worker = new Worker(QUEUE, hear, { ...shared, connection: client, concurrency: CONCURRENCY });
    queue.on('error', unanswered);
    worker.on('error', unanswered);
    this.#open = { client, queue, worker };
    return this.#open;
  }
}
