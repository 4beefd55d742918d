import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import type { PlacementGpu, PlacementMachine, PlacementRequest } from '#scheduler/control/plan/filter.ts';
import { gpuMatches } from '#shared/domain/gpu-terms.ts';
import { rejectionOf } from '#scheduler/control/plan/filter.ts';
import { placeContainer } from '#scheduler/control/plan/place.ts';
import { compareMachines } from '#scheduler/control/plan/score.ts';
import { commonest, giveUpReason } from '#scheduler/control/placement/waiting.ts';
import { stories } from '../../helpers/stories.ts';
import { aMachine, aRequest, gpus, ids, machines, machine, MIB, request } from './made.ts';

const runs = { numRuns: stories(2500) };

describe('whatever the machines', () => {
  test('a placement fits: capacity, health, pool, and GPUs that are free, distinct and of one machine', () => {
    fc.assert(
      fc.property(request, machines, (wanted, list) => {
        const placement = placeContainer(wanted, list);
        if (placement.kind !== 'placed') return;
        const chosen = list.find((one) => one.machineId === placement.machineId);
        if (chosen === undefined) throw new Error('placed on a machine that was not offered');
        expect(chosen.ready && chosen.intentActive && chosen.blockedBy.length === 0).toBe(true);
        expect([null, wanted.workspaceId]).toContain(chosen.poolOwner);
        if (wanted.poolName !== '') expect(chosen.poolName).toBe(wanted.poolName);
        for (const home of wanted.volumeHomes) expect(chosen.machineId).toBe(home);
        expect(wanted.overQuota || wanted.avoid.has(chosen.machineId)).toBe(false);
        if (wanted.gpuCount === 0 && chosen.gpus.length > 0) expect(chosen.cpuWorkAllowed).toBe(true);
        expect(chosen.freeCpuMillicores).toBeGreaterThanOrEqual(wanted.cpuMillicores);
        expect(chosen.freeMemoryBytes).toBeGreaterThanOrEqual(wanted.memoryBytes);
        expect(placement.gpuUuids).toHaveLength(wanted.gpuCount);
        expect(new Set(placement.gpuUuids).size).toBe(wanted.gpuCount);
        for (const uuid of placement.gpuUuids) {
          const gpu = chosen.gpus.find((one) => one.uuid === uuid);
          expect(gpu?.free && gpu.healthy).toBe(true);
          expect(gpu && gpuMatches(gpu, chosen.gpuDriver, wanted.gpu)).toBe(true);
        }
      }),
      runs,
    );
  });

  test('every machine of its own or shared pools is either rejected for one counted reason or could have taken it', () => {
    fc.assert(
      fc.property(request, machines, (wanted, list) => {
        const placement = placeContainer(wanted, list);
        const counted = Object.values(placement.rejections).reduce((sum, count) => sum + count, 0);
        const fitting = list.filter((one) => rejectionOf(one, wanted) === undefined);
        const visible = list.filter(({ poolOwner }) => poolOwner === null || poolOwner === wanted.workspaceId);
        expect(counted + fitting.length).toBe(visible.length);
        expect(placement.kind).toBe(fitting.length > 0 ? 'placed' : 'rejected');
      }),
      runs,
    );
  });

  test('the choice does not depend on the order in which machines are looked at', () => {
    fc.assert(
      fc.property(request, machines, (wanted, list) => {
        const one = placeContainer(wanted, list);
        const other = placeContainer(wanted, [...list].reverse());
        expect(other).toEqual(one);
      }),
      runs,
    );
  });

  test('comparing machines is a total order', () => {
    fc.assert(
      fc.property(request, machine, machine, machine, (wanted, a, b, c) => {
        const sign = (x: PlacementMachine, y: PlacementMachine): number => Math.sign(compareMachines(x, y, wanted));
        expect(sign(a, b) + sign(b, a)).toBe(0);
        if (sign(a, b) <= 0 && sign(b, c) <= 0) expect(sign(a, c)).toBeLessThanOrEqual(0);
      }),
      runs,
    );
  });

  test('containers placed one after another never take more than a machine has, nor a GPU twice', () => {
    fc.assert(
      fc.property(fc.array(request, { maxLength: 20 }), machines, (requests, list) => {
        let world = list;
        const leased = new Set<string>();
        for (const wanted of requests) {
          const placement = placeContainer(wanted, world);
          if (placement.kind === 'rejected') continue;
          for (const uuid of placement.gpuUuids) {
            expect(leased.has(uuid)).toBe(false);
            leased.add(uuid);
          }
          world = world.map((one) =>
            one.machineId === placement.machineId
              ? {
                  ...one,
                  freeCpuMillicores: one.freeCpuMillicores - wanted.cpuMillicores,
                  freeMemoryBytes: one.freeMemoryBytes - wanted.memoryBytes,
                  gpus: one.gpus.map((gpu) => (leased.has(gpu.uuid) ? { ...gpu, free: false } : gpu)),
                }
              : one,
          );
        }
        for (const [index, one] of world.entries()) {
          expect(one.freeCpuMillicores).toBeGreaterThanOrEqual(Math.min(0, list[index]?.freeCpuMillicores ?? 0));
          expect(one.freeMemoryBytes).toBeGreaterThanOrEqual(Math.min(0, list[index]?.freeMemoryBytes ?? 0));
        }
      }),
      { numRuns: stories(1000) },
    );
  });
});

