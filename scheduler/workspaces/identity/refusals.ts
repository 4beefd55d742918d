// Refused tokens, counted by sender address: an address that presents too many is told to wait.
// Owns the counts of this process; every surface calls it when it has refused a token. A wrong
// value for a secret that an operator chose is a guess at that secret, and counted separately.
// Invariant: a good token or secret is never refused for bad tokens that
// others behind its address presented elsewhere. Memory is bounded.
import { isIP } from 'node:net';
import { AppError } from '#shared/errors.ts';
import type { Clock } from '#shared/clock.ts';
import { BoundedMap } from '../deployments/bounded-map.ts';

/** Refusals of an address that are answered as such: so many at once, and then so many a minute. */
export const REFUSALS_PER_MINUTE = 60;
const PER_MS = REFUSALS_PER_MINUTE / 60_000;
const MAX_ADDRESSES = 10_000;

interface Allowance {
  /** Number of further refusals; grows with time up to {@link REFUSALS_PER_MINUTE}. */
  readonly left: number;
  readonly atMs: number;
}

export class Refusals {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  readonly #onThrottled: () => void;
  readonly #tokens = new BoundedMap<string, Allowance>(MAX_ADDRESSES);
  readonly #guesses = new BoundedMap<string, Allowance>(MAX_ADDRESSES);

  constructor(clock: Pick<Clock, 'monotonicMs'>, onThrottled: () => void = () => undefined) {
    this.#clock = clock;
    this.#onThrottled = onThrottled;
  }

  /**
   * Counts a refused token from this address.
   * @throws AppError `rate_limited` (`details.retryAfterSeconds`) when too many were refused
   */
  refused(address: string): void {
    this.#spend(this.#tokens, sourceOf(address));
  }

  /**
   * Called before the secret is compared with a value from this address.
   * @param secret - one of a few names
   * @throws AppError `rate_limited` when too many values were wrong
   */
  mayGuess(secret: string, address: string): void {
    const left = this.#leftOf(this.#guesses, guessAt(secret, address));
    if (left < 1) throw this.#throttled(left);
  }

  /** Counts a wrong guess. @throws AppError `rate_limited` */
  guessed(secret: string, address: string): void {
    this.#spend(this.#guesses, guessAt(secret, address));
  }

  get size(): number {
    return this.#tokens.size + this.#guesses.size;
  }

  #spend(counted: BoundedMap<string, Allowance>, key: string): void {
    const left = this.#leftOf(counted, key);
    if (left < 1) throw this.#throttled(left);
    counted.set(key, { left: left - 1, atMs: this.#clock.monotonicMs() });
  }

  #leftOf(counted: BoundedMap<string, Allowance>, key: string): number {
    const known = counted.get(key);
    if (known === undefined) return REFUSALS_PER_MINUTE;
    return Math.min(REFUSALS_PER_MINUTE, known.left + (this.#clock.monotonicMs() - known.atMs) * PER_MS);
  }

  #throttled(left: number): AppError {
    this.#onThrottled();
    const retryAfterSeconds = Math.max(1, Math.ceil((1 - left) / PER_MS / 1000));
    return new AppError('rate_limited', `too many refused tokens from your address: wait ${retryAfterSeconds} s`, {
      details: { retryAfterSeconds },
    });
  }
}

const guessAt = (secret: string, address: string): string => `${secret} ${sourceOf(address)}`;

/**
 * The source that refusals are counted for: an IPv4 address, or the /64
 * of an IPv6 one. A /64 is a provider's usual allotment to one customer.
 */
export function sourceOf(address: string): string {
  const mapped = /^::ffff:([0-9.]+)$/i.exec(address)?.[1];
  if (mapped !== undefined && isIP(mapped) === 4) return mapped;
  if (isIP(address) !== 6) return address;
  const [head = '', tail] = (address.split('%', 1)[0] ?? '').split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  // An embedded IPv4 address stands for two groups. The address is never
  // among the first four groups, but counts for the number of omitted ones.
  const width = (groups: readonly string[]): number =>
    groups.reduce((sum, one) => sum + (one.includes('.') ? 2 : 1), 0);
  const zeros = tail === undefined ? 0 : 8 - width(before) - width(after);
  const groups = [...before, ...Array.from({ length: Math.max(0, zeros) }, () => '0'), ...after];
  const network = groups.slice(0, 4).map((group) => Number.parseInt(group, 16).toString(16));
  return `${network.join(':')}::/64`;
}
