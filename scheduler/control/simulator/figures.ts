// Figures of a simulation: how long tasks waited, what workspaces held, and how fairly it was shared. Memory does not
// grow with the number of tasks, and hardly with the length of a trace.
import { fairShares, jain } from '../plan/fair-share.ts';
import type { Claim } from '../plan/fair-share.ts';

/** Waits in steps of a hundredth, each with its number and sum. */
export class Waits {
  readonly #steps = new Map<number, { count: number; sumMs: number }>();
  count = 0;
  #sumMs = 0;
  #mostMs = 0;

  add(ms: number): void {
    this.#addStep(ms < 1 ? -1 : Math.floor(Math.log(ms) * STEPS), 1, ms);
    this.#mostMs = Math.max(this.#mostMs, ms);
  }

  addAll(others: Waits): void {
    for (const [key, { count, sumMs }] of others.#steps) this.#addStep(key, count, sumMs);
    this.#mostMs = Math.max(this.#mostMs, others.#mostMs);
  }

  #addStep(key: number, count: number, sumMs: number): void {
    const step = this.#steps.get(key);
    if (step === undefined) this.#steps.set(key, { count, sumMs });
    else {
      step.count += count;
      step.sumMs += sumMs;
    }
    this.count += count;
    this.#sumMs += sumMs;
  }

  result(): WaitsResult {
    const steps = [...this.#steps].toSorted(([a], [b]) => a - b);
    const at = (part: number): number => {
      let rest = Math.ceil(part * this.count);
      for (const [, { count, sumMs }] of steps) {
        rest -= count;
        if (rest <= 0) return seconds(sumMs / count);
      }
      return 0;
    };
    const mean = this.count === 0 ? 0 : seconds(this.#sumMs / this.count);
    return { p50: at(0.5), p95: at(0.95), p99: at(0.99), most: seconds(this.#mostMs), mean };
  }
}

/** Steps for each factor of e: two neighbours differ by about a hundredth. */
const STEPS = 100;

const seconds = (ms: number): number => Math.round(ms) / 1000;
export const rounded = (value: number, digits: number): number => Math.round(value * 10 ** digits) / 10 ** digits;

/** Seconds from the arrival of a task until it begins. */
export interface WaitsResult {
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
  readonly most: number;
  readonly mean: number;
}

export interface MarketResult {
  readonly market: string;
  /** Mean number of GPUs, or of cores in the market `cpu`. */
  readonly capacity: number;
  readonly used: number;
  /** Jain's index of use by fair share in the worst minute, and when it was. null: nobody wanted anything. */
  readonly jain_worst: number | null;
  readonly jain_worst_at: number | null;
  readonly jain_mean: number | null;
}

/** Workspaces in a market at a moment: what they hold, and what would be fair. */
export interface Sample {
  readonly market: string;
  readonly capacity: number;
  readonly rows: readonly { readonly workspace: string; readonly used: number; readonly fair: number }[];
}

export function sampleOf(
  market: string,
  capacity: number,
  claims: readonly (Claim & { readonly workspace: string; readonly used: number })[],
): Sample {
  const fair = fairShares(capacity, claims);
  return {
    market,
    capacity,
    rows: claims.map(({ workspace, used }, index) => ({ workspace, used, fair: fair[index] ?? 0 })),
  };
}

/** Time between two looks at what workspaces hold. */
export const SAMPLE_MS = 10_000;
const MINUTE_MS = 60_000;

class Fairness {
  #held = new Map<string, { used: number; fair: number }>();
  samples = 0;
  capacity = 0;
  used = 0;
  minutes = 0;
  #sum = 0;
  #worst: { readonly jain: number; readonly atMs: number } | undefined;

  add({ capacity, rows }: Sample): void {
    this.samples += 1;
    this.capacity += capacity;
    for (const { workspace, used, fair } of rows) {
      this.used += used;
      const sum = this.#held.get(workspace);
      if (sum === undefined) this.#held.set(workspace, { used, fair });
      else {
        sum.used += used;
        sum.fair += fair;
      }
    }
  }

  endMinute(atMs: number): void {
    const ratios = [...this.#held.values()].flatMap(({ used, fair }) => (fair > 0 ? used / fair : []));
    this.#held = new Map();
    if (ratios.length === 0) return;
    const index = jain(ratios);
    this.minutes += 1;
    this.#sum += index;
    if (this.#worst === undefined || index < this.#worst.jain) this.#worst = { jain: index, atMs };
  }

  result(market: string): MarketResult {
    return {
      market,
      capacity: rounded(this.capacity / Math.max(1, this.samples), 2),
      used: rounded(this.used / Math.max(1, this.samples), 2),
      jain_worst: this.#worst === undefined ? null : rounded(this.#worst.jain, 4),
      jain_worst_at: this.#worst === undefined ? null : seconds(this.#worst.atMs),
      jain_mean: this.minutes === 0 ? null : rounded(this.#sum / this.minutes, 4),
    };
  }
}

/** Mean amounts that workspaces held, in equal parts of the trace. */
export interface Series {
  readonly every: number;
  readonly points: readonly ReadonlyMap<string, number>[];
}

/** Most points of a series: neighbours are joined when there are more. */
const MOST_POINTS = 480;

/** Samples, minute by minute, and as a series. */
export class Samples {
  readonly #markets = new Map<string, Fairness>();
  #points: Map<string, number>[] = [];
  /** Samples of one point, and of the last one. */
  #each = 1;
  #inLast = 0;

  /** @param atMs - a multiple of {@link SAMPLE_MS} @param isDrawn - whether the market counts in the series */
  add(atMs: number, samples: readonly Sample[], isDrawn: (market: string) => boolean): void {
    if (this.#inLast === 0) this.#points.push(new Map());
    const point = this.#points.at(-1) ?? new Map<string, number>();
    for (const sample of samples) {
      let market = this.#markets.get(sample.market);
      if (market === undefined) this.#markets.set(sample.market, (market = new Fairness()));
      market.add(sample);
      if (isDrawn(sample.market))
        for (const { workspace, used } of sample.rows)
          if (used > 0) point.set(workspace, (point.get(workspace) ?? 0) + used / this.#each);
    }
    this.#inLast = (this.#inLast + 1) % this.#each;
    if (atMs % MINUTE_MS === 0) this.#endMinute(atMs);
    if (this.#inLast === 0 && this.#points.length >= MOST_POINTS) this.#join();
  }

  #endMinute(atMs: number): void {
    for (const market of this.#markets.values()) market.endMinute(atMs - MINUTE_MS);
  }

  #join(): void {
    const joined: Map<string, number>[] = [];
    for (const [index, point] of this.#points.entries()) {
      const into = joined[index >> 1] ?? new Map<string, number>();
      joined[index >> 1] = into;
      for (const [workspace, used] of point) into.set(workspace, (into.get(workspace) ?? 0) + used / 2);
    }
    this.#points = joined;
    this.#each *= 2;
  }

  /** The trace is over. A trace shorter than a minute counts as one. */
  end(): void {
    if ([...this.#markets.values()].every(({ minutes }) => minutes === 0)) this.#endMinute(MINUTE_MS);
  }

  markets(): readonly MarketResult[] {
    return [...this.#markets].map(([name, market]) => market.result(name));
  }

  series(): Series {
    const whole = this.#inLast === 0 ? this.#points : this.#points.slice(0, -1);
    return { every: (this.#each * SAMPLE_MS) / 1000, points: whole };
  }
}