describe('why a machine is rejected', () => {
  const t4 = gpus('T4', [true, false], 'g');
  const islands = (...numbers: readonly number[]): PlacementGpu[] =>
    gpus(
      'T4',
      numbers.map(() => true),
      'i',
    ).map((gpu, at) => ({ ...gpu, nvlinkIsland: numbers[at] ?? 0 }));
  const linked = aRequest({ gpu: ['T4'], gpuCount: 2, gpuLink: 'island' });
  const inZoneA = { require: { zone: ['a'] }, forbid: {}, prefer: {}, spread: '' };
  const oneT4 = { gpu: ['T4'], gpuCount: 1 };
  const unhealthy = (gpu: PlacementGpu): PlacementGpu => ({ ...gpu, healthy: false });
  test.each([
    ['no_matching_pool', aMachine({ poolOwner: 'w-2' }), aRequest()],
    ['no_matching_pool', aMachine(), aRequest({ poolName: 'gpu' })],
    ['no_matching_pool', aMachine({ gpus: t4 }), aRequest()],
    ['no_matching_pool', aMachine({ requiresPoolSelector: true }), aRequest()],
    [undefined, aMachine({ requiresPoolSelector: true }), aRequest({ poolName: 'default' })],
    // The machine has more placed on it than it offers now.
    ['cpu', aMachine({ freeCpuMillicores: -1 }), aRequest({ cpuMillicores: 0 })],
    ['machine_not_ready', aMachine({ ready: false }), aRequest()],
    ['cordoned', aMachine({ intentActive: false }), aRequest()],
    ['condition', aMachine({ blockedBy: ['DiskPressure'] }), aRequest()],
    ['gpu_model', aMachine({ gpus: t4 }), aRequest({ gpu: ['A10G'], gpuCount: 1 })],
    ['label', aMachine({ ready: false }), aRequest({ labels: inZoneA })],
    [undefined, aMachine({ labels: { zone: 'a' } }), aRequest({ labels: inZoneA })],
    ['gpu_model', aMachine({ gpus: t4 }), aRequest({ gpu: ['any:cc>=8.9'], gpuCount: 1 })],
    ['gpu_fact_unknown', aMachine({ gpus: t4 }), aRequest({ gpu: ['T4:>=16GiB'], gpuCount: 1 })],
    ['gpu_fact_unknown', aMachine({ gpus: t4, ready: false }), aRequest({ gpu: ['T4:driver>=550'], gpuCount: 1 })],
    [undefined, aMachine({ gpus: t4, gpuDriver: '550.1' }), aRequest({ gpu: ['any:cuda>=12.4'], gpuCount: 1 })],
    ['gpu_link', aMachine({ gpus: islands(1, 2, 0), ready: false }), linked],
    ['gpu_count', aMachine({ gpus: islands(1, 1).map((gpu, at) => ({ ...gpu, free: at === 0 })) }), linked],
    [undefined, aMachine({ gpus: islands(2, 1, 1) }), linked],
    [undefined, aMachine({ gpus: islands(1, 2) }), aRequest({ gpu: ['T4'], gpuCount: 1, gpuLink: 'island' })],
    ['gpu_driver', aMachine({ gpus: t4, gpuDriver: '535.183.01' }), aRequest({ ...oneT4, minCuda: '12.8' })],
    // Lasting reasons come before passing ones: a driver is not upgraded by waiting.
    [
      'gpu_driver',
      aMachine({ gpus: t4, gpuDriver: '535.183.01', ready: false }),
      aRequest({ ...oneT4, minCuda: '12.8' }),
    ],
    [undefined, aMachine({ gpus: t4, gpuDriver: '570.86.15' }), aRequest({ ...oneT4, minCuda: '12.8' })],
    [undefined, aMachine({ gpus: t4, gpuDriver: '' }), aRequest({ ...oneT4, minCuda: '12.8' })],
    [undefined, aMachine({ gpus: t4, gpuDriver: '590.44' }), aRequest({ ...oneT4, minCuda: '13.1' })],
    ['gpu_driver', aMachine({ gpus: t4, gpuDriver: '580.65' }), aRequest({ ...oneT4, minCuda: '13.1' })],
    [undefined, aMachine({ gpuDriver: '535.183.01' }), aRequest({ minCuda: '12.8' })],
    ['base_python', aMachine({ basePythons: ['3.11'], ready: false }), aRequest({ basePython: '3.13' })],
    [undefined, aMachine({ basePythons: ['3.11', '3.13'] }), aRequest({ basePython: '3.13' })],
    [undefined, aMachine({ basePythons: null }), aRequest({ basePython: '3.13' })],
    [undefined, aMachine({ basePythons: ['3.11'] }), aRequest({ basePython: '3' })],
    // A machine that makes its base images and can make none: no version suits, not even the one that nobody named.
    ['base_python', aMachine({ basePythons: [] }), aRequest({ basePython: '3.13' })],
    ['base_python', aMachine({ basePythons: [] }), aRequest({ basePython: '3' })],
    [undefined, aMachine({ basePythons: [] }), aRequest()],
    [undefined, aMachine({ basePythons: ['3.11'] }), aRequest()],
    ['gpu_count', aMachine({ gpus: t4 }), aRequest({ gpu: ['T4'], gpuCount: 2 })],
    ['gpu_count', aMachine({ gpus: t4.map(unhealthy) }), aRequest({ gpu: ['T4'], gpuCount: 1 })],
    ['too_small', aMachine({ totalCpuMillicores: 999 }), aRequest()],
    ['too_small', aMachine({ totalMemoryBytes: 511 * MIB }), aRequest()],
    ['cpu', aMachine({ freeCpuMillicores: 999 }), aRequest()],
    ['memory', aMachine({ freeMemoryBytes: 511 * MIB }), aRequest()],
    ['disk', aMachine({ freeDiskBytes: 9 }), aRequest({ diskBytes: 10 })],
    ['volume', aMachine(), aRequest({ volumeHomes: ids('m-elsewhere') })],
    ['volume', aMachine(), aRequest({ volumeDrivers: ['local', 'shared'] })],
    ['volume', aMachine({ volumeDrivers: new Set(['shared']) }), aRequest({ volumeDrivers: ['local'] })],
    [undefined, aMachine({ volumeDrivers: new Set(['local', 'nfs']) }), aRequest({ volumeDrivers: ['nfs'] })],
    ['volume', aMachine({ volumeDrivers: new Set(['local']) }), aRequest({ volumeDrivers: ['bucket'] })],
    [undefined, aMachine({ volumeDrivers: new Set(['bucket']) }), aRequest({ volumeDrivers: ['bucket'] })],
    ['image_unavailable', aMachine(), aRequest({ imageOnlyOn: ids('m-elsewhere') })],
    [undefined, aMachine(), aRequest({ imageOnlyOn: ids('m-elsewhere'), imageInRegistry: true })],
    [
      'image_unavailable',
      aMachine({ registry: false }),
      aRequest({ imageOnlyOn: ids('m-elsewhere'), imageInRegistry: true }),
    ],
    ['arch', aMachine(), aRequest({ arch: 'arm64' })],
    ['anti_affinity', aMachine({ machineId: 'm-refused' as MachineId }), aRequest({ avoid: ids('m-refused') })],
    ['quota', aMachine(), aRequest({ overQuota: true })],
    [undefined, aMachine({ freeCpuMillicores: 1000, freeMemoryBytes: 512 * MIB }), aRequest()],
    [
      undefined,
      aMachine({ machineId: 'm-code' as MachineId, freeDiskBytes: 9 }),
      aRequest({ diskBytes: 10, siblings: new Map([['m-code' as MachineId, 1]]) }),
    ],
    [undefined, aMachine({ freeDiskBytes: 10, arch: '' }), aRequest({ diskBytes: 10, arch: 'arm64' })],
  ] as const)('%s', (reason, given, wanted) => {
    expect(rejectionOf(given, wanted)).toBe(reason);
  });

  test('machines of other workspaces are not even counted', () => {
    const list = [aMachine({ poolOwner: 'w-2' }), aMachine({ poolOwner: 'w-2', ready: false })];
    expect(placeContainer(aRequest(), list)).toEqual({ kind: 'rejected', rejections: {} });
    const own = aMachine({ poolOwner: 'w-1', freeMemoryBytes: 0 });
    expect(placeContainer(aRequest(), [...list, own]).rejections).toEqual({ memory: 1 });
  });

  test('the reason most machines gave is the one shown', () => {
    const list = [aMachine({ ready: false }), aMachine({ freeMemoryBytes: 0 }), aMachine({ freeMemoryBytes: 0 })];
    const { rejections } = placeContainer(aRequest(), list);
    expect(rejections).toEqual({ machine_not_ready: 1, memory: 2 });
    expect(commonest(rejections)).toBe('memory');
    expect(commonest(placeContainer(aRequest(), []).rejections)).toBe('no_machine');
  });

  test('what a machine that could serve it says is worth more than what those say that never can', () => {
    expect(commonest({ no_matching_pool: 9, volume: 5, memory: 1 })).toBe('memory');
    expect(commonest({ too_small: 3, cordoned: 1 })).toBe('cordoned');
    expect(commonest({ no_matching_pool: 9, gpu_model: 1 })).toBe('gpu_model');
    expect(commonest({ gpu_driver: 9, gpu_count: 1 })).toBe('gpu_count');
    expect(commonest({ no_matching_pool: 9 })).toBe('no_matching_pool');
  });

  test.each([
    [{}, 0, 'no_matching_pool'],
    [{ no_matching_pool: 3 }, 0, 'no_matching_pool'],
    [{ memory: 1, gpu_count: 2 }, 0, 'gpu_unavailable'],
    [{ gpu_model: 4, machine_not_ready: 1 }, 0, 'gpu_unavailable'],
    [{ gpu_driver: 4 }, 0, 'gpu_unavailable'],
    [{ base_python: 4 }, 0, 'image_unavailable'],
    [{ gpu_driver: 4, cordoned: 1 }, 0, 'gpu_unavailable'],
    [{ volume: 4, machine_not_ready: 1 }, 0, 'volume_unavailable'],
    [{ volume: 4, memory: 1 }, 0, 'no_capacity'],
    [{ image_unavailable: 2, condition: 1 }, 0, 'image_unavailable'],
    [{ too_small: 2 }, 0, 'no_capacity'],
    [{ quota: 2 }, 0, 'quota'],
    [{ machine_not_ready: 2 }, 0, 'no_capacity'],
    [{ anti_affinity: 1 }, 1, 'machine_rejected'],
    [{ cpu: 1 }, 3, 'machine_rejected'],
  ])('%j, sent back %i times, gives up with %s', (rejections, times, reason) => {
    expect(giveUpReason(rejections, times)).toBe(reason);
  });
});

