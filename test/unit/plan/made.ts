// Machines and requests for tests of placement, made up one by one or at random.
import fc from 'fast-check';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { GpuLink } from '#shared/domain/gpu-terms.ts';
import type { LabelRules, Labels } from '#shared/domain/labels.ts';
import type { VolumeDriverName } from '#shared/domain/volume-drivers.ts';
import type { Wanted } from '#scheduler/control/plan/fit-class.ts';
import { PLAIN_MACHINE, PLAIN_WANTED } from '#scheduler/control/simulator/plain.ts';
import type { PlacementGpu, PlacementMachine, PlacementRequest } from '#scheduler/control/plan/filter.ts';

export const MIB = 1024 * 1024;
let made = 0;

export function aMachine(changes: Partial<PlacementMachine> = {}): PlacementMachine {
  made += 1;
  return {
    ...PLAIN_MACHINE,
    machineId: `m-${made}` as MachineId,
    freeCpuMillicores: 4000,
    freeMemoryBytes: 8192 * MIB,
    totalCpuMillicores: 4000,
    totalMemoryBytes: 8192 * MIB,
    gpus: [],
    ...changes,
  };
}

export function aRequest(changes: Partial<PlacementRequest> = {}): PlacementRequest {
  return {
    workspaceId: 'w-1',
    poolName: '',
    cpuMillicores: 1000,
    memoryBytes: 512 * MIB,
    gpu: [],
    gpuCount: 0,
    minCuda: '',
    basePython: '',
    image: '',
    diskBytes: 0,
    imageOnlyOn: null,
    imageInRegistry: false,
    arch: '',
    volumeHomes: new Set(),
    volumeDrivers: [],
    caches: [],
    avoid: new Set(),
    overQuota: false,
    fullMarkets: new Set(),
    siblings: new Map(),
    seed: 'seed',
    ...changes,
  };
}

/** A container that waits, younger than those made before. */
export const aWanted = (changes: Partial<Wanted> = {}): Wanted => ({
  ...PLAIN_WANTED,
  id: `c-${(made += 1)}` as ContainerId,
  workspaceId: 'w-1' as WorkspaceId,
  queue: 'q-1' as QueueName,
  createdAtMs: made,
  cpuMillicores: 1000,
  memoryBytes: 512 * MIB,
  gpu: [],
  gpuCount: 0,
  ...changes,
});

export const gpus = (model: string, free: readonly boolean[], prefix: string) =>
  free.map((isFree, index): PlacementGpu => ({
    uuid: `${prefix}-${index}`,
    model,
    free: isFree,
    healthy: true,
    numaNode: 0,
    leasedAtMs: 0,
  }));

export const ids = (...some: string[]): ReadonlySet<MachineId> => new Set(some as MachineId[]);

export const machine: fc.Arbitrary<PlacementMachine> = fc
  .record({
    poolName: fc.constantFrom('default', 'gpu'),
    poolOwner: fc.constantFrom(null, 'w-1', 'w-2'),
    requiresPoolSelector: fc.constantFrom(false, false, true),
    poolPriority: fc.constantFrom(0, 0, 5),
    cpuWorkAllowed: fc.boolean(),
    arch: fc.constantFrom('x86_64', 'arm64'),
    gpuDriver: fc.constantFrom('', '535.183.01', '570.86.15'),
    basePythons: fc.constantFrom(null, [], ['3.11'], ['3.11', '3.13']),
    freeDiskBytes: fc.constantFrom(null, 0, 100 * MIB),
    isPresent: fc.boolean(),
    ready: fc.boolean(),
    intentActive: fc.boolean(),
    blockedBy: fc.constantFrom([], ['DockerDown']),
    freeCpuMillicores: fc.integer({ min: -500, max: 4000 }),
    freeMemoryBytes: fc.integer({ min: -10, max: 2048 }).map((mib) => mib * MIB),
    gpus: fc.array(
      fc.record({
        model: fc.constantFrom('A10G', 'H100', 'T4'),
        memoryBytes: fc.constantFrom(0, 15_360 * MIB, 23_028 * MIB, 81_559 * MIB),
        computeCap: fc.constantFrom('', '', '9.0'),
        free: fc.boolean(),
        healthy: fc.boolean(),
        numaNode: fc.nat({ max: 1 }),
        nvlinkIsland: fc.nat({ max: 2 }),
        leasedAtMs: fc.nat({ max: 3 }),
      }),
      {
        maxLength: 5,
      },
    ),
    hasImage: fc.boolean(),
    caches: fc.subarray(['c-1', 'c-2']).map((some) => new Set(some)),
    volumeDrivers: fc.subarray(['local', 'shared'] as const).map((some) => new Set<VolumeDriverName>(some)),
    registry: fc.boolean(),
    labels: fc.constantFrom<Labels>({}, {}, { zone: 'a' }, { zone: 'b' }, { zone: 'b', disk: 'nvme' }),
  })
  .map(({ hasImage, ...rest }) => ({
    ...rest,
    machineId: '' as MachineId,
    totalCpuMillicores: 4000,
    totalMemoryBytes: 2048 * MIB,
    images: new Set(hasImage ? ['img'] : []),
    gpus: rest.gpus.map((gpu, index) => ({ ...gpu, uuid: `${index}` })),
  }));
