// Numbers that a seed repeats, so that a simulation and a made trace are the same each time. Pure.
import { stableHash } from '../plan/score.ts';
import type { Seconds } from './trace.ts';

/** Numbers from 0 up to 1. */
export class Random {
  #state: number;

  /** @param seed - a number, and names that tell several sequences of it apart */
  constructor(...seed: readonly (string | number)[]) {
    this.#state = stableHash(seed.join('\n'));
  }

  next(): number {
    // Mulberry32.
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Time until the next of events that are independent of each other. */
  exponential(mean: number): number {
    return -mean * Math.log(1 - this.next());
  }

  /** Most values are near the median, and few are much larger. @param sigma - of the logarithm; 0: the median alone */
  logNormal(median: number, sigma: number): number {
    const normal = Math.sqrt(-2 * Math.log(1 - this.next())) * Math.cos(2 * Math.PI * this.next());
    return median * Math.exp(sigma * normal);
  }
}

/** Milliseconds drawn from percentiles, or those of the one number. */
export function drawMs(seconds: Seconds, random: Random): number {
  if (typeof seconds === 'number') return Math.round(seconds * 1000);
  const part = random.next();
  let below = seconds[0] ?? [0, 0];
  for (const above of seconds) {
    if (above[0] >= part) return Math.round(between(below, above, part) * 1000);
    below = above;
  }
  return Math.round(below[1] * 1000);
}

/** Between two percentiles the logarithm grows evenly, where there is one. */
function between(below: readonly [number, number], above: readonly [number, number], part: number): number {
  if (above[0] <= below[0]) return above[1];
  const share = Math.max(0, part - below[0]) / (above[0] - below[0]);
  return below[1] > 0 ? below[1] * (above[1] / below[1]) ** share : below[1] + (above[1] - below[1]) * share;
}
