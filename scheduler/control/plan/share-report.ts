// Use of each market by workspaces beside what would be fair, and who is before whom. Counted when somebody asks.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Market, PriorityClass } from '../../domain/shares.ts';
import { fairShares, jain } from './fair-share.ts';
import type { Claim } from './fair-share.ts';
import type { FitClass } from './fit-class.ts';
import type { Markets, MarketState, Standing, Tenant } from './markets.ts';
import { amountIn, capacityOf } from './markets.ts';

/** A workspace in a market; amounts are GPUs, or cores in the market `cpu`. */
export interface ShareRow {
  readonly market: Market;
  /** null: the sum of those that are not listed. */
  readonly workspaceId: WorkspaceId | null;
  readonly used: number;
  readonly guaranteed: number;
  /** null: no limit. */
  readonly limit: number | null;
  readonly weight: number;
  /** Dominant share above what is guaranteed, for each unit of weight. */
  readonly share: number;
  /** Amount that would be fair now, by what all hold and wait for. */
  readonly fairShare: number;
  /** Containers that wait. */
  readonly waiting: number;
  /** 0: none waits. */
  readonly oldestWaitMs: number;
}

/** A row, with what places it among others. */
export interface StandingRow extends ShareRow, Standing {
  readonly workspaceId: WorkspaceId;
  readonly share: number;
}

export interface MarketReport {
  readonly market: Market;
  readonly capacity: number;
  /** The workspaces that stand best first. */
  readonly rows: readonly StandingRow[];
  /** Jain's index of use by what would be fair. */
  readonly fairness: number;
  /** Since when the oldest container of each priority waits. */
  readonly oldestAtMs: ReadonlyMap<PriorityClass, number>;
}

/** Containers of a workspace that wait in a market. */
class Wait {
  containers = 0;
  amount = 0;
  oldestAtMs = Infinity;
}

/** Workspaces that hold something of a market, or wait for it. */
class Present {
  readonly byTenant = new Map<Tenant, Wait>();
  readonly oldestAtMs = new Map<PriorityClass, number>();

  of(tenant: Tenant): Wait {
    let wait = this.byTenant.get(tenant);
    if (wait === undefined) this.byTenant.set(tenant, (wait = new Wait()));
    return wait;
  }

  add(market: Market, { tenant, priority, head, size, gpuCount: gpus, cpuMillicores }: FitClass): void {
    const sinceMs = head?.wanted.createdAtMs ?? Infinity;
    const wait = this.of(tenant);
    wait.containers += size;
    wait.amount += size * amountIn(market, { gpus, cpuMillicores });
    wait.oldestAtMs = Math.min(wait.oldestAtMs, sinceMs);
    this.oldestAtMs.set(priority, Math.min(this.oldestAtMs.get(priority) ?? Infinity, sinceMs));
  }
}

/** Most workspaces of a market that are listed. */
export const MOST_LISTED = 200;

/** Counts the shares of every market. @param classes - those for which containers wait */
export function reportShares(markets: Markets, classes: Iterable<FitClass>, nowMs: number): readonly MarketReport[] {
  const present = new Map<MarketState, Present>([...markets.all].map((market) => [market, new Present()]));
  for (const tenant of markets.tenants) for (const market of markets.usedBy(tenant)) present.get(market)?.of(tenant);
  for (const fitClass of classes) {
    const { market } = fitClass;
    if (market !== undefined) present.get(market)?.add(market.name, fitClass);
  }
  return [...present].map(([market, those]) => reportOf(markets, market, those, nowMs));
}

