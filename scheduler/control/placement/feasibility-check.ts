// Check whether a stub can ever be served, with its answers cached. Every call asks, and memory answers: a call
// for a GPU that no machine has is refused at once instead of waiting for nothing.
import type { Clock } from '#shared/clock.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { StubConfig, Target } from '../../domain/stub-config.ts';
import { ANY_PYTHON, wantedPython } from '../../domain/base-pythons.ts';
import { capacityOf, gpuFactsOf } from '../../fleet/capacity.ts';
import { basePythonsOf } from '../../fleet/host-facts.ts';
import { labelsOf } from '../../fleet/machine.ts';
import type { Machines } from '../../fleet/machines.ts';
import { infeasibleReason, isMadeFirst, noPythonReason, tooSmallReason } from './feasibility.ts';
import type { OfferedMachine, PythonRequest } from './feasibility.ts';
import { mayUsePool, poolNameOf } from '../../domain/pools.ts';
import type { FeasibilityWarning } from '../../workspaces/deployments/needs.ts';

const MIB = 1024 * 1024;
/**
 * Milliseconds after its creation for which a machine that has not joined may still become the one that serves a call.
 */
const EXPECTED_MS = 5 * 60_000;

/** Answer that holds until a machine or pool changes, or an expected machine is no longer expected. */
interface CachedAnswer {
  readonly version: number;
  readonly untilMs: number;
  readonly text: string | undefined;
}

export class FeasibilityCheck {
  readonly #machines: Machines;
  /** Number that grows with every change of a machine or pool. */
  #version = 0;
  readonly #clock: Pick<Clock, 'nowMs'>;
  #makeable: () => Iterable<OfferedMachine> = () => [];
  readonly #known = new WeakMap<StubConfig, CachedAnswer>();

  constructor(machines: Machines, clock: Pick<Clock, 'nowMs'>) {
    this.#machines = machines;
    this.#clock = clock;
  }

  /** Counts machines, too, that providers could make. */
  countsAlso(makeable: () => Iterable<OfferedMachine>): void {
    this.#makeable = makeable;
    this.machineChanged();
  }

  /** Whether a provider could make a machine for that pool. */
  isMakeable(workspaceId: WorkspaceId, poolName: string): boolean {
    for (const machine of this.#makeable())
      if (machine.poolName === poolName && mayUsePool(machine, { workspaceId, poolName })) return true;
    return false;
  }

  /** Forgets earlier answers: a machine or a pool changed. */
  machineChanged(): void {
    this.#version += 1;
  }

  /** Sentence that refuses a caller; undefined: some machine that is registered, or expected, may serve it. */
  refusal({ config, workspaceId }: Pick<Target, 'config' | 'workspaceId'>): string | undefined {
    const poolName = poolNameOf(config.extra);
    if (config.gpuCount === 0 && poolName === '' && config.labels === undefined) return undefined;
    const known = this.#known.get(config);
    if (known?.version === this.#version && this.#clock.nowMs() < known.untilMs) return known.text;
    const { gpu, gpuCount, gpuLink, minCuda = '', labels } = config;
    const { machines, untilMs } = this.#offered();
    const text = infeasibleReason({ workspaceId, poolName, gpu, gpuCount, gpuLink, minCuda, labels }, machines);
    this.#known.set(config, { version: this.#version, untilMs, text });
    return text;
  }

  /**
   * Warning for a deploy: why calls would be refused or wait for a larger machine; undefined: some machine may serve
   * them.
   */
  warning(workspaceId: WorkspaceId, config: StubConfig): FeasibilityWarning | undefined {
    const refused = this.refusal({ workspaceId, config });
    if (refused !== undefined) return { says: refused, effect: 'calls are refused until one does' };
    const { cpuMillicores, memoryMib } = config;
    const poolName = poolNameOf(config.extra);
    const { machines } = this.#offered();
    const request = { workspaceId, poolName, cpuMillicores, memoryBytes: memoryMib * MIB };
    const small = tooSmallReason(request, machines);
    if (small !== undefined) return { says: small, effect: 'calls wait for one that does' };
    const { imageId, gpu, gpuCount, pythonVersion } = config;
    const version = wantedPython(pythonVersion);
    if (imageId !== '' || !isMadeFirst({ workspaceId, poolName, gpu, gpuCount }, version, machines)) return undefined;
    return {
      says: `no machine has the base image${version === ANY_PYTHON ? '' : ` of Python ${version}`} yet`,
      effect: 'calls wait while a machine makes it, which takes about two minutes',
      step: '`longshore explain` shows how far it is',
    };
  }

  /** Refusal of work in a base image: no machine can have that of its Python, or any. undefined: a machine may. */
  pythonProblem(request: PythonRequest, pythonVersion: string): string | undefined {
    return noPythonReason(request, wantedPython(pythonVersion), this.#offered().machines);
  }

  /**
   * Machines that count. A machine that was created but has not joined counts
   * for a few minutes; an answer based on one holds no longer than that.
   */
  #offered(): { readonly machines: readonly OfferedMachine[]; readonly untilMs: number } {
    const nowMs = this.#clock.nowMs();
    let untilMs = Infinity;
    const coming = [...this.#machines.all()].filter(({ health, row }) => {
      if (health !== 'PENDING') return health !== 'EXPIRED';
      const overAtMs = row.createdAtMs + EXPECTED_MS;
      if (overAtMs > nowMs) untilMs = Math.min(untilMs, overAtMs);
      return overAtMs > nowMs;
    });
    const machines = coming.map((machine) => {
      const { row, health, inventory } = machine;
      const { totalCpuMillicores, totalMemoryBytes } = capacityOf(machine, []);
      return {
        poolName: row.poolName,
        poolOwner: row.poolWorkspaceId,
        requiresPoolSelector: row.poolSettings.requiresPoolSelector,
        isExpected: health === 'PENDING',
        labels: labelsOf(machine),
        gpus: (inventory?.gpus ?? []).map(gpuFactsOf),
        gpuDriver: inventory?.gpuDriver ?? '',
        size: { cpuMillicores: totalCpuMillicores, memoryBytes: totalMemoryBytes },
        basePythons: basePythonsOf(inventory),
        basePythonsHere: inventory?.basePythonsHere ?? [],
      };
    });
    return { machines: [...machines, ...this.#makeable()], untilMs };
  }
}
