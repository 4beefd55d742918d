import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Rollout } from '../deployments.ts';
import { Timestamp, nullable } from '../fields.ts';
import { AppRecord } from './app-record.ts';
import { Count, Id, Time, listOf } from './lists.ts';
import {
  PAGE_OR_OFFSET,
  QueryFlag,
  QueryId,
  QueryIds,
  QueryInteger,
  QueryList,
  QueryText,
  QueryTime,
} from './query.ts';
import { StubRecord } from './stubs.ts';
import { WorkspaceRecord } from './workspaces.ts';

/** A deployment record, with fields in both spellings: published clients read the second. */
export const DeploymentRecord = Type.Object({
  id: Id(),
  external_id: Id(),
  name: Type.String(),
  active: Type.Boolean(),
  subdomain: Type.String(),
  stub_type: Type.String(),
  version: Count(),
  created_at: Time(),
  updated_at: Time(),
  deleted_at: Timestamp(),
  stub_id: Id(),
  app_id: Id(),
  workspace_id: Id(),
  stub: nullable(StubRecord),
  app: nullable(AppRecord),
  workspace: nullable(WorkspaceRecord),
  stub_name: Type.String(),
  workspace_name: Type.String(),
  url: Type.String(),
  invoke_url: Type.String(),
  stubId: Id(),
  stubType: Type.String(),
  stubName: Type.String(),
  workspaceId: Id(),
  workspaceName: Type.String(),
  createdAt: Time(),
  updatedAt: Time(),
  appId: Id(),
  rollout: nullable(Rollout),
  object_id: Type.String({ description: 'the object with its code; empty: it has none' }),
});
export type DeploymentRecord = Static<typeof DeploymentRecord>;

/** Most keys in the list of a deployment's keys. */
export const MOST_KEYS = 1_000;

/** Most of the bound on the tasks of a queue that run at a time. */
export const MOST_QUEUE_LIMIT = 100_000;

/** Changes of a queue. */
export const ChangeQueue = Type.Object({
  paused: Type.Optional(
    Type.Boolean({ description: 'true: nothing of the queue begins; tasks are accepted and wait' }),
  ),
  limit: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: MOST_QUEUE_LIMIT,
      description: 'most tasks of the queue that run at a time; 0: any number',
    }),
  ),
});
export type ChangeQueue = Static<typeof ChangeQueue>;

/** A deployment's queue, and the keys of its flow control. */
export const FlowRecord = Type.Object({
  concurrency: nullable(Count('most tasks of a key that run at a time')),
  key: Type.String({ description: 'the field of the input that is the key; empty: the call gives it' }),
  throttle: Type.String({ description: 'pace at which tasks of a key start, such as 100/m; empty: any' }),
  rate: Type.String({ description: 'pace at which calls of a key are taken; empty: any' }),
  priority: nullable(
    Type.Integer({ description: 'head start of calls that give none, in seconds; null: no priorities' }),
  ),
  delayed: Count('tasks that wait for their turn under the throttle, or for a retry'),
  debounce: nullable(Count('seconds without another call of a key after which its task begins')),
  singleton: Type.String({ description: 'skip or replace: a key has one open task; empty: any number' }),
  fair_key: Type.String({ description: 'the field of the input by whose values tasks take turns; empty: none' }),
  paused: Type.Boolean({ description: 'nothing of the queue begins' }),
  limit: nullable(Count('most tasks of the queue that run at a time')),
  waiting: Count('tasks that wait for a slot in a container'),
  running: Count(),
  held: Count('tasks that wait because of flow control'),
  limits: Type.Array(
    Type.Object({
      name: Type.String(),
      most: Count(),
      running: Count('tasks of all deployments of the workspace'),
      waiting: Count(),
    }),
  ),
  data: Type.Array(
    Type.Object({ key: Type.String(), running: Count('tasks that run or are handed to the queue'), waiting: Count() }),
    { maxItems: MOST_KEYS },
  ),
});
export type FlowRecord = Static<typeof FlowRecord>;

export const FlowQuery = Type.Object({ limit: QueryInteger(`how many keys at most; ${MOST_KEYS} at the most`) });

export const DeploymentQuery = Type.Object({
  name: QueryText('part of the name'),
  search_query: QueryText('an id, or part of the name'),
  active: QueryFlag(),
  version: QueryText('3 or v3; 0, latest and undefined: any'),
  stub_type: QueryList('a kind, or a type such as endpoint/deployment'),
  stub_ids: QueryIds(),
  app_id: QueryId(),
  subdomain: QueryText(),
  min_containers: QueryInteger('of the autoscaler, at least'),
  created_at_start: QueryTime(),
  created_at_end: QueryTime(),
  show_deleted: QueryFlag(),
  ...PAGE_OR_OFFSET,
  pagination: QueryFlag('false: a bare list; X-Next-Cursor has the cursor of the next one, where there are more'),
});
export type DeploymentQuery = Static<typeof DeploymentQuery>;

export const DeploymentList = Type.Union([listOf(DeploymentRecord), Type.Array(DeploymentRecord)]);

export const DeploymentUrlQuery = Type.Object({
  url_type: QueryText('host or path; without it the form that the installation prefers'),
});

export const DeploymentUrl = Type.Object({ url: Type.String() });
