// Signed addresses of objects on this server: the signature is the credential, and each kind of address has keys of its
// own. A download's signature therefore uploads nothing.
import { createHmac, timingSafeEqual } from 'node:crypto';
import { isUuid } from '#shared/domain/ids.ts';

type Keys = readonly [Uint8Array, ...Uint8Array[]];

export interface SignedQuery {
  readonly expires?: string;
  readonly signature?: string;
}

export class SignedAddresses {
  readonly #path: string;
  readonly #verb: 'put' | 'get';
  /** Keys now: the first signs, all verify. */
  readonly #keys: () => Keys;

  constructor(path: string, verb: 'put' | 'get', keys: () => Keys) {
    this.#path = path;
    this.#verb = verb;
    this.#keys = keys;
  }

  /** The path with its query. @param untilMs - epoch milliseconds, rounded down to a second */
  sign(objectId: string, untilMs: number): string {
    const expires = String(Math.floor(untilMs / 1000));
    return `${this.#path}${objectId}?expires=${expires}&signature=${this.#signature(this.#keys()[0], objectId, expires)}`;
  }

  isValid(objectId: string, { expires, signature }: SignedQuery, nowMs: number): boolean {
    // A parameter that comes twice is a list.
    if (typeof expires !== 'string' || typeof signature !== 'string') return false;
    if (!isUuid(objectId) || !/^\d{1,15}$/.test(expires)) return false;
    const given = Buffer.from(signature);
    const isOurs = this.#keys().some((key) => {
      const expected = Buffer.from(this.#signature(key, objectId, expires));
      return given.length === expected.length && timingSafeEqual(given, expected);
    });
    return isOurs && Number(expires) * 1000 > nowMs;
  }

  #signature(key: Uint8Array, objectId: string, expires: string): string {
    return createHmac('sha256', key).update(`${this.#verb}\n${objectId}\n${expires}`).digest('hex');
  }
}

/** Whether a signed address is a bucket's own: whole, and past this server. */
export const isElsewhere = (path: string): boolean => /^https?:/.test(path);

/** A signed address as callers use it. @param base - start of this server's own addresses */
export const wholeAddress = (path: string, base: string): string => (isElsewhere(path) ? path : `${base}${path}`);
