import { mayRunCuda } from '#shared/domain/cuda.ts';
import { gpuLack, gpuMatches, mostLinked } from '#shared/domain/gpu-terms.ts';
import type { GpuFacts, GpuLink } from '#shared/domain/gpu-terms.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import { labelsFit } from '#shared/domain/labels.ts';
import type { LabelRules, Labels } from '#shared/domain/labels.ts';
import type { MountDriverName } from '#shared/domain/volume-drivers.ts';
import type { Market } from '../../domain/shares.ts';
import { CPU_MARKET } from '../../domain/shares.ts';
import { canHavePython } from '../../domain/base-pythons.ts';
import type { BasePythons } from '../../domain/base-pythons.ts';
import { mayUsePool } from '../../domain/pools.ts';

/** Device of a machine, as placement sees it. */
export interface PlacementGpu extends GpuFacts {
  readonly uuid: string;
  /** Whether no container leases the device. */
  readonly free: boolean;
  /** Whether the device is healthy; an unhealthy one is leased to nobody, and never chosen. */
  readonly healthy: boolean;
  readonly numaNode: number;
  /** Time when the device was leased last, as far as this leader knows; 0: never. */
  readonly leasedAtMs: number;
}

/** Machine as placement sees it. Free amounts already leave out the host's reserve and what is placed there. */
export interface PlacementMachine {
  readonly machineId: MachineId;
  readonly poolName: string;
  /** Workspace that owns the pool; null: the pool is shared. */
  readonly poolOwner: string | null;
  /** Whether only work that names the pool goes there. */
  readonly requiresPoolSelector: boolean;
  /** Priority of the pool; pools of a higher one are taken first. */
  readonly poolPriority: number;
  /** Whether the pool lets work without a GPU onto machines that have some. */
  readonly cpuWorkAllowed: boolean;
  /** Whether it talks, or is silent for a moment only: it counts as capacity that workspaces share. */
  readonly isPresent: boolean;
  readonly ready: boolean;
  readonly intentActive: boolean;
  /** Conditions that block placement, e.g. `DockerDown`. */
  readonly blockedBy: readonly string[];
  /** Architecture as the agent spells it; empty: not known. */
  readonly arch: string;
  /** Version of its GPUs' driver; empty: not known. */
  readonly gpuDriver: string;
  readonly basePythons: BasePythons;
  readonly freeCpuMillicores: number;
  readonly freeMemoryBytes: number;
  readonly totalCpuMillicores: number;
  readonly totalMemoryBytes: number;
  /** Free bytes of disk; null: not known, and not judged. */
  readonly freeDiskBytes: number | null;
  readonly gpus: readonly PlacementGpu[];
  /** Drivers of volumes that can be mounted there now. */
  readonly volumeDrivers: ReadonlySet<MountDriverName>;
  /** Whether its agent pulls images from the managed registry. */
  readonly registry: boolean;
  /** Absent: none. */
  readonly labels?: Labels;
  /** Image references known to be there. */
  readonly images: ReadonlySet<string>;
  /** Cache volumes that hold something there, by their ids. */
  readonly caches: ReadonlySet<string>;
}

