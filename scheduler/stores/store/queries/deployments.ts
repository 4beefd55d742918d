import type { AppId, DeploymentId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import type { QueueControl } from '../../../domain/flow.ts';
import { isServing } from '../../../domain/rollouts.ts';
import type { RolloutState } from '../../../domain/rollouts.ts';
import { dateOrNull, many, maybeOne, msOf, msOrNull, one } from '../rows.ts';

export interface DeploymentRow {
  readonly id: DeploymentId;
  readonly workspaceId: WorkspaceId;
  readonly appId: AppId;
  readonly stubId: StubId;
  readonly name: string;
  readonly stubType: string;
  readonly version: number;
  readonly active: boolean;
  readonly subdomain: string;
  /** Lower bound written by Scale; null: the stub's own bounds. */
  readonly scaleMin: number | null;
  readonly scaleMax: number | null;
  /** Whether nothing of its queue begins. */
  readonly queuePaused: boolean;
  /** Most tasks of its queue that run at a time; null: any number. */
  readonly queueLimit: number | null;
  /** State of its rollout; null: it had none. */
  readonly rollout: RolloutState | null;
  /** When its rollout began; null: it had none. */
  readonly rolloutSinceMs: number | null;
  /** Sentence about the rollout's end. */
  readonly rolloutWhy: string;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
  readonly deletedAtMs: number | null;
}

export type NewDeployment = Pick<
  DeploymentRow,
  'id' | 'workspaceId' | 'appId' | 'stubId' | 'name' | 'stubType' | 'subdomain'
> & {
  /** `sha256:…`, or empty. */
  readonly imageDigest?: string;
  /** Calls of its name go on to an older version; absent: they reach this one. */
  readonly waits?: boolean;
};

interface Raw {
  id: string;
  workspace_id: string;
  app_id: string;
  stub_id: string;
  name: string;
  stub_type: string;
  version: number;
  active: boolean;
  subdomain: string;
  scale_min: number | null;
  scale_max: number | null;
  queue_paused: boolean;
  queue_limit: number | null;
  rollout: string | null;
  rollout_since: Date | null;
  rollout_why: string;
  created_at: Date;
  updated_at: Date;
  deleted_at: Date | null;
}
export const DEPLOYMENT_COLUMNS =
  'id, workspace_id, app_id, stub_id, name, stub_type, version, active, subdomain, scale_min, scale_max, queue_paused, queue_limit, rollout, rollout_since, rollout_why, created_at, updated_at, deleted_at';
export const deploymentOf = (row: Raw): DeploymentRow => ({
  id: row.id as DeploymentId,
  workspaceId: row.workspace_id as WorkspaceId,
  appId: row.app_id as AppId,
  stubId: row.stub_id as StubId,
  name: row.name,
  stubType: row.stub_type,
  version: row.version,
  active: row.active,
  subdomain: row.subdomain,
  scaleMin: row.scale_min,
  scaleMax: row.scale_max,
  queuePaused: row.queue_paused,
  queueLimit: row.queue_limit,
  rollout: row.rollout as RolloutState | null,
  rolloutSinceMs: msOrNull(row.rollout_since),
  rolloutWhy: row.rollout_why,
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
  deletedAtMs: msOrNull(row.deleted_at),
});

/** Order of the versions of a name: the first is the one that its calls reach. @param table - its alias */
export function servingFirst(table: string): string {
  return `(${table}.rollout is null or ${table}.rollout = 'done') desc, ${table}.version desc`;
}

/**
 * Whether calls of its name may reach the version: never one whose rollout failed, also where no other is left.
 * @param table - its alias
 */
export const mayServe = (table: string): string => `${table}.rollout is distinct from 'failed'`;

/** The order of servingFirst, of rows. */
export function isServedBefore(
  a: Pick<DeploymentRow, 'rollout' | 'version'>,
  b: Pick<DeploymentRow, 'rollout' | 'version'>,
): boolean {
  return isServing(a.rollout) === isServing(b.rollout) ? a.version > b.version : isServing(a.rollout);
}

/**
 * Makes the next version: the highest ever used for (workspace, name, stub type), deleted ones included, plus one. The
 * counter's row lock decides races, so two callers never get the same number and none fails.
 */
export function insertDeployment(db: Queryable, deployment: NewDeployment): Promise<DeploymentRow> {
  return one(
    db,
    `with next as (
       insert into deployment_versions as v (workspace_id, name, stub_type, last_version) values ($2, $5, $6, 1)
       on conflict (workspace_id, name, stub_type) do update set last_version = v.last_version + 1
       returning last_version
     )
     insert into deployments
       (id, workspace_id, app_id, stub_id, name, stub_type, version, subdomain, image_digest, rollout, rollout_since,
        queue_paused, queue_limit)
     select $1, $2, $3, $4, $5, $6, next.last_version, $7, $8,
       case when $9::boolean then 'waiting' end, case when $9::boolean then now() end,
       coalesce(before.queue_paused, false), before.queue_limit
     from next left join lateral (
       select d.queue_paused, d.queue_limit from deployments d
       where d.workspace_id = $2 and d.name = $5 and d.stub_type = $6 and d.deleted_at is null
       order by d.version desc limit 1) before on true
     returning ${DEPLOYMENT_COLUMNS}`,
    [
      deployment.id,
      deployment.workspaceId,
      deployment.appId,
      deployment.stubId,
      deployment.name,
      deployment.stubType,
      deployment.subdomain,
      deployment.imageDigest ?? '',
      deployment.waits ?? false,
    ],
    deploymentOf,
  );
}

/** The deployment with this id, if it is not deleted; of any workspace, callers compare it. */
export function deploymentById(db: Queryable, id: string): Promise<DeploymentRow | undefined> {
  return maybeOne(
    db,
    `select ${DEPLOYMENT_COLUMNS} from deployments where id = $1 and deleted_at is null`,
    [id],
    deploymentOf,
  );
}

/** Names of deployments by their ids, deleted ones, too. */
export async function namesOfDeployments(
  db: Queryable,
  ids: readonly DeploymentId[],
): Promise<ReadonlyMap<DeploymentId, string>> {
  const { rows } = await db.query<{ id: DeploymentId; name: string }>(
    'select id, name from deployments where id = any ($1::text[])',
    [ids],
  );
  return new Map(rows.map(({ id, name }) => [id, name]));
}

/** Whether the workspace has the deployment, or had it before it was deleted. */
export async function hasDeployment(db: Queryable, workspaceId: WorkspaceId, id: DeploymentId): Promise<boolean> {
  const { rows } = await db.query('select 1 from deployments where id = $1 and workspace_id = $2', [id, workspaceId]);
  return rows.length > 0;
}

/** Whether the workspace has a deployment of that name, or had it. @param appId - absent: in any app */
export async function hasDeploymentNamed(
  db: Queryable,
  workspaceId: WorkspaceId,
  name: string,
  appId?: AppId,
): Promise<boolean> {
  const { rows } = await db.query(
    'select 1 from deployments where workspace_id = $1 and name = $2 and ($3::text is null or app_id = $3) limit 1',
    [workspaceId, name, appId ?? null],
  );
  return rows.length > 0;
}

/** The deployment of each app that was made last and is not deleted. */
export function latestDeploymentsOfApps(
  db: Queryable,
  workspaceId: WorkspaceId,
  appIds: readonly AppId[],
): Promise<DeploymentRow[]> {
  return many(
    db,
    `select distinct on (app_id) ${DEPLOYMENT_COLUMNS} from deployments
     where workspace_id = $1 and app_id = any ($2::text[]) and deleted_at is null
     order by app_id, created_at desc, id desc`,
    [workspaceId, appIds],
    deploymentOf,
  );
}

/**
 * The deployment that `/{kind}/{name}/v{n}` or `/{kind}/{name}` names, active or not.
 * @param stubKind - the part of the stub type before `/`; null: any
 * @param version - null: the one that calls of the name reach
 */
export function deploymentByName(
  db: Queryable,
  workspaceId: WorkspaceId,
  stubKind: string | null,
  name: string,
  version: number | null,
): Promise<DeploymentRow | undefined> {
  return maybeOne(
    db,
    `select ${DEPLOYMENT_COLUMNS} from deployments d
     where workspace_id = $1 and name = $2 and ($3::text is null or split_part(stub_type, '/', 1) = $3::text) and deleted_at is null
       and case when $4::integer is null then ${mayServe('d')} else version = $4::integer end
     order by ${servingFirst('d')}, created_at desc limit 1`,
    [workspaceId, name, stubKind, version],
    deploymentOf,
  );
}

/** The version of a name, or the deployment of an id, that was deleted last. @param version - null: any */
export function lastDeleted(
  db: Queryable,
  workspaceId: WorkspaceId,
  of: { readonly id: string } | { readonly name: string; readonly version: number | null },
): Promise<DeploymentRow | undefined> {
  const [id, name, version] = 'id' in of ? [of.id, null, null] : [null, of.name, of.version];
  return maybeOne(
    db,
    `select ${DEPLOYMENT_COLUMNS} from deployments
     where workspace_id = $1 and deleted_at is not null and (id = $2 or name = $3)
       and ($4::integer is null or version = $4::integer)
     order by deleted_at desc, version desc limit 1`,
    [workspaceId, id, name, version],
    deploymentOf,
  );
}

/** Deployments that match the filter, newest first. An empty list in a filter matches nothing. */
export function listDeployments(
  db: Queryable,
  filter: {
    readonly workspaceId: WorkspaceId;
    readonly limit: number;
    readonly ids?: readonly string[];
    readonly name?: string;
    /** Case-sensitive part of the name. */
    readonly nameContains?: string;
    readonly active?: boolean;
    readonly version?: number;
    readonly stubTypes?: readonly string[];
    readonly stubIds?: readonly string[];
    readonly appId?: string;
    readonly subdomain?: string;
    /** The least number of containers, as scaled or as the stub says. */
    readonly minContainers?: number;
    readonly createdFromMs?: number;
    readonly createdToMs?: number;
    readonly showDeleted?: boolean;
    readonly offset?: number;
    /** Last row of the page before: only older deployments are returned. */
    readonly before?: { readonly createdAtMs: number; readonly id: string };
  },
): Promise<DeploymentRow[]> {
  return many(
    db,
    `select ${DEPLOYMENT_COLUMNS} from deployments
     where workspace_id = $1 and ($2::boolean or deleted_at is null)
       and ($3::text[] is null or id = any ($3::text[]))
       and ($4::text is null or name = $4)
       and ($5::text is null or strpos(name, $5) > 0)
       and ($6::boolean is null or active = $6)
       and ($7::integer is null or version = $7)
       and ($8::text[] is null or stub_type = any ($8::text[]))
       and ($9::text[] is null or stub_id = any ($9::text[]))
       and ($10::text is null or app_id = $10)
       and ($11::text is null or subdomain = $11)
       and ($12::integer is null or coalesce(scale_min, (select (s.config #>> '{autoscaler,minContainers}')::integer
         from stubs s where s.id = stub_id), 0) >= $12)
       and ($13::timestamptz is null or created_at >= $13)
       and ($14::timestamptz is null or created_at < $14::timestamptz + interval '1 millisecond')
       and ($15::timestamptz is null or (date_trunc('milliseconds', created_at), id) < ($15::timestamptz, $16::text))
     order by date_trunc('milliseconds', created_at) desc, id desc limit $17 offset $18`,
    [
      filter.workspaceId,
      filter.showDeleted ?? false,
      filter.ids ?? null,
      filter.name ?? null,
      filter.nameContains ?? null,
      filter.active ?? null,
      filter.version ?? null,
      filter.stubTypes ?? null,
      filter.stubIds ?? null,
      filter.appId ?? null,
      filter.subdomain ?? null,
      filter.minContainers ?? null,
      dateOrNull(filter.createdFromMs),
      dateOrNull(filter.createdToMs),
      dateOrNull(filter.before?.createdAtMs),
      filter.before?.id ?? null,
      filter.limit,
      filter.offset ?? 0,
    ],
    deploymentOf,
  );
}

/** Every active deployment of every workspace, for the autoscaler's start. */
export function listActiveDeployments(db: Queryable): Promise<DeploymentRow[]> {
  return many(
    db,
    `select ${DEPLOYMENT_COLUMNS} from deployments where active and deleted_at is null`,
    [],
    deploymentOf,
  );
}

/** Number of the workspace's deployments that are not deleted, counted no further than `most`. */
export async function countDeployments(db: Queryable, workspaceId: WorkspaceId, most: number): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `select count(*)::int as count from (
       select 1 from deployments where workspace_id = $1 and deleted_at is null limit $2
     ) counted`,
    [workspaceId, most],
  );
  return rows[0]?.count ?? 0;
}

