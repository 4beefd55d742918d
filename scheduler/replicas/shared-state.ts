// Each replica's memory of containers and machines follows the rows, whichever replica
// writes them. The writer names the row, the others read it. Lost messages are made
// good by comparing revisions, after each gap in the messages and every half minute.
import type { ContainerId, InstanceId, MachineId } from '#shared/domain/ids.ts';
import { sleep } from '#shared/backoff.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerRegistry } from '../fleet/containers/container-registry.ts';
import type { Machines } from '../fleet/machines.ts';
import type { Bus } from '../cluster/bus.ts';

const COALESCE_MS = 2;
const SWEEP_MS = 30_000;
const RETRY_MS = 500;
/** Most rows named at once; beyond it, all revisions are compared instead. */
const MOST_NAMED = 5_000;

/** Message on the state channel: the writer, and its rows. */
interface Wrote {
  readonly from: InstanceId;
  readonly container?: ContainerId;
  readonly machine?: MachineId;
}

export interface SharedStateParts {
  readonly bus: Bus;
  readonly channel: string;
  readonly instance: InstanceId;
  readonly containers: ContainerRegistry;
  readonly machines: Machines;
  readonly log: Log;
  /** Milliseconds between comparisons; tests shorten it. */
  readonly sweepMs?: number;
}

export class SharedState {
  readonly name = 'shared state';
  readonly #parts: SharedStateParts;
  readonly #containerIds = new Set<ContainerId>();
  readonly #machineIds = new Set<MachineId>();
  readonly #superseded = new Listeners<[MachineId]>();
  readonly #abort = new AbortController();
  #missed = false;
  #timer: NodeJS.Timeout | undefined;
  #reading: Promise<void> | undefined;

  constructor(parts: SharedStateParts) {
    this.#parts = parts;
    const { bus, channel, instance: from, containers, machines } = parts;
    containers.onWritten((container) => bus.publish(channel, { from, container } satisfies Wrote));
    machines.onWritten((machine) => bus.publish(channel, { from, machine } satisfies Wrote));
    bus.on(channel, (message) => this.#heard(message as Wrote));
    bus.onGap(() => this.#compare());
  }

  /** Told when a machine linked here has a newer session elsewhere. */
  onSuperseded(listener: (id: MachineId) => void): void {
    this.#superseded.add(listener);
  }

  start(): void {
    void this.#sweep();
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    clearTimeout(this.#timer);
    await this.#reading;
  }

  #heard({ from, container, machine }: Wrote): void {
    if (from === this.#parts.instance) return;
    if (container !== undefined) this.#containerIds.add(container);
    if (machine !== undefined) this.#machineIds.add(machine);
    this.#soon(COALESCE_MS);
  }

  #compare(): void {
    this.#missed = true;
    this.#soon(0);
  }

  async #sweep(): Promise<void> {
    while (await sleep(this.#parts.sweepMs ?? SWEEP_MS, this.#abort.signal)) this.#compare();
  }

  #soon(ms: number): void {
    if (this.#abort.signal.aborted || this.#reading !== undefined) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#reading = this.#read().finally(() => {
        this.#reading = undefined;
        if (this.#missed || this.#containerIds.size + this.#machineIds.size > 0) this.#soon(COALESCE_MS);
      });
    }, ms);
  }

  async #read(): Promise<void> {
    const { containers, machines, log } = this.#parts;
    const onSuperseded = (id: MachineId): void => this.#superseded.tell(id);
    const compare = this.#missed || this.#containerIds.size + this.#machineIds.size > MOST_NAMED;
    const containerIds = [...this.#containerIds];
    const machineIds = [...this.#machineIds];
    this.#missed = false;
    this.#containerIds.clear();
    this.#machineIds.clear();
    try {
      // Machines are read first: containers on them are judged by them.
      if (compare) await machines.readMissed(onSuperseded);
      else if (machineIds.length > 0) await machines.readAgain(machineIds, onSuperseded);
      if (compare) await containers.readMissed();
      else if (containerIds.length > 0) await containers.readAgain(containerIds);
    } catch (error) {
      log.warn({ err: error }, 'rows of other replicas not read, comparing all of them soon');
      this.#missed = true;
      await sleep(RETRY_MS, this.#abort.signal);
    }
  }
}
