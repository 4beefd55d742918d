// Durations as Go writes them: `90s`, `1m30s`, `1.5h`. Pure.

const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  μs: 1e-3,
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
};
const PART = /(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)/y;
const MOST_CHARACTERS = 64;

/** Milliseconds, rounded; undefined: the text is not a duration, or is negative. */
export function durationMsOf(text: string): number | undefined {
  if (text === '' || text.length > MOST_CHARACTERS) return undefined;
  if (text === '0') return 0;
  let ms = 0;
  PART.lastIndex = 0;
  for (let at = 0; at < text.length; at = PART.lastIndex) {
    const [, number = '', unit = ''] = PART.exec(text) ?? [];
    if (unit === '') return undefined;
    ms += Number(number) * (UNIT_MS[unit] ?? 0);
  }
  return Number.isFinite(ms) ? Math.round(ms) : undefined;
}
