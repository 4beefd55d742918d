import { expect, test } from 'vitest';
import { rangeOf } from '#scheduler/workspaces/credits/compute-rows.ts';

const at = (time: string): number => Date.parse(`2026-03-02T${time}Z`);
const MINUTE_MS = 60_000;

test.for([
  ['the first look', undefined, '12:10:00', at('12:10:00') - 7 * 86_400_000, true],
  ['a look within the hour', '12:09:00', '12:10:00', at('12:06:00'), false],
  ['the first look of an hour', '12:59:30', '13:00:30', at('10:59:30'), true],
  ['a look after hours', '09:30:00', '13:10:00', at('07:30:00'), true],
  ['a clock that went back', '12:30:00', '12:10:00', at('12:10:00') - 3 * MINUTE_MS, false],
] as const)('%s', ([, looked, now, sinceMs, isWithRunning]) => {
  expect(rangeOf(looked === undefined ? undefined : at(looked), at(now))).toEqual({ sinceMs, isWithRunning });
});
