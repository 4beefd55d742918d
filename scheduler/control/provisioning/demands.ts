// Containers that wait for a place, as the loop counts them: since when, and those among them that no new machine
// would help, because their workspace has used up its limits or their volume is on another machine.
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { isRefused } from '../../fleet/containers/container-entry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import type { ContainerEntryChange, ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import { volumesOf } from '../placement/placement-writes.ts';
import type { Market } from '../../domain/shares.ts';
import type { MarketTurn } from '../plan/markets.ts';
import { amountIn } from '../plan/markets.ts';
import { isOver, NO_USE, plus, roomFor } from '../plan/ledger.ts';
import type { Quota, Use } from '../plan/ledger.ts';
import type { Demand } from './facts.ts';

const ANY_TURN: MarketTurn = { standing: undefined, headStartMs: 0, limits: [] };

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

  /** Markets in which a limit leaves no room for one more such container. */
  fullFor(entry: ContainerEntry): readonly Market[] {
    return this.of(entry).limits.flatMap((limit) => (this.#roomIn(limit, entry) < 1 ? limit.market : []));
  }

  /** Takes room for so many such containers, of the first market that has some. @returns as many as it has room for */
  take(entry: ContainerEntry, count: number): number {
    const { limits } = this.of(entry);
    if (limits.length === 0) return count;
    const limit = limits.find((one) => this.#roomIn(one, entry) >= 1);
    if (limit === undefined) return 0;
    const taken = Math.min(count, Math.floor(this.#roomIn(limit, entry)));
    this.#left.set(keyOf(limit, entry), this.#leftOf(limit, entry) - taken * amountOf(limit, entry));
    return taken;
  }

  /** Number of such containers that the limit leaves room for. */
  #roomIn(limit: Limit, entry: ContainerEntry): number {
    const each = amountOf(limit, entry);
    return each <= 0 ? Infinity : this.#leftOf(limit, entry) / each;
  }

  #leftOf(limit: Limit, entry: ContainerEntry): number {
    return this.#left.get(keyOf(limit, entry)) ?? limit.left;
  }
}

type Limit = MarketTurn['limits'][number];
const keyOf = ({ market }: Limit, { row }: ContainerEntry): string => `${row.workspaceId} ${market}`;
const amountOf = ({ market }: Limit, { spec }: ContainerEntry): number =>
  amountIn(market, { gpus: spec.gpuCount, cpuMillicores: spec.cpuMillicores });

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
  /** Markets in which a limit of its workspace leaves nothing for a container, when they were read last. */
  #fullIn: ReadonlyMap<ContainerId, readonly Market[]> = new Map();

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
    const uses = this.#usesOf(quotas);
    const held = new Map([...homes, ...overQuota(tried, quotas, uses)]);
    const asking = tried.filter(({ row }) => !held.has(row.id));
    this.#fullIn = new Map(
      asking.flatMap((entry) => {
        const full = turns.fullFor(entry);
        turns.take(entry, 1);
        return full.length === 0 ? [] : [[entry.row.id, full] as const];
      }),
    );
    const follow = this.#following(tried, held, { quotas, uses, turns });
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
      fullIn: this.#fullIn.get(row.id) ?? [],
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

  /** Use of workspaces with limits, by one look at all containers. */
  #usesOf(quotas: ReadonlyMap<WorkspaceId, Quota>): Map<WorkspaceId, Use> {
    const uses = new Map([...quotas].flatMap(([id, quota]) => (isBounded(quota) ? [[id, NO_USE] as const] : [])));
    if (uses.size === 0) return uses;
    for (const { row, spec } of this.#parts.containers.all()) {
      const use = row.state === 'PENDING' ? undefined : uses.get(row.workspaceId);
      if (use !== undefined) uses.set(row.workspaceId, plus(use, spec));
    }
    return uses;
  }

  /**
   * Containers that follow those that wait, as far as the limits of their workspaces allow, by the oldest one of each
   * queue. None follow in a queue where one is held: it would be held, too.
   */
  #following(
    entries: readonly ContainerEntry[],
    held: ReadonlyMap<ContainerId, Held>,
    {
      quotas,
      uses,
      turns,
    }: {
      readonly quotas: ReadonlyMap<WorkspaceId, Quota>;
      readonly uses: Map<WorkspaceId, Use>;
      readonly turns: Turns;
    },
  ): ReadonlyMap<ContainerId, number> {
    const { followOf } = this.#parts;
    const following = new Map<ContainerId, number>();
    if (followOf === undefined) return following;
    for (const [queue, waiting] of Map.groupBy(entries, ({ spec }) => spec.queue)) {
      const wanted = followOf(queue);
      const [oldest] = waiting;
      const isHeld = waiting.some(({ row }) => held.has(row.id) || this.#fullIn.has(row.id));
      if (wanted <= 0 || oldest === undefined || isHeld) continue;
      const { workspaceId, id } = oldest.row;
      const [quota, use] = [quotas.get(workspaceId), uses.get(workspaceId)];
      const room = quota === undefined || use === undefined ? wanted : roomFor(use, oldest.spec, quota);
      const count = turns.take(oldest, Math.min(wanted, room));
      if (count <= 0) continue;
      following.set(id, count);
      if (use !== undefined) uses.set(workspaceId, plus(use, oldest.spec, count));
    }
    return following;
  }
}

/** Takes the containers off what limits leave. @returns those beyond the limits, the first in turn within them */
function overQuota(
  entries: readonly ContainerEntry[],
  quotas: ReadonlyMap<WorkspaceId, Quota>,
  uses: Map<WorkspaceId, Use>,
): (readonly [ContainerId, Held])[] {
  const over: (readonly [ContainerId, Held])[] = [];
  for (const { row, spec } of entries) {
    const [quota, use] = [quotas.get(row.workspaceId), uses.get(row.workspaceId)];
    if (quota === undefined || use === undefined) continue;
    if (isOver(use, spec, quota)) over.push([row.id, 'quota']);
    else uses.set(row.workspaceId, plus(use, spec));
  }
  return over;
}

function isBounded(quota: Quota | undefined): quota is Quota {
  if (quota === undefined) return false;
  const { share: _, ...limits } = quota;
  return Object.values(limits).some((most) => most !== null && most !== undefined);
}
