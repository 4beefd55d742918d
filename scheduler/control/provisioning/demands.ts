// Containers that wait for a place, as the loop counts them: since when, and those among them that no new machine
// would help, because their workspace has used up its limits or their volume is on another machine.
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { isRefused } from '../../fleet/containers/container-entry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import type { ContainerEntryChange, ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import { volumesOf } from '../placement/placement-writes.ts';
import { heldBy } from '../placement/snapshot.ts';
import type { MarketTurn } from '../plan/markets.ts';
import { amountIn } from '../plan/markets.ts';
import { isOver, NO_USE, plus, roomFor } from '../plan/ledger.ts';
import type { Quota, Use } from '../plan/ledger.ts';
import type { Demand } from './facts.ts';

const ANY_TURN: MarketTurn = { standing: undefined, headStartMs: 0, limit: undefined };

/** Turns of queues, whose containers are alike, and what those that were looked at leave of limits. */
class Turns {
  readonly #turnOf: (entry: ContainerEntry) => MarketTurn;
  readonly #byQueue = new Map<QueueName, MarketTurn>();
  readonly #left = new Map<string, number>();

  constructor(turnOf: (entry: ContainerEntry) => MarketTurn = () => ANY_TURN) {
    this.#turnOf = turnOf;
  }

  of(entry: ContainerEntry): MarketTurn {
    const { queue } = entry.spec;
    let turn = this.#byQueue.get(queue);
    if (turn === undefined) this.#byQueue.set(queue, (turn = this.#turnOf(entry)));
    return turn;
  }

  /** Takes room for as many such containers as the limit allows. @returns their number */
  take(entry: ContainerEntry, count: number): number {
    const { limit } = this.of(entry);
    if (limit === undefined) return count;
    const { row, spec } = entry;
    const key = `${row.workspaceId} ${limit.market}`;
    const left = this.#left.get(key) ?? limit.left;
    const each = amountIn(limit.market, { gpus: spec.gpuCount, cpuMillicores: spec.cpuMillicores });
    const taken = each <= 0 ? count : Math.max(0, Math.min(count, Math.floor(left / each)));
    this.#left.set(key, left - taken * each);
    return taken;
  }
}

/** Why no new machine would help a container. */
export type Held = 'quota' | 'volume';

export interface DemandsParts {
  readonly containers: Pick<ContainerRegistry, 'pending' | 'all'>;
  readonly clock: Clock;
  /** Home machines of local volumes, by volume id; a volume without a home is absent. */
  readonly volumeHomes: (volumeIds: readonly string[]) => Promise<ReadonlyMap<string, MachineId>>;
  readonly quotas: (workspaces: ReadonlySet<WorkspaceId>) => Promise<ReadonlyMap<WorkspaceId, Quota>>;
  /** Turn of a container, as placement gives turns. Absent: who waits longest is first. */
  readonly turnOf?: (entry: ContainerEntry) => MarketTurn;
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
  /** Containers beyond the limit of their workspace in a market, when they were read last. */
  #atLimit: ReadonlySet<ContainerId> = new Set();

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
    const homes = await this.#withHomes(tried);
    const turns = new Turns(this.#parts.turnOf);
    const keys = new Map(tried.map((entry) => [entry, this.sinceMs(entry) - turns.of(entry).headStartMs]));
    tried.sort((a, b) => (keys.get(a) ?? 0) - (keys.get(b) ?? 0));
    const held = new Map([...homes, ...this.#overQuota(tried, quotas)]);
    const asking = tried.filter(({ row }) => !held.has(row.id));
    this.#atLimit = new Set(asking.filter((entry) => turns.take(entry, 1) === 0).map(({ row }) => row.id));
    const follow = this.#following(tried, held, quotas, turns);
    return {
      demands: asking.map((entry) => {
        const { standing, headStartMs } = turns.of(entry);
        return { ...this.demandOf(entry), standing, headStartMs, count: 1 + (follow.get(entry.row.id) ?? 0) };
      }),
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
      gpuLink: spec.gpuLink,
      minCuda: spec.minCuda ?? '',
      labels: spec.labels,
      sinceMs: this.sinceMs(entry),
      isAtLimit: this.#atLimit.has(row.id),
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

  /** Containers beyond the limits of their workspaces, the first in turn within them. */
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
    for (const { row, spec } of waiting) {
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
    turns: Turns,
  ): ReadonlyMap<ContainerId, number> {
    const { followOf } = this.#parts;
    const following = new Map<ContainerId, number>();
    if (followOf === undefined) return following;
    const used = new Map<WorkspaceId, Use>();
    for (const [queue, waiting] of Map.groupBy(entries, ({ spec }) => spec.queue)) {
      const wanted = followOf(queue);
      const [oldest] = waiting;
      const isHeld = waiting.some(({ row }) => held.has(row.id) || this.#atLimit.has(row.id));
      if (wanted <= 0 || oldest === undefined || isHeld) continue;
      const { workspaceId, id } = oldest.row;
      const quota = quotas.get(workspaceId);
      const use = used.get(workspaceId) ?? (isBounded(quota) ? this.#useWith(entries, held, workspaceId) : NO_USE);
      const room = quota === undefined ? wanted : Math.min(wanted, roomFor(use, oldest.spec, quota));
      const count = turns.take(oldest, room);
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
