import { describe, expect, test } from 'vitest';
import { outsideShare } from '../../../bench/outside.ts';
import type { MachineTicks, ProcessTicks } from '../../../bench/outside.ts';
import { parseCpuLine, parseProcessLine, shimContainer } from '../../../bench/processes.ts';

const ROOT = 100;
const aProcess = (pid: number, parentPid: number, own: number, rest: Partial<ProcessTicks> = {}): ProcessTicks => ({
  pid,
  parentPid,
  name: 'node',
  own,
  reaped: 0,
  containerId: undefined,
  ...rest,
});
const init = (reaped: number): ProcessTicks => aProcess(1, 0, 0, { name: 'init', reaped });
const root = aProcess(ROOT, 1, 0);
/** Share of others when so many of 1000 ticks were busy. */
const share = (
  busy: number,
  before: readonly ProcessTicks[],
  after: readonly ProcessTicks[],
  containers: readonly string[] = [],
): number =>
  outsideShare(
    { busy: 0, total: 0, processes: [init(0), root, ...before] },
    { busy, total: 1000, processes: [init(0), root, ...after] } satisfies MachineTicks,
    ROOT,
    new Set(containers),
  );

describe('what others used', () => {
  test('is all that was busy when the run itself did nothing', () => {
    expect(share(120, [], [])).toBe(0.12);
  });

  test('does not contain what children and grandchildren of the run used', () => {
    const before = [aProcess(101, ROOT, 10), aProcess(102, 101, 20)];
    const after = [aProcess(101, ROOT, 110), aProcess(102, 101, 220)];
    expect(share(400, before, after)).toBeCloseTo(0.1);
  });

  test('does not contain a child that ended and was reaped in between', () => {
    const before = [aProcess(101, ROOT, 10), aProcess(102, 101, 20)];
    const after = [aProcess(101, ROOT, 10, { reaped: 70 })];
    expect(share(50, before, after)).toBe(0);
  });

  test('contains a process that somebody else started', () => {
    expect(share(200, [aProcess(7, 1, 0)], [aProcess(7, 1, 200)])).toBe(0.2);
  });

  test("tells the run's containers from those of others on the same engine", () => {
    const shim = (pid: number, containerId: string) => aProcess(pid, 1, 5, { name: 'containerd-shim', containerId });
    const at = (used: number) => [
      shim(50, 'mine'),
      aProcess(51, 50, used, { name: 'python3' }),
      shim(60, 'theirs'),
      aProcess(61, 60, used, { name: 'python3' }),
    ];
    expect(share(200, at(0), at(100), ['mine'])).toBe(0.1);
  });

  test('does not contain the engine, the kernel, and shims that init adopted', () => {
    const before = [
      aProcess(10, 1, 0, { name: 'dockerd' }),
      aProcess(2, 0, 0),
      aProcess(20, 2, 0, { name: 'kworker/0' }),
    ];
    const after = [
      aProcess(10, 1, 100, { name: 'dockerd' }),
      aProcess(2, 0, 0),
      aProcess(20, 2, 100, { name: 'kworker/0' }),
      init(100),
    ].filter((process) => process.pid !== 1);
    const value = outsideShare(
      { busy: 0, total: 0, processes: [init(0), root, ...before] },
      { busy: 300, total: 1000, processes: [init(100), root, ...after] },
      ROOT,
      new Set(),
    );
    expect(value).toBe(0);
  });

  test('is never negative, though the counts are not taken at one moment', () => {
    expect(share(10, [aProcess(101, ROOT, 0)], [aProcess(101, ROOT, 15)])).toBe(0);
  });

  test('is nothing when no time passed', () => {
    const now: MachineTicks = { busy: 5, total: 10, processes: [root] };
    expect(outsideShare(now, now, ROOT, new Set())).toBe(0);
  });
});

describe("the kernel's own words", () => {
  test('interrupts and idle time are not busy, stolen time is', () => {
    const text = 'cpu  100 10 50 800 20 3 4 13 30 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n';
    expect(parseCpuLine(text)).toEqual({ busy: 173, total: 1000 });
  });

  test('a process may have blanks and parentheses in its name', () => {
    const line = '42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1 0 99';
    expect(parseProcessLine(line)).toEqual({ pid: 42, parentPid: 7, name: 'a) b (c)', own: 23, reaped: 27 });
  });

  test("a shim's container stands on its command line", () => {
    expect(shimContainer('/usr/bin/containerd-shim-runc-v2\0-namespace\0moby\0-id\0abc\0')).toBe('abc');
    expect(shimContainer('/usr/bin/containerd-shim-runc-v2\0')).toBeUndefined();
  });
});
