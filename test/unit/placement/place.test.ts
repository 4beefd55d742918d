import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import type { PlacementMachine, PlacementRequest } from '#scheduler/placement/filter.ts';
import { gpuMatches, rejectionOf } from '#scheduler/placement/filter.ts';
import { commonest } from '#scheduler/placement/commit.ts';
import { placeContainer } from '#scheduler/placement/place.ts';
import { compareMachines } from '#scheduler/placement/score.ts';

const MIB = 1024 * 1024;
let made = 0;

function aMachine(changes: Partial<PlacementMachine> = {}): PlacementMachine {
  made += 1;
  return {
    machineId: `m-${made}` as MachineId,
    poolName: 'default',
    poolOwner: null,
    ready: true,
    intentActive: true,
    blockedBy: [],
    freeCpuMillicores: 4000,
    freeMemoryBytes: 8192 * MIB,
    totalCpuMillicores: 4000,
    totalMemoryBytes: 8192 * MIB,
    gpus: [],
    images: new Set(),
    siblings: 0,
    ...changes,
  };
}

function aRequest(changes: Partial<PlacementRequest> = {}): PlacementRequest {
  return {
    workspaceId: 'w-1',
    poolName: '',
    cpuMillicores: 1000,
    memoryBytes: 512 * MIB,
    gpu: [],
    gpuCount: 0,
    image: '',
    seed: 'seed',
    ...changes,
  };
}

const gpus = (model: string, free: readonly boolean[], prefix: string) =>
  free.map((isFree, index) => ({ uuid: `${prefix}-${index}`, model, free: isFree }));

const machine: fc.Arbitrary<PlacementMachine> = fc
  .record({
    poolName: fc.constantFrom('default', 'gpu'),
    poolOwner: fc.constantFrom(null, 'w-1', 'w-2'),
    ready: fc.boolean(),
    intentActive: fc.boolean(),
    blockedBy: fc.constantFrom([], ['DockerDown']),
    freeCpuMillicores: fc.integer({ min: -500, max: 4000 }),
    freeMemoryBytes: fc.integer({ min: -10, max: 2048 }).map((mib) => mib * MIB),
    gpus: fc.array(
      fc.record({ model: fc.constantFrom('NVIDIA A10G', 'NVIDIA H100-80', 'Tesla T4'), free: fc.boolean() }),
      {
        maxLength: 5,
      },
    ),
    siblings: fc.nat({ max: 3 }),
    hasImage: fc.boolean(),
  })
  .map(({ hasImage, ...rest }) => ({
    ...rest,
    machineId: '' as MachineId,
    totalCpuMillicores: 4000,
    totalMemoryBytes: 2048 * MIB,
    images: new Set(hasImage ? ['img'] : []),
    gpus: rest.gpus.map((gpu, index) => ({ ...gpu, uuid: `${index}` })),
  }));
const machines = fc.array(machine, { maxLength: 8 }).map((list) =>
  list.map((one, index) => ({
    ...one,
    machineId: `m-${index}` as MachineId,
    gpus: one.gpus.map((gpu) => ({ ...gpu, uuid: `m-${index}-${gpu.uuid}` })),
  })),
);
const request: fc.Arbitrary<PlacementRequest> = fc
  .record({
    workspaceId: fc.constantFrom('w-1', 'w-2'),
    poolName: fc.constantFrom('', 'gpu'),
    cpuMillicores: fc.integer({ min: 1, max: 3000 }),
    memoryBytes: fc.integer({ min: 1, max: 1024 }).map((mib) => mib * MIB),
    gpu: fc.constantFrom<readonly string[]>([], ['A10G'], ['H100', 'A10G'], ['any']),
    gpuCount: fc.nat({ max: 3 }),
    image: fc.constantFrom('', 'img'),
    seed: fc.string({ maxLength: 8 }),
  })
  .map((one) => (one.gpu.length === 0 ? { ...one, gpuCount: 0 } : one));
const runs = { numRuns: 10_000 };

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
        expect(chosen.freeCpuMillicores).toBeGreaterThanOrEqual(wanted.cpuMillicores);
        expect(chosen.freeMemoryBytes).toBeGreaterThanOrEqual(wanted.memoryBytes);
        expect(placement.gpuUuids).toHaveLength(wanted.gpuCount);
        expect(new Set(placement.gpuUuids).size).toBe(wanted.gpuCount);
        for (const uuid of placement.gpuUuids) {
          const gpu = chosen.gpus.find((one) => one.uuid === uuid);
          expect(gpu?.free).toBe(true);
          expect(gpuMatches(gpu?.model ?? '', wanted.gpu)).toBe(true);
        }
      }),
      runs,
    );
  });

  test('every machine is either rejected for one counted reason or could have taken it', () => {
    fc.assert(
      fc.property(request, machines, (wanted, list) => {
        const placement = placeContainer(wanted, list);
        const counted = Object.values(placement.rejections).reduce((sum, count) => sum + count, 0);
        const fitting = list.filter((one) => rejectionOf(one, wanted) === undefined);
        expect(counted + fitting.length).toBe(list.length);
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
      { numRuns: 2000 },
    );
  });
});

