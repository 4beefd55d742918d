// Times at which a deployment keeps containers without work. Pure.
import { Ticks } from './ticks.ts';
import type { When } from './ticks.ts';

/** From each tick until the next such time of day, so many containers run. */
export interface WarmTime extends When {
  readonly min: number;
  /** Time of day in the zone of the ticks, such as `18:00`. */
  readonly until: string;
}

export interface WarmNow {
  /** Containers that run without work at this moment. */
  readonly least: number;
  /** Time of day at which that ends; empty: `least` is 0. */
  readonly until: string;
  /** Instant at which this may be another one; undefined: never. */
  readonly changesAtMs: number | undefined;
}

/** Time of day of `until`. */
export const isTimeOfDay = (text: string): boolean => /^(?:[01][0-9]|2[0-3]):[0-5][0-9]$/.test(text);

/** Longest time from a tick to its end: a day, and an hour when clocks go back. */
const LONGEST_MS = 25 * 3_600_000;

interface Rule {
  readonly time: WarmTime;
  readonly begins: Ticks;
  readonly ends: Ticks;
}

export class WarmTimes {
  readonly #rules: readonly Rule[];
  #known: WarmNow | undefined;
  #knownFromMs = 0;

  /** @throws Error when an expression or a time zone cannot be read */
  constructor(times: readonly WarmTime[]) {
    this.#rules = times.map((time) => {
      const [hour, minute] = time.until.split(':').map(Number);
      const ends = new Ticks({ when: `${minute} ${hour} * * *`, timezone: time.timezone });
      return { time, begins: new Ticks(time), ends };
    });
  }

  /** Asked at each decision, so the answer is kept until it may change. */
  at(nowMs: number): WarmNow {
    const known = this.#known;
    if (known !== undefined && nowMs >= this.#knownFromMs && nowMs < (known.changesAtMs ?? Infinity)) return known;
    let now: WarmNow = { least: 0, until: '', changesAtMs: undefined };
    for (const { time, begins, ends } of this.#rules) {
      const [begunMs] = begins.between(nowMs - LONGEST_MS, nowMs, 1).ticks;
      const endMs = begunMs === undefined ? undefined : ends.next(begunMs);
      const isOpen = endMs !== undefined && endMs > nowMs;
      const changesAtMs = earliest(now.changesAtMs, isOpen ? endMs : begins.next(nowMs));
      now =
        isOpen && time.min > now.least ? { least: time.min, until: time.until, changesAtMs } : { ...now, changesAtMs };
    }
    this.#known = now;
    this.#knownFromMs = nowMs;
    return now;
  }
}

const earliest = (a: number | undefined, b: number | undefined): number | undefined =>
  a === undefined ? b : b === undefined ? a : Math.min(a, b);
