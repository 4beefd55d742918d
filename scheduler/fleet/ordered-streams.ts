// Streams that this replica orders from agents: files of volumes, events of builds. The order goes to the replica that
// has the machine's link; the stream comes back there, and from there to the replica that waits. A machine that comes
// back gets the orders again that wait for it.
// Invariant: a stream is taken only from the machine that was asked for it, and once. Every wait ends.
import { randomUUID } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { AppError } from '#shared/errors.ts';
import type { InstanceId, MachineId, TaskId } from '#shared/domain/ids.ts';
import type { Bus } from '../cluster/bus.ts';
import type { Streams } from '../tasks/streams/streams.ts';
import type { Machine } from './machine.ts';

/** Time for the agent to open the stream; it does so before anything else. */
const ARRIVES_WITHIN_MS = 15_000;
const MOST_ORDERED = 4096;

/** An order, with the name of the stream that answers it. */
export type Named<Order> = Order & { readonly streamId: string };

interface Message<Order> {
  readonly order: Named<Order>;
  readonly machineId: MachineId;
  readonly replica: InstanceId;
}

export interface OrderedStreamsParts {
  readonly instance: InstanceId;
  readonly bus: Pick<Bus, 'on' | 'publish'>;
  readonly channel: string;
  readonly streams: Pick<Streams, 'expect' | 'arrived'>;
  readonly machines: { get(machineId: MachineId): Pick<Machine, 'health'> | undefined };
  readonly withinMs?: number;
}

interface Waiting<Order> {
  readonly message: Message<Order>;
  /** Whether the machine may not have got the order. */
  isAway: boolean;
}

/** Orders of one kind. */
export class OrderedStreams<Order extends object> {
  readonly #parts: OrderedStreamsParts;
  /** Orders that were sent from here, with the replica that waits for the stream. */
  readonly #ordered = new Map<string, { readonly machineId: MachineId; readonly replica: InstanceId }>();
  /** Orders whose streams are awaited here. */
  readonly #waiting = new Set<Waiting<Order>>();
  #order: (machineId: MachineId, order: Named<Order>) => boolean = () => false;

  constructor(parts: OrderedStreamsParts) {
    this.#parts = parts;
    parts.bus.on(parts.channel, (message) => this.#send(message as Message<Order>));
  }

  /** Called with an order for a machine. The handler sends it. @returns false: the machine is not linked here */
  onOrder(handler: (machineId: MachineId, order: Named<Order>) => boolean): void {
    this.#order = handler;
  }

  /**
   * Orders a stream, and waits for it.
   * @param signal - ends the wait
   * @throws AppError `machine_silent`
   */
  async open(machineId: MachineId, order: Order, signal: AbortSignal): Promise<Duplex> {
    const { streams, instance, machines } = this.#parts;
    const withinMs = this.#parts.withinMs ?? ARRIVES_WITHIN_MS;
    const streamId = randomUUID();
    const { promise, resolve } = Promise.withResolvers<Duplex | undefined>();
    // Both kinds of streams have ids of their own: the ids of tasks are random, too.
    const forget = streams.expect(streamId as TaskId, resolve);
    const timer = setTimeout(() => resolve(undefined), withinMs);
    const onAbort = (): void => resolve(undefined);
    signal.addEventListener('abort', onAbort, { once: true });
    const message: Message<Order> = { order: { streamId, ...order }, machineId, replica: instance };
    const waiting = { message, isAway: false };
    this.#waiting.add(waiting);
    try {
      // Another replica has the link of a machine that is READY.
      waiting.isAway = !this.#issue(message) && machines.get(machineId)?.health !== 'READY';
      const bytes = await promise;
      if (bytes !== undefined && !signal.aborted) return bytes;
      bytes?.destroy();
      throw new AppError('machine_silent', `the agent of machine ${machineId} did not answer in time`);
    } finally {
      this.#waiting.delete(waiting);
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
      forget();
    }
  }

  /** The machine may be linked again, here or at another replica: what it did not get is ordered again. */
  machineChanged({ row, health }: Pick<Machine, 'row' | 'health'>): void {
    for (const waiting of this.#waiting) {
      if (waiting.message.machineId !== row.id) continue;
      if (health !== 'READY') waiting.isAway = true;
      else if (waiting.isAway) {
        waiting.isAway = false;
        this.#issue(waiting.message);
      }
    }
  }

  /** Whether a stream of that name was ordered from here. */
  has(streamId: string): boolean {
    return this.#ordered.has(streamId);
  }

  /** An agent opened a stream. */
  arrived(machineId: MachineId, streamId: string, bytes: Duplex): void {
    const ordered = this.#ordered.get(streamId);
    if (ordered?.machineId !== machineId) return void bytes.destroy();
    this.#ordered.delete(streamId);
    this.#parts.streams.arrived({ taskId: streamId as TaskId, replica: ordered.replica }, bytes);
  }

  /** @returns whether the machine is linked here */
  #issue(message: Message<Order>): boolean {
    const isHere = this.#send(message);
    if (!isHere) this.#parts.bus.publish(this.#parts.channel, message);
    return isHere;
  }

  #send({ order, machineId, replica }: Message<Order>): boolean {
    const { streamId } = order;
    const isKnown = this.#ordered.has(streamId);
    if (!isKnown && this.#ordered.size >= MOST_ORDERED) return false;
    if (!this.#order(machineId, order)) return false;
    if (isKnown) return true;
    this.#ordered.set(streamId, { machineId, replica });
    setTimeout(() => this.#ordered.delete(streamId), this.#parts.withinMs ?? ARRIVES_WITHIN_MS).unref();
    return true;
  }
}
