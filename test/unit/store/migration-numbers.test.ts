import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

// Plain JavaScript, as all scripts are; its type is said here.
const { numberingProblems } = (await import(join(import.meta.dirname, '../../../scripts/migration-numbers.mjs'))) as {
  numberingProblems: (files: readonly string[]) => string[];
};
const MIGRATIONS = readdirSync(join(import.meta.dirname, '../../../scheduler/stores/store/migrations'));

test('migrations are numbered from 1 on, each number once', () => {
  expect(MIGRATIONS.length).toBeGreaterThan(0);
  expect(numberingProblems(MIGRATIONS)).toEqual([]);
});

test('a number that two branches took, one that is left out and a file that has none are named', () => {
  const last = MIGRATIONS.toSorted().at(-1) ?? '';
  const twin = `${last.slice(0, 4)}_zzz.sql`;
  expect(numberingProblems([...MIGRATIONS, twin])).toEqual([`${twin}: ${last} has the same number`]);
  expect(numberingProblems(['0003_c.sql', '0001_a.sql'])).toEqual(['0002: no migration has this number']);
  expect(numberingProblems(['0001_a.sql', '2_b.sql'])).toEqual(['2_b.sql: a migration is named 0001_words.sql']);
});
