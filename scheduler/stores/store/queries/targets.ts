// Targets of invocations, in one row each: deployment, stub and code together, as the target cache keeps them.
import type { AppId, DeploymentId, ObjectId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { QueueControl } from '../../../domain/flow.ts';
import type { RolloutState } from '../../../domain/rollouts.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne } from '../rows.ts';
import { mayServe, servingFirst } from './deployments.ts';

export interface TargetRow {
  readonly workspaceId: WorkspaceId;
  readonly appId: AppId;
  readonly stubId: StubId;
  readonly stubName: string;
  readonly stubType: string;
  readonly config: Readonly<Record<string, unknown>>;
  readonly code: { readonly objectId: ObjectId; readonly sha256: string; readonly sizeBytes: number } | null;
  /** null: the stub itself. */
  readonly deployment: {
    readonly id: DeploymentId;
    readonly name: string;
    /** Host label of the name. */
    readonly subdomain: string;
    readonly version: number;
    readonly active: boolean;
    readonly supersededBy: number | null;
    readonly rollout: RolloutState | null;
    readonly imageDigest: string;
    readonly scale: { readonly minContainers: number; readonly maxContainers: number } | null;
    readonly queueControl: QueueControl;
  } | null;
}

interface Raw {
  workspace_id: string;
  app_id: string;
  stub_id: string;
  stub_name: string;
  stub_type: string;
  config: Record<string, unknown>;
  object_id: string | null;
  sha256: string | null;
  size: number | null;
  deployment_id: string | null;
  name: string | null;
  subdomain: string | null;
  version: number | null;
  active: boolean | null;
  superseded_by: number | null;
  rollout: string | null;
  image_digest: string | null;
  scale_min: number | null;
  scale_max: number | null;
  queue_paused: boolean | null;
  queue_limit: number | null;
}
const STUB_COLUMNS =
  's.workspace_id, s.app_id, s.id as stub_id, s.name as stub_name, s.type as stub_type, s.config, o.id as object_id, o.sha256, o.size';
const DEPLOYMENT_COLUMNS =
  'd.id as deployment_id, d.name, d.subdomain, d.version, d.active, d.superseded_by, d.rollout, d.image_digest, d.scale_min, d.scale_max, d.queue_paused, d.queue_limit';
/** Nothing of a workspace that is being deleted is a target. */
const OPEN = 'join workspaces w on w.id = s.workspace_id and w.deleting_at is null';
const FROM_DEPLOYMENTS = `select ${STUB_COLUMNS}, ${DEPLOYMENT_COLUMNS} from deployments d
  join stubs s on s.id = d.stub_id ${OPEN} left join objects o on o.id = s.object_id`;

const map = (row: Raw): TargetRow => ({
  workspaceId: row.workspace_id as WorkspaceId,
  appId: row.app_id as AppId,
  stubId: row.stub_id as StubId,
  stubName: row.stub_name,
  stubType: row.stub_type,
  config: row.config,
  code:
    row.object_id === null || row.sha256 === null
      ? null
      : { objectId: row.object_id as ObjectId, sha256: row.sha256, sizeBytes: row.size ?? 0 },
  deployment:
    row.deployment_id === null
      ? null
      : {
          id: row.deployment_id as DeploymentId,
          name: row.name ?? '',
          subdomain: row.subdomain ?? '',
          version: row.version ?? 0,
          active: row.active === true,
          supersededBy: row.superseded_by ?? null,
          rollout: (row.rollout ?? null) as RolloutState | null,
          imageDigest: row.image_digest ?? '',
          scale:
            row.scale_min === null || row.scale_max === null
              ? null
              : { minContainers: row.scale_min, maxContainers: row.scale_max },
          queueControl: { paused: row.queue_paused === true, limit: row.queue_limit ?? null },
        },
});

/** The target of a deployment that is not deleted, active or not; of any workspace, callers compare it. */
export function targetOfDeployment(db: Queryable, id: string): Promise<TargetRow | undefined> {
  return maybeOne(db, `${FROM_DEPLOYMENTS} where d.id = $1 and d.deleted_at is null`, [id], map);
}

/**
 * The target of `/{kind}/{name}/v{n}` or `/{kind}/{name}`, active or not.
 * @param version - null: the one that calls of the name reach
 */
export function targetByName(
  db: Queryable,
  workspaceId: WorkspaceId,
  kind: string,
  name: string,
  version: number | null,
): Promise<TargetRow | undefined> {
  return maybeOne(
    db,
    `${FROM_DEPLOYMENTS}
     where d.workspace_id = $1 and d.name = $2 and split_part(d.stub_type, '/', 1) = $3 and d.deleted_at is null
       and case when $4::integer is null then ${mayServe('d')} else d.version = $4::integer end
     order by ${servingFirst('d')}, d.created_at desc limit 1`,
    [workspaceId, name, kind, version],
    map,
  );
}

/**
 * The target that the host label of a deployment names, active or not, in any workspace; callers compare the workspace.
 * @param version - null: the one that calls of the name reach
 */
export function targetBySubdomain(
  db: Queryable,
  subdomain: string,
  version: number | null,
): Promise<TargetRow | undefined> {
  return maybeOne(
    db,
    `${FROM_DEPLOYMENTS}
     where d.subdomain = $1 and d.deleted_at is null
       and case when $2::integer is null then ${mayServe('d')} else d.version = $2::integer end
     order by ${servingFirst('d')} limit 1`,
    [subdomain, version],
    map,
  );
}

/**
 * A stub as it is invoked by its own id: by its newest deployment when it has any, active ones and those whose rollout
 * is done first; else by itself. The stub may be of any workspace.
 */
export function targetOfStub(db: Queryable, stubId: string): Promise<TargetRow | undefined> {
  return maybeOne(
    db,
    `select ${STUB_COLUMNS}, ${DEPLOYMENT_COLUMNS} from stubs s ${OPEN} left join objects o on o.id = s.object_id
     left join deployments d on d.stub_id = s.id and d.deleted_at is null
     where s.id = $1 order by d.active desc nulls last, ${servingFirst('d')} nulls last limit 1`,
    [stubId],
    map,
  );
}

/** A stub apart from its deployments, as the queue of a plain stub needs it. The stub may be of any workspace. */
export function targetOfPlainStub(db: Queryable, stubId: string): Promise<TargetRow | undefined> {
  return maybeOne(
    db,
    `select ${STUB_COLUMNS}, null as deployment_id, null as name, null::integer as version, null::boolean as active,
       null::integer as superseded_by, null as rollout, null::integer as scale_min, null::integer as scale_max,
       null::boolean as queue_paused, null::integer as queue_limit
     from stubs s ${OPEN} left join objects o on o.id = s.object_id where s.id = $1`,
    [stubId],
    map,
  );
}

/**
 * Active deployments that want containers without work, roll out, or have bounds of Scale, for the autoscaler. Others
 * whose queue is paused or bounded are among them.
 */
export function warmTargets(db: Queryable): Promise<TargetRow[]> {
  return many(
    db,
    `${FROM_DEPLOYMENTS} where d.active and d.deleted_at is null
       and (d.scale_min is not null or d.rollout = 'waiting' or d.queue_paused or d.queue_limit is not null
         or coalesce((s.config #>> '{autoscaler,minContainers}')::integer, 0) > 0)`,
    [],
    map,
  );
}
