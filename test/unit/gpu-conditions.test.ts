// The table of conditions in docs/gpus.md: each row names tests that exist, and each cited source is listed.
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '..', '..');
const text = readFileSync(join(ROOT, 'docs', 'gpus.md'), 'utf8');
const part = text.slice(text.indexOf('\n## Conditions of a host'), text.indexOf('\n### On a real GPU'));
const rows = part
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith('| Condition'))
  .map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
const fileOf = (name: string): string => (name.includes('.') ? name : `test/${name}.test.ts`);
const named = (cell = ''): string[] => [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? '');

test('each condition has what the agent does and tests that are there', () => {
  expect(rows.length).toBeGreaterThan(30);
  for (const [condition, does, tests] of rows) {
    expect(does, condition).not.toBe('');
    expect(named(tests), condition).not.toEqual([]);
    for (const name of named(tests)) expect(existsSync(join(ROOT, fileOf(name))), `${condition}: ${name}`).toBe(true);
  }
});

test('each source that a cell names is listed, and each that is listed is named', () => {
  const cited = new Set<string>(
    rows.flatMap((row) => row.slice(3)).flatMap((cell) => cell.match(/\b[NKD]\d\b/g) ?? []),
  );
  const listed = [...text.slice(text.indexOf('\n### Sources')).matchAll(/^\| ([NKD]\d) \| \[/gm)].map(
    (match) => match[1],
  );
  expect(new Set(listed)).toEqual(cited);
});
