// Repair of fetches whose answer was lost but which may have run. Such a fetch leaves a job active that
// no attempt works on. The repair looks until Redis had time to run all it still held, and gives such
// jobs back. Bound: past `limit` the oldest is dropped; the stall scan heals it later.
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';

/** Fetch whose answer was lost, or which may have been sent twice; `keep` is the job that the caller did get. */
export interface LostFetch {
  readonly queue: QueueName;
  readonly lock: LockToken;
  readonly keep: TaskId | undefined;
}

/** Queue operations that a repair needs. */
export interface RepairPort {
  /** Ids of the queue's fetched jobs that one of these tokens holds. */
  heldBy(
    queue: QueueName,
    locks: ReadonlySet<string>,
  ): Promise<readonly { readonly taskId: TaskId; readonly lock: LockToken }[]>;
  giveBack(queue: QueueName, taskId: TaskId, lock: LockToken): Promise<unknown>;
}

interface Entry {
  readonly lost: LostFetch;
  looks: number;
  dueMs: number;
}

/**
 * Milliseconds before each look. Together about a minute: longer than a command can lie in a socket that is still open.
 */
export const LOOK_AFTER_MS: readonly number[] = [500, 1000, 2000, 4000, 8000, 15_000, 30_000];

export class Repairs {
  readonly #port: RepairPort;
  readonly #log: Log;
  readonly #limit: number;
  readonly #lookAfterMs: readonly number[];
  readonly #nowMs: () => number;
  readonly #entries = new Map<LockToken, Entry>();
  #timer: NodeJS.Timeout | undefined;
  #round: Promise<number> | undefined;
  #closed = false;

  constructor(
    port: RepairPort,
    options: {
      readonly log: Log;
      readonly limit?: number;
      readonly lookAfterMs?: readonly number[];
      readonly nowMs?: () => number;
    },
  ) {
    this.#port = port;
    this.#log = options.log;
    this.#limit = options.limit ?? 10_000;
    this.#lookAfterMs = options.lookAfterMs ?? LOOK_AFTER_MS;
    this.#nowMs = options.nowMs ?? (() => performance.now());
  }

  get size(): number {
    return this.#entries.size;
  }

  note(lost: LostFetch): void {
    if (this.#closed) return;
    if (this.#entries.size >= this.#limit) {
      const oldest = this.#entries.keys().next().value;
      if (oldest !== undefined) this.#entries.delete(oldest);
      this.#log.warn({ limit: this.#limit }, 'too many lost fetches to repair; the oldest is left to the stall scan');
    }
    this.#entries.set(lost.lock, { lost, looks: 0, dueMs: this.#nowMs() + (this.#lookAfterMs[0] ?? 0) });
    this.#arm();
  }

  /**
   * Looks at the repairs that are due now, or at every one when `all`.
   * @returns how many jobs were given back
   */
  async check(all = false): Promise<number> {
    while (this.#round !== undefined) await this.#round;
    this.#round = this.#check(all);
    try {
      return await this.#round;
    } finally {
      this.#round = undefined;
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#entries.clear();
    await this.#round;
  }

  async #check(all: boolean): Promise<number> {
    const nowMs = this.#nowMs();
    const due = [...this.#entries.values()].filter((entry) => all || entry.dueMs <= nowMs);
    const byQueue = Map.groupBy(due, (entry) => entry.lost.queue);
    let repaired = 0;
    for (const [queue, entries] of byQueue) {
      try {
        repaired += await this.#lookAt(queue, entries);
        for (const entry of entries) this.#looked(entry);
      } catch (error) {
        // Redis does not answer: this look does not count.
        this.#log.debug({ err: error, queue }, 'lost fetches cannot be looked up yet');
        for (const entry of entries) entry.dueMs = this.#nowMs() + (this.#lookAfterMs[0] ?? 0);
      }
    }
    return repaired;
  }

  async #lookAt(queue: QueueName, entries: readonly Entry[]): Promise<number> {
    let repaired = 0;
    const fetches = new Map<string, LostFetch>(entries.map(({ lost }) => [lost.lock, lost]));
    for (const held of await this.#port.heldBy(queue, new Set(fetches.keys()))) {
      if (fetches.get(held.lock)?.keep === held.taskId) continue;
      await this.#port.giveBack(queue, held.taskId, held.lock);
      repaired += 1;
    }
    if (repaired > 0) this.#log.info({ queue, repaired }, 'jobs of lost fetches given back');
    return repaired;
  }

  #looked(entry: Entry): void {
    entry.looks += 1;
    const nextMs = this.#lookAfterMs[entry.looks];
    if (nextMs === undefined) this.#entries.delete(entry.lost.lock);
    else entry.dueMs = this.#nowMs() + nextMs;
  }

  #arm(): void {
    if (this.#timer !== undefined || this.#closed || this.#entries.size === 0) return;
    const firstDueMs = Math.min(...[...this.#entries.values()].slice(0, 100).map((entry) => entry.dueMs));
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        void this.check().finally(() => this.#arm());
      },
      Math.max(10, firstDueMs - this.#nowMs()),
    );
    this.#timer.unref();
  }
}
