// The judgement on containers that ran before an upgrade, with each fault planted, and the command line.
import { describe, expect, test } from 'vitest';
import { parseUpgradeOptions } from '../../../bench/upgrade/options.ts';
import { notRunningOn, notServing, onTwoMachines } from '../../../bench/upgrade/kept.ts';
import type { KeptContainer } from '../../../bench/upgrade/kept.ts';

const aContainer = (fields: Partial<KeptContainer> = {}): KeptContainer => ({
  containerId: 'a',
  dockerId: 'd1',
  startedAt: '10:00',
  machine: 0,
  app: 'kept',
  ...fields,
});

describe('a container that ran before an upgrade', () => {
  test('is well where the engine has the same one since the same time', () => {
    expect(notRunningOn([aContainer()], [aContainer({ containerId: 'b' }), aContainer()])).toEqual([]);
  });

  test.each([
    ['is gone', [], 'not_adopted: a of kept on machine 1 (d1, since 10:00)'],
    ['was replaced', [aContainer({ containerId: 'b' })], 'not_adopted: a of kept'],
    ['was made anew', [aContainer({ dockerId: 'd2' })], 'runs as d2 since 10:00'],
    ['was started again', [aContainer({ startedAt: '10:01' })], 'runs as d1 since 10:01'],
    ['moved', [aContainer({ machine: 1 })], 'restarted: a of kept'],
  ])('is a finding where it %s', (_what, after, text) => {
    expect(notRunningOn([aContainer()], after)).toEqual([expect.stringContaining(text)]);
  });

  test('serves only when it has begun a run of a later request', () => {
    const [a, b] = [aContainer(), aContainer({ containerId: 'b' })];
    const run = (n: number, containerId: string) => ({ n, taskId: String(n), containerId });
    expect(notServing([a, b], [run(7, 'a'), run(7, 'b'), run(8, 'a')], 7)).toEqual([b]);
    expect(notServing([a, b], [run(9, 'b'), run(8, 'a')], 7)).toEqual([]);
  });

  test('may be seen on its own machine alone', () => {
    expect(onTwoMachines([new Set(['a', 'b']), new Set(['c'])])).toEqual([]);
    expect(onTwoMachines([new Set(['a', 'b']), new Set(['b'])])).toEqual([expect.stringContaining('b was seen on')]);
  });
});

describe('the command line of the upgrade', () => {
  test('names the commit', () => {
    expect(parseUpgradeOptions(['--from', 'v1'])).toEqual({
      from: 'v1',
      stores: 'embedded',
      jsonPath: 'bench/results/upgrade.jsonl',
      keepLogsIn: undefined,
    });
  });

  test('may leave out the commit', () => {
    expect(parseUpgradeOptions([]).from).toBeUndefined();
  });

  test.each([
    [['--from', ''], '--from: must name a commit'],
    [['--from', 'v1', '--stores', 'cloud'], '--stores: must be embedded or servers, got "cloud"'],
    [['v1'], 'v1'],
  ])('%j is refused with a sentence that names the option', (args, text) => {
    expect(() => parseUpgradeOptions(args)).toThrow(text);
  });
});
