// Compares the table of conditions in docs/machines.md with the code: every condition, and whether it blocks placement.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { CONDITIONS } from '#shared/domain/conditions.ts';

const TEXT = readFileSync(join(import.meta.dirname, '../../docs/machines.md'), 'utf8');

test('the table of conditions has every condition, and says which block placement', () => {
  const table = TEXT.split('| Condition | Means |')[1]?.split('\n\n')[0] ?? '';
  const rows = [...table.matchAll(/^\| `(\w+)` \| [^|]+ \| (yes|no)\b/gm)].map(([, name, word]) => [
    name,
    word === 'yes',
  ]);
  expect(rows).toEqual(Object.entries(CONDITIONS).map(([name, { blocks }]) => [name, blocks]));
});
