// Containers that wait for a place, as the loop counts them: since when, and those among them that no new machine
// would help, because their workspace has used up its limits or their volume is on another machine.
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { isRefused } from '../../fleet/containers/container-entry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import type { ContainerEntryChange, ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import { volumesOf } from '../placement/placement-writes.ts';
import { heldBy } from '../placement/snapshot.ts';
import { isOver, NO_USE, plus, roomFor } from '../plan/ledger.ts';
import type { Quota, Use } from '../plan/ledger.ts';
import type { Demand } from './facts.ts';

/** Why no new machine would help a container. */
export type Held = 'quota' | 'volume';

export interface DemandsParts {
  readonly containers: Pick<ContainerRegistry, 'pending' | 'all'>;
  readonly clock: Clock;
  /** Home machines of local volumes, by volume id; a volume without a home is absent. */
  readonly volumeHomes: (volumeIds: readonly string[]) => Promise<ReadonlyMap<string, MachineId>>;
  readonly quotas: (workspaces: ReadonlySet<WorkspaceId>) => Promise<ReadonlyMap<WorkspaceId, Quota>>;
  /** Containers that a queue asks for and that are not written yet. Absent: none. */
  readonly followOf?: (queue: QueueName) => number;
}

export interface Waiting {
  readonly demands: readonly Demand[];
  readonly held: ReadonlyMap<ContainerId, Held>;
  /** Whether placement has yet to try some container. */
  readonly isUntried: boolean;
}

const NOBODY: Waiting = { demands: [], held: new Map(), isUntried: false };

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
    const quotas = await this.#parts.quotas(new Set(tried.map(({ row }) => row.workspaceId)));
    const held = new Map([...(await this.#withHomes(tried)), ...this.#overQuota(tried, quotas)]);
    const follow = this.#following(tried, held, quotas);
    return {
      demands: tried
        .filter(({ row }) => !held.has(row.id))
        .map((entry) => ({ ...this.demandOf(entry), count: 1 + (follow.get(entry.row.id) ?? 0) })),
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
  #overQuota(
    entries: readonly ContainerEntry[],
    quotas: ReadonlyMap<WorkspaceId, Quota>,
  ): (readonly [ContainerId, Held])[] {
    const byWorkspace = Map.groupBy(entries, ({ row }) => row.workspaceId);
    return [...byWorkspace].flatMap(([workspaceId, waiting]) => {
      const quota = quotas.get(workspaceId);
      return quota === undefined ? [] : this.#over(workspaceId, waiting, quota);
    });
  }

  #over(workspaceId: WorkspaceId, waiting: readonly ContainerEntry[], quota: Quota): (readonly [ContainerId, Held])[] {
    if (!isBounded(quota)) return [];
    let used = heldBy(this.#parts.containers, workspaceId);
    const over: (readonly [ContainerId, Held])[] = [];
    for (const { row, spec } of waiting.toSorted((a, b) => a.row.createdAtMs - b.row.createdAtMs)) {
      if (isOver(used, spec, quota)) over.push([row.id, 'quota']);
      else used = plus(used, spec);
    }
    return over;
  }

  /**
   * Containers that follow those that wait, as far as the limits of their workspaces allow, by the oldest one of each
   * queue. None follow in a queue where one is held: it would be held, too.
   */
  #following(
    entries: readonly ContainerEntry[],
    held: ReadonlyMap<ContainerId, Held>,
    quotas: ReadonlyMap<WorkspaceId, Quota>,
  ): ReadonlyMap<ContainerId, number> {
    const { followOf } = this.#parts;
    const following = new Map<ContainerId, number>();
    if (followOf === undefined) return following;
    const used = new Map<WorkspaceId, Use>();
    for (const [queue, waiting] of Map.groupBy(entries, ({ spec }) => spec.queue)) {
      const wanted = followOf(queue);
      const [oldest] = waiting.toSorted((a, b) => this.sinceMs(a) - this.sinceMs(b));
      if (wanted <= 0 || oldest === undefined || waiting.some(({ row }) => held.has(row.id))) continue;
      const { workspaceId, id } = oldest.row;
      const quota = quotas.get(workspaceId);
      const use = used.get(workspaceId) ?? (isBounded(quota) ? this.#useWith(entries, held, workspaceId) : NO_USE);
      const count = quota === undefined ? wanted : Math.min(wanted, roomFor(use, oldest.spec, quota));
      if (count <= 0) continue;
      following.set(id, count);
      used.set(workspaceId, plus(use, oldest.spec, count));
    }
    return following;
  }

  /** Use of a workspace, once its containers that wait are placed. */
  #useWith(entries: readonly ContainerEntry[], held: ReadonlyMap<ContainerId, Held>, workspaceId: WorkspaceId): Use {
    let use = heldBy(this.#parts.containers, workspaceId);
    for (const { row, spec } of entries)
      if (row.workspaceId === workspaceId && !held.has(row.id)) use = plus(use, spec);
    return use;
  }
}

function isBounded(quota: Quota | undefined): quota is Quota {
  if (quota === undefined) return false;
  const { share: _, ...limits } = quota;
  return Object.values(limits).some((most) => most !== null && most !== undefined);
}