describe('which machine is better', () => {
  const chosen = (wanted: PlacementRequest, ...list: PlacementMachine[]): MachineId | undefined => {
    const placement = placeContainer(wanted, list);
    return placement.kind === 'placed' ? placement.machineId : undefined;
  };

  const on = (...pairs: [PlacementMachine, number][]): ReadonlyMap<MachineId, number> =>
    new Map(pairs.map(([machine, count]) => [machine.machineId, count]));

  test('the model named first, also where a machine has one of it but not as many as are asked for', () => {
    const few = aMachine({ gpus: [...gpus('H100', [true], 'h'), ...gpus('A10G', [true], 'a')] });
    const enough = aMachine({ gpus: gpus('H100', [true, true, true], 'hh') });
    const wanted = aRequest({ gpu: ['H100', 'A10G'], gpuCount: 2, siblings: on([enough, 3]) });
    expect(chosen(wanted, few, enough)).toBe(enough.machineId);
  });

  test('the workspace’s own pool before a shared one', () => {
    const own = aMachine({ poolOwner: 'w-1' });
    expect(chosen(aRequest({ siblings: on([own, 2]) }), aMachine(), own)).toBe(own.machineId);
  });

  test('a pool of a higher priority before one that holds the image, not before the preferred model nor the own pool', () => {
    const high = aMachine({ poolPriority: 5, gpus: gpus('T4', [true], 'h') });
    const holds = aMachine({ images: new Set(['img']), gpus: gpus('T4', [true], 'i') });
    const one = { image: 'img', gpuCount: 1 };
    expect(chosen(aRequest({ ...one, gpu: ['T4'] }), holds, high)).toBe(high.machineId);
    const better = aMachine({ gpus: gpus('H100', [true], 'b') });
    expect(chosen(aRequest({ ...one, gpu: ['H100', 'T4'] }), better, high)).toBe(better.machineId);
    const own = aMachine({ poolOwner: 'w-1', gpus: gpus('T4', [true], 'o') });
    expect(chosen(aRequest({ ...one, gpu: ['T4'] }), own, high)).toBe(own.machineId);
  });

  test('a machine whose caches are filled, before one that holds the image, and no longer once it is full', () => {
    const filled = aMachine({ caches: new Set(['v-1', 'v-2']) });
    const holds = aMachine({ images: new Set(['img']), caches: new Set(['v-1']) });
    const one = { image: 'img', caches: ['v-1', 'v-2'], siblings: on([filled, 2]) };
    expect(chosen(aRequest(one), holds, aMachine(), filled)).toBe(filled.machineId);
    expect(chosen(aRequest(one), holds, aMachine(), { ...filled, freeMemoryBytes: 0 })).toBe(holds.machineId);
  });
  test('a machine that holds the image', () => {
    const holds = aMachine({ images: new Set(['img']) });
    expect(chosen(aRequest({ image: 'img', siblings: on([holds, 2]) }), aMachine(), holds)).toBe(holds.machineId);
  });

  test('CPU work stays off GPU machines, unless the pool allows it: then where others have no room', () => {
    const withGpus = aMachine({ gpus: gpus('T4', [true], 'x') });
    expect(chosen(aRequest(), withGpus)).toBeUndefined();
    const allowed = aMachine({ gpus: gpus('T4', [true, false], 'y'), cpuWorkAllowed: true });
    const plain = aMachine();
    expect(chosen(aRequest({ siblings: on([plain, 3]) }), allowed, plain)).toBe(plain.machineId);
    expect(chosen(aRequest(), allowed)).toBe(allowed.machineId);
  });

  test('CPU work leaves each free GPU its share of CPU and memory', () => {
    const machine = aMachine({ gpus: gpus('T4', [true, false], 'z'), cpuWorkAllowed: true });
    expect(rejectionOf(machine, aRequest({ cpuMillicores: 2000 }))).toBeUndefined();
    expect(rejectionOf(machine, aRequest({ cpuMillicores: 2001 }))).toBe('cpu');
    expect(rejectionOf(machine, aRequest({ memoryBytes: 4097 * MIB }))).toBe('memory');
    expect(rejectionOf(machine, aRequest({ cpuMillicores: 4000, gpu: ['T4'], gpuCount: 1 }))).toBeUndefined();
  });

  test('the machine with the fewest GPUs left over', () => {
    const two = aMachine({ gpus: gpus('T4', [true, true], 'two') });
    const one = aMachine({ gpus: gpus('T4', [true, false], 'one') });
    expect(chosen(aRequest({ gpu: ['any'], gpuCount: 1, siblings: on([one, 3]) }), two, one)).toBe(one.machineId);
  });

  test('the fuller machine, so that whole ones stay free', () => {
    const fuller = aMachine({ freeMemoryBytes: 1024 * MIB });
    expect(chosen(aRequest({ siblings: on([fuller, 1]) }), aMachine(), fuller)).toBe(fuller.machineId);
  });

  test('of machines about as full the one with fewer containers of the deployment', () => {
    const [a, b] = [aMachine({ freeMemoryBytes: 8000 * MIB }), aMachine()];
    expect(chosen(aRequest({ siblings: on([a, 1]) }), a, b)).toBe(b.machineId);
    expect(chosen(aRequest({ siblings: on([b, 1]) }), a, b)).toBe(a.machineId);
  });
});

