// Every fault that the scheduler has to bear has tests that bear its name, so that nobody has to look for them, and none goes away unnoticed.
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';

const TESTS = resolve(import.meta.dirname, '..');
const FAULTS = [
  'Partition < 90 s',
  'Partition > 90 s',
  'Control plane restart',
  'Redis down',
  'Redis data lost',
  'Scheduler crash mid-step',
  'Leader dies / two leaders',
  'Replica dies',
  'Lost ack / duplicate delivery',
  'Start timeout',
  'Crash loop',
  'Second lease of a GPU',
  'Mass disconnect',
  'Sample error',
  'Late EndTask / cancel race',
];

/** Titles of tests and of groups of tests, as they stand in the sources. */
function titles(folder: string): readonly string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return titles(path);
    if (!entry.name.endsWith('.test.ts')) return [];
    const calls = readFileSync(path, 'utf8').matchAll(/\b(?:describe|test)\(\s*(?:'([^']+)'|`([^`]+)`|"([^"]+)")/g);
    return [...calls].map((found) => found[1] ?? found[2] ?? found[3] ?? '');
  });
}

const all = titles(TESTS);

for (const fault of FAULTS) {
  test(`"${fault}" is tested by that name`, () => {
    expect(all.filter((title) => title === fault || title.startsWith(`${fault}: `))).not.toEqual([]);
  });
}
