// Events that a webhook's lane has read and not passed yet, in the order of their numbers. Those of one subject become
// ready one after another; those of different subjects are ready at once.
import type { EventRow } from '../../stores/store/queries/events.ts';

export interface Entry {
  readonly event: EventRow;
  readonly subject: string;
  state: 'open' | 'running' | 'done';
}

/** Events of one subject are sent one after another. */
export const subjectOf = (event: EventRow): string =>
  event.taskId ?? event.containerId ?? event.deploymentId ?? event.stubId ?? '';

export class EventOrder {
  /** In order; those at the front that are done are dropped. */
  readonly #entries: Entry[] = [];
  /** Events of a subject, in order; the first is ready or running. */
  readonly #subjects = new Map<string, Entry[]>();
  readonly #ready: Entry[] = [];

  get size(): number {
    return this.#entries.length;
  }

  /** Number of the earliest event without an outcome; undefined: there is none. */
  get firstSeq(): number | undefined {
    return this.#entries[0]?.event.seq;
  }

  add(event: EventRow): void {
    const entry: Entry = { event, subject: subjectOf(event), state: 'open' };
    this.#entries.push(entry);
    const queue = this.#subjects.get(entry.subject);
    if (queue !== undefined) return void queue.push(entry);
    this.#subjects.set(entry.subject, [entry]);
    this.#ready.push(entry);
  }

  /** Takes the next event that may be sent. */
  next(): Entry | undefined {
    return this.#ready.shift();
  }

  /** The event was not sent: it is ready again, behind those that are. */
  reopen(entry: Entry): void {
    entry.state = 'open';
    this.#ready.push(entry);
  }

  /** The event has an outcome: the next of its subject is ready. */
  finish(entry: Entry): void {
    entry.state = 'done';
    while (this.#entries[0]?.state === 'done') this.#entries.shift();
    const queue = this.#subjects.get(entry.subject);
    queue?.shift();
    const next = queue?.[0];
    if (next === undefined) this.#subjects.delete(entry.subject);
    else this.#ready.push(next);
  }

  /**
   * Drops the events behind the last one that was begun.
   * @returns the number of the first one dropped; undefined: there was none
   */
  dropUnbegun(): number | undefined {
    const kept = this.#entries.findLastIndex(({ state }) => state !== 'open') + 1;
    const left = this.#entries.splice(kept);
    for (const entry of left) {
      const queue = this.#subjects.get(entry.subject);
      const others = queue?.filter((one) => one !== entry) ?? [];
      if (others.length > 0) this.#subjects.set(entry.subject, others);
      else this.#subjects.delete(entry.subject);
      const at = this.#ready.indexOf(entry);
      if (at >= 0) this.#ready.splice(at, 1);
    }
    return left[0]?.event.seq;
  }
}
