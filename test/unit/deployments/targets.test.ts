import { setImmediate } from 'node:timers/promises';
import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import type { DeploymentId, ObjectId, WorkspaceId } from '#shared/domain/ids.ts';
import { BoundedMap } from '../../../scheduler/workspaces/deployments/bounded-map.ts';
import { Targets } from '../../../scheduler/workspaces/deployments/targets.ts';
import type { TargetChange, TargetsParts } from '../../../scheduler/workspaces/deployments/targets.ts';
import type { Queryable } from '../../../scheduler/stores/store/db.ts';

const log = pino({ level: 'silent' });
const W = 'w' as WorkspaceId;
const D1 = 'd1' as DeploymentId;

const aRow = (said: Record<string, unknown> = {}) => ({
  workspace_id: 'w',
  stub_id: 's1',
  stub_name: 's',
  stub_type: 'endpoint/deployment',
  config: { autoscaler: { minContainers: 0 }, authorized: true },
  object_id: 'o',
  sha256: 'abc',
  size: 3,
  deployment_id: 'd1',
  name: 'hello',
  version: 1,
  active: true,
  scale_min: null,
  scale_max: null,
  ...said,
});

/** A database that answers every statement with `rows`, counts, and waits while it is held. */
function aDb(parts: Partial<TargetsParts> = {}) {
  const state = { rows: [aRow()] as unknown[], asked: 0, hold: Promise.resolve(), fails: false };
  const db: Queryable = {
    query: async <R>() => {
      state.asked++;
      const rows = state.rows as R[];
      await state.hold;
      if (state.fails) throw new Error('the database is away');
      return { rows, rowCount: rows.length };
    },
  };
  return { state, targets: new Targets({ db, log, maxEntries: 3, ...parts }) };
}

/** The same, with a way to hear the messages of other replicas. */
function aHearingDb() {
  const handlers = new Map<string, (id: string) => unknown>();
  const invalidation = {
    isLive: true,
    publish: () => Promise.resolve(true),
    on: (kind: string, handler: (id: string) => unknown) => void handlers.set(kind, handler),
    onReset: () => undefined,
  };
  return {
    ...aDb({ invalidation }),
    tell: (kind: string, id: string) => void handlers.get(kind)?.(id),
    hear: async (kind: string, id: string) => {
      handlers.get(kind)?.(id);
      await setImmediate();
    },
  };
}

describe('what was found once', () => {
  test('is found again without asking, and at once', async () => {
    const { state, targets } = aDb();
    const first = await targets.byName(W, 'endpoint', 'hello', 1);
    const again = targets.byName(W, 'endpoint', 'hello', 1);
    expect(again).toBe(first);
    expect(first).toMatchObject({ deploymentId: 'd1', kind: 'endpoint', sync: true, queue: 'tq-d1', active: true });
    expect(state.asked).toBe(1);
  });

  test('is not confused with another version, name, kind or workspace', async () => {
    const { state, targets } = aDb();
    await targets.byName(W, 'endpoint', 'hello', 1);
    await targets.byName(W, 'endpoint', 'hello', null);
    await targets.byName(W, 'endpoint', 'other', 1);
    await targets.byName(W, 'asgi', 'hello', 1);
    await targets.byName('w2' as WorkspaceId, 'endpoint', 'hello', 1);
    expect(state.asked).toBe(5);
  });

  test('a name that means nothing is asked for again', async () => {
    const { state, targets } = aDb();
    state.rows = [];
    expect(await targets.byName(W, 'endpoint', 'hello', null)).toBeUndefined();
    state.rows = [aRow()];
    expect(await targets.byName(W, 'endpoint', 'hello', null)).toMatchObject({ deploymentId: 'd1' });
  });
});