export interface PlacementRequest {
  readonly workspaceId: string;
  /** Pool that the app names; empty: any pool the workspace may use. */
  readonly poolName: string;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  /** Bytes of code for a machine that has no container of the deployment yet. */
  readonly diskBytes: number;
  /** GPU terms in order of preference, such as `H100` or `any:>=40GiB`. Empty: none. */
  readonly gpu: readonly string[];
  readonly gpuCount: number;
  /** How its GPUs must be linked; absent: anyhow. */
  readonly gpuLink?: GpuLink | undefined;
  /** Least CUDA version that the machine's driver must run, such as `12.8`; empty: any. */
  readonly minCuda: string;
  /** Base image that it runs in, as `wantedPython` gives it; empty: it has an image of its own. */
  readonly basePython: string;
  readonly image: string;
  /** Machines that have the image, which was built there. null: it was not built here, and any machine can get it. */
  readonly imageOnlyOn: ReadonlySet<MachineId> | null;
  /** Whether the other machines can pull that image from the managed registry. */
  readonly imageInRegistry: boolean;
  /** Architecture that the work needs; empty: any. */
  readonly arch: string;
  /** Machines with the directories of the local volumes it mounts; more than one: no machine can serve it. */
  readonly volumeHomes: ReadonlySet<MachineId>;
  /** Cache volumes that it mounts, by their ids. */
  readonly caches: readonly string[];
  /** Drivers of the volumes that it mounts. */
  readonly volumeDrivers: readonly MountDriverName[];
  /** Rules for labels of its machines; absent: none. */
  readonly labels?: LabelRules | undefined;
  /** Containers of the deployment by the value of the label over which they are spread; absent: they are not. */
  readonly spreadCounts?: ReadonlyMap<string, number> | undefined;
  /** Machines that must not be taken, because they just refused it. */
  readonly avoid: ReadonlySet<MachineId>;
  /** Whether the workspace has used up its limits. */
  readonly overQuota: boolean;
  /** Markets in which it would pass a limit of its workspace. */
  readonly fullMarkets: ReadonlySet<Market>;
  /** Number of containers of the same deployment on each machine. */
  readonly siblings: ReadonlyMap<MachineId, number>;
  /** Seed that spreads equal choices differently for each container, the same way each time. */
  readonly seed: string;
}

/** Reasons why a machine cannot take a container: lower snake_case, counted and shown. */
export const REJECTION_REASONS = [
  'no_matching_pool',
  'label',
  'machine_not_ready',
  'cordoned',
  'condition',
  'gpu_model',
  'gpu_fact_unknown',
  'gpu_link',
  'gpu_driver',
  'gpu_count',
  'reserved',
  'too_small',
  'cpu',
  'memory',
  'disk',
  'volume',
  'image_unavailable',
  'base_python',
  'arch',
  'anti_affinity',
  'quota',
] as const;
export type RejectionReason = (typeof REJECTION_REASONS)[number];

/** Whether the request may go to the machine's pool, architecture, driver and base images. */
export function fitsPlace(machine: PlacementMachine, request: PlacementRequest): boolean {
  const archFits = request.arch === '' || machine.arch === '' || machine.arch === request.arch;
  return poolFits(machine, request) && archFits && driverFits(machine, request) && pythonFits(machine, request);
}

const pythonFits = ({ basePythons }: PlacementMachine, { basePython }: PlacementRequest): boolean =>
  canHavePython(basePythons, basePython);

const driverFits = ({ gpuDriver }: PlacementMachine, { gpuCount, minCuda }: PlacementRequest): boolean =>
  gpuCount === 0 || mayRunCuda(gpuDriver, minCuda);

/** Whether one of the machine's devices is what the request asks for, in any state of the device. */
const isWanted = ({ gpuDriver }: PlacementMachine, gpu: PlacementGpu, wanted: readonly string[]): boolean =>
  gpuMatches(gpu, gpuDriver, wanted);

/** The machine's devices that are what the request asks for, in any state. */
export const wantedGpus = (
  machine: PlacementMachine,
  { gpu: wanted }: Pick<PlacementRequest, 'gpu'>,
): readonly PlacementGpu[] => machine.gpus.filter((gpu) => isWanted(machine, gpu, wanted));

/** Whether the machine has enough free GPUs that are wanted. */
export const hasGpus = (machine: PlacementMachine, request: PlacementRequest): boolean =>
  mostLinked(wantedGpus(machine, request).filter(mayLease), request) >= request.gpuCount;

/** Whether the machine has enough GPUs that are wanted, and they are not linked as the request asks. */
function isUnlinked(machine: PlacementMachine, request: PlacementRequest): boolean {
  const { gpuCount, gpuLink } = request;
  if (gpuLink === undefined || gpuCount < 2) return false;
  const wanted = wantedGpus(machine, request);
  return wanted.length >= gpuCount && mostLinked(wanted, request) < gpuCount;
}

/** Whether the machine can mount the request's volumes. */
export const hasVolumeDrivers = (machine: PlacementMachine, request: PlacementRequest): boolean =>
  request.volumeDrivers.every((driver) => machine.volumeDrivers.has(driver));