function reportOf(markets: Markets, market: MarketState, present: Present, nowMs: number): MarketReport {
  const found = [...present.byTenant].map(([tenant, wait]) => {
    const used = amountIn(market.name, markets.useOf(tenant, market));
    return { tenant, used, wait, ...givenIn(market.name, tenant) };
  });
  const capacity = capacityOf(market);
  const fair = fairShares(
    capacity,
    found.map(({ tenant, used, wait }) => claimOf(market.name, tenant, used, wait.amount)),
  );
  const rows = found
    .map(({ tenant, used, wait, limit, guaranteed, weight }, index): StandingRow => {
      const { tier, share } = markets.standing(tenant, market);
      return {
        market: market.name,
        workspaceId: tenant.workspaceId,
        used,
        guaranteed,
        limit,
        weight,
        tier,
        share,
        fairShare: fair[index] ?? 0,
        waiting: wait.containers,
        oldestWaitMs: wait.containers === 0 ? 0 : Math.max(0, nowMs - wait.oldestAtMs),
      };
    })
    .sort((a, b) => a.tier - b.tier || a.share - b.share || b.oldestWaitMs - a.oldestWaitMs);
  return {
    market: market.name,
    capacity,
    rows,
    fairness: jain(rows.flatMap(({ used, fairShare }) => (fairShare > 0 ? used / fairShare : []))),
    oldestAtMs: present.oldestAtMs,
  };
}

/** The claim of a workspace on a market. @param more - amount that it asks for beyond what it has */
export function claimOf(market: Market, tenant: Tenant, used: number, more: number): Claim {
  const { limit, guaranteed, weight } = givenIn(market, tenant);
  const demand = used + more;
  return { demand: limit === null ? demand : Math.max(used, Math.min(demand, limit)), guaranteed, weight };
}

function givenIn(
  market: Market,
  { share }: Tenant,
): { readonly guaranteed: number; readonly limit: number | null; readonly weight: number } {
  const { guaranteed, limits, weight } = share;
  return { guaranteed: guaranteed[market] ?? 0, limit: limits[market] ?? null, weight };
}

/** The workspace in each market. */
export const sharesOf = (reports: readonly MarketReport[], workspaceId: WorkspaceId): readonly ShareRow[] =>
  reports.flatMap(({ rows }) => rows.filter((row) => row.workspaceId === workspaceId).map(shown));

/** The largest users and waiters of each market, and the others of it as a sum. */
export function listShares(reports: readonly MarketReport[], most = MOST_LISTED): readonly ShareRow[] {
  return reports.flatMap(({ rows }) => {
    const sorted = rows.toSorted((a, b) => b.used - a.used || b.waiting - a.waiting);
    const others = sorted.slice(most);
    const [one] = others;
    return [...sorted.slice(0, most).map(shown), ...(one === undefined ? [] : [sumOf(one.market, others)])];
  });
}

function shown(one: StandingRow): ShareRow {
  const { tier: _, ...row } = one;
  return row;
}

function sumOf(market: Market, rows: readonly StandingRow[]): ShareRow {
  const sum = (of: (row: StandingRow) => number): number => rows.reduce((all, row) => all + of(row), 0);
  return {
    market,
    workspaceId: null,
    used: sum(({ used }) => used),
    guaranteed: sum(({ guaranteed }) => guaranteed),
    limit: null,
    weight: sum(({ weight }) => weight),
    share: sum(({ share }) => share),
    fairShare: sum(({ fairShare }) => fairShare),
    waiting: sum(({ waiting }) => waiting),
    oldestWaitMs: Math.max(...rows.map(({ oldestWaitMs }) => oldestWaitMs)),
  };
}

/** Place of a workspace among those that wait for a market. */
export interface PlaceInLine {
  readonly market: Market;
  /** Workspaces with waiting containers that go before it; null: by arrival, who waits longest goes first. */
  readonly before: number | null;
  /** Other workspaces that hold something of the market, or wait for it. */
  readonly others: number;
  readonly used: number;
  readonly fairShare: number;
  /** Most that it may hold; null: no limit, or it holds less. */
  readonly limit: number | null;
}

/** @param asked - GPUs or cores of one more container @returns undefined: nothing of the workspace is there */
export function placeInLine(
  { rows, market }: MarketReport,
  workspaceId: WorkspaceId,
  asked: number,
): PlaceInLine | undefined {
  const waiting = rows.filter((row) => row.waiting > 0 || row.workspaceId === workspaceId);
  const before = waiting.findIndex((row) => row.workspaceId === workspaceId);
  const own = waiting[before];
  if (own === undefined) return undefined;
  const { used, fairShare, limit } = own;
  const others = rows.length - 1;
  return { market, before, others, used, fairShare, limit: limit !== null && used + asked > limit ? limit : null };
}
