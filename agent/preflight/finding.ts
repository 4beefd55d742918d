// Findings of a machine check as data, and their text for people.

export interface Finding {
  /** The checked item: one or two words. */
  readonly check: string;
  /** `failed`: containers cannot run here, or not as they should; `warning`: worth a look. */
  readonly level: 'ok' | 'warning' | 'failed';
  readonly found: string;
  /** The action to take; empty when none is needed. */
  readonly remedy: string;
}

export const ok = (check: string, found: string): Finding => ({ check, level: 'ok', found, remedy: '' });
export const warning = (check: string, found: string, remedy: string): Finding => ({
  check,
  level: 'warning',
  found,
  remedy,
});
export const failed = (check: string, found: string, remedy: string): Finding => ({
  check,
  level: 'failed',
  found,
  remedy,
});

const MARKS = { ok: 'ok', warning: 'WARNING', failed: 'FAILED' } as const;

/** The findings as a table, with each remedy below its line. Pure. */
export function findingsText(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map(({ check }) => check.length));
  const lines = findings.flatMap(({ check, level, found, remedy }) => [
    `${MARKS[level].padEnd(8)} ${check.padEnd(width)}  ${found}`,
    ...(remedy === '' ? [] : [`${' '.repeat(9 + width)}  -> ${remedy}`]),
  ]);
  const count = (level: Finding['level']): number => findings.filter((one) => one.level === level).length;
  const [bad, odd] = [count('failed'), count('warning')];
  const verdict =
    bad > 0
      ? `${bad} of ${findings.length} checks failed: this machine does not take work.`
      : `This machine can take work${odd > 0 ? ` (${odd} warning${odd > 1 ? 's' : ''})` : ''}.`;
  return [...lines, '', verdict].join('\n');
}
