import { Counter, Gauge, Histogram, Registry } from 'prom-client';

export { Counter, Gauge, Histogram, Registry };

/** Buckets in seconds, for work of milliseconds (5 ms to 10 s). */
export const FAST_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
/** Buckets in seconds, for slow work (0.1 s to 1 800 s). */
export const SLOW_BUCKETS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800];

/** The label value that replaces every value beyond the bound. */
export const OTHER = 'other';

/**
 * Bounds the values of a label: the first `limit` are kept, later ones
 * become `other`. A series never disappears, so neither does a value.
 */
export class LabelValues {
  readonly #limit: number;
  readonly #seen = new Set<string>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  of(value: string): string {
    if (this.#seen.has(value)) return value;
    if (this.#seen.size >= this.#limit) return OTHER;
    this.#seen.add(value);
    return value;
  }
}

type Labels = Readonly<Record<string, string | number>>;
type Write = (first?: Labels | number, second?: number) => void;

/** Makes every write to the metric pass its labels through their bounds. @returns the metric */
export function bounded<M extends Counter | Gauge | Histogram>(
  metric: M,
  bounds: Readonly<Record<string, LabelValues>>,
): M {
  for (const name of ['inc', 'set', 'observe'] as const) {
    const write: unknown = Reflect.get(metric, name);
    if (typeof write !== 'function') continue;
    const asBefore = write.bind(metric) as Write;
    const withBounds: Write = (first, second) =>
      typeof first === 'object' ? asBefore(withinBounds(first, bounds), second) : asBefore(first);
    Reflect.set(metric, name, withBounds);
  }
  return metric;
}

/**
 * Shows the counter at 0 for these labels before the first event:
 * `increase()` misses the first event of a series that begins with it.
 */
export function fromZero<Label extends string>(
  counter: Counter<Label>,
  all: readonly Readonly<Record<Label, string>>[],
): void {
  for (const labels of all) counter.inc(labels, 0);
}

function withinBounds(labels: Labels, bounds: Readonly<Record<string, LabelValues>>): Labels {
  return Object.fromEntries(
    Object.entries(labels).map(([name, value]) => [name, bounds[name]?.of(String(value)) ?? value]),
  );
}

/** Sums many things before writing a gauge: a write per series instead of one per thing. */
export class Tally<Label extends string> {
  readonly #names: readonly Label[];
  readonly #sums = new Map<string, { readonly values: readonly string[]; sum: number }>();

  constructor(...names: readonly Label[]) {
    this.#names = names;
  }

  /** @param values - label values in the order of the names */
  add(by: number, ...values: readonly string[]): void {
    const key = values.join('\n');
    const known = this.#sums.get(key);
    if (known === undefined) this.#sums.set(key, { values, sum: by });
    else known.sum += by;
  }

  /** Replaces all series of the gauge. */
  writeTo(gauge: Gauge<Label>): void {
    gauge.reset();
    for (const { values, sum } of this.#sums.values()) {
      const labels: Partial<Record<Label, string>> = {};
      for (const [index, name] of this.#names.entries()) labels[name] = values[index] ?? '';
      gauge.set(labels, sum);
    }
  }
}
