// Questions to the other replicas for records that the database does not have yet. A holder writes them, and answers;
// the row is read after that. So no buffer is ever shown, and two replicas never answer backwards. Readers of a moment
// share a question. A replica that is silent for a second is not waited for until it answers again, ten seconds at
// most: it is well by then, or not present any more. The answers lack what it holds; agents repeat the results of a
// dead one.
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import { sleep, withDeadline } from '#shared/backoff.ts';
import type { Bus } from '../../cluster/bus.ts';

/** How long readers wait to share a question while one is open. */
const SHARED_MS = 50;
/** How long replicas are waited for. */
const SILENT_MS = 1_000;
/** How long a replica that was silent is not waited for. */
const NOT_WAITED_FOR_MS = 10_000;

export type Asked = 'answered' | 'alone' | 'silent';
type Question = readonly [from: InstanceId, number: number, taskIds: readonly TaskId[] | null];
type Answer = readonly [from: InstanceId, number: number];

export interface PendingReadsParts {
  readonly bus: Bus;
  readonly channel: string;
  readonly answersOf: (replica: InstanceId) => string;
  readonly instance: InstanceId;
  /** The replicas that are present, as Redis has them now; it may name this one. */
  readonly present: () => Promise<readonly InstanceId[]>;
  readonly holds: (taskId: TaskId) => boolean;
  /** Writes what this replica holds. */
  readonly flush: () => Promise<boolean>;
  readonly silentMs?: number;
}

export class PendingReads {
  readonly #parts: PendingReadsParts;
  readonly #silentUntilMs = new Map<InstanceId, number>();
  readonly #open = new Map<number, (replica: InstanceId) => void>();
  #number = 0;
  #asked = new Set<TaskId>();
  #asksAll = false;
  #next: Promise<Asked> | undefined;
  #sentAtMs = -Infinity;

  constructor(parts: PendingReadsParts) {
    this.#parts = parts;
    const { bus, channel, answersOf, instance, holds, flush } = parts;
    bus.on(channel, (message) => {
      const [from, number, taskIds] = message as Question;
      if (from === instance) return;
      const answer = (): void => bus.publish(answersOf(from), [instance, number] satisfies Answer);
      if (taskIds === null || taskIds.some(holds)) void flush().then((isSafe) => isSafe && answer());
      else answer();
    });
    bus.on(answersOf(instance), (message) => {
      const [from, number] = message as Answer;
      this.#silentUntilMs.delete(from);
      this.#open.get(number)?.(from);
    });
  }

  /**
   * Has every other replica write what it holds of these tasks.
   * @param taskIds - undefined: of all tasks
   * @returns `silent`: one that is present did not do so in time; `alone`: there is no other
   */
  ask(taskIds: readonly TaskId[] | undefined): Promise<Asked> {
    if (taskIds === undefined) this.#asksAll = true;
    else for (const taskId of taskIds) this.#asked.add(taskId);
    return (this.#next ??= this.#send());
  }

  async #send(): Promise<Asked> {
    const waitMs = this.#open.size === 0 ? 0 : this.#sentAtMs + SHARED_MS - performance.now();
    if (waitMs > 0) await sleep(waitMs);
    else await Promise.resolve();
    this.#sentAtMs = performance.now();
    const taskIds = this.#asksAll ? undefined : [...this.#asked];
    this.#asked = new Set();
    this.#asksAll = false;
    this.#next = undefined;
    return await this.#askOthers(taskIds);
  }

  async #askOthers(taskIds: readonly TaskId[] | undefined): Promise<Asked> {
    const { bus, channel, instance, present, silentMs = SILENT_MS } = this.#parts;
    if (!bus.isLive) return 'silent';
    const late = (): Error => new Error('Redis is slow');
    const replicas = await withDeadline(present(), silentMs, late).catch(() => undefined);
    if (replicas === undefined) return 'silent';
    const others = replicas.filter((replica) => replica !== instance);
    const missing = new Set(others.filter((replica) => !this.#isSilent(replica)));
    const isSilent = missing.size < others.length;
    if (others.length === 0) return 'alone';
    const number = (this.#number += 1);
    const all = Promise.withResolvers<boolean>();
    this.#open.set(number, (replica) => {
      missing.delete(replica);
      if (missing.size === 0) all.resolve(true);
    });
    bus.publish(channel, [instance, number, taskIds ?? null] satisfies Question);
    if (missing.size === 0) all.resolve(false);
    const timer = setTimeout(() => {
      for (const replica of missing) this.#silentUntilMs.set(replica, performance.now() + NOT_WAITED_FOR_MS);
      all.resolve(false);
    }, silentMs);
    try {
      return (await all.promise) && !isSilent ? 'answered' : 'silent';
    } finally {
      clearTimeout(timer);
      this.#open.delete(number);
    }
  }
  #isSilent(replica: InstanceId): boolean {
    const untilMs = this.#silentUntilMs.get(replica);
    if (untilMs === undefined) return false;
    if (performance.now() < untilMs) return true;
    this.#silentUntilMs.delete(replica);
    return false;
  }
}
