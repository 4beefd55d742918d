// The table that a person reads at the end of a run: one row per measure, columns aligned. Pure; main.ts prints it.
import { goalText } from './goals.ts';
import type { Verdict } from './goals.ts';
import type { Measure } from './measure.ts';
import type { Summary } from './stats.ts';

const VERDICTS: Readonly<Record<Verdict, string>> = {
  met: 'met',
  in_proportion: 'met in proportion',
  missed: 'MISSED',
};
const HEAD = ['benchmark', 'baseline', 'longshore', 'ratio', 'difference', 'goal', ''];

/** @returns lines without a trailing newline */
export function resultTable(measures: readonly Measure[]): string {
  return alignColumns([HEAD, ...measures.map(rowOf)]);
}

function rowOf(measure: Measure): string[] {
  const { unit, comparison, product } = measure;
  return [
    `${measure.suite} ${measure.name}`,
    comparison === undefined ? '-' : spread(comparison.baseline, unit),
    spread(product, unit),
    comparison === undefined ? '-' : spread(comparison.ratio, 'x'),
    comparison === undefined ? '-' : spread(comparison.difference, unit),
    measure.goal === undefined ? '-' : goalText(measure.goal, unit),
    measure.verdict === undefined ? '' : VERDICTS[measure.verdict],
  ];
}

/** `1.23 ms [1.10-1.40]`; the extremes are left out where there is one value only. */
export function spread(summary: Summary, unit: string): string {
  const middle = `${short(summary.median)} ${unit}`;
  return summary.count < 2 ? middle : `${middle} [${short(summary.min)} .. ${short(summary.max)}]`;
}

/** Three significant digits, never an exponent. */
export function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 100) return String(Math.round(value));
  if (size >= 10) return value.toFixed(1);
  return value.toFixed(2);
}

/** Pads all columns but the last. */
export function alignColumns(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) for (const [at, cell] of row.entries()) widths[at] = Math.max(widths[at] ?? 0, cell.length);
  return rows
    .map((row) =>
      row
        .map((cell, at) => cell.padEnd(widths[at] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
