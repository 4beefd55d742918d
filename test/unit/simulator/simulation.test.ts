// A trace in made-up time: waits, uses and fairness that can be counted by hand, and policies compared.
import { describe, expect, test } from 'vitest';
import { Waits } from '#scheduler/control/simulator/figures.ts';
import type { Policy, PolicyResult } from '#scheduler/control/simulator/simulation.ts';
import { crowd, simulated, workspaceOf } from './traces.ts';
import type { Line } from './traces.ts';

const machine = (gpus: number, more: Line = {}): Line => ({
  kind: 'machine',
  machine: 'm',
  gpu: 'H100',
  gpus,
  ...more,
});
const deploy = (deployment: string, workspace: string, more: Line = {}): Line => ({
  kind: 'deploy',
  deployment,
  workspace,
  gpu: 'H100',
  keep_warm_seconds: 0,
  ...more,
});
const task = (t: number, deployment: string, seconds: number, more: Line = {}): Line => ({
  t,
  kind: 'task',
  deployment,
  seconds,
  ...more,
});
const end = (t: number): Line => ({ t, kind: 'end' });

describe('a simulation', () => {
  test('lets a task wait for the start of its container, and the next for the end of the first', () => {
    const result = simulated([
      machine(1),
      deploy('d', 'w', { start_seconds: 5 }),
      task(0, 'd', 10),
      task(1, 'd', 10),
      end(100),
    ]);
    expect(workspaceOf(result, 'w')).toMatchObject({
      tasks: 2,
      finished: 2,
      unserved: 0,
      wait_seconds: { p50: 5, p95: 14, most: 14, mean: 9.5 },
      gpu_seconds: 25,
      busy_gpu_seconds: 20,
    });
    expect(result).toMatchObject({ containers: 2, markets: [{ market: 'H100', capacity: 1 }] });
  });

  test('counts what still waits and runs at the end', () => {
    const result = simulated([
      machine(1),
      deploy('d', 'w', { one_task: true }),
      task(10, 'd', 100, { count: 2 }),
      end(70),
    ]);
    expect(workspaceOf(result, 'w')).toMatchObject({
      tasks: 2,
      finished: 0,
      unserved: 1,
      wait_seconds: { p50: 0, most: 60 },
      gpu_seconds: 60,
    });
  });

  test('begins a task that comes at the end, if it can begin at once', () => {
    const result = simulated([machine(1), deploy('d', 'w'), task(10, 'd', 5, { count: 2 }), end(10)]);
    expect(workspaceOf(result, 'w')).toMatchObject({ tasks: 2, unserved: 1, wait_seconds: { most: 0 } });
  });

  test('keeps a container warm, and stops it afterwards', () => {
    const lines = (keepWarm: number): readonly Line[] => [
      machine(1),
      deploy('d', 'w', { start_seconds: 5, keep_warm_seconds: keepWarm }),
      task(0, 'd', 10),
      task(45, 'd', 10),
      end(1000),
    ];
    expect(workspaceOf(simulated(lines(60)), 'w')).toMatchObject({
      wait_seconds: { p50: 0, most: 5 },
      gpu_seconds: 115,
    });
    expect(workspaceOf(simulated(lines(20)), 'w')).toMatchObject({ wait_seconds: { p50: 5 }, gpu_seconds: 70 });
  });

  test('gives each task a container of its own where the trace says so', () => {
    const lines = (oneTask: boolean): readonly Line[] => [
      machine(1),
      deploy('d', 'w', { one_task: oneTask, start_seconds: 1 }),
      ...[0, 0, 0].map((t) => task(t, 'd', 1)),
      end(100),
    ];
    expect(simulated(lines(true)).containers).toBe(3);
    expect(workspaceOf(simulated(lines(true)), 'w').wait_seconds.most).toBe(5);
    expect(workspaceOf(simulated(lines(false)), 'w').wait_seconds.most).toBe(3);
  });

  test('runs several tasks at once in a container that takes several', () => {
    const result = simulated([
      machine(1),
      deploy('d', 'w', { tasks_per_container: 4, max_containers: 1 }),
      task(0, 'd', 10, { count: 5 }),
      end(100),
    ]);
    expect(workspaceOf(result, 'w')).toMatchObject({ wait_seconds: { p50: 0, most: 10 }, busy_gpu_seconds: 20 });
  });

  test('spreads the tasks of one line over its time, and draws times from percentiles', () => {
    const lines = [
      machine(8),
      deploy('d', 'w', { run_seconds: { 0: 1, 50: 2, 100: 50 } }),
      { t: 0, kind: 'task', deployment: 'd', count: 60, over_seconds: 60 },
      end(1000),
    ];
    const [one, again, other] = [1, 1, 2].map((seed) => simulated(lines, 'share', seed));
    expect(again).toEqual(one);
    expect(other).not.toEqual(one);
    const result = workspaceOf(one as PolicyResult, 'w');
    expect(result).toMatchObject({ tasks: 60, finished: 60 });
    expect(result.busy_gpu_seconds).toBeGreaterThan(60);
    expect(result.busy_gpu_seconds).toBeLessThan(60 * 50);
  });

  test('begins tasks again that were on a lost machine, which wait for another one', () => {
    const result = simulated([
      machine(1, { machine: 'a' }),
      deploy('d', 'w'),
      task(0, 'd', 10),
      { t: 4, kind: 'gone', machine: 'a' },
      machine(1, { t: 20, machine: 'b' }),
      end(100),
    ]);
    expect(workspaceOf(result, 'w')).toMatchObject({
      tasks: 1,
      finished: 1,
      begun_again: 1,
      wait_seconds: { most: 0 },
      gpu_seconds: 14,
    });
  });

  test('holds limits and guarantees of workspaces', () => {
    const lines = (limit: Line): readonly Line[] => [
      machine(8),
      deploy('a', 'research', { one_task: true }),
      deploy('b', 'shop', { one_task: true }),
      { kind: 'limit', workspace: 'shop', ...limit },
      task(0, 'a', 60, { count: 100 }),
      task(0, 'b', 60, { count: 100 }),
      end(600),
    ];
    const held = (limit: Line): readonly number[] =>
      ['research', 'shop'].map((name) => workspaceOf(simulated(lines(limit)), name).gpu_seconds / 600);
    expect(held({})).toEqual([4, 4]);
    expect(held({ weight: 3 })).toEqual([2, 6]);
    expect(held({ limits: { H100: 1 } })).toEqual([7, 1]);
    expect(held({ guaranteed: { H100: 4 } })).toEqual([2, 6]);
  });

  test('keeps a machine for a task that needs it whole, where the policy says so', () => {
    const lines = [
      machine(8),
      deploy('small', 'shop', { one_task: true }),
      deploy('large', 'research', { one_task: true, gpus: 8 }),
      ...Array.from({ length: 600 }, (_none, second) => task(second, 'small', 8 + (second % 7))),
    ]
      .concat(end(900))
      .toSorted((a, b) => Number(a['t'] ?? 0) - Number(b['t'] ?? 0));
    const asked = lines.toSpliced(20, 0, task(Number(lines[19]?.['t']), 'large', 30));
    const waitOf = (policy: Policy): number => workspaceOf(simulated(asked, policy), 'research').wait_seconds.most;
    expect(waitOf('share')).toBeGreaterThan(500);
    expect(waitOf('share+reserve')).toBeLessThan(80);
    expect(simulated(asked, 'share+reserve').reservations).toBe(1);
    expect(simulated(asked, 'share').reservations).toBe(0);
  });

  test('ends idle containers on a machine that is kept, though they are to be kept warm', () => {
    const lines = [
      machine(8),
      deploy('small', 'shop', { keep_warm_seconds: 3600 }),
      deploy('large', 'research', { one_task: true, gpus: 8 }),
      task(0, 'small', 10),
      task(5, 'large', 10),
      end(1000),
    ];
    expect(workspaceOf(simulated(lines, 'share'), 'research')).toMatchObject({ unserved: 1 });
    expect(workspaceOf(simulated(lines, 'share+reserve'), 'research').wait_seconds.most).toBe(60);
  });

  test('ends interruptible containers for a guarantee, where the policy says so', () => {
    const lines = (interruptible: boolean): readonly Line[] => [
      machine(8),
      deploy('long', 'research', { one_task: true, interruptible }),
      deploy('answer', 'shop', { one_task: true }),
      { kind: 'limit', workspace: 'shop', guaranteed: { H100: 2 } },
      task(0, 'long', 3600, { count: 8 }),
      task(1000, 'answer', 100, { count: 2 }),
      end(9000),
    ];
    const run = (policy: Policy, interruptible = true): PolicyResult => simulated(lines(interruptible), policy);
    const reclaimed = run('share+reserve+reclaim');
    // Five seconds until the claim, and twenty of notice.
    expect(workspaceOf(reclaimed, 'shop').wait_seconds.most).toBeGreaterThanOrEqual(25);
    expect(workspaceOf(reclaimed, 'shop').wait_seconds.most).toBeLessThan(60);
    const { preempted, lost_seconds, finished } = workspaceOf(reclaimed, 'research');
    expect(preempted).toBe(2);
    expect(lost_seconds).toBeGreaterThan(2 * 1020);
    expect(lost_seconds).toBeLessThan(2 * 1060);
    // The tasks that were given back ran once more, and to their end.
    expect(finished).toBe(8);
    for (const result of [run('share+reserve'), run('share+reserve+reclaim', false)]) {
      expect(workspaceOf(result, 'shop').wait_seconds.most).toBe(2600);
      expect(result.all).toMatchObject({ preempted: 0, lost_seconds: 0 });
    }
  });

  test('ends a container for a guarantee that is only kept warm, and neither preempts nor loses anything', () => {
    const lines = [
      machine(1),
      { kind: 'limit', workspace: 'research', guaranteed: { H100: 1 } },
      deploy('warm', 'shop', { keep_warm_seconds: 3600 }),
      deploy('wants', 'research'),
      task(0, 'warm', 10),
      task(60, 'wants', 10),
      end(1000),
    ];
    expect(workspaceOf(simulated(lines, 'share'), 'research')).toMatchObject({ unserved: 1 });
    const claimed = simulated(lines, 'share+reserve+reclaim');
    expect(workspaceOf(claimed, 'research').wait_seconds.most).toBeLessThan(20);
    expect(workspaceOf(claimed, 'shop')).toMatchObject({ preempted: 0, lost_seconds: 0, finished: 1 });
  });

  test('leaves a task to its end that was given back three times', () => {
    const lines = [
      machine(1),
      deploy('long', 'research', { one_task: true, interruptible: true }),
      deploy('answer', 'shop', { one_task: true }),
      { kind: 'limit', workspace: 'shop', guaranteed: { H100: 1 } },
      task(0, 'long', 3600),
      ...[1000, 2000, 3000, 4000].map((t) => task(t, 'answer', 10)),
      end(9000),
    ];
    const result = simulated(lines, 'share+reserve+reclaim');
    expect(result.all).toMatchObject({ preempted: 3, finished: 5 });
    // The fourth waits for the end of the long task, which begins for the last time at about 3040.
    expect(workspaceOf(result, 'shop').wait_seconds.most).toBeGreaterThan(2600);
  });

  test('lets a task end that ends within the notice', () => {
    const lines = [
      machine(1),
      deploy('long', 'research', { one_task: true, interruptible: true }),
      deploy('answer', 'shop', { one_task: true }),
      { kind: 'limit', workspace: 'shop', guaranteed: { H100: 1 } },
      task(0, 'long', 30),
      task(10, 'answer', 100),
      end(500),
    ];
    const { all } = simulated(lines, 'share+reserve+reclaim');
    expect(all).toMatchObject({ preempted: 1, lost_seconds: 0, finished: 2, wait_seconds: { most: 20 } });
  });

  test('counts cores where no GPU is asked for', () => {
    const result = simulated([
      { kind: 'machine', machine: 'm', cpus: 4 },
      { kind: 'deploy', deployment: 'd', workspace: 'w', cpus: 2, keep_warm_seconds: 0 },
      task(0, 'd', 100),
      end(100),
    ]);
    expect(result.markets).toMatchObject([{ market: 'cpu', capacity: 4, used: 2, jain_mean: 1 }]);
    expect(workspaceOf(result, 'w')).toMatchObject({ gpu_seconds: 0, core_seconds: 200 });
  });

  test.each<readonly [string, readonly Line[]]>([
    ['there is no deployment d yet', [task(0, 'd', 1)]],
    ['seconds must be there', [deploy('d', 'w'), { t: 0, kind: 'task', deployment: 'd' }]],
    ['machine m is there already', [machine(1), machine(1)]],
    ['there is no machine m', [{ t: 0, kind: 'gone', machine: 'm' }]],
    ['more than 20000 machines', [machine(1, { count: 20_000 }), machine(1, { machine: 'b' })]],
    ['workspace of deployment d is w', [deploy('d', 'w'), deploy('d', 'v')]],
    [
      'more than 5000000 tasks wait',
      [deploy('d', 'w'), ...Array.from({ length: 6 }, () => task(0, 'd', 1, { count: 1e6 }))],
    ],
  ])('refuses lines that do not fit together: %s', (text, lines) => {
    expect(() => simulated(lines)).toThrow(text);
  });
});