export const named = (list: readonly PlacementMachine[]): PlacementMachine[] =>
  list.map((one, index) => ({
    ...one,
    machineId: `m-${index}` as MachineId,
    gpus: one.gpus.map((gpu) => ({ ...gpu, uuid: `m-${index}-${gpu.uuid}` })),
  }));
export const machines = fc.array(machine, { maxLength: 8 }).map(named);
/** Many machines of few sorts, more than a sample looks at. */
export const manyMachines = fc
  .array(fc.tuple(machine, fc.integer({ min: 1, max: 60 })), { minLength: 1, maxLength: 6 })
  .map((sorts) => named(sorts.flatMap(([one, count]) => Array.from({ length: count }, () => one))));
const NONE = { require: {}, forbid: {}, prefer: {}, spread: '' };
const RULES: readonly LabelRules[] = [
  { ...NONE, require: { zone: ['a', 'b'] } },
  { ...NONE, require: { disk: ['nvme'] }, forbid: { zone: ['a'] } },
  { ...NONE, forbid: { zone: ['b'] }, prefer: { zone: ['a'] } },
  { ...NONE, prefer: { zone: ['b'], disk: ['nvme'] } },
  { ...NONE, prefer: { disk: ['nvme'] }, spread: 'zone' },
  { ...NONE, spread: 'zone' },
];
export const request: fc.Arbitrary<PlacementRequest> = fc
  .record({
    workspaceId: fc.constantFrom('w-1', 'w-2'),
    poolName: fc.constantFrom('', 'gpu'),
    cpuMillicores: fc.integer({ min: 1, max: 3000 }),
    memoryBytes: fc.integer({ min: 1, max: 1024 }).map((mib) => mib * MIB),
    gpu: fc.constantFrom<readonly string[]>(
      [],
      ['A10G'],
      ['H100', 'A10G'],
      ['any'],
      ['H100:>=80GiB', 'any:>=24GiB'],
      ['any:cc>=8.9', 'T4'],
      ['any:driver>=550', 'A10G:cuda>=12.2'],
    ),
    gpuCount: fc.nat({ max: 3 }),
    gpuLink: fc.constantFrom<GpuLink | undefined>(undefined, undefined, 'island'),
    minCuda: fc.constantFrom('', '', '12.4'),
    basePython: fc.constantFrom('', '', '3', '3.13'),
    image: fc.constantFrom('', 'img'),
    diskBytes: fc.constantFrom(0, 50 * MIB),
    imageOnlyOn: fc.constantFrom<ReadonlySet<MachineId> | null>(null, ids('m-0', 'm-1')),
    imageInRegistry: fc.boolean(),
    arch: fc.constantFrom('', 'x86_64'),
    volumeHomes: fc.constantFrom(ids(), ids(), ids('m-0'), ids('m-0', 'm-1')),
    volumeDrivers: fc.constantFrom<readonly VolumeDriverName[]>([], [], ['local'], ['shared']),
    caches: fc.constantFrom<readonly string[]>([], [], ['c-1'], ['c-1', 'c-2']),
    avoid: fc.constantFrom(ids(), ids('m-1')),
    overQuota: fc.constantFrom(false, false, true),
    fullMarkets: fc.constantFrom<ReadonlySet<string>>(new Set(), new Set(), new Set(['A10G', 'cpu'])),
    siblings: fc.constantFrom(new Map(), new Map([['m-0' as MachineId, 2]])),
    seed: fc.string({ maxLength: 8 }),
    labels: fc.constantFrom<LabelRules | undefined>(undefined, undefined, ...RULES),
    spreadCounts: fc.constantFrom(
      new Map(),
      new Map([['a', 2]]),
      new Map([
        ['a', 1],
        ['b', 3],
        ['', 1],
      ]),
    ),
  })
  .map((one) => (one.labels?.spread === 'zone' ? one : { ...one, spreadCounts: undefined }))
  .map((one) => (one.gpu.length === 0 ? { ...one, gpuCount: 0 } : one));
