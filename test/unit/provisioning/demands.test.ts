// Containers that ask for machines: in which order, and how many within a limit of their market.
import { expect, test } from 'vitest';
import type { ContainerId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { Demands } from '#scheduler/control/provisioning/demands.ts';
import type { MarketTurn } from '#scheduler/control/plan/markets.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { TestClock } from '../../helpers/test-clock.ts';

/** A container that placement has tried. */
const waits = (id: string, queue: string, createdAtMs: number): ContainerEntry =>
  ({
    row: { id: id as ContainerId, workspaceId: 'w-1' as WorkspaceId, state: 'PENDING', createdAtMs },
    spec: {
      queue: queue as QueueName,
      poolName: '',
      cpuMillicores: 1000,
      memoryBytes: 1,
      gpu: ['H100'],
      gpuCount: 2,
      wire: {},
    },
    refusal: { isKnown: true, count: () => ({}) },
  }) as unknown as ContainerEntry;

const read = async (
  entries: readonly ContainerEntry[],
  turnOf: (entry: ContainerEntry) => MarketTurn,
  follow: Readonly<Record<string, number>> = {},
) => {
  const { demands } = await new Demands({
    containers: { pending: () => entries, all: () => [] },
    clock: new TestClock(),
    volumeHomes: () => Promise.resolve(new Map()),
    quotas: () => Promise.resolve(new Map()),
    followOf: (queue) => follow[queue] ?? 0,
    turnOf,
  }).read();
  return demands.map(({ id, fullIn, count }) => [id, fullIn?.join(), count]);
};

const within = (left: number): MarketTurn => ({
  standing: { tier: 2, share: 0.5 },
  headStartMs: 0,
  limits: [{ market: 'H100', left }],
});

test('a limit leaves room for the first in turn, and for those that follow them', async () => {
  const entries = [waits('c-1', 'q-1', 1), waits('c-2', 'q-2', 2), waits('c-3', 'q-2', 3)];
  expect(await read(entries, () => within(5))).toEqual([
    ['c-1', '', 1],
    ['c-2', '', 1],
    ['c-3', 'H100', 1],
  ]);
  expect(await read(entries, () => within(9), { 'q-1': 10 })).toEqual([
    ['c-1', '', 2],
    ['c-2', '', 1],
    ['c-3', '', 1],
  ]);
  // None follow where one is at the limit.
  expect(await read(entries, () => within(5), { 'q-2': 10 })).toEqual([
    ['c-1', '', 1],
    ['c-2', '', 1],
    ['c-3', 'H100', 1],
  ]);
});

test('a head start is a better place in turn', async () => {
  const turnOf = ({ spec }: ContainerEntry): MarketTurn => ({
    ...within(2),
    headStartMs: spec.queue === ('q-high' as QueueName) ? 900_000 : 0,
  });
  expect(await read([waits('c-1', 'q-1', 1), waits('c-2', 'q-high', 500_000)], turnOf)).toEqual([
    ['c-2', '', 1],
    ['c-1', 'H100', 1],
  ]);
});

test('a limit in one market leaves a container that another will do for', async () => {
  const turnOf = (): MarketTurn => ({ ...within(2), limits: [...within(2).limits, { market: 'A100', left: 4 }] });
  const entries = [1, 2, 3, 4].map((n) => waits(`c-${n}`, 'q-1', n));
  expect((await read(entries, turnOf)).map(([, fullIn]) => fullIn)).toEqual(['', 'H100', 'H100', 'H100,A100']);
});

test('what workspaces with limits hold is counted by one look at all containers', async () => {
  let looks = 0;
  const entries = Array.from({ length: 50 }, (_none, n): ContainerEntry => {
    const entry = waits(`c-${n}`, `q-${n}`, n);
    return { ...entry, row: { ...entry.row, workspaceId: `w-${n % 25}` as WorkspaceId } };
  });
  const holder = { ...entries[0]!, row: { ...entries[0]!.row, state: 'RUNNING' as const } };
  const { held, demands } = await new Demands({
    containers: {
      pending: () => entries,
      all: () => {
        looks += 1;
        return [holder, ...entries];
      },
    },
    clock: new TestClock(),
    volumeHomes: () => Promise.resolve(new Map()),
    quotas: (ids) =>
      Promise.resolve(new Map([...ids].map((id) => [id, { gpus: null, cpuMillicores: null, containers: 1 }]))),
    followOf: () => 3,
  }).read();
  expect(looks).toBe(1);
  // The first workspace has what it may have, and each of the others gets one.
  expect([demands.length, held.get(entries[0]!.row.id), held.get(entries[25]!.row.id)]).toEqual([24, 'quota', 'quota']);
});
