/**
 * The metrics pages of machines, fetched through the agent link, so that a fleet
 * behind NAT is scraped with no port open on it. The operations surface asks for them.
 * If another replica has the machine's link, that replica is asked by a message.
 * Invariant: an answer counts only from the machine that was asked. Every question
 * ends within its deadline. The number of questions under way is bounded.
 */
import { randomUUID } from 'node:crypto';
import { AppError } from '#shared/errors.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Bus } from '../cluster/bus.ts';
import type { Machines } from './machines.ts';

const DEADLINE_MS = 5_000;
const MOST_ASKED = 256;

export interface MachinePagesParts {
  readonly bus: Bus;
  readonly channel: string;
  readonly machines: Pick<Machines, 'get'>;
  readonly deadlineMs?: number;
}

type Message =
  | { readonly ask: string; readonly machineId: MachineId }
  | { readonly answer: string; readonly page: string | null };

interface Asked {
  readonly machineId: MachineId;
  readonly done: (page: string | null) => void;
}

export class MachinePages {
  readonly #parts: MachinePagesParts;
  readonly #asked = new Map<string, Asked>();
  #order: (machineId: MachineId, requestId: string) => boolean = () => false;

  constructor(parts: MachinePagesParts) {
    this.#parts = parts;
    parts.bus.on(parts.channel, (message) => this.#heard(message as Message));
  }

  /** Called with an order for a machine's page. The handler sends it. @returns false: the machine is not linked here */
  onOrder(handler: (machineId: MachineId, requestId: string) => boolean): void {
    this.#order = handler;
  }

  /**
   * The metrics page of a machine.
   * @throws AppError `machine_not_found`, `machine_away` where no agent is
   * linked, `machine_silent` where it does not answer in time, `too_many_pages`
   */
  async page(id: string): Promise<string> {
    const machine = this.#parts.machines.get(id as MachineId);
    if (machine === undefined) throw new AppError('machine_not_found', `there is no machine ${id.slice(0, 60)}`);
    if (machine.health !== 'READY' && machine.health !== 'RECONCILING')
      throw new AppError('machine_away', `no agent of machine ${id} is connected (it is ${machine.health})`);
    const page = await this.#ask(machine.row.id, (requestId) => {
      if (!this.#order(machine.row.id, requestId))
        this.#parts.bus.publish(this.#parts.channel, { ask: requestId, machineId: machine.row.id } satisfies Message);
    });
    if (page === null) throw new AppError('machine_silent', `the agent of machine ${id} did not send its page in time`);
    if (page === '') throw new AppError('machine_away', `the agent of machine ${id} cannot give its page`);
    return page;
  }

  /** A page came over a link. @returns false: no request for that machine's page is open */
  delivered(machineId: MachineId, requestId: string, page: Uint8Array): boolean {
    const asked = this.#asked.get(requestId);
    if (asked?.machineId !== machineId) return false;
    asked.done(Buffer.from(page).toString('utf8'));
    return true;
  }

  /** Asks for the page; null: no answer in time. */
  #ask(
    machineId: MachineId,
    send: (requestId: string) => void,
    requestId: string = randomUUID(),
  ): Promise<string | null> {
    if (this.#asked.size >= MOST_ASKED)
      throw new AppError('too_many_pages', `${MOST_ASKED} pages of machines are being fetched already`);
    return new Promise((resolve) => {
      const done = (page: string | null): void => {
        clearTimeout(timer);
        this.#asked.delete(requestId);
        resolve(page);
      };
      const timer = setTimeout(() => done(null), this.#parts.deadlineMs ?? DEADLINE_MS);
      this.#asked.set(requestId, { machineId, done });
      send(requestId);
    });
  }

  #heard(message: Message): void {
    if ('answer' in message) {
      this.#asked.get(message.answer)?.done(message.page);
      return;
    }
    // This replica's own question comes back on the bus, and needs no answer.
    if (this.#asked.has(message.ask) || this.#asked.size >= MOST_ASKED) return;
    let isHere = true;
    void this.#ask(
      message.machineId,
      (requestId) => {
        isHere = this.#order(message.machineId, requestId);
        if (!isHere) this.#asked.get(requestId)?.done(null);
      },
      randomUUID(),
    ).then((page) => {
      if (isHere) this.#parts.bus.publish(this.#parts.channel, { answer: message.ask, page } satisfies Message);
    });
  }
}
