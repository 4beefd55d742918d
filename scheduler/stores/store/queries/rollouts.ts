// Rollouts of deployments: which version the calls of a name reach, and rollouts that begin and end.
import type { DeploymentId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { RolloutState } from '../../../domain/rollouts.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOrNull } from '../rows.ts';
import { DEPLOYMENT_COLUMNS, deploymentOf, isServedBefore, mayServe, servingFirst } from './deployments.ts';
import type { DeploymentRow } from './deployments.ts';

/** The versions of one name. */
export type VersionsOf = Pick<DeploymentRow, 'workspaceId' | 'name' | 'stubType'>;

/** The version that calls of the name reach, active or not. */
export function servingDeployment(
  db: Queryable,
  { workspaceId, name, stubType }: VersionsOf,
): Promise<DeploymentRow | undefined> {
  return maybeOne(
    db,
    `select ${DEPLOYMENT_COLUMNS} from deployments d
     where workspace_id = $1 and name = $2 and stub_type = $3 and deleted_at is null and ${mayServe('d')}
     order by ${servingFirst('d')} limit 1`,
    [workspaceId, name, stubType],
    deploymentOf,
  );
}

/** The highest version of the name. */
export function highestDeployment(
  db: Queryable,
  { workspaceId, name, stubType }: VersionsOf,
): Promise<DeploymentRow | undefined> {
  return maybeOne(
    db,
    `select ${DEPLOYMENT_COLUMNS} from deployments
     where workspace_id = $1 and name = $2 and stub_type = $3 and deleted_at is null order by version desc limit 1`,
    [workspaceId, name, stubType],
    deploymentOf,
  );
}

/** A name's version that calls reach, or its newest where no version may serve; and its highest version. */
export interface NamedVersion {
  readonly row: DeploymentRow;
  readonly highest: Pick<DeploymentRow, 'id' | 'name' | 'version' | 'rollout' | 'rolloutSinceMs' | 'rolloutWhy'>;
}

type RawNamed = Parameters<typeof deploymentOf>[0] & {
  high_id: string;
  high_version: number;
  high_rollout: string | null;
  high_since: Date | null;
  high_why: string;
};

/** Every name of a workspace with the version that its calls reach, in the order of names. */
export function namedVersions(db: Queryable, workspaceId: WorkspaceId, limit: number): Promise<NamedVersion[]> {
  return many(
    db,
    `select d.*, h.id as high_id, h.version as high_version, h.rollout as high_rollout, h.rollout_since as high_since,
       h.rollout_why as high_why
     from (select distinct on (name, stub_type) ${DEPLOYMENT_COLUMNS} from deployments d
       where workspace_id = $1 and deleted_at is null
       order by name, stub_type, ${mayServe('d')} desc, ${servingFirst('d')} limit $2) d
     join lateral (select v.id, v.version, v.rollout, v.rollout_since, v.rollout_why from deployments v
       where v.workspace_id = $1 and v.name = d.name and v.stub_type = d.stub_type and v.deleted_at is null
       order by v.version desc limit 1) h on true
     order by d.name, d.stub_type`,
    [workspaceId, limit],
    (row: RawNamed) => ({
      row: deploymentOf(row),
      highest: {
        id: row.high_id as DeploymentId,
        name: row.name,
        version: row.high_version,
        rollout: row.high_rollout as RolloutState | null,
        rolloutSinceMs: msOrNull(row.high_since),
        rolloutWhy: row.high_why,
      },
    }),
  );
}

/** The version that calls of each name reach, of every kind that has the name. */
export async function servingIds(
  db: Queryable,
  workspaceId: WorkspaceId,
  names: readonly string[],
): Promise<ReadonlySet<DeploymentId>> {
  if (names.length === 0) return new Set();
  const ids = await many(
    db,
    `select distinct on (name, stub_type) id from deployments d
     where workspace_id = $1 and name = any ($2::text[]) and deleted_at is null and ${mayServe('d')}
     order by name, stub_type, ${servingFirst('d')}`,
    [workspaceId, [...new Set(names)]],
    ({ id }: { id: string }) => id as DeploymentId,
  );
  return new Set(ids);
}

/** The same as servingIds, of rows that hold every version of their names. */
export function servingAmong(
  rows: readonly Pick<DeploymentRow, 'id' | 'name' | 'rollout' | 'stubType' | 'version'>[],
): ReadonlySet<DeploymentId> {
  const first = new Map<string, (typeof rows)[number]>();
  for (const row of rows) {
    if (row.rollout === 'failed') continue;
    const key = `${row.stubType} ${row.name}`;
    const other = first.get(key);
    if (other === undefined || isServedBefore(row, other)) first.set(key, row);
  }
  return new Set([...first.values()].map(({ id }) => id));
}

/** A version that waits, and the one that calls of its name reach meanwhile; null: there is no other. */
export interface WaitingRollout {
  readonly newer: DeploymentRow;
  readonly older: {
    readonly id: DeploymentId;
    readonly stubId: StubId;
    readonly version: number;
    readonly active: boolean;
  } | null;
}

type RawWaiting = Parameters<typeof deploymentOf>[0] & {
  older_id: string | null;
  older_stub_id: string | null;
  older_version: number | null;
  older_active: boolean | null;
};

/** Every rollout that waits, in all workspaces. */
export function waitingRollouts(db: Queryable): Promise<WaitingRollout[]> {
  return many(
    db,
    `select d.*, o.id as older_id, o.stub_id as older_stub_id, o.version as older_version, o.active as older_active
     from deployments d left join lateral (
       select v.id, v.stub_id, v.version, v.active from deployments v
       where v.workspace_id = d.workspace_id and v.name = d.name and v.stub_type = d.stub_type
         and v.deleted_at is null and v.id <> d.id and ${mayServe('v')}
       order by ${servingFirst('v')} limit 1
     ) o on true
     where d.rollout = 'waiting' and d.deleted_at is null`,
    [],
    (row: RawWaiting) => ({
      newer: deploymentOf(row),
      older:
        row.older_id === null
          ? null
          : {
              id: row.older_id as DeploymentId,
              stubId: row.older_stub_id as StubId,
              version: row.older_version ?? 0,
              active: row.older_active === true,
            },
    }),
  );
}

/**
 * Ends a rollout that waits.
 * @param fence - of the leader that decided it; absent: a person did
 * @returns undefined: it does not wait any more, or a later leader has led
 */
export function endRollout(
  db: Queryable,
  id: DeploymentId,
  end: { readonly state: RolloutState; readonly why: string; readonly fence?: number },
): Promise<DeploymentRow | undefined> {
  return maybeOne(
    db,
    `with led as (select fence from leadership where id = 1 for share)
     update deployments set rollout = $2, rollout_why = $3, updated_at = now()
     where id = $1 and rollout = 'waiting' and deleted_at is null
       and ($4::bigint is null or (select fence from led) <= $4::bigint)
     returning ${DEPLOYMENT_COLUMNS}`,
    [id, end.state, end.why, end.fence ?? null],
    deploymentOf,
  );
}

/** Begins the rollout of a version again, or makes it the serving one. */
export function setRollout(
  db: Queryable,
  id: DeploymentId,
  to: { readonly state: RolloutState; readonly why: string },
): Promise<DeploymentRow | undefined> {
  return maybeOne(
    db,
    `update deployments set rollout = $2, rollout_why = $3, rollout_since = now(), updated_at = now()
     where id = $1 and deleted_at is null returning ${DEPLOYMENT_COLUMNS}`,
    [id, to.state, to.why],
    deploymentOf,
  );
}

/** Ends the rollouts that wait of versions before this one. @returns those versions */
export function supersedeRollouts(db: Queryable, by: DeploymentRow): Promise<DeploymentRow[]> {
  return many(
    db,
    `update deployments set rollout = 'superseded', rollout_why = $5, updated_at = now()
     where workspace_id = $1 and name = $2 and stub_type = $3 and version < $4 and rollout = 'waiting'
       and deleted_at is null returning ${DEPLOYMENT_COLUMNS}`,
    [by.workspaceId, by.name, by.stubType, by.version, `v${by.version} was deployed`],
    deploymentOf,
  );
}

/** Withdraws the versions above this one that serve, and those that wait. @returns those versions */
export function withdrawAbove(
  db: Queryable,
  to: DeploymentRow,
  { why, waiting }: { readonly why: string; readonly waiting: boolean },
): Promise<DeploymentRow[]> {
  return many(
    db,
    `update deployments set rollout = 'withdrawn', rollout_why = $5, updated_at = now()
     where workspace_id = $1 and name = $2 and stub_type = $3 and version > $4
       and (rollout is null or rollout = 'done' or (rollout = 'waiting' and $6::boolean)) and deleted_at is null
     returning ${DEPLOYMENT_COLUMNS}`,
    [to.workspaceId, to.name, to.stubType, to.version, why, waiting],
    deploymentOf,
  );
}

/**
 * The version that calls of a name go to when the one that served is deleted: the newest active one of which a
 * container has started, else the newest of which none has failed to start. A version from which somebody rolled back
 * comes last. A rollout that waits ends by itself.
 */
export function heirOf(db: Queryable, { workspaceId, name, stubType }: VersionsOf): Promise<DeploymentRow | undefined> {
  const containers = 'from containers c where c.stub_id = d.stub_id and c.deployment_id = d.id and c.started_at is';
  return maybeOne(
    db,
    `select ${DEPLOYMENT_COLUMNS} from deployments d
     where workspace_id = $1 and name = $2 and stub_type = $3 and deleted_at is null and active and ${mayServe('d')}
       and rollout is distinct from 'waiting'
     order by d.rollout is distinct from 'withdrawn' desc, exists (select 1 ${containers} not null) desc,
       exists (select 1 ${containers} null and c.state = 'FAILED'), version desc limit 1`,
    [workspaceId, name, stubType],
    deploymentOf,
  );
}
