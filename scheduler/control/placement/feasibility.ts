import { compareVersions, driverOf, driverText, mayRunCuda } from '#shared/domain/cuda.ts';
import { madeBaseImage } from '#shared/domain/built-images.ts';
import { gpuMatches, gpuWords, mostLinked, nearestTexts } from '#shared/domain/gpu-terms.ts';
import type { DriverFact, GpuFacts, NearGpu } from '#shared/domain/gpu-terms.ts';
import { labelsFit, labelTexts } from '#shared/domain/labels.ts';
import type { Labels } from '#shared/domain/labels.ts';
import type { PlacementRequest } from '../plan/filter.ts';
import { ANY_PYTHON, canHavePython } from '../../domain/base-pythons.ts';
import type { BasePythons } from '../../domain/base-pythons.ts';
import { mayUsePool } from '../../domain/pools.ts';

/** Cores and memory that a machine offers, less what it keeps for itself. */
export interface MachineSize {
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
}

/** Machine that is registered, in any state. */
export interface OfferedMachine {
  readonly poolName: string;
  /** Workspace that owns the pool; null: the pool is shared. */
  readonly poolOwner: string | null;
  /** Whether only work that names the pool goes there. */
  readonly requiresPoolSelector: boolean;
  /** Whether the machine has not joined yet, so that its offer is not known. */
  readonly isExpected: boolean;
  /** Absent: none. */
  readonly labels?: Labels;
  readonly gpus: readonly GpuFacts[];
  /** Version of its GPUs' driver; absent: not known. */
  readonly gpuDriver?: DriverFact;
  readonly size: MachineSize;
  readonly basePythons: BasePythons;
  /** Versions whose base image is there. */
  readonly basePythonsHere: readonly string[];
}

/**
 * Reason why no machine can ever serve such a request while machines and pools stay as they are. undefined: one may,
 * though perhaps not now. Amounts that fit no machine at the moment are left to placement, which waits for them. Pure.
 */
export function infeasibleReason(
  request: Pick<PlacementRequest, 'workspaceId' | 'poolName' | 'gpu' | 'gpuCount' | 'minCuda' | 'labels' | 'gpuLink'>,
  machines: readonly OfferedMachine[],
): string | undefined {
  const { workspaceId, poolName, gpu, gpuCount, gpuLink, minCuda, labels } = request;
  const open = machines.filter((machine) => mayUsePool(machine, { workspaceId, poolName }));
  const where = poolName === '' ? '' : ` in pool ${poolName}`;
  if (poolName !== '' && open.length === 0) return `no machine that this workspace may use is${where}`;
  const usable = open.filter((machine) => machine.isExpected || labelsFit(machine.labels ?? {}, labels));
  if (usable.length === 0 && labels !== undefined) {
    const texts = labelTexts(
      labels,
      open.map((machine) => machine.labels ?? {}),
    );
    return `no machine that this workspace may use${where} has the labels it asks for (placement): ${texts.join('; ')}`;
  }
  if (gpuCount === 0 || usable.some((machine) => machine.isExpected)) return undefined;
  const most = usable.reduce((sum, machine) => Math.max(sum, wantedOf(machine, gpu)), 0);
  const wanted = gpuWords(gpu);
  const enough = usable.filter((machine) => mostLinked(wantedGpus(machine, gpu), { gpuCount, gpuLink }) >= gpuCount);
  if (enough.some(({ gpuDriver }) => mayRunCuda(gpuDriver ?? '', minCuda))) return undefined;
  const named = poolName === '' ? hasOnlyForNamed(request, machines) : '';
  if (enough.length > 0) {
    const count = gpuCount === 1 ? '' : `${gpuCount} of `;
    return `no machine that this workspace may use${where} has ${count}${wanted} with ${tooOldText(enough, minCuda)}`;
  }
  if (gpuLink !== undefined && most >= gpuCount)
    return `no machine that this workspace may use${where} has ${gpuCount} of ${wanted} that are linked by NVLink (gpu_link)`;
  if (most === 0) {
    const nearest = nearestTexts(gpu, devicesOf(usable));
    return `no machine that this workspace may use${where} has ${[`${wanted}${named}`, ...nearest].join(': ')}`;
  }
  return `no machine that this workspace may use${where} has ${gpuCount} of ${wanted}: the most is ${most}${named}`;
}

