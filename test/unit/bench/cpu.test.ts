import { describe, expect, test } from 'vitest';
import { cpuPerCall, cpuText } from '../../../bench/cpu.ts';
import type { Round } from '../../../bench/measure.ts';
import type { ProcessTicks } from '../../../bench/outside.ts';

const aProcess = (pid: number, parentPid: number, own: number, rest: Partial<ProcessTicks> = {}): ProcessTicks => ({
  pid,
  parentPid,
  name: 'node',
  own,
  reaped: 0,
  containerId: undefined,
  ...rest,
});
const roles = {
  generatorPid: 100,
  children: new Map([
    [101, 'scheduler'],
    [102, 'agent'],
  ]),
  containerIds: new Set(['mine']),
};
const machine = (used: number): ProcessTicks[] => [
  aProcess(1, 0, used),
  aProcess(100, 1, used),
  aProcess(101, 100, used),
  aProcess(103, 101, used, { name: 'redis-server' }),
  aProcess(102, 100, used),
  aProcess(104, 100, used, { name: 'redis-server' }),
  aProcess(50, 1, 0, { name: 'containerd-shim', containerId: 'mine' }),
  aProcess(51, 50, used, { name: 'python3' }),
  aProcess(60, 1, 0, { name: 'containerd-shim', containerId: 'theirs' }),
  aProcess(61, 60, used, { name: 'python3' }),
  aProcess(10, 1, used, { name: 'dockerd' }),
];

describe('processor time per call', () => {
  test('goes to whoever spent it; a Redis counts as one wherever it hangs, others do not count', () => {
    expect(cpuPerCall(machine(0), machine(10), roles, 100)).toEqual({
      'cpu load': 1000,
      'cpu scheduler': 1000,
      'cpu agent': 1000,
      'cpu redis': 2000,
      'cpu containers': 1000,
      'cpu engine': 1000,
    });
  });

  test('of a call that never came is not a number that is reported', () => {
    expect(cpuPerCall(machine(0), machine(10), roles, 0)).toEqual({});
  });

  test('is told largest first, by the median of the rounds that count', () => {
    const round = (scheduler: number, isKept = true): Round => ({
      number: 1,
      baseline: undefined,
      product: { p50: 1, 'cpu agent': 50, 'cpu scheduler': scheduler },
      outside: 0,
      isKept,
    });
    const rounds = [round(100), round(300), round(200), round(9000, false)];
    expect(cpuText(rounds, 'product')).toBe('scheduler 200 us, agent 50 us');
    expect(cpuText(rounds, 'baseline')).toBe('');
  });
});
