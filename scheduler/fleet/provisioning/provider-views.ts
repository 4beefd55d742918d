// Providers as operators see them: the pools that use each, its machines, its last calls and the back-offs. Pure.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { PoolRow } from '../../stores/store/queries/pools.ts';
import type { ProviderCall } from '../../stores/store/queries/provider-calls.ts';
import { poolCapacity } from './pool-capacity.ts';
import type { ProviderSettings } from './providers-file.ts';
import { isOver, isPending } from './states.ts';
import type { ProvisionedRow } from './states.ts';

export interface ProviderView {
  readonly name: string;
  /** Settings in the providers file of this scheduler; null: the file does not name the provider. */
  readonly settings: ProviderSettings | null;
  /** Pools that name it or have machines of it, by name; at most MOST_POOLS. */
  readonly pools: readonly PoolOfProvider[];
  readonly poolCount: number;
  readonly machines: MachineCounts;
  /** Sum of the known prices of an hour. */
  readonly hourlyCost: number;
  /** The last call of each verb; a verb that was never called is absent. */
  readonly calls: readonly ProviderCall[];
}

export interface PoolOfProvider {
  readonly name: string;
  /** Owner of the pool; null: shared. */
  readonly workspaceId: WorkspaceId | null;
  /** Machines of the provider that are not over. */
  readonly machines: number;
  /** End of the pool's back-off (epoch milliseconds); null: there is none. */
  readonly backOffUntilMs: number | null;
  /** Failure that caused the back-off. */
  readonly failure: string | null;
}

export interface MachineCounts {
  readonly pending: number;
  readonly joined: number;
  readonly leaving: number;
}

/** Pools that are shown of a provider. */
export const MOST_POOLS = 100;

export interface ProviderFacts {
  readonly configured: ReadonlyMap<string, ProviderSettings>;
  /** Pools that name a provider. */
  readonly pools: readonly PoolRow[];
  /** Rows that are not over, and those that ended lately. */
  readonly rows: readonly ProvisionedRow[];
  readonly calls: readonly ProviderCall[];
  readonly nowMs: number;
}

/** @returns a view of each provider that the file, a pool or a machine names, by name */
export function providerViews(facts: ProviderFacts): readonly ProviderView[] {
  const alive = Map.groupBy(
    facts.rows.filter((row) => !isOver(row)),
    (row) => row.provider,
  );
  const pools = Map.groupBy(facts.pools, ({ settings }) => settings.provider ?? '');
  const calls = Map.groupBy(facts.calls, ({ provider }) => provider);
  const ofPool = Map.groupBy(facts.rows, ({ poolId }) => poolId);
  const names = new Set([...facts.configured.keys(), ...pools.keys(), ...alive.keys()]);
  names.delete('');
  return [...names].toSorted().map((name) => {
    const machines = alive.get(name) ?? [];
    const used = poolsOf(pools.get(name) ?? [], machines, ofPool, facts.nowMs);
    return {
      name,
      settings: facts.configured.get(name) ?? null,
      pools: used.slice(0, MOST_POOLS),
      poolCount: used.length,
      machines: countsOf(machines),
      hourlyCost: machines.reduce((sum, { hourlyCost }) => sum + (hourlyCost ?? 0), 0),
      calls: calls.get(name) ?? [],
    };
  });
}

function countsOf(rows: readonly ProvisionedRow[]): MachineCounts {
  const pending = rows.filter(isPending).length;
  const joined = rows.filter(({ state }) => state === 'joined').length;
  return { pending, joined, leaving: rows.length - pending - joined };
}

function poolsOf(
  naming: readonly PoolRow[],
  machines: readonly ProvisionedRow[],
  ofPool: ReadonlyMap<number, readonly ProvisionedRow[]>,
  nowMs: number,
): readonly PoolOfProvider[] {
  const within = Map.groupBy(machines, ({ poolId }) => poolId);
  const known = new Map(naming.map(({ id, name, workspaceId }) => [id, { name, workspaceId }]));
  // A pool that names another provider now may still have machines of this one.
  for (const [id, [row]] of within)
    if (row !== undefined && !known.has(id)) known.set(id, { name: row.poolName, workspaceId: row.poolWorkspaceId });
  return [...known]
    .map(([poolId, { name, workspaceId }]) => {
      const { notBeforeMs, lastFailure } = poolCapacity({ poolId, workspaceId }, ofPool.get(poolId) ?? []);
      const isOff = notBeforeMs > nowMs;
      return {
        name,
        workspaceId,
        machines: within.get(poolId)?.length ?? 0,
        backOffUntilMs: isOff ? notBeforeMs : null,
        failure: isOff ? lastFailure : null,
      };
    })
    .toSorted((a, b) => compare(a.name, b.name) || compare(a.workspaceId ?? '', b.workspaceId ?? ''));
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
