// The leader tells why containers wait: the reason is in their rows, and a gauge has them by reason. Reasons are
// counted by a look at every machine, so they are counted for one class after another, for a few milliseconds a
// second. Rows are written when the main reason of their class is another one than they have, many in a statement.
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerControl } from '../../fleet/containers/container-registry.ts';
import type { FleetMetrics } from '../../fleet/metrics.ts';
import type { FitClass, Item } from '../plan/fit-class.ts';
import type { Planner } from '../plan/planner.ts';
import { commonest } from './waiting.ts';

const EVERY_MS = 1000;
const COUNTED_FOR_MS = 5;
/** Milliseconds for which the reasons of a class are not counted again. */
const COUNT_EVERY_MS = 5000;
const MOST_ROWS = 500;

export interface WaitNotesParts {
  readonly planner: Planner;
  readonly containers: Pick<ContainerControl, 'noteRejections'>;
  readonly metrics: Pick<FleetMetrics, 'unschedulable'>;
  readonly clock: Clock;
  readonly log: Log;
}

export class WaitNotes {
  readonly #parts: WaitNotesParts;
  #timer: NodeJS.Timeout | undefined;
  #toldAtMs = -Infinity;

  constructor(parts: WaitNotesParts) {
    this.#parts = parts;
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** Tells what changed: now, or a second after it was told last. */
  soon(): void {
    if (this.#timer !== undefined) return;
    const leftMs = this.#toldAtMs + EVERY_MS - this.#parts.clock.monotonicMs();
    this.#timer = setTimeout(
      () => {
        this.#toldAtMs = this.#parts.clock.monotonicMs();
        void this.tell().finally(() => {
          this.#timer = undefined;
          if (this.#isBehind()) this.soon();
        });
      },
      Math.max(0, leftMs),
    );
    this.#timer.unref();
  }

  /** Counts reasons for a few milliseconds, and tells those that are known. */
  async tell(): Promise<void> {
    const { containers, log } = this.#parts;
    this.#count();
    this.#setGauge();
    const items = this.#untold();
    if (items.length === 0) return;
    for (const item of items) item.fitClass.untold.delete(item);
    try {
      await containers.noteRejections(
        items.map(({ wanted, fitClass }) => ({ id: wanted.id, rejections: fitClass.refusals?.rejections ?? {} })),
      );
    } catch (error) {
      for (const item of items) if (item.at >= 0) item.fitClass.untold.add(item);
      log.warn({ err: error, containers: items.length }, 'why containers wait was not written');
    }
  }

  #refused(): FitClass[] {
    return [...this.#parts.planner.classes()].filter(({ wasRefused }) => wasRefused);
  }

  /** Counts reasons, of classes first that have none, then of those whose reasons are the oldest. */
  #count(): void {
    const { planner, clock } = this.#parts;
    const startedMs = clock.monotonicMs();
    const atMsOf = ({ told, refusals }: FitClass): number => (told === '' ? -Infinity : (refusals?.atMs ?? 0));
    const stale = this.#refused().filter((fitClass) => startedMs - atMsOf(fitClass) >= COUNT_EVERY_MS);
    for (const fitClass of stale.sort((a, b) => atMsOf(a) - atMsOf(b))) {
      const main = commonest(planner.refusalsOf(fitClass, clock.monotonicMs()));
      if (main !== fitClass.told) {
        fitClass.told = main;
        for (const item of fitClass.waiting) fitClass.untold.add(item);
      }
      if (clock.monotonicMs() - startedMs >= COUNTED_FOR_MS) return;
    }
  }

  #setGauge(): void {
    const counts = new Map<string, number>();
    for (const { told, size } of this.#refused()) if (told !== '') counts.set(told, (counts.get(told) ?? 0) + size);
    const { unschedulable } = this.#parts.metrics;
    unschedulable.reset();
    for (const [reason, count] of counts) unschedulable.set({ reason }, count);
  }

  /** Containers whose rows are to be written: of classes whose reasons are counted. */
  #untold(): Item[] {
    const items: Item[] = [];
    for (const { untold, refusals } of this.#refused()) {
      if (refusals === undefined) continue;
      for (const item of untold) {
        if (items.length >= MOST_ROWS) return items;
        items.push(item);
      }
    }
    return items;
  }

  #isBehind(): boolean {
    return this.#refused().some(({ told, untold }) => told === '' || untold.size > 0);
  }
}