/**
 * Starts or stops a deployment. A started one ticks from now on: ticks it missed while stopped are not made up for.
 * Starting or stopping a superseded version clears the mark of its successor. Stopping one ends its rollout.
 */
export function setDeploymentActive(
  db: Queryable,
  workspaceId: WorkspaceId,
  id: string,
  active: boolean,
): Promise<DeploymentRow | undefined> {
  return maybeOne(
    db,
    `update deployments set active = $3, superseded_by = null, updated_at = now(),
       ticked_to = case when $3 and not active then now() else ticked_to end,
       rollout_why = case when rollout = 'waiting' and not $3 then 'it was stopped' else rollout_why end,
       rollout = case when rollout = 'waiting' and not $3 then 'stopped' else rollout end
     where workspace_id = $1 and id = $2 and deleted_at is null returning ${DEPLOYMENT_COLUMNS}`,
    [workspaceId, id, active],
    deploymentOf,
  );
}

export function setDeploymentScale(
  db: Queryable,
  workspaceId: WorkspaceId,
  id: string,
  scale: { readonly min: number; readonly max: number },
): Promise<DeploymentRow | undefined> {
  return maybeOne(
    db,
    `update deployments set scale_min = $3, scale_max = $4, updated_at = now()
     where workspace_id = $1 and id = $2 and deleted_at is null returning ${DEPLOYMENT_COLUMNS}`,
    [workspaceId, id, scale.min, scale.max],
    deploymentOf,
  );
}

