// Stop of containers that were asked to leave, once their last attempt has ended. The replica that has the link of
// their machine does this, because only it knows their attempts. The leader only asks, for want of work or for a drain.
import type { ContainerId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { BookChange, ContainerBook } from '../fleet/containers/book.ts';
import type { SlotTable } from '../tasks/dispatch/slots.ts';

const LOOK_EVERY_MS = 1_000;

export class Leaving {
  readonly name = 'containers that leave';
  readonly #book: ContainerBook;
  readonly #slots: SlotTable;
  readonly #log: Log;
  readonly #stopping = new Set<ContainerId>();
  #timer: NodeJS.Timeout | undefined;

  constructor(book: ContainerBook, slots: SlotTable, log: Log) {
    this.#book = book;
    this.#slots = slots;
    this.#log = log;
  }

  containerChanged({ entry, to }: BookChange): void {
    if (to === 'DRAINING') this.look(entry.row.id);
  }

  start(): void {
    this.#timer = setInterval(() => {
      for (const one of [...this.#slots.all()]) if (one.leaving) this.look(one.containerId);
    }, LOOK_EVERY_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Called when an attempt of the container ended, or when the container was asked to leave. */
  look(id: ContainerId): void {
    const container = this.#slots.get(id);
    const entry = this.#book.get(id);
    if (container?.link === undefined || entry?.row.state !== 'DRAINING' || this.#stopping.has(id)) return;
    this.#slots.leave(id);
    if (container.inFlight > 0) return;
    this.#stopping.add(id);
    this.#book
      .transition(id, 'stop', { epoch: entry.row.epoch })
      .catch((error: unknown) =>
        this.#log.warn({ err: error, containerId: id }, 'a container that left could not be stopped, trying again'),
      )
      .finally(() => this.#stopping.delete(id));
  }
}