/** The machine's GPUs that are wanted. */
const wantedGpus = ({ gpus, gpuDriver = '' }: OfferedMachine, wanted: readonly string[]): readonly GpuFacts[] =>
  gpus.filter((gpu) => gpuMatches(gpu, gpuDriver, wanted));

const wantedOf = (machine: OfferedMachine, wanted: readonly string[]): number => wantedGpus(machine, wanted).length;

const devicesOf = (machines: readonly OfferedMachine[]): NearGpu[] =>
  machines.flatMap(({ gpus, gpuDriver = '' }) => gpus.map((gpu) => ({ ...gpu, driver: gpuDriver })));

/** A driver that is needed, and the newest there is: `a driver for CUDA 12.8 (min_cuda), which is 570 or newer: …`. */
function tooOldText(machines: readonly OfferedMachine[], minCuda: string): string {
  const drivers = machines.map(({ gpuDriver }) => gpuDriver ?? '');
  const newest = drivers.toSorted(compareVersions).at(-1) ?? '';
  const branch = driverOf(minCuda);
  const which = branch === undefined ? '' : `, which is ${branch} or newer`;
  return `a driver for CUDA ${minCuda} (min_cuda)${which}: the newest driver there is ${driverText(newest)}`;
}

/**
 * Reason why every machine is too small for the request, even when empty. undefined:
 * one is large enough, or there is none to judge. The reason is shown on deploy. Calls
 * wait all the same, since a pool's settings can make a machine offer more. Pure.
 */
export function tooSmallReason(
  request: Pick<PlacementRequest, 'workspaceId' | 'poolName' | keyof MachineSize>,
  machines: readonly OfferedMachine[],
): string | undefined {
  const { workspaceId, poolName, cpuMillicores, memoryBytes } = request;
  const usable = machines.filter((machine) => mayUsePool(machine, { workspaceId, poolName }));
  if (usable.length === 0 || usable.some((machine) => machine.isExpected)) return undefined;
  const sizes = usable.map(({ size }) => size);
  if (sizes.some((size) => size.cpuMillicores >= cpuMillicores && size.memoryBytes >= memoryBytes)) return undefined;
  const none = `no machine that this workspace may use${poolName === '' ? '' : ` in pool ${poolName}`} offers`;
  const asked = { cpu: cores(cpuMillicores, Math.ceil), memory: gib(memoryBytes, Math.ceil) };
  const [mostCpu, mostMemory] = [
    Math.max(...sizes.map((size) => size.cpuMillicores)),
    Math.max(...sizes.map((size) => size.memoryBytes)),
  ];
  if (mostMemory < memoryBytes) return `${none} ${asked.memory} of memory: the most is ${gib(mostMemory, Math.floor)}`;
  if (mostCpu < cpuMillicores) return `${none} ${asked.cpu}: the most is ${cores(mostCpu, Math.floor)}`;
  return `${none} ${asked.cpu} together with ${asked.memory} of memory`;
}

/** Work that runs in the base image of a Python version. */
export type PythonRequest = Pick<PlacementRequest, 'workspaceId' | 'poolName' | 'gpu' | 'gpuCount'>;

/**
 * Refusal of a Python version whose base image no machine has, makes or pulls, with the versions that there are, and
 * with the machines that can make none. undefined: a machine can have it, or may come with it, or there is none to
 * judge. Pure.
 * @param version - as `wantedPython` gives it
 */
