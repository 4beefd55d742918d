import { describe, expect, test } from 'vitest';
import type { Instance } from '#scheduler/domain/provisioning.ts';
import { comparedWith, MOST_NAMED } from '#scheduler/fleet/provisioning/provider-checks.ts';
import { unknownProvider } from '#scheduler/fleet/provisioning/provider-names.ts';
import { providerViews } from '#scheduler/fleet/provisioning/provider-views.ts';
import type { ProviderFacts } from '#scheduler/fleet/provisioning/provider-views.ts';
import type { ProvisionedRow } from '#scheduler/fleet/provisioning/states.ts';
import { POOL_DEFAULTS } from '#shared/api/pools.ts';
import type { MachineId } from '#shared/domain/ids.ts';

const NOW = 1_800_000_000_000;
const MINUTE = 60_000;

const aRow = (name: string, over: Partial<ProvisionedRow> = {}): ProvisionedRow =>
  ({
    requestId: `r-${name}`,
    instanceId: `i-${name}`,
    machineId: `m-${name}` as MachineId,
    poolId: 1,
    poolName: 'gpu',
    poolWorkspaceId: null,
    provider: 'cloud',
    state: 'joined',
    hourlyCost: null,
    createdAtMs: NOW - 10 * MINUTE,
    endedAtMs: null,
    failures: 0,
    failedAtMs: null,
    failure: null,
    endWhy: null,
    ...over,
  }) as ProvisionedRow;
const anInstance = (name: string, over: Partial<Instance> = {}): Instance => ({
  instanceId: `i-${name}`,
  requestId: `r-${name}`,
  state: 'running',
  address: null,
  hourlyCost: null,
  endsAtMs: null,
  ...over,
});

describe('a listing beside the machines that there should be', () => {
  test('is good when it has them all', () => {
    const compared = comparedWith([anInstance('a'), anInstance('b')], 'cloud', [aRow('a'), aRow('b')], NOW);
    expect(compared).toMatchObject({ problem: null, cure: '', missing: [] });
    expect(compared.listed.map(({ machineId }) => machineId)).toEqual(['m-a', 'm-b']);
  });

  test('that leaves out the instance of a machine is a problem', () => {
    const compared = comparedWith(
      [anInstance('a')],
      'cloud',
      [aRow('a'), aRow('b'), aRow('c', { state: 'created' })],
      NOW,
    );
    expect(compared.problem).toMatch(/^list leaves out 2 of the instances/);
    expect(compared.cure).not.toBe('');
    expect(compared.missing).toEqual(
      ['b', 'c'].map((name) => ({ machineId: `m-${name}`, poolName: 'gpu', instanceId: `i-${name}` })),
    );
  });

  test('may lack an instance that was just made, one that was never told, and those that end', () => {
    const rows = [
      aRow('young', { createdAtMs: NOW - MINUTE }),
      aRow('asked', { state: 'creating', instanceId: null, createdAtMs: null }),
      aRow('ending', { state: 'terminating' }),
      aRow('over', { state: 'gone', endedAtMs: NOW - 30 * MINUTE }),
    ];
    expect(comparedWith([], 'cloud', rows, NOW)).toMatchObject({ problem: null, missing: [] });
  });

  test('names instances without a machine first, but for one that has just ended', () => {
    const rows = [aRow('a'), aRow('over', { state: 'gone', endedAtMs: NOW - MINUTE })];
    const instances = [anInstance('a'), anInstance('over'), anInstance('x'), anInstance('twin', { requestId: 'r-a' })];
    expect(
      comparedWith(instances, 'cloud', rows, NOW).listed.map(({ instanceId, machineId }) => [instanceId, machineId]),
    ).toEqual([
      ['i-x', null],
      ['i-twin', null],
      ['i-a', 'm-a'],
      ['i-over', 'm-over'],
    ]);
  });

  test('tells machines of another provider of the same account, and misses none of them', () => {
    const rows = [
      aRow('a'),
      aRow('b', { provider: 'big' }),
      aRow('c', { provider: 'big' }),
      aRow('over', { provider: 'big', state: 'gone', endedAtMs: NOW - MINUTE }),
      aRow('old', { provider: 'big', state: 'gone', endedAtMs: NOW - 30 * MINUTE }),
    ];
    const compared = comparedWith(
      ['a', 'b', 'over', 'old'].map((name) => anInstance(name)),
      'cloud',
      rows,
      NOW,
    );
    expect(compared.listed.map(({ instanceId, machineId }) => [instanceId, machineId])).toEqual([
      ['i-old', null],
      ['i-a', 'm-a'],
      ['i-b', 'm-b'],
      ['i-over', 'm-over'],
    ]);
    expect(compared).toMatchObject({ problem: null, missing: [] });
  });

  test('is named in bounds', () => {
    const names = Array.from({ length: MOST_NAMED + 5 }, (_, n) => String(n));
    const instances = names.map((name) => anInstance(name));
    expect(comparedWith(instances, 'cloud', [], NOW).listed).toHaveLength(MOST_NAMED);
    const compared = comparedWith(
      [],
      'cloud',
      names.map((name) => aRow(name)),
      NOW,
    );
    expect(compared.missing).toHaveLength(MOST_NAMED);
    expect(compared.problem).toContain(String(names.length));
  });
});

