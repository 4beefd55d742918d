import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import type { DeploymentId, ObjectId, WorkspaceId } from '#shared/domain/ids.ts';
import { BoundedMap } from '../../../scheduler/workspaces/deployments/bounded-map.ts';
import { Targets } from '../../../scheduler/workspaces/deployments/targets.ts';
import type { TargetChange } from '../../../scheduler/workspaces/deployments/targets.ts';
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
function aDb() {
  const state = { rows: [aRow()] as unknown[], asked: 0, hold: Promise.resolve() };
  const db: Queryable = {
    query: async <R>() => {
      state.asked++;
      const rows = state.rows as R[];
      await state.hold;
      return { rows, rowCount: rows.length };
    },
  };
  return { state, targets: new Targets({ db, log, maxEntries: 3 }) };
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
