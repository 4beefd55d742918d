import { pino } from 'pino';
import { expect, test } from 'vitest';
import { DeviceUses } from '#scheduler/fleet/device-use.ts';
import { IDLE_AFTER_MS, GpuMap } from '#scheduler/fleet/gpu-map.ts';
import type { MachineId } from '#shared/domain/ids.ts';

const M = 'm' as MachineId;
const log = pino({ level: 'silent' });

function aWorld() {
  const clock = { now: 1_000_000, nowMs: () => clock.now };
  const uses = new DeviceUses({ redis: undefined, keyOf: (id) => id, clock, log });
  const hear = (permille: number | undefined, uuid = 'GPU-1'): void =>
    uses.heard(M, {
      devices: [{ uuid, ...(permille === undefined ? {} : { utilizationPermille: permille }) }],
    });
  const one = async (uuid = 'GPU-1') => (await uses.of([M])).get(M)?.get(uuid);
  return { clock, uses, hear, one };
}

test('idleness begins with the first low sample, and ends with one that is not', async () => {
  const { clock, hear, one } = aWorld();
  hear(49);
  const began = clock.now;
  for (let n = 0; n < 3; n += 1) {
    clock.now += 30_000;
    hear(0);
  }
  expect(await one()).toMatchObject({ utilizationPct: 0, idleSinceMs: began });
  clock.now += 30_000;
  hear(50);
  expect(await one()).toMatchObject({ utilizationPct: 5, idleSinceMs: null });
  hear(undefined);
  expect(await one()).toMatchObject({ utilizationPct: null, idleSinceMs: null });
});

test('a gap begins the count anew, and old samples are not shown', async () => {
  const { clock, hear, one, uses } = aWorld();
  hear(0);
  clock.now += 91_000;
  expect(await one()).toBeUndefined();
  hear(0);
  expect((await one())?.idleSinceMs).toBe(clock.now);
  uses.forget(M);
  expect(await one()).toBeUndefined();
});

test('a leased GPU is idle after ten minutes of its holder, and a free one never', async () => {
  const { clock, uses, hear } = aWorld();
  const gpu = (uuid: string) => ({ uuid, index: 0, state: 'healthy', unhealthy: false, model: 'T4', parentUuid: '' });
  const machine = {
    row: {
      id: M,
      poolWorkspaceId: null,
      joinedAtMs: 1,
      poolName: 'p',
      hostname: 'h',
      intent: 'active',
      hostDrainUntilMs: null,
      systemCordon: false,
    },
    health: 'READY',
    conditions: [],
    inventory: { gpus: [gpu('GPU-1'), gpu('GPU-2')] },
    orphans: new Map(),
  };
  const row = { id: 'c', state: 'RUNNING', gpuUuids: ['GPU-1'], startedAtMs: clock.now + 60_000, scheduledAtMs: 0 };
  const map = new GpuMap({
    machines: { all: () => [machine] },
    containers: { ofMachine: () => [{ row }] },
    deviceUses: uses,
    clock: { nowMs: () => clock.now, monotonicMs: () => clock.now },
  } as unknown as ConstructorParameters<typeof GpuMap>[0]);
  const idleOf = async () =>
    (await map.list({ workspaceId: null }, {})).map(({ standing, idleSinceMs }) => [standing, idleSinceMs]);
  const until = (ms: number): void => {
    for (; clock.now < ms; clock.now += 30_000)
      uses.heard(M, {
        devices: [
          { uuid: 'GPU-1', utilizationPermille: 3 },
          { uuid: 'GPU-2', utilizationPermille: 0 },
        ],
      });
  };
  hear(0);
  until(1_000_000 + IDLE_AFTER_MS + 30_000);
  // The container has been there for less than ten minutes.
  expect(await idleOf()).toEqual([
    ['leased', null],
    ['free', null],
  ]);
  until(row.startedAtMs + IDLE_AFTER_MS + 30_000);
  expect(await idleOf()).toEqual([
    ['leased', row.startedAtMs],
    ['free', null],
  ]);
});
