import { Type } from 'typebox';
import type { Static } from 'typebox';
import { nullable } from '../fields.ts';
import { Count, Id, Time, listOf } from './lists.ts';
import { GivenShareRecord } from './shares.ts';
import { QueryInteger, QueryText } from './query.ts';

export const WorkspaceRecord = Type.Object({
  id: Id(),
  external_id: Id(),
  name: Type.String(),
  created_at: Time(),
  updated_at: Time(),
  signing_key: nullable(
    Type.String({ description: 'of the own workspace, for tokens that may sign in its name; else null' }),
  ),
  deleting_at: Type.Optional(Time()),
  volume_cache_enabled: Type.Boolean(),
  multi_gpu_enabled: Type.Boolean(),
  concurrency_limit: Type.Optional(
    Type.Object(
      { gpu_limit: nullable(Count('null: no bound')), cpu_millicore_limit: nullable(Count('null: no bound')) },
      { description: 'absent: neither is bounded' },
    ),
  ),
  share: Type.Optional(
    Type.Object(GivenShareRecord.properties, {
      description: 'of machines that all share; in the list of all workspaces, absent: the default',
    }),
  ),
});
export type WorkspaceRecord = Static<typeof WorkspaceRecord>;

export const WorkspaceQuery = Type.Object({
  limit: QueryInteger('1000 when absent or 0, and at most'),
  cursor: QueryText('next of the page before'),
});

export const WorkspaceList = listOf(WorkspaceRecord);

export const MAX_WORKSPACE_NAME = 100;

export const CreateWorkspace = Type.Object({
  name: Type.String({
    maxLength: MAX_WORKSPACE_NAME,
    description: 'empty: a short random one; several may have the same',
  }),
});

export const CreatedWorkspace = Type.Object({
  ...WorkspaceRecord.properties,
  token: Type.String({ description: 'its first token, this once' }),
});

export const WorkspaceDeletionRecord = Type.Object({
  id: Id(),
  name: Type.String(),
  state: Type.Union([Type.Literal('present'), Type.Literal('deleting')]),
  deleting_at: nullable(Time()),
  hold: Type.String({ description: 'what the deletion waits for; empty: nothing' }),
  refusal: Type.String({ description: 'why it cannot be deleted now; empty: it can, or is being deleted' }),
  deployments: Count('not deleted'),
  containers: Count('not ended'),
  volumes: Count(),
  volume_bytes: Count('as machines counted them last'),
  objects: Count('uploaded archives and files'),
  object_bytes: Count(),
  images: Count('that it defined'),
  secrets: Count(),
  models: Count(),
  machines: Count('in its own pools'),
});
export type WorkspaceDeletionRecord = Static<typeof WorkspaceDeletionRecord>;
