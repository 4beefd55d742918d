// Compares docs/gpus.md with the code: the numbers of the driver's errors, and the effect of each on a device.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { healthAfter, HEALTHY } from '../../../agent/devices/health.ts';
import { meaningOf } from '../../../agent/devices/xid.ts';

const TEXT = readFileSync(join(import.meta.dirname, '../../../docs/gpus.md'), 'utf8');
const NUMBERS = Array.from({ length: 400 }, (_, number) => number);

test('the table of states names exactly the errors that take a device out', () => {
  const row = /^\| unhealthy \| (.*) \|$/m.exec(TEXT)?.[1] ?? '';
  const listed = (words: RegExp): number[] => (words.exec(row)?.[1] ?? '').split(', ').map(Number);
  const by = (meaning: string): number[] => NUMBERS.filter((number) => meaningOf(number, 0, '') === meaning);
  expect(listed(/Xid ([\d, ]+) \(74 the second time\)/)).toEqual(by('fatal'));
  expect(listed(/; Xid (\d+), or Xid 154 that names a drain: what runs goes on/)).toEqual(by('drain'));
  expect(meaningOf(74, 1, '')).toBe('fatal');
});

test('an error that ends its container alone takes the device out until a probe has passed, and the text says so', () => {
  const [contained, ...others] = NUMBERS.filter((number) => meaningOf(number, 0, '') === 'container');
  expect(others).toEqual([]);
  const { state } = healthAfter(HEALTHY, { kind: 'doubted', why: `Xid ${contained}` });
  const [sentence] = new RegExp(`Xid ${contained} fails its container[^.]*\\.`).exec(TEXT) ?? [];
  expect(sentence).toContain(`the device becomes \`${state}\``);
  const [row] = new RegExp(`^\\| ${state} \\|.*$`, 'm').exec(TEXT) ?? [];
  expect(row).toContain(`after Xid ${contained},`);
});
