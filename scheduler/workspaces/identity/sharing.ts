// How the installation shares its machines: the value of the setting `sharing_order`, in memory.
import type { Sharing, SharingOrder } from '../../domain/shares.ts';
import { DEFAULT_SHARING } from '../../domain/shares.ts';

export const SHARING_ORDERS: readonly SharingOrder[] = ['share', 'arrival'];

/** Why a text is no order, as text behind the field's name; undefined: it is one. */
export const orderProblem = (text: string): string | undefined =>
  SHARING_ORDERS.some((order) => order === text) ? undefined : `must be ${SHARING_ORDERS.join(' or ')}`;

export class SharingSetting {
  #now: Sharing = DEFAULT_SHARING;
  readonly #listeners: ((sharing: Sharing) => void)[] = [];

  get now(): Sharing {
    return this.#now;
  }

  onChange(listener: (sharing: Sharing) => void): void {
    this.#listeners.push(listener);
  }

  set(text: string): void {
    const order = SHARING_ORDERS.find((one) => one === text) ?? DEFAULT_SHARING.order;
    if (order === this.#now.order) return;
    this.#now = { order };
    for (const listener of this.#listeners) listener(this.#now);
  }
}