/** First reason why this machine cannot take the request; undefined: it can. */
export function rejectionOf(machine: PlacementMachine, request: PlacementRequest): RejectionReason | undefined {
  if (!poolFits(machine, request)) return 'no_matching_pool';
  // Lasting properties of the machine are checked before its
  // present state, so that the lasting reason is the one shown.
  if (request.arch !== '' && machine.arch !== '' && machine.arch !== request.arch) return 'arch';
  if (!labelsFit(machine.labels ?? NO_LABELS, request.labels)) return 'label';
  if (request.gpuCount > 0 && !machine.gpus.some((gpu) => isWanted(machine, gpu, request.gpu)))
    return gpuLack(machine.gpus, machine.gpuDriver, request.gpu);
  if (isUnlinked(machine, request)) return 'gpu_link';
  if (!driverFits(machine, request)) return 'gpu_driver';
  if (!pythonFits(machine, request)) return 'base_python';
  for (const home of request.volumeHomes) if (home !== machine.machineId) return 'volume';
  if (!hasVolumeDrivers(machine, request)) return 'volume';
  if (request.imageOnlyOn?.has(machine.machineId) === false && !(request.imageInRegistry && machine.registry))
    return 'image_unavailable';
  if (!machine.ready) return 'machine_not_ready';
  if (!machine.intentActive) return 'cordoned';
  if (machine.blockedBy.length > 0) return 'condition';
  if (request.overQuota || isFullFor(machine, request)) return 'quota';
  if (request.avoid.has(machine.machineId)) return 'anti_affinity';
  return capacityRejection(machine, request);
}

/** Model that most devices of the machine have; undefined: it has none. */
export function gpuMarketOf({ gpus }: { readonly gpus: readonly Pick<PlacementGpu, 'model'>[] }): Market | undefined {
  const [one] = gpus;
  if (one === undefined || gpus.every(({ model }) => model === one.model)) return one?.model;
  const models = [...Map.groupBy(gpus, ({ model }) => model)];
  return models.sort(([a, some], [b, others]) => others.length - some.length || (a < b ? -1 : 1))[0]?.[0];
}

/** Whether the workspace may have no more of the machine's market. Machines of an own pool are in none. */
export const isFullFor = (machine: PlacementMachine, { fullMarkets, gpuCount }: PlacementRequest): boolean =>
  fullMarkets.size > 0 &&
  machine.poolOwner === null &&
  fullMarkets.has(gpuCount === 0 ? CPU_MARKET : (gpuMarketOf(machine) ?? ''));

const NO_LABELS: Labels = {};

/** Whether the pool is open to the request. Work without a GPU uses a GPU machine only if its pool allows that. */
function poolFits(machine: PlacementMachine, request: PlacementRequest): boolean {
  if (!mayUsePool(machine, request)) return false;
  return request.gpuCount > 0 || machine.gpus.length === 0 || machine.cpuWorkAllowed;
}

function capacityRejection(machine: PlacementMachine, request: PlacementRequest): RejectionReason | undefined {
  if (request.gpuCount > 0 && !hasGpus(machine, request)) return 'gpu_count';
  const kept = request.gpuCount === 0 ? keptForGpus(machine) : NOTHING;
  if (machine.totalCpuMillicores < request.cpuMillicores || machine.totalMemoryBytes < request.memoryBytes)
    return 'too_small';
  if (machine.freeCpuMillicores - kept.cpuMillicores < request.cpuMillicores) return 'cpu';
  if (machine.freeMemoryBytes - kept.memoryBytes < request.memoryBytes) return 'memory';
  if (!fitsOnDisk(machine, request)) return 'disk';
  return undefined;
}

/** Whether the code fits; a machine with a container of the same deployment has the code already. */
const fitsOnDisk = (
  { freeDiskBytes, machineId }: PlacementMachine,
  { diskBytes, siblings }: PlacementRequest,
): boolean => freeDiskBytes === null || freeDiskBytes >= diskBytes || (siblings.get(machineId) ?? 0) > 0;

const NOTHING = { cpuMillicores: 0, memoryBytes: 0 };

