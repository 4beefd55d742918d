// How the installation shares its machines: the values of its runtime settings, in memory.
import type { Sharing, SharingOrder } from '../../domain/shares.ts';
import { DEFAULT_SHARING, MOST_NOTICE_SECONDS } from '../../domain/shares.ts';

export const SHARING_ORDERS: readonly SharingOrder[] = ['share', 'arrival'];

/** Why a text is no order, as text behind the field's name; undefined: it is one. */
export const orderProblem = (text: string): string | undefined =>
  SHARING_ORDERS.some((order) => order === text) ? undefined : `must be ${SHARING_ORDERS.join(' or ')}`;

/** Parts of sharing that are whole seconds, by the names of their runtime settings. */
export const SHARING_SECONDS = {
  // Containers give up waiting by then.
  reserve_after: { part: 'reserveAfterSeconds', most: 3600, mayBeOff: true },
  reclaim_after: { part: 'reclaimAfterSeconds', most: 3600, mayBeOff: true },
  reclaim_notice: { part: 'noticeSeconds', most: MOST_NOTICE_SECONDS, mayBeOff: false },
  reclaim_min_run: { part: 'minRunSeconds', most: 86_400, mayBeOff: false },
} as const satisfies Record<string, SharingSeconds>;
export type SharingSecondsName = keyof typeof SHARING_SECONDS;

export interface SharingSeconds {
  readonly part: Exclude<keyof Sharing, 'order'>;
  readonly most: number;
  /** Whether it may be switched off; the part is null then. */
  readonly mayBeOff: boolean;
}

const OFF = 'off';

/** Why a text is no value of the setting, as text behind the field's name; undefined: it is one. */
export function secondsProblem(name: SharingSecondsName, text: string): string | undefined {
  const { most, mayBeOff } = SHARING_SECONDS[name];
  if ((mayBeOff && text === OFF) || (/^\d{1,5}$/.test(text) && Number(text) <= most)) return undefined;
  return `must be seconds from 0 to ${most}${mayBeOff ? `, or ${OFF}` : ''}`;
}

/** The text that stands for the value. */
export const secondsText = (seconds: number | null): string => (seconds === null ? OFF : String(seconds));

export class SharingSetting {
  #now: Sharing = DEFAULT_SHARING;
  readonly #listeners: ((sharing: Sharing) => void)[] = [];

  get now(): Sharing {
    return this.#now;
  }

  /** Time for tasks of a container that leaves for another one. */
  get noticeMs(): number {
    return this.#now.noticeSeconds * 1000;
  }

  onChange(listener: (sharing: Sharing) => void): void {
    this.#listeners.push(listener);
  }

  setOrder(text: string): void {
    this.#set({ ...this.#now, order: SHARING_ORDERS.find((one) => one === text) ?? DEFAULT_SHARING.order });
  }

  setSeconds(name: SharingSecondsName, text: string): void {
    const { part } = SHARING_SECONDS[name];
    const isRead = secondsProblem(name, text) === undefined;
    this.#set({ ...this.#now, [part]: isRead ? (text === OFF ? null : Number(text)) : DEFAULT_SHARING[part] });
  }

  #set(next: Sharing): void {
    const { now } = this;
    if (Object.entries(next).every(([part, value]) => now[part as keyof Sharing] === value)) return;
    this.#now = next;
    for (const listener of this.#listeners) listener(next);
  }
}