describe('after a change', () => {
  test('the newest version of a name is asked for again, a version of something else is not', async () => {
    const { state, targets } = aDb();
    await targets.byName(W, 'endpoint', 'hello', null);
    await targets.byName(W, 'endpoint', 'hello', 1);
    state.rows = [aRow({ deployment_id: 'd2', version: 2 })];
    await targets.changed('d2' as DeploymentId);
    const asked = state.asked;
    expect(await targets.byName(W, 'endpoint', 'hello', null)).toMatchObject({ deploymentId: 'd2', version: 2 });
    expect(targets.byName(W, 'endpoint', 'hello', 1)).toMatchObject({ deploymentId: 'd1' });
    expect(state.asked).toBe(asked + 1);
  });

  test('other names, stubs and workspaces are not asked for again, by whatever change', async () => {
    const { state, targets } = aDb({ maxEntries: 10 });
    const ask = async (workspaceId: string, name: string, stub: string) => {
      state.rows = [aRow({ workspace_id: workspaceId, name, deployment_id: `${workspaceId}-${name}`, stub_id: stub })];
      await targets.byName(workspaceId as WorkspaceId, 'endpoint', name, null);
      await targets.byStub(stub);
    };
    await ask('w', 'hello', 's1');
    await ask('w', 'other', 's2');
    await ask('w2', 'hello', 's3');
    state.rows = [aRow({ deployment_id: 'w-hello', active: false })];
    await targets.changed('w-hello' as DeploymentId);
    state.rows = [];
    await targets.changed('w-gone' as DeploymentId);
    targets.codeChanged('another' as ObjectId);
    const asked = state.asked;
    expect(targets.byName(W, 'endpoint', 'other', null)).toMatchObject({ stubId: 's2' });
    expect(targets.byName('w2' as WorkspaceId, 'endpoint', 'hello', null)).toMatchObject({ stubId: 's3' });
    expect([targets.byStub('s2'), targets.byStub('s3')]).toMatchObject([{ stubId: 's2' }, { stubId: 's3' }]);
    expect(state.asked).toBe(asked);
    expect(await targets.byName(W, 'endpoint', 'hello', null)).toBeUndefined();
    expect(await targets.byStub('s1')).toBeUndefined();
  });

  test('of another replica: a deletion is read once and forgets one deployment', async () => {
    const { state, targets, hear } = aHearingDb();
    await targets.start();
    const heard: TargetChange[] = [];
    targets.onChange((change) => heard.push(change));
    await targets.byName(W, 'endpoint', 'hello', 1);
    const asked = state.asked;
    state.rows = [];
    await hear('deployment', 'd9');
    expect(state.asked).toBe(asked + 1);
    expect(heard).toEqual([{ deploymentId: 'd9', target: undefined }]);
    expect(targets.byName(W, 'endpoint', 'hello', 1)).toMatchObject({ deploymentId: 'd1' });
    await hear('code', 'o');
    expect(await targets.byName(W, 'endpoint', 'hello', 1)).toBeUndefined();
  });

  test('of another replica: its name is forgotten before the message is acknowledged, also where a read fails', async () => {
    const { state, targets, tell } = aHearingDb();
    await targets.start();
    await targets.byName(W, 'endpoint', 'hello', null);
    state.rows = [aRow({ deployment_id: 'd2', version: 2, stub_id: 's2' })];
    tell('deployment', 'd2\nw\ns2\nhello');
    expect(await targets.byName(W, 'endpoint', 'hello', null)).toMatchObject({ version: 2 });
    state.fails = true;
    await expect(targets.changed('d3' as DeploymentId)).rejects.toThrow('away');
    state.fails = false;
    state.rows = [aRow({ deployment_id: 'd3', version: 3, stub_id: 's3' })];
    expect(await targets.byName(W, 'endpoint', 'hello', null)).toMatchObject({ version: 3 });
  });

  test('an answer that was under way when it happened is not kept', async () => {
    const { state, targets } = aDb();
    let release = (): void => undefined;
    state.hold = new Promise((resolve) => (release = resolve));
    const early = targets.byName(W, 'endpoint', 'hello', 1);
    state.rows = [aRow({ active: false })];
    const changing = targets.changed(D1);
    release();
    expect(await early).toMatchObject({ active: true });
    await changing;
    expect(await targets.byName(W, 'endpoint', 'hello', 1)).toMatchObject({ active: false });
  });

  test('listeners hear of it with what it is now', async () => {
    const { state, targets } = aDb();
    const heard: TargetChange[] = [];
    const stop = targets.onChange((change) => heard.push(change));
    await targets.changed(D1);
    state.rows = [];
    await targets.changed(D1);
    stop();
    await targets.changed(D1);
    expect(heard.map((change) => change.target?.active)).toEqual([true, undefined]);
  });
});

