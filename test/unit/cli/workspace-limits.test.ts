import { expect, test } from 'vitest';
import { billingText, changeOf, rowsOf } from '../../../cli/commands/workspace-limits.ts';

test('what is set on the command line is sent by group and name', () => {
  expect(changeOf([])).toBeUndefined();
  expect(
    changeOf(['concurrency.gpu_limit=4', 'concurrency.cpu_millicore_limit=default', 'stub.max_replicas=2']),
  ).toEqual({
    concurrency: { gpu_limit: 4, cpu_millicore_limit: null },
    stub: { max_replicas: 2 },
  });
});

test.each(['gpu=4', 'concurrency.gpu_limit', 'concurrency.gpu_limit=-1', 'concurrency.gpu_limit=', 'a.b.c=1'])(
  '%s is no limit and value',
  (said) => {
    expect(() => changeOf([said])).toThrow('GROUP.NAME=NUMBER');
  },
);

test('retention is no limit of a workspace', () => {
  expect(() => changeOf(['retention.tasks_days=5'])).toThrow('LONGSHORE_TASK_DAYS');
  expect(() => changeOf(['timeouts.endpoint_seconds=5'])).toThrow('the same for every workspace');
});

test.each([
  [{ mode: 'prepaid', credits_cents: 1_250 }, 'prepaid, 12.50 available'],
  [{ mode: 'prepaid', credits_cents: -7 }, 'prepaid, -0.07 available'],
  [{ mode: 'postpaid', credits_cents: null }, 'postpaid'],
] as const)('the billing %o is shown as %s', (billing, text) => {
  expect(billingText({ billing })).toBe(text);
});

test('limits are shown by the names they are set by, beside what is used of them', () => {
  const rows = rowsOf({
    concurrency: { gpu_limit: 4, container_limit: null },
    usage: { gpu: 1, containers: 3, volume_bytes: 5_000 },
    timeouts: { endpoint_seconds: 600, task_seconds: null },
    counts: { tokens: { used: 2, limit: 100 } },
    bytes: { queue: { used: 5, limit: 268435456 }, volumes: { used: 5_000, limit: null } },
    retention: { tasks_days: 30 },
  });
  expect(rows).toEqual([
    ['concurrency.gpu_limit', '4', '1'],
    ['concurrency.container_limit', 'none', '3'],
    ['timeouts.endpoint_seconds', '600', ''],
    ['timeouts.task_seconds', 'none', ''],
    ['counts.tokens', '100', '2'],
    ['bytes.queue', '268435456', '5'],
    ['bytes.volumes', 'none', '5000'],
    ['retention.tasks_days', '30', ''],
  ]);
});