/**
 * Amounts kept for free GPUs: each keeps its share of the machine, so that work without a GPU does not make it useless.
 */
export function keptForGpus(machine: PlacementMachine): {
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
} {
  const free = machine.gpus.filter(mayLease).length;
  if (free === 0) return NOTHING;
  const share = free / machine.gpus.length;
  return { cpuMillicores: machine.totalCpuMillicores * share, memoryBytes: machine.totalMemoryBytes * share };
}

/** Text of all that lasts about a machine and that a request may name, but for its amounts and labels. */
export function lastingText(machine: PlacementMachine): string {
  const { poolName, requiresPoolSelector, cpuWorkAllowed, arch, gpuDriver, basePythons, volumeDrivers } = machine;
  const pythons = basePythons === null ? 'any' : basePythons.join(' ');
  const drivers = [...volumeDrivers].toSorted().join(' ');
  const place = [poolName, requiresPoolSelector, cpuWorkAllowed, arch, gpuDriver, pythons, drivers];
  return [...place, ...deviceTexts(machine.gpus)].join('\n');
}

/** Whether two states of a machine have the same text. Most changes are of amounts, and this costs less than a text. */
export const lastsAs = (a: PlacementMachine, b: PlacementMachine): boolean =>
  a.poolName === b.poolName &&
  a.requiresPoolSelector === b.requiresPoolSelector &&
  a.cpuWorkAllowed === b.cpuWorkAllowed &&
  a.arch === b.arch &&
  a.gpuDriver === b.gpuDriver &&
  (a.basePythons === b.basePythons || a.basePythons?.join() === b.basePythons?.join()) &&
  (a.volumeDrivers === b.volumeDrivers || a.volumeDrivers.symmetricDifference(b.volumeDrivers).size === 0) &&
  a.gpus.length === b.gpus.length &&
  a.gpus.every((gpu, at) => isSameSort(gpu, b.gpus[at] ?? gpu));

/** Text of all that lasts about a device and that a request may name, but for its links. */
const sortOf = ({ model, memoryBytes = 0, computeCap = '' }: PlacementGpu): string =>
  `${model} ${memoryBytes} ${computeCap}`;

const isSameSort = (a: PlacementGpu, b: PlacementGpu): boolean =>
  a.model === b.model &&
  a.memoryBytes === b.memoryBytes &&
  a.computeCap === b.computeCap &&
  a.nvlinkIsland === b.nvlinkIsland;

/** Whether all devices are of one sort, as those of most machines are. */
const areAlike = ([one, ...others]: readonly PlacementGpu[]): boolean =>
  others.every((gpu) => one !== undefined && isSameSort(gpu, one));

/** Number of devices that may be leased, of each group where the devices differ. */
export const freeText = (gpus: readonly PlacementGpu[]): string =>
  areAlike(gpus)
    ? String(gpus.filter(mayLease).length)
    : deviceTexts(gpus, (gpu) => (mayLease(gpu) ? 'free' : 'taken')).join('\n');

/**
 * Texts of a machine's devices, one for each NVLink island and one for those in none: what differs there, differs for
 * some request. The numbers of islands do not count.
 * @param also - about a device, beside what lasts
 */
function deviceTexts(gpus: readonly PlacementGpu[], also: (gpu: PlacementGpu) => string = () => ''): string[] {
  const groups = Map.groupBy(gpus, ({ nvlinkIsland = 0 }) => nvlinkIsland);
  return [...groups]
    .map(([island, some]) => {
      const counts = new Map<string, number>();
      for (const gpu of some) {
        const text = `${sortOf(gpu)} ${also(gpu)}`;
        counts.set(text, (counts.get(text) ?? 0) + 1);
      }
      return groupText(island, counts);
    })
    .toSorted();
}

const groupText = (island: number | undefined, counts: ReadonlyMap<string, number>): string =>
  [
    island === 0 || island === undefined ? '' : 'linked',
    ...[...counts].map(([text, count]) => `${text} ${count}`).toSorted(),
  ].join('; ');

export const mayLease = (gpu: PlacementGpu): boolean => gpu.free && gpu.healthy;