describe('which devices', () => {
  const devices = (...facts: readonly Partial<PlacementGpu>[]): PlacementGpu[] =>
    gpus(
      'A100',
      facts.map(() => true),
      'd',
    ).map((gpu, index) => ({ ...gpu, ...facts[index] }));
  const picked = (count: number, list: readonly PlacementGpu[]): readonly string[] => {
    const placement = placeContainer(aRequest({ gpu: ['A100'], gpuCount: count }), [aMachine({ gpus: list })]);
    return placement.kind === 'placed' ? placement.gpuUuids : [];
  };

  test('several come from one NVLink island, on one NUMA node if it has enough there, else from one node', () => {
    const some = (facts: readonly (readonly [island: number, node: number])[]) =>
      gpus(
        'H100',
        facts.map(() => true),
        'g',
      ).map((gpu, at) => ({ ...gpu, nvlinkIsland: facts[at]?.[0], numaNode: facts[at]?.[1] ?? 0 }));
    const chosen = (facts: readonly (readonly [number, number])[], gpuCount: number) => {
      const placed = placeContainer(aRequest({ gpu: ['H100'], gpuCount }), [aMachine({ gpus: some(facts) })]);
      return placed.kind === 'placed' ? placed.gpuUuids.map((uuid) => Number(uuid.slice(2))) : [];
    };
    expect(
      chosen(
        [
          [1, 0],
          [2, 0],
          [1, 1],
          [2, 1],
        ],
        2,
      ),
    ).toEqual([0, 2]);
    expect(
      chosen(
        [
          [1, 0],
          [1, 1],
          [1, 0],
          [1, 1],
        ],
        2,
      ),
    ).toEqual([0, 2]);
    expect(
      chosen(
        [
          [0, 0],
          [1, 1],
          [0, 0],
          [1, 2],
        ],
        2,
      ),
    ).toEqual([1, 3]);
    expect(
      chosen(
        [
          [0, 0],
          [0, 1],
          [0, 1],
          [1, 0],
        ],
        2,
      ),
    ).toEqual([0, 3]);
    expect(
      chosen(
        [
          [1, 0],
          [1, 1],
          [2, 1],
          [0, 1],
        ],
        3,
      ),
    ).toEqual([1, 2, 3]);
  });

  test('several come from one NUMA node, the tightest that has enough', () => {
    const list = devices(
      { numaNode: 0 },
      { numaNode: 1 },
      { numaNode: 1 },
      { numaNode: 2 },
      { numaNode: 2 },
      { numaNode: 2 },
    );
    expect(picked(2, list)).toEqual(['d-1', 'd-2']);
    expect(picked(3, list)).toEqual(['d-3', 'd-4', 'd-5']);
    expect(picked(4, list)).toHaveLength(4);
  });

  test('one is the one that rested longest, and a sick one never', () => {
    const list = devices({ leasedAtMs: 9 }, { leasedAtMs: 2 }, { leasedAtMs: 1, healthy: false });
    expect(picked(1, list)).toEqual(['d-1']);
    expect(picked(3, list)).toEqual([]);
  });
});