describe('waits', () => {
  test('have percentiles, exact where all waits of a step are alike', () => {
    const waits = new Waits();
    for (let n = 0; n < 98; n += 1) waits.add(1000);
    for (const ms of [20_000, 60_000]) waits.add(ms);
    expect(waits.result()).toEqual({ p50: 1, p95: 1, p99: 20, most: 60, mean: 1.78 });
    const sum = new Waits();
    sum.addAll(waits);
    sum.addAll(waits);
    expect(sum.result()).toEqual(waits.result());
    expect(new Waits().result()).toEqual({ p50: 0, p95: 0, p99: 0, most: 0, mean: 0 });
  });
});

describe('one workspace that asks for 20 times its fair share', () => {
  const lines = crowd(12);
  const p95s = ({ workspaces }: PolicyResult): readonly number[] =>
    workspaces
      .flatMap(({ workspace, wait_seconds }) => (workspace === 'w-0' ? [] : wait_seconds.p95))
      .toSorted((a, b) => a - b);

  test('makes others wait by arrival, and not by share', () => {
    const [arrival, share] = [simulated(lines, 'arrival'), simulated(lines, 'share')];
    expect(simulated(lines, 'share')).toEqual(share);
    const [byArrival, byShare] = [p95s(arrival)[49] ?? 0, p95s(share)[49] ?? 0];
    expect(byArrival).toBeGreaterThan(5 * byShare);
    const [worstByArrival, worstByShare] = [arrival, share].map(({ markets }) => markets[0]?.jain_worst ?? 0);
    expect(worstByArrival).toBeLessThan(0.5);
    expect(worstByShare).toBeGreaterThan(0.9);
    expect(share.all.tasks).toBe(arrival.all.tasks);
  });
});