describe('deployments that want containers without work', () => {
  test('are known from the start, and follow changes', async () => {
    const { state, targets } = aDb();
    const warm = aRow({ config: { autoscaler: { minContainers: 2 } } });
    state.rows = [warm];
    await targets.start();
    expect([...targets.activeTargets()]).toMatchObject([{ deploymentId: 'd1' }]);
    state.rows = [{ ...warm, active: false }];
    await targets.changed(D1);
    expect([...targets.activeTargets()]).toEqual([]);
    state.rows = [aRow({ scale_min: 3, scale_max: 3 })];
    await targets.changed(D1);
    expect([...targets.activeTargets()]).toMatchObject([{ scale: { minContainers: 3, maxContainers: 3 } }]);
  });
});

test('code that was replaced is read anew', async () => {
  const { state, targets } = aDb();
  expect(await targets.byName(W, 'endpoint', 'hello', 1)).toMatchObject({ code: { sha256: 'abc' } });
  state.rows = [aRow({ sha256: 'def' })];
  targets.codeChanged('o' as ObjectId);
  expect(await targets.byName(W, 'endpoint', 'hello', 1)).toMatchObject({ code: { sha256: 'def' } });
});

test('a queue leads to its deployment', async () => {
  const { state, targets } = aDb();
  const target = await targets.byDeployment('d1');
  expect(target?.queue).toBe('tq-d1');
  if (target === undefined) throw new Error('no target');
  expect(await targets.byQueue(target.queue)).toBe(target);
  expect(state.asked).toBe(1);
});

test('while messages do not arrive nothing that is remembered counts', async () => {
  let asked = 0;
  const db: Queryable = {
    query: async <R>() => {
      asked++;
      return { rows: [aRow()] as R[], rowCount: 1 };
    },
  };
  const invalidation = {
    isLive: true,
    publish: () => Promise.resolve(true),
    on: () => undefined,
    onReset: () => undefined,
  };
  const targets = new Targets({ db, log, invalidation });
  await targets.byName(W, 'endpoint', 'hello', 1);
  await targets.byName(W, 'endpoint', 'hello', 1);
  expect(asked).toBe(1);
  invalidation.isLive = false;
  await targets.byName(W, 'endpoint', 'hello', 1);
  expect(asked).toBe(2);
});

test('a bounded map drops what was used longest ago', () => {
  const map = new BoundedMap<string, number>(2);
  map.set('a', 1);
  map.set('b', 2);
  map.get('a');
  map.set('c', 3);
  expect([map.get('a'), map.get('b'), map.get('c'), map.size]).toEqual([1, undefined, 3, 2]);
});

test('a bounded map lists what was used longest ago first, and what was deleted leaves no gap', () => {
  const map = new BoundedMap<string, number>(4);
  for (const [key, value] of [
    ['a', 1],
    ['b', 2],
    ['c', 3],
    ['d', 4],
  ] as const)
    map.set(key, value);
  map.get('b');
  map.set('a', 10);
  expect([map.delete('c'), map.delete('c')]).toEqual([true, false]);
  map.set('e', 5);
  expect([...map]).toEqual([
    ['d', 4],
    ['b', 2],
    ['a', 10],
    ['e', 5],
  ]);
  map.set('f', 6);
  expect([map.get('d'), map.size]).toEqual([undefined, 4]);
  map.clear();
  map.set('g', 7);
  expect([...map]).toEqual([['g', 7]]);
});
