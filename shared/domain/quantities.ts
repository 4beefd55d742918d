// The TypeScript parser for cpu and memory as people write them; python/longshore/quantities.py
// is the Python one. Both are tested on test/fixtures/quantities.json.

const TEXT = /^\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)\s*$/i;
const MEMORY_MIB: ReadonlyMap<string, number> = new Map([
  ['', 1],
  ['m', 1],
  ['mb', 1],
  ['mi', 1],
  ['mib', 1],
  ['g', 1000],
  ['gb', 1000],
  ['gi', 1024],
  ['gib', 1024],
]);

/** Cores as `2`, `0.5` or `'2'`; thousandths of a core as `'500m'`. @throws RangeError that names the mistake */
export function cpuMillicores(value: unknown): number {
  const { amount, unit } = split(value, 'cpu', "a number of cores (0.5, 2) or millicores as text ('500m')");
  if (unit !== '' && unit !== 'm') {
    throw new RangeError(`cpu: unknown unit ${unit} in ${shown(value)}; 'm' (millicores) is the only one`);
  }
  return wholeAbove0('cpu', value, amount * (unit === 'm' ? 1 : 1000));
}

/**
 * A number is MiB; text may have a unit: m, mb, mi, mib (×1), g, gb (×1000), gi, gib (×1024).
 * @throws RangeError that names the mistake
 */
export function memoryMib(value: unknown): number {
  const { amount, unit } = split(value, 'memory', "a number of MiB (512) or text with a unit ('512mi', '2gi')");
  const factor = MEMORY_MIB.get(unit);
  if (factor === undefined) {
    const known = [...MEMORY_MIB.keys()].filter((name) => name !== '').join(', ');
    throw new RangeError(`memory: unknown unit ${unit} in ${shown(value)}; known are ${known}`);
  }
  return wholeAbove0('memory', value, amount * factor);
}

function split(value: unknown, name: string, wanted: string): { readonly amount: number; readonly unit: string } {
  if (typeof value === 'number' && Number.isFinite(value)) return { amount: value, unit: '' };
  const [, amount, unit] = typeof value === 'string' ? (TEXT.exec(value) ?? []) : [];
  if (amount === undefined || unit === undefined) throw new RangeError(`${name}: ${shown(value)} is not ${wanted}`);
  return { amount: Number(amount), unit: unit.toLowerCase() };
}

function wholeAbove0(name: string, value: unknown, amount: number): number {
  // Rounds up to whole units, never below the request; toFixed first removes errors of binary fractions (1.1 × 1000).
  const whole = Math.ceil(Number(amount.toFixed(6)));
  if (whole <= 0) throw new RangeError(`${name}: must be greater than 0, not ${shown(value)}`);
  if (!Number.isSafeInteger(whole)) throw new RangeError(`${name}: ${shown(value)} is too large`);
  return whole;
}

const shown = (value: unknown): string => JSON.stringify(value)?.slice(0, 60) ?? String(value);