describe('why a machine is rejected', () => {
  const t4 = gpus('Tesla T4', [true, false], 'g');
  test.each([
    ['no_matching_pool', aMachine({ poolOwner: 'w-2' }), aRequest()],
    ['no_matching_pool', aMachine(), aRequest({ poolName: 'gpu' })],
    ['machine_not_ready', aMachine({ ready: false }), aRequest()],
    ['cordoned', aMachine({ intentActive: false }), aRequest()],
    ['condition', aMachine({ blockedBy: ['DiskPressure'] }), aRequest()],
    ['gpu_model', aMachine({ gpus: t4 }), aRequest({ gpu: ['A10G'], gpuCount: 1 })],
    ['gpu_count', aMachine({ gpus: t4 }), aRequest({ gpu: ['T4'], gpuCount: 2 })],
    ['cpu', aMachine({ freeCpuMillicores: 999 }), aRequest()],
    ['memory', aMachine({ freeMemoryBytes: 511 * MIB }), aRequest()],
    [undefined, aMachine({ freeCpuMillicores: 1000, freeMemoryBytes: 512 * MIB }), aRequest()],
  ] as const)('%s', (reason, given, wanted) => {
    expect(rejectionOf(given, wanted)).toBe(reason);
  });

  test('the reason most machines gave is the one shown', () => {
    const list = [aMachine({ ready: false }), aMachine({ freeMemoryBytes: 0 }), aMachine({ freeMemoryBytes: 0 })];
    const { rejections } = placeContainer(aRequest(), list);
    expect(rejections).toEqual({ machine_not_ready: 1, memory: 2 });
    expect(commonest(rejections)).toBe('memory');
    expect(commonest(placeContainer(aRequest(), []).rejections)).toBe('no_machine');
  });
});

describe('which machine is better', () => {
  const chosen = (wanted: PlacementRequest, ...list: PlacementMachine[]): MachineId | undefined => {
    const placement = placeContainer(wanted, list);
    return placement.kind === 'placed' ? placement.machineId : undefined;
  };

  test('the model named first, also where a machine has one of it but not as many as are asked for', () => {
    const few = aMachine({ gpus: [...gpus('NVIDIA H100', [true], 'h'), ...gpus('NVIDIA A10G', [true], 'a')] });
    const enough = aMachine({ gpus: gpus('NVIDIA H100', [true, true, true], 'hh'), siblings: 3 });
    expect(chosen(aRequest({ gpu: ['H100', 'A10G'], gpuCount: 2 }), few, enough)).toBe(enough.machineId);
  });

  test('the workspace’s own pool before a shared one', () => {
    const own = aMachine({ poolOwner: 'w-1', siblings: 2 });
    expect(chosen(aRequest(), aMachine(), own)).toBe(own.machineId);
  });

  test('a machine that holds the image', () => {
    const holds = aMachine({ images: new Set(['img']), siblings: 2 });
    expect(chosen(aRequest({ image: 'img' }), aMachine(), holds)).toBe(holds.machineId);
  });

  test('CPU work stays off GPU machines while another has room', () => {
    const plain = aMachine({ siblings: 3 });
    expect(chosen(aRequest(), aMachine({ gpus: gpus('Tesla T4', [true], 'x') }), plain)).toBe(plain.machineId);
  });

  test('the fuller machine, so that whole ones stay free', () => {
    const fuller = aMachine({ freeMemoryBytes: 1024 * MIB });
    expect(chosen(aRequest(), aMachine(), fuller)).toBe(fuller.machineId);
  });
});

test.each([
  ['NVIDIA A10G', ['a10g'], true],
  ['NVIDIA A10G', ['A10'], false],
  ['NVIDIA A100-SXM4-80GB', ['A100'], true],
  ['Tesla T4', ['any'], true],
  ['Tesla T4', ['L4', 'T4'], true],
  ['Tesla T4', [], false],
])('%s matches %j: %s', (model, wanted, matches) => {
  expect(gpuMatches(model, wanted)).toBe(matches);
});
