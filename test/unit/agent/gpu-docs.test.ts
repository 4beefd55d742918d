// Compares docs/gpus.md with the code: the numbers of the driver's errors, and the effect of each on a device.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { healthAfter, HEALTHY } from '../../../agent/devices/health.ts';
import { meaningOf } from '../../../agent/devices/xid.ts';

const TEXT = readFileSync(join(import.meta.dirname, '../../../docs/gpus.md'), 'utf8');
const NUMBERS = Array.from({ length: 400 }, (_, number) => number);

/** The effect of each row of the table of Xids: the first cell, and the two after it. */
const XIDS = [
  ...(TEXT.split('### What an Xid does')[1]?.split('\n\n')[1] ?? '').matchAll(/^\| (.+?) \| (.+?) \| (.+?) \|$/gm),
].map(([, cell = '', device = '', container = '']) => ({ cell, device, container }));
const listed = (cell: string): number[] => (/^[\d, ]+$/.test(cell) ? cell.split(', ').map(Number) : []);
const by = (meaning: string): number[] => NUMBERS.filter((number) => meaningOf(number, 0, '') === meaning);

test('the table of Xids names exactly the errors that take a device out', () => {
  const fatal = XIDS.find(({ device, container }) => device === 'unhealthy' && container.startsWith('fails as'));
  expect(listed(fatal?.cell ?? '')).toEqual(by('fatal'));
  const drain = XIDS.filter(({ device, container }) => device === 'unhealthy' && container === 'goes on');
  expect(drain.flatMap(({ cell }) => listed(cell))).toEqual(by('drain'));
  expect(meaningOf(74, 1, '')).toBe('fatal');
  expect(XIDS.find(({ cell }) => cell === '74')?.device).toMatch(/the second time unhealthy$/);
});

test('an error that ends its container alone takes the device out until a probe has passed, and the text says so', () => {
  const [contained, ...others] = by('container');
  expect(others).toEqual([]);
  const { state } = healthAfter(HEALTHY, { kind: 'doubted', why: `Xid ${contained}` });
  expect(XIDS.find(({ cell }) => cell === String(contained))).toEqual({
    cell: String(contained),
    device: state,
    container: 'fails',
  });
  const [row] = new RegExp(`^\\| ${state} \\|.*$`, 'm').exec(TEXT) ?? [];
  expect(row).toContain(`after Xid ${contained},`);
});

test('the alert about Xids names exactly the errors after which an operator should look', () => {
  const rules = readFileSync(join(import.meta.dirname, '../../../deploy/prometheus/alerts.yml'), 'utf8');
  const [rule = ''] = /alert: LongshoreGpuXid\n.*/.exec(rules) ?? [];
  const named = [...rule.matchAll(/xid=~"([\d|]+)"/g)].map(([, numbers = '']) => numbers.split('|').map(Number));
  // The meaning of 154 is in its text.
  const warned = by('warn').filter((number) => number !== 154);
  expect(named).toEqual([warned, warned]);
});

test('Xid 155 needs a reset as in NVIDIA’s catalogue; its neighbours of NVLink wait for Xid 154', () => {
  expect(meaningOf(155, 0, 'NVLINK: SW Defined Error')).toBe('fatal');
  for (const number of [144, 145, 146, 147, 148, 149, 150, 157]) expect(meaningOf(number, 0, '')).toBe('warn');
  expect([151, 156, 158].map((number) => meaningOf(number, 0, ''))).toEqual(['fatal', 'drain', 'fatal']);
});

test('every alert about GPUs is in the table of alerts', () => {
  const rules = readFileSync(join(import.meta.dirname, '../../../deploy/prometheus/alerts.yml'), 'utf8');
  const names = [...rules.matchAll(/alert: (Longshore\w*(?:Gpu|NvidiaSmi)\w*)/g)].map(([, name = '']) => name);
  expect(names.length).toBeGreaterThan(5);
  expect(names.filter((name) => !TEXT.includes(`\n| \`${name}\` |`))).toEqual([]);
});
