// Breakers of all queues: in memory for the scaling loop, and each in a row, so that
// a new leader continues with them. Rows are written behind, one write of a queue
// after another. A missing row was deleted by a user's start of the deployment.
import type { ContainerId, QueueName } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import { storableText } from '../../stores/store/rows.ts';
import type { Db, Queryable } from '../../stores/store/db.ts';
import type { Targets } from '../../workspaces/deployments/targets.ts';
import type { EventWriter } from '../../workspaces/events/writer.ts';
import { stubStateChanged, stubStateOf } from './breaker-events.ts';
import { breakerOf, deleteBreaker, loadBreakers, saveBreaker } from '../../stores/store/queries/breakers.ts';
import type { Breaker, StartFailure } from './breaker.ts';
import { breakerAfterFailure, breakerPhase, CLOSED_BREAKER, provesStarts } from './breaker.ts';

export interface BreakersParts {
  readonly db: Queryable;
  readonly clock: Clock;
  readonly log: Log;
  /** Fencing number of this leader; undefined: this replica no longer leads, and writes nothing. */
  readonly fence: () => number | undefined;
  /** The database and the writer of events, with the targets that they name; absent: nothing is told. */
  readonly told?: {
    readonly db: Db;
    readonly events: Pick<EventWriter, 'transaction'>;
    readonly targets: Pick<Targets, 'byQueue'>;
  };
}

/** Age at which a failure no longer counts, in milliseconds. */
const FORGET_MS = 24 * 3600_000;
const MAX_BREAKERS = 10_000;
const MAX_MESSAGE = 2_000;

export class Breakers {
  readonly #parts: BreakersParts;
  readonly #breakers = new Map<QueueName, Breaker>();
  /** Writes under way by queue. A queue whose write failed stays in `#unwritten` until the next write. */
  readonly #writes = new Map<QueueName, Promise<void>>();
  readonly #unwritten = new Set<QueueName>();

  constructor(parts: BreakersParts) {
    this.#parts = parts;
  }

  /** Loads the breakers of the last leader; call it when this replica begins to lead. */
  async load(): Promise<void> {
    this.#breakers.clear();
    const rows = await loadBreakers(this.#parts.db, this.#parts.clock.nowMs() - FORGET_MS, MAX_BREAKERS);
    // A breaker that failed while the rows were read is newer than its row.
    for (const { queue, breaker } of rows.toReversed())
      if (!this.#breakers.has(queue)) this.#breakers.set(queue, { ...CLOSED_BREAKER, ...breaker });
  }

  has(queue: QueueName): boolean {
    return this.#breakers.has(queue);
  }

  of(queue: QueueName): Breaker {
    return this.#breakers.get(queue) ?? CLOSED_BREAKER;
  }

  isCooling(queue: QueueName): boolean {
    return breakerPhase(this.of(queue), this.#parts.clock.nowMs()) === 'cooling';
  }

  /** Number of breakers that are open, cooling or probing. */
  get opened(): number {
    let opened = 0;
    for (const breaker of this.#breakers.values()) if (breaker.opened > 0) opened += 1;
    return opened;
  }

  /** @param deployment - name of the queue's deployment, for the log; empty: not known */
  failed(queue: QueueName, failure: StartFailure, deployment = ''): void {
    const before = this.of(queue);
    const message = storableText(failure.message).slice(-MAX_MESSAGE);
    const after = breakerAfterFailure(before, { ...failure, message });
    this.#set(queue, after);
    if (after.opened > before.opened) {
      const { reason } = failure;
      const coolsMs = after.coolsUntilMs - failure.atMs;
      const about = deployment === '' ? { queue } : { deployment, queue };
      this.#parts.log.warn({ ...about, failures: after.failures, reason, coolsMs }, 'starts fail in a row, waiting');
    }
  }

  probes(queue: QueueName, containerId: ContainerId): void {
    this.#set(queue, { ...this.of(queue), probe: containerId });
  }

  /**
   * Notes that a container was handed a task or stayed up.
   * @returns true: that closed the breaker, or ended a row of failures
   */
  works(queue: QueueName, container: { readonly createdAtMs: number }): boolean {
    const breaker = this.#breakers.get(queue);
    if (breaker === undefined || !provesStarts(breaker, container)) return false;
    if (breaker.opened > 0) this.#parts.log.info({ queue }, 'starts work again');
    this.forget(queue);
    return true;
  }

  /** Forgets all failures of the queue. */
  forget(queue: QueueName): void {
    const before = this.of(queue);
    if (!this.#breakers.delete(queue)) return;
    this.#write(queue, (fence) => this.#told(queue, before, CLOSED_BREAKER, (db) => deleteBreaker(db, queue, fence)));
  }

  /**
   * Reads the row again after the deployment changed, to see whether a user started it.
   * @returns true: that closed the breaker
   */
  async reread(queue: QueueName): Promise<boolean> {
    if (!this.#breakers.has(queue)) return false;
    await this.#writes.get(queue);
    if (this.#unwritten.has(queue) || (await breakerOf(this.#parts.db, queue)) !== undefined) return false;
    return this.#breakers.delete(queue);
  }

  #set(queue: QueueName, breaker: Breaker): void {
    const before = this.of(queue);
    this.#breakers.delete(queue);
    this.#breakers.set(queue, breaker);
    if (this.#breakers.size > MAX_BREAKERS) {
      const oldest = this.#breakers.keys().next().value;
      if (oldest !== undefined) this.#breakers.delete(oldest);
    }
    this.#write(queue, (fence) => this.#told(queue, before, breaker, (db) => saveBreaker(db, queue, breaker, fence)));
  }

  /** Writes a breaker, together with the event of its stub where the state changes. */
  async #told(
    queue: QueueName,
    before: Breaker,
    after: Breaker,
    write: (db: Queryable) => Promise<boolean>,
  ): Promise<void> {
    const { db, told, clock } = this.#parts;
    const isChange = stubStateOf(before) !== stubStateOf(after);
    const target = told !== undefined && isChange ? await told.targets.byQueue(queue) : undefined;
    if (told === undefined || target === undefined) {
      await write(db);
      return;
    }
    await told.events.transaction(told.db, async (tx, emit) => {
      const event = (await write(tx)) ? stubStateChanged(target, before, after, clock.nowMs()) : undefined;
      if (event !== undefined) emit(event);
    });
  }

  #write(queue: QueueName, write: (fence: number) => Promise<void>): void {
    const before = this.#writes.get(queue) ?? Promise.resolve();
    const writing = before.then(async () => {
      const fence = this.#parts.fence();
      if (fence === undefined) return;
      try {
        await write(fence);
        this.#unwritten.delete(queue);
      } catch (error) {
        this.#unwritten.add(queue);
        this.#parts.log.warn({ err: error, queue }, 'breaker not written');
      }
      if (this.#writes.get(queue) === writing) this.#writes.delete(queue);
    });
    this.#writes.set(queue, writing);
  }
}
