import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Timestamp, nullable } from '../fields.ts';
import { Count, Id, OneOf, Time, listOf } from './lists.ts';
import { PAGE, QueryId, QueryIds, QueryList } from './query.ts';

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

/** A container that ended. */
export const EndedContainer = Type.Object({
  container_id: Type.String(),
  stub_id: Id(),
  stub_name: Type.String({ description: 'empty: the stub is gone' }),
  app_id: Type.String({ description: 'empty: the stub is gone' }),
  deployment_id: Type.String({ description: 'empty: a stub alone' }),
  machine_id: Type.String({ description: 'empty: it had no place' }),
  state: OneOf(['STOPPED', 'FAILED', 'LOST']),
  reason: Type.String({ description: 'why it ended' }),
  exit_code: nullable(Type.Integer()),
  message: Type.String({ description: 'the error, or the last lines of a start that failed' }),
  gpu: Type.String(),
  gpu_count: Count(),
  cpu: Count('millicores'),
  memory: Count('MiB'),
  created_at: Time(),
  started_at: { ...Timestamp(), description: 'null: it was never ready' },
  ended_at: Timestamp(),
});
export type EndedContainer = Static<typeof EndedContainer>;

export const EndedContainerQuery = Type.Object({
  stub_ids: QueryIds(),
  deployment_ids: QueryIds(),
  reasons: QueryList(),
  app_id: QueryId(),
  ...PAGE,
});

export const EndedContainers = listOf(EndedContainer);
