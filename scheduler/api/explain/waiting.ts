// Containers that wait for a machine, by deployment, as the leader sees them: how many, why, what is kept for them, and
// whether a pool grows. Any replica asks the leader, and keeps the answer for a second for all its readers.
// Invariants: nothing runs while nobody reads. A look counts refusals of machines for a few milliseconds; groups beyond
// have the reasons that were written last.
import type { ExplainedGrowth } from '#shared/api/explain.ts';
import { timestampOf } from '#shared/api/fields.ts';
import type { WaitingGroup } from '#shared/api/rest/waiting.ts';
import type { ContainerId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { KeptAnswers } from '#shared/kept-answers.ts';
import type { ReservationRow } from '../../control/plan/reservation-report.ts';
import type { Placer } from '../../control/placement/placer.ts';
import type { PlacementWait } from '../../control/placement/waiting.ts';
import type { ProvisioningLoop } from '../../control/provisioning/loop.ts';
import { NO_POOL } from '../../domain/named-pool.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import type { ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import { shownGrowth } from './growth.ts';
import { reservationText } from './reservation.ts';
import { rejectionSays, rejectionStep, rejectionTexts } from './texts.ts';

/** Groups that one look names. */
export const MOST_GROUPS = 200;
/** Milliseconds in which a look counts refusals. */
const COUNTED_FOR_MS = 20;
const KEPT_MS = 1_000;
/** Workspaces whose last answer is kept. */
const MOST_KEPT = 500;

/** A group without the names of its workspace and deployment, which the leader need not know. */
export type Waiting = Omit<WaitingGroup, 'workspace_name' | 'name'>;

export interface WaitingLook {
  readonly groups: readonly Waiting[];
  /** Groups and containers in all. */
  readonly groupCount: number;
  readonly containerCount: number;
  readonly atMs: number;
}

export interface WaitingReportParts {
  readonly containers: Pick<ContainerRegistry, 'pending'>;
  readonly placer: Pick<Placer, 'waitOf' | 'reservations'>;
  readonly provisioning: Pick<ProvisioningLoop, 'explain'>;
  readonly clock: Clock;
}

/** The leader's side. @param workspaceId - null: all workspaces, for an administrator */
export function lookAtWaiting(parts: WaitingReportParts, workspaceId: WorkspaceId | null): WaitingLook {
  const { containers, placer, clock } = parts;
  const groups = new Map<string, ContainerEntry[]>();
  let containerCount = 0;
  for (const entry of containers.pending()) {
    if (workspaceId !== null && entry.row.workspaceId !== workspaceId) continue;
    containerCount += 1;
    const { queue } = entry.spec;
    const group = groups.get(queue);
    if (group === undefined) groups.set(queue, [entry]);
    else group.push(entry);
  }
  const oldestFirst = [...groups.values()]
    .map((entries) => entries.toSorted((a, b) => a.row.createdAtMs - b.row.createdAtMs))
    .toSorted((a, b) => createdOf(a) - createdOf(b))
    .slice(0, MOST_GROUPS);
  const reserved = Map.groupBy(placer.reservations(), ({ containerId }) => containerId);
  const beganMs = clock.monotonicMs();
  return {
    groups: oldestFirst.flatMap((entries) => {
      const isCounted = clock.monotonicMs() - beganMs < COUNTED_FOR_MS;
      return groupOf(parts, entries, { isAll: workspaceId === null, isCounted, reserved }) ?? [];
    }),
    groupCount: groups.size,
    containerCount,
    atMs: clock.nowMs(),
  };
}

const createdOf = ([oldest]: readonly ContainerEntry[]): number => oldest?.row.createdAtMs ?? 0;

function groupOf(
  { placer, provisioning }: WaitingReportParts,
  entries: readonly ContainerEntry[],
  how: {
    readonly isAll: boolean;
    readonly isCounted: boolean;
    readonly reserved: ReadonlyMap<ContainerId, readonly ReservationRow[]>;
  },
): Waiting | undefined {
  const [oldest] = entries;
  if (oldest === undefined) return undefined;
  const { row, spec } = oldest;
  const wait = placer.waitOf(row.id, how.isCounted);
  // The container has found a place meanwhile.
  if (wait === undefined) return undefined;
  const growth = provisioning.explain(row.id).map((view) => shownGrowth(view, how.isAll));
  const [kept] = entries.flatMap((entry) => how.reserved.get(entry.row.id) ?? []);
  return {
    workspace_id: row.workspaceId,
    deployment_id: row.deploymentId,
    stub_id: row.stubId,
    containers: entries.length,
    oldest_at: timestampOf(row.createdAtMs) ?? '',
    oldest_id: row.id,
    asks: {
      gpu: [...spec.gpu],
      gpu_count: spec.gpuCount,
      cpu_millicores: spec.cpuMillicores,
      memory_mib: Math.round(spec.memoryBytes / (1024 * 1024)),
      pool: spec.poolName,
    },
    rejections: { ...wait.rejections },
    ...textsOf(wait, spec.poolName, growth),
    gives_up_at: timestampOf(wait.givesUpAtMs) ?? '',
    gives_up_with: wait.givesUpWith,
    reservation: kept === undefined ? null : reservationOf(kept, row.workspaceId, how.isAll),
    growth,
  };
}

/** Why it waits, and the step that helps: of the machines, or of the pool that would make one. */
function textsOf(
  wait: PlacementWait,
  poolName: string,
  growth: readonly ExplainedGrowth[],
): Pick<Waiting, 'text' | 'step'> {
  const pool = { ...NO_POOL, name: poolName };
  const said = rejectionTexts(wait.rejections ?? {}, pool);
  const [coming] = growth.filter(({ verdict }) => verdict === 'awaited');
  const text =
    wait.mainReason === null
      ? 'placement has not looked at it yet'
      : said.length === 0
        ? rejectionSays(wait.mainReason, pool)
        : said.join('; ');
  const step = coming === undefined ? growth.find((one) => one.step !== '')?.step : '';
  return { text, step: step ?? (wait.mainReason === null ? '' : rejectionStep(wait.mainReason, pool)) };
}

function reservationOf(
  kept: ReservationRow,
  workspaceId: WorkspaceId,
  isAdmin: boolean,
): NonNullable<Waiting['reservation']> {
  const ends = kept.heldBy.map(({ endsAtMs }) => endsAtMs);
  return {
    text: reservationText(kept, 'it', { workspaceId, isAdmin }, ({ containerId }) => containerId),
    until: timestampOf(ends.length === 0 || ends.includes(null) ? null : Math.max(...ends.map(Number))),
  };
}

/** The side of the replica that was asked: an answer of the leader serves all readers for a second. */
export class WaitingReads {
  readonly #ask: (workspaceId: WorkspaceId | null) => Promise<WaitingLook>;
  readonly #kept: KeptAnswers<WorkspaceId | null, WaitingLook>;

  /** @param ask - asks the leader. @throws AppError `not_leading` */
  constructor(ask: (workspaceId: WorkspaceId | null) => Promise<WaitingLook>, clock: Pick<Clock, 'monotonicMs'>) {
    this.#ask = ask;
    this.#kept = new KeptAnswers({ clock, most: MOST_KEPT, leastMs: KEPT_MS });
  }

  /** @throws AppError `not_leading` */
  async of(workspaceId: WorkspaceId | null): Promise<WaitingLook> {
    return await this.#kept.of(workspaceId, () => this.#ask(workspaceId));
  }
}
