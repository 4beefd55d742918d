import { Type } from 'typebox';
import type { Static } from 'typebox';
import { nullable } from '../fields.ts';
import { Count, Id, Time, listOf } from './lists.ts';
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
  volume_cache_enabled: Type.Boolean(),
  multi_gpu_enabled: Type.Boolean(),
  concurrency_limit: Type.Optional(
    Type.Object(
      { gpu_limit: nullable(Count('null: no bound')), cpu_millicore_limit: nullable(Count('null: no bound')) },
      { description: 'absent: neither is bounded' },
    ),
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
