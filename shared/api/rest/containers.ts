import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Count, Id, OneOf } from './lists.ts';
import { QueryId, QueryList } from './query.ts';

export const ContainerRecord = Type.Object({
  container_id: Type.String(),
  stub_id: Id(),
  workspace_id: Id(),
  app_id: Type.String(),
  deployment_id: Type.String({ description: 'empty: a stub alone' }),
  worker_id: Type.String({ description: 'empty: placed nowhere yet' }),
  machine_id: Type.String(),
  status: OneOf(['PENDING', 'RUNNING', 'STOPPING']),
  scheduled_at: Count('unix seconds; 0: not yet'),
  started_at: Count('unix seconds; 0: not yet'),
  gpu: Type.String(),
  gpu_count: Count(),
  cpu: Count('millicores'),
  memory: Count('MiB'),
});
export type ContainerRecord = Static<typeof ContainerRecord>;

export const ContainerQuery = Type.Object({ stub_id: QueryId(), app_id: QueryId(), status: QueryList() });

/** All containers in one answer, without pages. */
export const ContainerList = Type.Array(ContainerRecord);
