// Things of a workspace that a person looks for: by an id or its beginning, or by a part of a name.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many } from '../rows.ts';

export interface Found {
  readonly kind: 'deployment' | 'task' | 'container' | 'app';
  readonly id: string;
  readonly name: string;
  /** Version of a deployment, or state of another thing. */
  readonly detail: string;
}

interface Raw {
  kind: Found['kind'];
  id: string;
  name: string;
  detail: string;
}
const foundOf = ({ kind, id, name, detail }: Raw): Found => ({ kind, id, name, detail });

/** Names that contain the text, those that begin with it first: a deployment's newest version, and apps. */
export function namesWith(db: Queryable, workspaceId: WorkspaceId, text: string, limit: number): Promise<Found[]> {
  return many(
    db,
    `select kind, id, name, detail from (
       (select distinct on (name, stub_type) 'deployment' as kind, id, name, 'v' || version as detail from deployments
         where workspace_id = $1 and deleted_at is null and position($2 in lower(name)) > 0
         order by name, stub_type, version desc limit 1000)
       union all
       (select 'app', id, name, '' from apps
         where workspace_id = $1 and position($2 in lower(name)) > 0 limit 1000)) named
     order by position($2 in lower(name)) > 1, kind desc, name, id limit $3`,
    [workspaceId, text.toLowerCase(), limit],
    foundOf,
  );
}

/** Tasks, containers and deployments whose ids begin so. The beginning has six characters at least. */
export function idsFrom(db: Queryable, workspaceId: WorkspaceId, start: string, limit: number): Promise<Found[]> {
  return many(
    db,
    `select kind, id, name, detail from (
       (select 'task' as kind, id, coalesce((select name from stubs where stubs.id = stub_id), '') as name,
           status as detail from tasks
         where id >= $2 and id <= $2 || 'zzzz' and starts_with(id, $2) and workspace_id = $1 limit $3)
       union all
       (select 'deployment', id, name, 'v' || version from deployments
         where id >= $2 and id <= $2 || 'zzzz' and starts_with(id, $2) and workspace_id = $1 and deleted_at is null
         limit $3)
       union all
       (select 'container', id, coalesce((select name from stubs where stubs.id = stub_id), ''), state from containers
         where id >= $2 and id <= $2 || 'zzzz' and starts_with(id, $2) and workspace_id = $1 limit $3)) found
     limit $3`,
    [workspaceId, start, limit],
    foundOf,
  );
}
