// Tickets of the web console's terminals. A page asks for one with both halves of its session, and sends it in the
// handshake of the WebSocket, where a browser can send no header of its own.
// Invariant: a ticket counts once, for a short time, for one session and one container, on every scheduler.
import type { Redis } from 'ioredis';
import { withDeadline } from '#shared/backoff.ts';
import { AppError } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import type { Keys } from '../../stores/queues/keys.ts';
import { aSecret, hashOf, isSecret } from './random-secret.ts';

export const TICKET_MS = 30_000;
const WITHIN_MS = 2_000;

export interface Ticket {
  readonly sessionId: string;
  readonly containerId: string;
}

export class TerminalTickets {
  readonly #redis: Redis;
  readonly #keys: Pick<Keys, 'terminalTicket'>;

  constructor(redis: Redis, keys: Pick<Keys, 'terminalTicket'>) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /** Makes a ticket. @throws AppError `queues_unavailable` */
  async give(held: Ticket): Promise<string> {
    const ticket = aSecret();
    await this.#ask(() => this.#redis.set(this.#keyOf(ticket), JSON.stringify(held), 'PX', TICKET_MS));
    return ticket;
  }

  /** Uses a ticket up. @returns undefined: there is no such ticket any more. @throws AppError `queues_unavailable` */
  async take(ticket: string): Promise<Ticket | undefined> {
    if (!isSecret(ticket)) return undefined;
    const text = await this.#ask(() => this.#redis.getdel(this.#keyOf(ticket)));
    const held: unknown = text === null ? undefined : JSON.parse(text);
    if (!isRecord(held)) return undefined;
    const { sessionId, containerId } = held;
    return typeof sessionId === 'string' && typeof containerId === 'string' ? { sessionId, containerId } : undefined;
  }

  #keyOf(ticket: string): string {
    return this.#keys.terminalTicket(hashOf(ticket).toString('base64url'));
  }

  async #ask<T>(command: () => Promise<T>): Promise<T> {
    try {
      if (this.#redis.status !== 'ready') throw new Error('redis is away');
      return await withDeadline(command(), WITHIN_MS, () => new Error('redis is slow'));
    } catch (error) {
      throw new AppError('queues_unavailable', 'Redis does not answer, so no terminal can be opened', { cause: error });
    }
  }
}
