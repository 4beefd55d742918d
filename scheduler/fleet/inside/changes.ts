/**
 * Changes of containers that their agents carry out: network rules, snapshots of files. The order goes to the replica
 * that has the machine's link, and the answer comes back from there.
 * Invariant: an answer counts only from the machine that was asked. Every change ends within its time.
 * Rules of a network replace each other, so a machine that comes back in that time gets the order again.
 */
import { randomUUID } from 'node:crypto';
import { AppError } from '#shared/errors.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import type { ChangeContainer, ChangeGpu, ContainerChanged__Output } from '#shared/protocol/generated/messages.ts';
import type { Bus } from '../../cluster/bus.ts';
import type { Machine } from '../machine.ts';
import type { RunningContainer } from './inside.ts';

const MOST_OPEN = 1024;
/** A machine that does not answer, which may be a workspace's own, leaves room for the others. */
const MOST_OF_MACHINE = 128;
/** Time beyond a change's own, in which its answer comes from another replica. */
const ANSWER_MS = 2_000;
const MOST_TEXT = 2_000;

/** The change itself. */
export type Change = Pick<ChangeContainer, 'network' | 'snapshot'>;

interface Changed {
  /** For people; empty: done. */
  readonly error: string;
  readonly bytes: number;
}

type Message =
  | { readonly ask: ChangeContainer; readonly machineId: MachineId; readonly withinMs: number }
  | { readonly answer: string; readonly changed: Changed };

interface Asked {
  readonly machineId: MachineId;
  readonly done: (changed: Changed | undefined) => void;
  /** Sends the order again; absent: it must not be carried out twice. */
  readonly again?: () => boolean;
  /** The order may not have reached its machine, or the answer not this replica. */
  isCut: boolean;
}

export interface ContainerChangesParts {
  readonly bus: Pick<Bus, 'on' | 'publish'>;
  readonly channel: string;
}

const GONE: Changed = { error: 'the connection to its machine was lost: whether it was done is not known', bytes: 0 };

export class ContainerChanges {
  readonly #parts: ContainerChangesParts;
  readonly #asked = new Map<string, Asked>();
  #order: (machineId: MachineId, order: ChangeContainer) => boolean = () => false;

  constructor(parts: ContainerChangesParts) {
    this.#parts = parts;
    parts.bus.on(parts.channel, (message) => this.#heard(message as Message));
  }

  /** Called with an order for a machine. The handler sends it. @returns false: the machine is not linked here */
  onOrder(handler: (machineId: MachineId, order: ChangeContainer) => boolean): void {
    this.#order = handler;
  }

  /**
   * Has the agent change a container.
   * @returns bytes of a snapshot
   * @throws AppError `container_failed`, `machine_silent`
   */
  async change({ containerId, machineId }: RunningContainer, change: Change, withinMs: number): Promise<number> {
    const { error, bytes } = await this.#carriedOut(machineId, { containerId, ...change }, withinMs);
    if (error !== '') throw new AppError('container_failed', error);
    return bytes;
  }

  /**
   * Has the agent change a GPU of its machine.
   * @returns the agent's words where it does not; empty: done
   * @throws AppError `machine_silent`
   */
  async changeGpu(machineId: MachineId, gpu: ChangeGpu, withinMs: number): Promise<string> {
    return (await this.#carriedOut(machineId, { containerId: '', gpu }, withinMs)).error;
  }

  async #carriedOut(
    machineId: MachineId,
    change: Omit<ChangeContainer, 'requestId'>,
    withinMs: number,
  ): Promise<Changed> {
    const { bus, channel } = this.#parts;
    const order: ChangeContainer = { requestId: randomUUID(), ...change };
    const changed = await this.#ask(machineId, order, withinMs + ANSWER_MS, () => {
      const isHere = this.#order(machineId, order);
      if (!isHere) bus.publish(channel, { ask: order, machineId, withinMs } satisfies Message);
      return isHere;
    });
    if (changed === undefined)
      throw new AppError('machine_silent', `the agent of machine ${machineId} did not answer in time`);
    return changed;
  }

  /** An agent answered. */
  changed(machineId: MachineId, { requestId, error, bytes }: ContainerChanged__Output): void {
    const asked = this.#asked.get(requestId);
    if (asked?.machineId === machineId) asked.done({ error: error.slice(0, MOST_TEXT), bytes: Number(bytes) });
  }

  /** A machine whose connection is lost answers nothing any more, unless it comes back and is asked again. */
  machineChanged({ row, health }: Machine): void {
    if (health === 'RECONCILING') return;
    for (const asked of this.#asked.values()) {
      if (asked.machineId !== row.id) continue;
      if (health !== 'READY') {
        asked.isCut = true;
        if (asked.again === undefined) asked.done(GONE);
      } else if (asked.isCut) {
        asked.isCut = false;
        asked.again?.();
      }
    }
  }

  #ask(
    machineId: MachineId,
    { requestId = '', network }: ChangeContainer,
    withinMs: number,
    send: () => boolean,
  ): Promise<Changed | undefined> {
    if (this.#asked.size >= MOST_OPEN || this.#openOf(machineId) >= MOST_OF_MACHINE)
      throw new AppError('too_many_connections', 'too many containers are being changed: try again');
    return new Promise((resolve) => {
      const done = (changed: Changed | undefined): void => {
        clearTimeout(timer);
        this.#asked.delete(requestId);
        resolve(changed);
      };
      const timer = setTimeout(() => done(undefined), withinMs);
      const asked = { machineId, done, isCut: false, ...(network ? { again: send } : {}) };
      this.#asked.set(requestId, asked);
      asked.isCut = !send();
    });
  }

  #openOf(machineId: MachineId): number {
    let open = 0;
    for (const asked of this.#asked.values()) if (asked.machineId === machineId) open += 1;
    return open;
  }

  #heard(message: Message): void {
    if ('answer' in message) {
      this.#asked.get(message.answer)?.done(message.changed);
      return;
    }
    const { ask, machineId, withinMs } = message;
    const { requestId = '' } = ask;
    // This replica's own question comes back on the bus.
    if (this.#asked.has(requestId) || this.#asked.size >= MOST_OPEN || this.#openOf(machineId) >= MOST_OF_MACHINE)
      return;
    let isHere = false;
    void this.#ask(machineId, ask, withinMs, () => {
      isHere = this.#order(machineId, ask);
      if (!isHere) this.#asked.get(requestId)?.done(undefined);
      return isHere;
    }).then((changed) => {
      if (isHere && changed !== undefined)
        this.#parts.bus.publish(this.#parts.channel, { answer: requestId, changed } satisfies Message);
    });
  }
}