/** Pauses or bounds the queues of all versions of a name, or lets them go on. @returns these, newest first */
export function setQueueControl(
  db: Queryable,
  { workspaceId, name, stubType }: Pick<DeploymentRow, 'workspaceId' | 'name' | 'stubType'>,
  { paused, limit }: QueueControl,
): Promise<DeploymentRow[]> {
  return many(
    db,
    `with changed as (
       update deployments set queue_paused = $4, queue_limit = $5::integer, updated_at = now()
       where workspace_id = $1 and name = $2 and stub_type = $3 and deleted_at is null returning ${DEPLOYMENT_COLUMNS})
     select ${DEPLOYMENT_COLUMNS} from changed order by version desc`,
    [workspaceId, name, stubType, paused, limit],
    deploymentOf,
  );
}

/** Deletes a deployment softly: the row and its version number stay. */
export function deleteDeployment(
  db: Queryable,
  workspaceId: WorkspaceId,
  id: string,
): Promise<DeploymentRow | undefined> {
  return maybeOne(
    db,
    `update deployments set active = false, deleted_at = now(), updated_at = now()
     where workspace_id = $1 and id = $2 and deleted_at is null returning ${DEPLOYMENT_COLUMNS}`,
    [workspaceId, id],
    deploymentOf,
  );
}
