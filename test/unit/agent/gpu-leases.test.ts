import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { LeaseOwner } from '../../../agent/devices/leases.ts';
import { conflicts, leaseRefusal } from '../../../agent/devices/leases.ts';

const leaseOwner = (containerId: string, ...gpuUuids: string[]): LeaseOwner => ({
  containerId,
  epoch: 1,
  dockerId: undefined,
  gpuUuids,
});
const healthy = { state: 'healthy', why: '', sharesWith: [] as string[] };

describe('a lease is refused', () => {
  const wants = (...gpuUuids: string[]) => ({ containerId: 'c1', epoch: 2, gpuUuids });

  test.each([
    ['of a device that another container has', wants('GPU-1'), [leaseOwner('c2', 'GPU-1')], healthy, 'gpu_leased'],
    ['of a device that its own older epoch has', wants('GPU-1'), [leaseOwner('c1', 'GPU-1')], healthy, 'gpu_leased'],
    ['of one device twice', wants('GPU-1', 'GPU-1'), [], healthy, 'gpu_conflict'],
    ['of a device that is not here', wants('GPU-1'), [], undefined, 'gpu_unknown'],
    ['of a device that is not healthy', wants('GPU-1'), [], { ...healthy, state: 'suspect' }, 'gpu_not_healthy'],
    [
      'of a slice while the whole is leased',
      wants('MIG-1'),
      [leaseOwner('c2', 'GPU-1')],
      { ...healthy, sharesWith: ['GPU-1'] },
      'gpu_leased',
    ],
    ['of anything by its index', wants('0'), [], healthy, 'gpu_unknown'],
    ['of all devices', wants('all'), [], healthy, 'gpu_unknown'],
  ])('%s', (_what, wanted, leaseOwners, device, reason) => {
    expect(leaseRefusal(wanted, leaseOwners, () => device)?.reason).toBe(reason);
  });

  test('of none that is free, nor to whoever has it already', () => {
    expect(leaseRefusal(wants('GPU-1'), [leaseOwner('c2', 'GPU-2')], () => healthy)).toBeUndefined();
    expect(leaseRefusal({ ...wants('GPU-1'), epoch: 1 }, [leaseOwner('c1', 'GPU-1')], () => healthy)).toBeUndefined();
  });
});

test('whatever is asked for in whatever order, no device is granted to two', () => {
  const asks = fc.array(
    fc.record({
      container: fc.nat({ max: 5 }),
      epoch: fc.nat({ max: 2 }),
      gpus: fc.uniqueArray(fc.nat({ max: 3 }), { maxLength: 3 }),
      ends: fc.boolean(),
    }),
    { maxLength: 30 },
  );
  fc.assert(
    fc.property(asks, (all) => {
      const leaseOwners = new Map<string, LeaseOwner>();
      for (const { container, epoch, gpus, ends } of all) {
        const wanted = { containerId: `c${container}`, epoch, gpuUuids: gpus.map((gpu) => `GPU-${gpu}`) };
        const key = `${container} ${epoch}`;
        if (ends) leaseOwners.delete(key);
        else if (!leaseOwners.has(key) && leaseRefusal(wanted, leaseOwners.values(), () => healthy) === undefined)
          leaseOwners.set(key, { ...wanted, dockerId: undefined });
        expect([...conflicts(leaseOwners.values())]).toEqual([]);
      }
    }),
    { numRuns: 2000 },
  );
});

test('containers that claim one device lose all of theirs to everybody else', () => {
  expect(
    conflicts([leaseOwner('a', 'GPU-1', 'GPU-2'), leaseOwner('b', 'GPU-2', 'GPU-3'), leaseOwner('c', 'GPU-4')]),
  ).toEqual(new Set(['GPU-1', 'GPU-2', 'GPU-3']));
});
