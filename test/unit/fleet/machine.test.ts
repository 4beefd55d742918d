import { expect, test } from 'vitest';
import { namedConditions, volumeBytesOf, wordsAbout } from '#scheduler/fleet/machine.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';

test('conditions are names, and few of them, whatever an agent calls wrong', () => {
  expect(namedConditions(['DiskPressure', 'OfANewerAgent'])).toEqual(['DiskPressure', 'OfANewerAgent']);
  expect(namedConditions(['', 'with space', 'x'.repeat(65), 'a"}\n'])).toEqual([]);
  expect(namedConditions(Array.from({ length: 5000 }, (_, at) => `C${at}`))).toHaveLength(32);
});

test('what an agent says of a condition is short, printable, and about one that holds', () => {
  const words = { EngineCannotStart: 'runc:\n\u001b[31mno', DiskPressure: 'full', DockerDown: '' };
  expect(wordsAbout(['EngineCannotStart', 'DockerDown'], words)).toEqual({ EngineCannotStart: 'runc: [31mno' });
  expect(wordsAbout(['A'], { A: 'x'.repeat(10_000) })['A']).toHaveLength(500);
  expect(wordsAbout(['A'], undefined)).toEqual({});
});

test('a machine of one workspace tells nothing of the volumes of others', () => {
  const on = (poolWorkspaceId: string | null) => ({ row: { poolWorkspaceId } }) as unknown as Machine;
  const bytes = { w1: 10, w2: 20, w3: -1, w4: Number.NaN };
  expect(volumeBytesOf(on(null), bytes)).toEqual({ w1: 10, w2: 20 });
  expect(volumeBytesOf(on('w1'), bytes)).toEqual({ w1: 10 });
});
