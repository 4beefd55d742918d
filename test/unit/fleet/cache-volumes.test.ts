import { expect, test } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { CacheVolumes } from '#scheduler/fleet/cache-volumes.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import { cachesOf } from '#scheduler/fleet/machine.ts';
import type { Queryable } from '#scheduler/stores/store/db.ts';

const log = createLog({ name: 'test', level: 'silent' });
const aMachine = (id: string, volumeIds: readonly string[], sessionId: string | undefined = 's'): Machine =>
  ({
    row: { id },
    sessionId,
    inventory: { caches: volumeIds.map((volumeId) => ({ volumeId, workspaceId: 'w', bytes: 1 })) },
  }) as unknown as Machine;

function world(machines: readonly Machine[], query: Queryable['query']) {
  const removed: string[] = [];
  const published: unknown[] = [];
  const handlers: ((message: unknown) => void)[] = [];
  const caches = new CacheVolumes({
    db: { query },
    machines: { all: () => machines },
    bus: {
      on: (_channel, handler) => void handlers.push(handler),
      publish: (_channel, message) => void published.push(message),
    },
    channel: 'deleted',
    log,
  });
  caches.onRemove((machineId, ids) => removed.push(`${machineId} ${ids.join()}`) > 0);
  const hear = (message: unknown): void => handlers.forEach((handler) => handler(message));
  return { caches, removed, published, hear };
}

const rows = (ids: readonly string[]): Queryable['query'] =>
  (async () => ({ rows: ids.map((id) => ({ id })) })) as unknown as Queryable['query'];

test('a deleted volume leaves the machines that are linked here and have it; other replicas are told', () => {
  const machines = [
    aMachine('here', ['v1', 'v2']),
    aMachine('without', ['v2']),
    { ...aMachine('elsewhere', ['v1']), sessionId: undefined },
  ];
  const { caches, removed, published, hear } = world(machines, rows([]));
  caches.deleted('v1');
  expect([removed, published]).toEqual([['here v1'], ['v1']]);
  hear('v2');
  hear({ odd: true });
  expect([removed, published]).toEqual([['here v1', 'here v2', 'without v2'], ['v1']]);
});

test('a machine that tells a volume without a row removes that alone, and nothing while the database is away', async () => {
  const { caches, removed } = world([], rows(['gone']));
  await caches.told('m' as MachineId, ['there', 'gone']);
  await caches.told('m' as MachineId, []);
  expect(removed).toEqual(['m gone']);
  const away = world([], () => Promise.reject(new Error('no connection')));
  await away.caches.told('m' as MachineId, ['there']);
  expect(away.removed).toEqual([]);
});

test('a report is bounded, and a machine of one workspace speaks for that one alone', () => {
  const volume = (volumeId: string, workspaceId: string, bytes = 1) => ({ volumeId, workspaceId, bytes });
  const told = [
    volume('a', 'w-1'),
    volume('b', 'w-2'),
    volume('../c', 'w-1'),
    volume('d', 'w-1', -1),
    volume('e', 'w-1', Number.NaN),
  ];
  const ids = (owner: string | null, some = told): readonly string[] =>
    cachesOf({ row: { poolWorkspaceId: owner } } as unknown as Machine, some).map(({ volumeId }) => volumeId);
  expect(ids('w-1')).toEqual(['a']);
  expect(ids(null)).toEqual(['a', 'b']);
  expect(
    ids(
      null,
      Array.from({ length: 1_500 }, (_none, at) => volume(`v${at}`, 'w')),
    ),
  ).toHaveLength(1_000);
});
