import { ChangeShare, ShareRecord } from '#shared/api/rest/shares.ts';
import type { GivenShareRecord } from '#shared/api/rest/shares.ts';
import { ShareQuery, ShareRowList } from '#shared/api/rest/share-rows.ts';
import type { ShareRowRecord } from '#shared/api/rest/share-rows.ts';
import { ReservationList } from '#shared/api/rest/reservations.ts';
import type { ReservationRecord } from '#shared/api/rest/reservations.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { ReservationRow } from '../../../control/plan/reservation-report.ts';
import type { ShareRow } from '../../../control/plan/share-report.ts';
import { marketOf, readShareChange } from '../../../domain/workspace-share.ts';
import type { ShareChange } from '../../../domain/workspace-share.ts';
import type { WorkspaceShare } from '../../../domain/shares.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { Shares, ShareView } from '../../../workspaces/identity/shares.ts';
import { actorBehind } from '../origin.ts';
import { NOT_LIMITED, READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface ShareRouteParts {
  readonly shares: Pick<Shares, 'of' | 'change'>;
  /** Sentences about markets of which more is guaranteed than there is, or that no machine has. */
  readonly guaranteeWarnings: () => Promise<readonly string[]>;
  /** Asks the leader what a workspace, or each, holds beside what would be fair. @throws AppError `not_leading` */
  readonly shareRows: (workspaceId: WorkspaceId | null) => Promise<readonly ShareRow[]>;
  /** Asks the leader which machines are kept for containers that wait. @throws AppError `not_leading` */
  readonly reservations: () => Promise<readonly ReservationRow[]>;
  readonly directory: Pick<Directory, 'workspace'>;
}

/** The share of a workspace. PUT changes the named parts, and is for the administrator. */
export function shareRoutes({
  shares,
  guaranteeWarnings,
  shareRows,
  reservations,
  directory,
}: ShareRouteParts): readonly RestRoute[] {
  const warnings = async ({ isAdmin }: Caller): Promise<string[]> => (isAdmin ? [...(await guaranteeWarnings())] : []);
  const show = async (id: string, caller: Caller, { share, declaredIn }: ShareView): Promise<ShareRecord> => ({
    workspace_id: id,
    ...shareRecord(share),
    declared_in: caller.isAdmin ? declaredIn : null,
    warnings: await warnings(caller),
  });
  const namesOf = async (ids: readonly WorkspaceId[]): Promise<ReadonlyMap<WorkspaceId, string>> =>
    new Map(
      await Promise.all(
        [...new Set(ids)].map(async (id) => [id, (await directory.workspace(id))?.name ?? id] as const),
      ),
    );
  const rows = async (workspaceId: WorkspaceId | null, market: string | undefined, caller: Caller) => {
    const wanted = market === undefined ? undefined : (marketOf(market) ?? market);
    const found = (await shareRows(workspaceId)).filter((row) => wanted === undefined || row.market === wanted);
    const names = await namesOf(found.flatMap((row) => row.workspaceId ?? []));
    return { data: found.map((row) => rowRecord(row, names)), next: '', warnings: await warnings(caller) };
  };
  return [
    restRoute({
      http: 'GET /share',
      grants: NOT_LIMITED,
      tag: 'installation',
      summary: 'Use of each GPU model and of cores by workspaces, beside what would be fair (administrator)',
      scope: 'admin',
      query: ShareQuery,
      answer: ShareRowList,
      errors: ['not_leading'],
      handle: async ({ query, caller }) => await rows(null, query.market, caller),
    }),
    restRoute({
      http: 'GET /share/reservations',
      grants: NOT_LIMITED,
      tag: 'installation',
      summary: 'Machines that are kept for containers which need much and have waited long (administrator)',
      scope: 'admin',
      answer: ReservationList,
      errors: ['not_leading'],
      handle: async () => {
        const found = await reservations();
        const ids = found.flatMap(({ workspaceId, heldBy }) => [workspaceId, ...heldBy.map((one) => one.workspaceId)]);
        const names = await namesOf(ids);
        return { data: found.map((row) => reservationRecord(row, names)), next: '' };
      },
    }),
    restRoute({
      http: 'GET /workspace/{ws}/markets',
      grants: READERS_OF_ALL,
      summary: 'Use of each GPU model and of cores by a workspace, beside what would be fair',
      query: ShareQuery,
      answer: ShareRowList,
      errors: ['not_leading'],
      handle: async ({ workspaceId, query, caller }) => await rows(workspaceId, query.market, caller),
    }),
    restRoute({
      http: 'GET /workspace/{ws}/share',
      grants: READERS_OF_ALL,
      summary: 'Weight, guarantees and limits of a workspace on machines that all share',
      answer: ShareRecord,
      errors: ['workspace_not_found'],
      handle: async ({ workspaceId, caller }) => show(workspaceId, caller, await shares.of(workspaceId)),
    }),
    restRoute({
      http: 'PUT /workspace/{ws}/share',
      summary: 'Change the share of a workspace; null: the default again (administrator)',
      scope: 'admin',
      body: ChangeShare,
      readBody: (sent) => readChange(sent),
      answer: ShareRecord,
      errors: ['workspace_not_found', 'share_declared'],
      handle: async (request) => {
        const { workspaceId, body, caller } = request;
        return show(workspaceId, caller, await shares.change(workspaceId, body, actorBehind(request)));
      },
    }),
  ];
}

export const shareRecord = ({ weight, guaranteed, limits }: WorkspaceShare): GivenShareRecord => ({
  weight,
  guaranteed: { ...guaranteed },
  limits: { ...limits },
});

const rowRecord = (row: ShareRow, names: ReadonlyMap<WorkspaceId, string>): ShareRowRecord => ({
  market: row.market,
  workspace_id: row.workspaceId,
  workspace_name: row.workspaceId === null ? '' : (names.get(row.workspaceId) ?? row.workspaceId),
  used: row.used,
  fair_share: row.fairShare,
  guaranteed: row.guaranteed,
  limit: row.limit,
  weight: row.weight,
  share: row.share,
  waiting: row.waiting,
  oldest_wait_seconds: row.oldestWaitMs / 1000,
});

const reservationRecord = (row: ReservationRow, names: ReadonlyMap<WorkspaceId, string>): ReservationRecord => ({
  market: row.market,
  machine_id: row.machineId,
  container_id: row.containerId,
  workspace_id: row.workspaceId,
  workspace_name: names.get(row.workspaceId) ?? row.workspaceId,
  since: new Date(row.sinceMs).toISOString(),
  gpus: row.gpus,
  free_gpus: row.freeGpus,
  held_by: row.heldBy.map((one) => ({
    container_id: one.containerId,
    workspace_id: one.workspaceId,
    workspace_name: names.get(one.workspaceId) ?? one.workspaceId,
    gpus: one.gpus,
    ends_at: one.endsAtMs === null ? null : new Date(one.endsAtMs).toISOString(),
  })),
});

/** Fields that are only shown; a change that sends them back is not refused for them. */
const SHOWN_ONLY: ReadonlySet<string> = new Set(['workspace_id', 'declared_in', 'warnings']);

function readChange(sent: Readonly<Record<string, unknown>>): ShareChange {
  const said = readShareChange(Object.fromEntries(Object.entries(sent).filter(([name]) => !SHOWN_ONLY.has(name))));
  if (said.kind === 'read') return said.change;
  const [field] = said.problems[0]?.split(' ') ?? [];
  throw new AppError('invalid_body', said.problems.join('; '), { details: { field } });
}