describe('the view of providers', () => {
  const aPool = (id: number, name: string, provider: string) => ({
    id,
    name,
    workspaceId: null,
    settings: { ...POOL_DEFAULTS, provider },
    declaredIn: null,
    createdAtMs: 0,
  });
  const settings = { command: ['/cloud', 'secret'], timeoutSeconds: 60, env: {} };
  const viewsOf = (over: Partial<ProviderFacts>) =>
    providerViews({ configured: new Map([['cloud', settings]]), pools: [], rows: [], calls: [], nowMs: NOW, ...over });

  test('has those of the file, those that pools name, and those that have machines', () => {
    const views = viewsOf({ pools: [aPool(1, 'gpu', 'gone')], rows: [aRow('a', { provider: 'old', poolId: 2 })] });
    expect(views.map(({ name, settings: known }) => [name, known !== null])).toEqual([
      ['cloud', true],
      ['gone', false],
      ['old', false],
    ]);
  });

  test('counts machines by where they are, and pools that have them although they name another provider', () => {
    const rows = [
      aRow('a', { hourlyCost: 2 }),
      aRow('b', { state: 'creating' }),
      aRow('c', { state: 'leaving' }),
      aRow('d', { state: 'gone', endedAtMs: NOW }),
      aRow('e', { poolId: 2, poolName: 'moved', hourlyCost: 0.5 }),
    ];
    const [view] = viewsOf({ pools: [aPool(1, 'gpu', 'cloud')], rows });
    expect(view).toMatchObject({ machines: { pending: 1, joined: 2, leaving: 1 }, hourlyCost: 2.5, poolCount: 2 });
    expect(view?.pools.map(({ name, machines }) => [name, machines])).toEqual([
      ['gpu', 3],
      ['moved', 1],
    ]);
  });

  test('has the back-off of each pool while it lasts', () => {
    const failed = {
      state: 'creating',
      failures: 1,
      failedAtMs: NOW - 1000,
      failure: 'quota',
      createdAtMs: null,
    } as const;
    const of = (over: Partial<ProvisionedRow>) =>
      viewsOf({ pools: [aPool(1, 'gpu', 'cloud')], rows: [aRow('a', { ...failed, ...over })] })[0]?.pools[0];
    expect(of({})).toMatchObject({ backOffUntilMs: NOW + 4000, failure: 'quota' });
    expect(of({ failedAtMs: NOW - MINUTE })).toMatchObject({ backOffUntilMs: null, failure: null });
  });
});

test('the sentence about an unknown provider names those that there are, in bounds', () => {
  expect(unknownProvider('clod', [])).toMatch(/of this scheduler names none$/);
  expect(unknownProvider('clod', ['b', 'a'])).toMatch(/names a, b$/);
  expect(
    unknownProvider(
      'clod',
      Array.from({ length: 22 }, (_, n) => `p${n}`),
    ),
  ).toMatch(/ and 2 more$/);
});
