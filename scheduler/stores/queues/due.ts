// Wake-ups for delayed jobs: BullMQ promotes none by itself, so at each due time the queue is woken
// as by an add. The replica that delayed the job, or saw the due time in an empty fetch, keeps it
// in memory. After a restart, the slow sweep over queues with delayed jobs finds it again.
import type { QueueName } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { Listeners } from '#shared/listeners.ts';

const MAX_PER_QUEUE = 10_000;
const LONGEST_TIMER_MS = 60_000;

export class DueTimes {
  readonly name = 'due times';
  readonly #clock: Clock;
  readonly #due = new Listeners<[QueueName]>();
  readonly #times = new Map<QueueName, number[]>();
  readonly #timers = new Map<QueueName, NodeJS.Timeout>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Told when a delayed job of the queue is due. */
  onDue(listener: (queue: QueueName) => void): void {
    this.#due.add(listener);
  }

  add(queue: QueueName, dueMs: number): void {
    const times = this.#times.get(queue) ?? [];
    if (times.length >= MAX_PER_QUEUE) return;
    // Turns under a throttle come in order.
    const isLast = dueMs > (times.at(-1) ?? -Infinity);
    if (!isLast && times.includes(dueMs)) return;
    times.push(dueMs);
    if (!isLast) times.sort((a, b) => a - b);
    this.#times.set(queue, times);
    if (times[0] === dueMs) this.#arm(queue);
  }

  stop(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }

  #arm(queue: QueueName): void {
    clearTimeout(this.#timers.get(queue));
    const next = this.#times.get(queue)?.[0];
    if (next === undefined) {
      this.#times.delete(queue);
      this.#timers.delete(queue);
      return;
    }
    const delay = Math.min(Math.max(1, next - this.#clock.nowMs()), LONGEST_TIMER_MS);
    const timer = setTimeout(() => this.#fire(queue), delay);
    timer.unref();
    this.#timers.set(queue, timer);
  }

  #fire(queue: QueueName): void {
    const nowMs = this.#clock.nowMs();
    const times = (this.#times.get(queue) ?? []).filter((time) => time > nowMs);
    const wasDue = times.length !== (this.#times.get(queue)?.length ?? 0);
    this.#times.set(queue, times);
    this.#arm(queue);
    if (wasDue) this.#due.tell(queue);
  }
}