export function noPythonReason(
  request: PythonRequest,
  version: string,
  machines: readonly OfferedMachine[],
): string | undefined {
  const { poolName } = request;
  const usable = usableFor(request, machines);
  const isPossible = ({ isExpected, basePythons }: OfferedMachine): boolean =>
    isExpected || canHavePython(basePythons, version);
  if (usable.length === 0 || usable.some(isPossible)) return undefined;
  const there = [...new Set(usable.flatMap(({ basePythons }) => basePythons ?? []))];
  const none = `no machine that this workspace may use${poolName === '' ? '' : ` in pool ${poolName}`} has`;
  const image = madeBaseImage(version === ANY_PYTHON ? '{version}' : version);
  const setting = 'LONGSHORE_BASE_IMAGE=python:{version}-slim of agents that reach a registry.';
  if (there.length === 0)
    return [
      `${none} a base image, or can make one now.`,
      'Name an image that has the Python you need (base_image).',
      `An operator finds the cause in the agent's log, such as a package mirror that does not answer.`,
      `Other ways are an image ${image} on a machine, or ${setting}`,
    ].join(' ');
  const minorOf = (text: string): number => Number(text.split('.')[1]);
  const listed = there.toSorted((a, b) => minorOf(a) - minorOf(b)).join(', ');
  const without = usable.filter(({ basePythons }) => basePythons?.length === 0).length;
  const those = without === 1 ? '1 machine has' : `${without} machines have`;
  return [
    `${none} Python ${version}: their base images have Python ${listed}.`,
    ...(without === 0 ? [] : [`${those} no base image, and can make none now: the agent's log says why.`]),
    'Name one of these versions (python_version), or an image that has the Python you need (base_image).',
    `An operator adds ${version} with an image ${image} on a machine, or with ${setting}`,
  ].join(' ');
}

const usableFor = (
  { workspaceId, poolName, gpu, gpuCount }: PythonRequest,
  machines: readonly OfferedMachine[],
): readonly OfferedMachine[] =>
  machines.filter(
    (machine) =>
      mayUsePool(machine, { workspaceId, poolName }) && (machine.isExpected || wantedOf(machine, gpu) >= gpuCount),
  );

/**
 * Whether calls wait until a machine has made the base image: none of those that may run the work has it, or pulls
 * it. Pure.
 * @param version - as `wantedPython` gives it
 */
export function isMadeFirst(request: PythonRequest, version: string, machines: readonly OfferedMachine[]): boolean {
  const able = usableFor(request, machines).filter(({ basePythons }) => canHavePython(basePythons, version));
  const hasIt = ({ isExpected, basePythons, basePythonsHere }: OfferedMachine): boolean =>
    isExpected || basePythons === null || canHavePython(basePythonsHere, version);
  return able.length > 0 && !able.some(hasIt);
}

/** Rounding of amounts: up for what is asked, down for what exists, so that too little never looks like enough. */
type Rounding = (value: number) => number;
const gib = (bytes: number, round: Rounding): string => `${round((bytes / 1024 ** 3) * 10) / 10} GiB`;
const cores = (millicores: number, round: Rounding): string => `${round(millicores / 100) / 10} CPU`;

/**
 * Clause about machines that would do but take only work that
 * names their pool; the caller's own list shows those machines.
 */
function hasOnlyForNamed(
  { workspaceId, gpu, gpuCount }: Pick<PlacementRequest, 'workspaceId' | 'gpu' | 'gpuCount'>,
  machines: readonly OfferedMachine[],
): string {
  const kept = machines
    .filter(
      (machine) => machine.requiresPoolSelector && mayUsePool(machine, { workspaceId, poolName: machine.poolName }),
    )
    .filter((machine) => wantedOf(machine, gpu) >= gpuCount);
  const pools = [...new Set(kept.map((machine) => machine.poolName))].toSorted().slice(0, MOST_NAMED);
  return pools.length === 0 ? '' : `; machines of ${pools.join(', ')} take only work that names their pool`;
}

/** Most pools named in a sentence. */
const MOST_NAMED = 3;
