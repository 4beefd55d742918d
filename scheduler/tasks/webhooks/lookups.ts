// Look-ups of names before anything is dialled. The system's resolver occupies a thread of the
// process for as long as a name server makes it wait. So look-ups are few, with one at a time for a
// workspace, which then only delays itself. Invariant: a place is given back when the resolver is
// done, not when its caller stops waiting. A look-up without a place reports that, and is no failure.
import { lookup } from 'node:dns/promises';
import type { LookupAddress } from 'node:dns';
import { withDeadline } from '#shared/backoff.ts';
import { Places } from './places.ts';

export type Resolve = (host: string) => Promise<readonly LookupAddress[]>;

/** Most look-ups at once. The process has four threads for everything, and look-ups never take all of them. */
const AT_ONCE = 2;
const OF_ONE_WORKSPACE = 1;

export interface LookupBounds {
  /** Longest wait for a place, in milliseconds. */
  readonly waitMs: number;
  /** Longest wait for the answer after that, in milliseconds. */
  readonly answerMs: number;
}
export const LOOKUP_BOUNDS: LookupBounds = { waitMs: 8_000, answerMs: 10_000 };

export class Lookups {
  readonly #resolve: Resolve;
  readonly #bounds: LookupBounds;
  readonly #places = new Places(AT_ONCE, OF_ONE_WORKSPACE);

  constructor(resolve: Resolve = (host) => lookup(host, { all: true }), bounds: LookupBounds = LOOKUP_BOUNDS) {
    this.#resolve = resolve;
    this.#bounds = bounds;
  }

  /**
   * Resolves a name.
   * @param whose - owner of the place
   * @throws NoPlaceError; the resolver's error; Error when it takes too long
   */
  async addressesOf(host: string, whose: string): Promise<readonly LookupAddress[]> {
    const { waitMs, answerMs } = this.#bounds;
    const leave = await this.#places.take(waitMs, whose);
    // The resolver may answer long after its caller stopped waiting.
    const found = this.#resolve(host).finally(leave);
    return await withDeadline(found, answerMs, () => new Error(`${host} was not resolved in ${answerMs} ms`));
  }
}
