// Names to addresses, before anything is dialled. The system's resolver takes a thread of the process for as long as a name's server lets it wait, so look-ups are few, and of one workspace there is one at a
// time: whose names nobody answers for holds up itself. Must stay true: a place is given back when the resolver is done, not when its caller has stopped waiting; what found no place says so, and is no failure.
import { lookup } from 'node:dns/promises';
import type { LookupAddress } from 'node:dns';
import { withDeadline } from '#shared/backoff.ts';
import { Places } from './places.ts';

export type Resolve = (host: string) => Promise<readonly LookupAddress[]>;

/** There are four threads for everything: never all of them. */
const AT_ONCE = 2;
const OF_ONE_WORKSPACE = 1;

export interface LookupBounds {
  /** For a place. */
  readonly waitMs: number;
  /** For the answer, from then on. */
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

  /** @throws NoPlaceError; what the resolver throws; Error when it takes too long */
  async addressesOf(host: string, whose: string): Promise<readonly LookupAddress[]> {
    const { waitMs, answerMs } = this.#bounds;
    const leave = await this.#places.take(waitMs, whose);
    // It may answer long after nobody waits for it any more.
    const found = this.#resolve(host).finally(leave);
    return await withDeadline(found, answerMs, () => new Error(`${host} was not resolved in ${answerMs} ms`));
  }
}
