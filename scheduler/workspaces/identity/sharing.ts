// How the installation shares its machines: the values of the settings `sharing_order` and `reserve_after`, in memory.
import type { Sharing, SharingOrder } from '../../domain/shares.ts';
import { DEFAULT_SHARING } from '../../domain/shares.ts';

export const SHARING_ORDERS: readonly SharingOrder[] = ['share', 'arrival'];

/** Why a text is no order, as text behind the field's name; undefined: it is one. */
export const orderProblem = (text: string): string | undefined =>
  SHARING_ORDERS.some((order) => order === text) ? undefined : `must be ${SHARING_ORDERS.join(' or ')}`;

/** Longest wait before a machine is reserved: containers give up by then. */
export const MOST_RESERVE_AFTER_SECONDS = 3600;
/** Value of `reserve_after` with which no machine is ever reserved. */
export const NO_RESERVATIONS = 'off';

/** Why a text is no such time, as text behind the field's name; undefined: it is one. */
export const reserveAfterProblem = (text: string): string | undefined =>
  text === NO_RESERVATIONS || (/^\d{1,4}$/.test(text) && Number(text) <= MOST_RESERVE_AFTER_SECONDS)
    ? undefined
    : `must be seconds from 0 to ${MOST_RESERVE_AFTER_SECONDS}, or ${NO_RESERVATIONS}`;

export class SharingSetting {
  #now: Sharing = DEFAULT_SHARING;
  readonly #listeners: ((sharing: Sharing) => void)[] = [];

  get now(): Sharing {
    return this.#now;
  }

  onChange(listener: (sharing: Sharing) => void): void {
    this.#listeners.push(listener);
  }

  setOrder(text: string): void {
    this.#set({ ...this.#now, order: SHARING_ORDERS.find((one) => one === text) ?? DEFAULT_SHARING.order });
  }

  setReserveAfter(text: string): void {
    const seconds = text === NO_RESERVATIONS ? null : Number(text);
    const isRead = reserveAfterProblem(text) === undefined;
    this.#set({ ...this.#now, reserveAfterSeconds: isRead ? seconds : DEFAULT_SHARING.reserveAfterSeconds });
  }

  #set(next: Sharing): void {
    if (next.order === this.#now.order && next.reserveAfterSeconds === this.#now.reserveAfterSeconds) return;
    this.#now = next;
    for (const listener of this.#listeners) listener(next);
  }
}
