// Stop of containers that were asked to leave, once their last attempt has ended. The replica that has the link of
// their machine does this, because only it knows their attempts. The leader only asks, for want of work or for a drain.
import type { ContainerId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerEntryChange, ContainerRegistry } from '../fleet/containers/container-registry.ts';
import type { SlotTable } from '../tasks/dispatch/slots.ts';

const CHECK_EVERY_MS = 1_000;

export class StopWhenDrained {
  readonly name = 'containers that leave';
  readonly #containers: ContainerRegistry;
  readonly #slots: SlotTable;
  readonly #log: Log;
  readonly #stopping = new Set<ContainerId>();
  #timer: NodeJS.Timeout | undefined;

  constructor(containers: ContainerRegistry, slots: SlotTable, log: Log) {
    this.#containers = containers;
    this.#slots = slots;
    this.#log = log;
  }

  containerChanged({ entry, to }: ContainerEntryChange): void {
    if (to === 'DRAINING') this.check(entry.row.id);
  }

  start(): void {
    this.#timer = setInterval(() => {
      for (const one of [...this.#slots.all()]) if (one.leaving) this.check(one.containerId);
    }, CHECK_EVERY_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Called when an attempt of the container ended, or when the container was asked to leave. */
  check(id: ContainerId): void {
    const container = this.#slots.get(id);
    const entry = this.#containers.get(id);
    if (container?.link === undefined || entry?.row.state !== 'DRAINING' || this.#stopping.has(id)) return;
    this.#slots.leave(id);
    if (container.inFlight > 0) return;
    this.#stopping.add(id);
    this.#containers
      .transition(id, 'stop', { epoch: entry.row.epoch, from: 'DRAINING' })
      .catch((error: unknown) =>
        this.#log.warn({ err: error, containerId: id }, 'a container that left could not be stopped, trying again'),
      )
      .finally(() => this.#stopping.delete(id));
  }
}
