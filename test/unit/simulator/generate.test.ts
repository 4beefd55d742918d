// Traces that are made: how much each workspace asks for, when, and how long tasks are.
import { describe, expect, test } from 'vitest';
import { expectedTasks, machineLines, traceLines } from '#scheduler/control/simulator/generate.ts';
import type { GeneratedLine, GeneratorOptions } from '#scheduler/control/simulator/generate.ts';
import { readTraceLine } from '#scheduler/control/simulator/trace.ts';

const OPTIONS: GeneratorOptions = {
  seed: 1,
  hours: 24,
  machines: 4,
  gpu: 'H100',
  gpusPerMachine: 8,
  workspaces: ['a', 'b', 'c', 'd'],
  skew: 1,
  load: 0.9,
  sizes: [1],
  dayCurve: 0,
  bursts: 0,
  medianSeconds: 30,
  sigma: 1,
  startSeconds: 5,
  oneTask: false,
};
const tasksOf = (changes: Partial<GeneratorOptions> = {}): readonly GeneratedLine[] =>
  [...traceLines({ ...OPTIONS, ...changes })].filter(({ kind }) => kind === 'task');
const countsOf = (
  tasks: readonly GeneratedLine[],
  of: (line: GeneratedLine) => unknown,
): ReadonlyMap<unknown, number> => new Map([...Map.groupBy(tasks, of)].map(([key, some]) => [key, some.length]));
const secondsOf = (line: GeneratedLine): number => Number(line['seconds']);
const atOf = (line: GeneratedLine): number => Number(line['t']);

describe('a trace that is made', () => {
  test('has lines that are read, in the order of their time, and ends with its end', () => {
    const lines = [...machineLines(OPTIONS), ...traceLines({ ...OPTIONS, bursts: 5, dayCurve: 1, sizes: [1, 8] })];
    const read = lines.map((line) => readTraceLine(line));
    expect(read.map(({ atMs }) => atMs)).toEqual(read.map(({ atMs }) => atMs).toSorted((a, b) => a - b));
    expect(read.at(-1)).toEqual({ kind: 'end', atMs: 24 * 3_600_000 });
    expect(read[0]).toMatchObject({ kind: 'machine', count: 4, gpus: 8 });
    expect(read.filter(({ kind }) => kind === 'deploy')).toHaveLength(8);
  });

  test('asks for the part of the GPU time that it should, by the law of Zipf', () => {
    const tasks = tasksOf();
    expect(tasks.length).toBeGreaterThan(0.95 * expectedTasks(OPTIONS));
    expect(tasks.length).toBeLessThan(1.05 * expectedTasks(OPTIONS));
    const asked = tasks.reduce((sum, line) => sum + secondsOf(line), 0);
    expect(asked / (24 * 3600 * 32)).toBeCloseTo(0.9, 1);
    const counts = countsOf(tasks, ({ deployment }) => deployment);
    const first = counts.get('a-1') ?? 0;
    for (const [index, name] of ['a-1', 'b-1', 'c-1', 'd-1'].entries())
      expect((counts.get(name) ?? 0) / first).toBeCloseTo(1 / (index + 1), 1);
    const alike = countsOf(tasksOf({ skew: 0 }), ({ deployment }) => deployment);
    expect((alike.get('d-1') ?? 0) / (alike.get('a-1') ?? 1)).toBeCloseTo(1, 1);
  });

  test('has lengths around their median, all alike without a spread', () => {
    const lengths = tasksOf()
      .map(secondsOf)
      .toSorted((a, b) => a - b);
    expect(lengths[lengths.length >> 1]).toBeGreaterThan(28);
    expect(lengths[lengths.length >> 1]).toBeLessThan(32);
    // The logarithm of 84 % is a standard deviation above the median.
    expect((lengths[Math.floor(0.8413 * lengths.length)] ?? 0) / 30 / Math.E).toBeCloseTo(1, 1);
    expect(new Set(tasksOf({ sigma: 0 }).map(secondsOf))).toEqual(new Set([30]));
  });

  test('rises and falls with the day, and has bursts, with the same mean', () => {
    const plain = tasksOf().length;
    const byDay = tasksOf({ dayCurve: 0.8 });
    const half = countsOf(byDay, (line) => atOf(line) < 12 * 3600);
    // The mean of a sine over its half is 2 / pi.
    expect((half.get(true) ?? 0) / (half.get(false) ?? 1)).toBeCloseTo((1 + 1.6 / Math.PI) / (1 - 1.6 / Math.PI), 0);
    expect(byDay.length / plain).toBeCloseTo(1, 1);
    const week = { hours: 7 * 24, workspaces: ['a'] };
    const most = (tasks: readonly GeneratedLine[]): number =>
      Math.max(...countsOf(tasks, (line) => Math.floor(atOf(line) / 300)).values());
    const bursts = tasksOf({ ...week, bursts: 4 });
    expect(most(bursts)).toBeGreaterThan(4 * most(tasksOf(week)));
    expect(bursts.length / tasksOf(week).length).toBeCloseTo(1, 0);
  });

  test('is the same for the same seed', () => {
    expect(tasksOf()).toEqual(tasksOf());
    expect(tasksOf({ seed: 2 })).not.toEqual(tasksOf());
  });
});
