// Loads of containers on all replicas: exact for machines linked here, as last told for the
// others. Each replica tells the others its changes a few times a second, and all its loads
// now and then. No decision to stop a container rests on this alone. A container linked
// elsewhere is only asked to leave, by its row; its own replica stops it when it is idle.
import type { ContainerId, InstanceId } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { EngineLoad } from '../domain/serving.ts';
import type { Bus } from './bus.ts';

export interface Load {
  readonly inFlight: number;
  readonly idleSinceMs: number;
  /** Keep-warm that the last EndTask asked for, in milliseconds; Infinity: for ever. */
  readonly keepWarmMs: number;
  readonly completed: number;
  /** Whether it was handed an attempt. */
  readonly served: boolean;
  /** Requests inside its engine; undefined: not known. */
  readonly engine?: EngineLoad | undefined;
}

const TELL_MS = 250;
/** Rounds after which all loads are told again, for replicas that began to listen meanwhile. */
const WHOLE_EVERY = 40;
const MOST_IN_ONE = 500;

/**
 * Container, attempts, idle since (epoch ms), keep-warm (ms; -1: for ever), completed, whether it was handed an
 * attempt; then of an engine whose metrics are known: requests that run and that wait.
 */
type Told = readonly [ContainerId, number, number, number, number, boolean, number?, number?];

/** Containers whose machine is linked here, or whose row this replica knows. */
interface LinkedContainers {
  get(containerId: ContainerId): LinkedContainer | undefined;
  all(): Iterable<LinkedContainer>;
}

interface LinkedContainer extends Load {
  readonly containerId: ContainerId;
  /** Undefined: the machine's link is not here. */
  readonly link: unknown;
}

export interface LoadsParts {
  readonly bus: Bus;
  readonly channel: string;
  readonly instance: InstanceId;
  readonly slots: LinkedContainers;
  /** Whether the container has not ended, as far as is known here. */
  readonly isLive: (containerId: ContainerId) => boolean;
}

export class Loads {
  readonly name = 'container loads';
  readonly #parts: LoadsParts;
  readonly #elsewhere = new Map<ContainerId, Load>();
  readonly #told = new Map<ContainerId, string>();
  readonly #idle = new Listeners<[ContainerId]>();
  readonly #heardFrom = new Listeners<[InstanceId]>();
  #timer: NodeJS.Timeout | undefined;
  #rounds = 0;

  constructor(parts: LoadsParts) {
    this.#parts = parts;
    parts.bus.on(parts.channel, (message) => this.#heard(message as { from: InstanceId; loads?: readonly Told[] }));
  }

  /** Told when a container elsewhere became idle. */
  onIdle(listener: (containerId: ContainerId) => void): void {
    this.#idle.add(listener);
  }

  /** Told of a replica that told loads. */
  onTold(listener: (replica: InstanceId) => void): void {
    this.#heardFrom.add(listener);
  }

  start(): void {
    this.#timer = setInterval(() => this.#tell(), TELL_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Load of a container; undefined: not known (yet). */
  of(containerId: ContainerId): Load | undefined {
    const here = this.#parts.slots.get(containerId);
    return here?.link === undefined ? this.#elsewhere.get(containerId) : here;
  }

  /** Whether the machine's link is here, so that the container's load is exact. */
  isHere(containerId: ContainerId): boolean {
    return this.#parts.slots.get(containerId)?.link !== undefined;
  }

  /** Number of containers elsewhere with a known load. */
  get size(): number {
    return this.#elsewhere.size;
  }

  /**
   * Tells the other replicas the load of a container whose end is about to be announced. The bus keeps the order of
   * messages, so the leader knows whether the container served when it judges the end.
   */
  tellLast(containerId: ContainerId): void {
    const { bus, channel, instance: from, slots } = this.#parts;
    const here = slots.get(containerId);
    if (here?.link !== undefined && here.served) bus.publish(channel, { from, loads: [toldOf(here)] });
  }

  /** Forgets a container that ended. */
  forget(containerId: ContainerId): void {
    this.#elsewhere.delete(containerId);
    this.#told.delete(containerId);
  }

  #heard({ from, loads }: { from: InstanceId; loads?: readonly Told[] }): void {
    if (from === this.#parts.instance || loads === undefined) return;
    for (const [containerId, inFlight, idleSinceMs, keepWarm, completed, served, running, waiting] of loads) {
      const keepWarmMs = keepWarm < 0 ? Number.POSITIVE_INFINITY : keepWarm;
      const wasBusy = this.#elsewhere.get(containerId)?.inFlight !== 0;
      const engine = running === undefined || waiting === undefined ? undefined : { running, waiting };
      this.#elsewhere.set(containerId, { inFlight, idleSinceMs, keepWarmMs, completed, served, engine });
      if (wasBusy && inFlight === 0) this.#idle.tell(containerId);
    }
    this.#heardFrom.tell(from);
  }

  #tell(): void {
    const { bus, channel, instance: from, slots, isLive } = this.#parts;
    this.#rounds += 1;
    if (this.#rounds % WHOLE_EVERY === 0) {
      this.#told.clear();
      // A message under way when its container ended arrives after `forget`.
      // A live container that is not known here yet is told again.
      for (const containerId of this.#elsewhere.keys()) if (!isLive(containerId)) this.#elsewhere.delete(containerId);
    }
    let loads: Told[] = [];
    for (const one of slots.all()) {
      if (one.link === undefined) continue;
      const told = toldOf(one);
      const { engine } = one;
      const ofEngine = engine === undefined ? '' : ` ${engine.running} ${engine.waiting}`;
      const text = `${one.inFlight} ${one.inFlight === 0 ? one.idleSinceMs : 0} ${told[3]}${ofEngine}`;
      if (this.#told.get(one.containerId) === text) continue;
      this.#told.set(one.containerId, text);
      loads.push(told);
      if (loads.length < MOST_IN_ONE) continue;
      bus.publish(channel, { from, loads });
      loads = [];
    }
    if (loads.length > 0) bus.publish(channel, { from, loads });
  }
}

function toldOf({ containerId, inFlight, idleSinceMs, keepWarmMs, completed, served, engine }: LinkedContainer): Told {
  const keepWarm = Number.isFinite(keepWarmMs) ? keepWarmMs : -1;
  const load = [containerId, inFlight, idleSinceMs, keepWarm, completed, served] as const;
  return engine === undefined ? load : [...load, engine.running, engine.waiting];
}
