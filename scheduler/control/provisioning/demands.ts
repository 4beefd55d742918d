// Containers that wait for a place, as the loop counts them: since when, and those among them that no new machine
// would help, because their workspace has used up its limits or their volume is on another machine.
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { isRefused } from '../../fleet/containers/container-entry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import type { ContainerEntryChange, ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import { volumesOf } from '../placement/placement-writes.ts';
import { useOf } from '../placement/snapshot.ts';
import type { Quota } from '../plan/ledger.ts';
import type { Demand } from './facts.ts';

/** Why no new machine would help a container. */
export type Held = 'quota' | 'volume';

export interface DemandsParts {
  readonly containers: Pick<ContainerRegistry, 'pending' | 'all'>;
  readonly clock: Clock;
  /** Home machines of local volumes, by volume id; a volume without a home is absent. */
  readonly volumeHomes: (volumeIds: readonly string[]) => Promise<ReadonlyMap<string, MachineId>>;
  readonly quotas: (workspaces: ReadonlySet<WorkspaceId>) => Promise<ReadonlyMap<WorkspaceId, Quota>>;
}

export interface Waiting {
  readonly demands: readonly Demand[];
  readonly held: ReadonlyMap<ContainerId, Held>;
  /** Whether placement has yet to try some container. */
  readonly isUntried: boolean;
}

const NOBODY: Waiting = { demands: [], held: new Map(), isUntried: false };
const MIB = 1024 * 1024;

export class Demands {
  readonly #parts: DemandsParts;
  /** Since when containers wait that came back from a machine, in monotonic milliseconds. */
  readonly #since = new Map<ContainerId, number>();

  constructor(parts: DemandsParts) {
    this.#parts = parts;
  }

  containerChanged({ entry, from, to }: ContainerEntryChange): void {
    if (to !== 'PENDING') this.#since.delete(entry.row.id);
    else if (from !== null) this.#since.set(entry.row.id, this.#parts.clock.monotonicMs());
  }

  /** Since when the container waits. */
  sinceMs({ row }: Pick<ContainerEntry, 'row'>): number {
    const { clock } = this.#parts;
    const known = this.#since.get(row.id);
    if (known !== undefined) return known;
    const sinceMs = clock.monotonicMs() - Math.max(0, clock.nowMs() - row.createdAtMs);
    this.#since.set(row.id, sinceMs);
    return sinceMs;
  }

  /** The containers that wait, and that placement has tried. */
  async read(): Promise<Waiting> {
    const all = [...this.#parts.containers.pending()];
    if (all.length === 0) return NOBODY;
    const tried = all.filter(isRefused);
    const held = new Map([...(await this.#withHomes(tried)), ...(await this.#overQuota(tried))]);
    return {
      demands: tried.filter(({ row }) => !held.has(row.id)).map((entry) => this.demandOf(entry)),
      held,
      isUntried: tried.length < all.length,
    };
  }

  demandOf(entry: Pick<ContainerEntry, 'row' | 'spec'>): Demand {
    const { row, spec } = entry;
    return {
      id: row.id,
      queue: spec.queue,
      workspaceId: row.workspaceId,
      poolName: spec.poolName,
      cpuMillicores: spec.cpuMillicores,
      memoryBytes: spec.memoryBytes,
      gpu: spec.gpu,
      gpuCount: spec.gpuCount,
      minCuda: spec.minCuda ?? '',
      sinceMs: this.sinceMs(entry),
    };
  }

  async #withHomes(entries: readonly ContainerEntry[]): Promise<(readonly [ContainerId, Held])[]> {
    const ids = new Set(entries.flatMap(volumesOf));
    if (ids.size === 0) return [];
    const homes = await this.#parts.volumeHomes([...ids]);
    return entries
      .filter((entry) => volumesOf(entry).some((id) => homes.has(id)))
      .map(({ row }) => [row.id, 'volume'] as const);
  }

  /** Containers beyond the limits of their workspaces, the oldest within them. */
  async #overQuota(entries: readonly ContainerEntry[]): Promise<(readonly [ContainerId, Held])[]> {
    const byWorkspace = Map.groupBy(entries, ({ row }) => row.workspaceId);
    const quotas = await this.#parts.quotas(new Set(byWorkspace.keys()));
    return [...byWorkspace].flatMap(([workspaceId, waiting]) => {
      const quota = quotas.get(workspaceId);
      return quota === undefined ? [] : this.#over(workspaceId, waiting, quota);
    });
  }

  #over(workspaceId: WorkspaceId, waiting: readonly ContainerEntry[], quota: Quota): (readonly [ContainerId, Held])[] {
    const { gpus, cpuMillicores, memoryMib = null, containers = null } = quota;
    if (gpus === null && cpuMillicores === null && memoryMib === null && containers === null) return [];
    const bound = (most: number | null): number => most ?? Infinity;
    let used = useOf(this.#parts.containers, workspaceId);
    const over: (readonly [ContainerId, Held])[] = [];
    for (const { row, spec } of waiting.toSorted((a, b) => a.row.createdAtMs - b.row.createdAtMs)) {
      const next = {
        gpu: used.gpu + spec.gpuCount,
        cpu_millicores: used.cpu_millicores + spec.cpuMillicores,
        memory_mib: used.memory_mib + Math.round(spec.memoryBytes / MIB),
        containers: used.containers + 1,
      };
      const isOver =
        (spec.gpuCount > 0 && next.gpu > bound(gpus)) ||
        next.cpu_millicores > bound(cpuMillicores) ||
        next.memory_mib > bound(memoryMib) ||
        next.containers > bound(containers);
      if (isOver) over.push([row.id, 'quota']);
      else used = next;
    }
    return over;
  }
}
