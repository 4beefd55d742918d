// Drivers of the machines that a pool gets, and how many machines an old one costs.
import { expect, test } from 'vitest';
import type { Room } from '#scheduler/control/provisioning/facts.ts';
import { decideCapacity } from '#scheduler/control/provisioning/decide.ts';
import { MadeDrivers, REMEMBERED_MS } from '#scheduler/control/provisioning/made-drivers.ts';
import { aDemand, aPool, aRoom, anOffer } from './facts.ts';

const NOW = 1_000_000;
const HOUR_MS = 3_600_000;
const OLD = '535.183.01';
const driven = (gpuDriver: string | null) => ({ ...anOffer(4, 16, ['T4']), gpuDriver });
const made = (gpuDriver: string, said: Partial<Room> = {}): Room => ({
  ...aRoom({ total: driven(gpuDriver) }),
  ...said,
});

test('the machine that was made last says what the next one will have', () => {
  const drivers = new MadeDrivers();
  expect(drivers.of(1, [], NOW)).toBeNull();
  // A machine admitted by hand, one of an earlier order, and one whose driver is not there yet say nothing.
  expect(drivers.of(1, [made(OLD, { isOrderOfToday: false }), made('')], NOW)).toBeNull();
  expect(drivers.of(1, [made('570.1', { createdAtMs: 1 }), made(OLD, { createdAtMs: 2 })], NOW)).toBe(OLD);
  expect(drivers.of(2, [], NOW)).toBeNull();
  expect(drivers.of(1, [], NOW + REMEMBERED_MS - 1)).toBe(OLD);
  expect(drivers.of(1, [], NOW + REMEMBERED_MS)).toBeNull();
});

test('a change of the pool, or of who leads, forgets it', () => {
  const drivers = new MadeDrivers();
  for (const forget of [() => drivers.delete(1), () => drivers.clear()]) {
    drivers.of(1, [made(OLD)], NOW);
    forget();
    expect(drivers.of(1, [], NOW)).toBeNull();
  }
});

test('a container that needs a newer driver costs a pool one machine a day, and not one after another', () => {
  const drivers = new MadeDrivers();
  let rooms: Room[] = [];
  let grown = 0;
  for (let nowMs = 0; nowMs < 7 * 24 * HOUR_MS; nowMs += HOUR_MS / 12) {
    const offer = driven(drivers.of(1, rooms, nowMs));
    const pool = aPool({ offer, rooms, capacity: { alive: rooms.length } });
    const wants = aDemand({ gpu: ['T4'], gpuCount: 1, minCuda: '12.8', sinceMs: nowMs - HOUR_MS / 2 });
    for (const step of decideCapacity([pool], [wants], nowMs).steps) {
      if (step.kind === 'shrink') rooms = rooms.filter(({ machineId }) => machineId !== step.machineId);
      else {
        grown += 1;
        const times = { createdAtMs: nowMs, offersSinceMs: nowMs, emptySinceMs: nowMs };
        rooms = [...rooms, made(OLD, { machineId: `m-${grown}` as Room['machineId'], ...times })];
      }
    }
  }
  expect(grown).toBeGreaterThan(1);
  expect(grown).toBeLessThanOrEqual(8);
});
