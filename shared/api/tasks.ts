import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Filters, Flag, QueryInt64, Text, Timestamp, Uint32 } from './fields.ts';

export const Task = Type.Object({
  id: Text(),
  status: Text(),
  containerId: Text(),
  startedAt: Timestamp(),
  endedAt: Timestamp(),
  stubId: Text(),
  stubName: Text(),
  workspaceId: Text(),
  workspaceName: Text(),
  createdAt: Timestamp(),
  updatedAt: Timestamp(),
});
export type Task = Static<typeof Task>;

export const ListTasksRequest = Type.Object({ filters: Filters(), limit: QueryInt64() });
export type ListTasksRequest = Static<typeof ListTasksRequest>;

export const ListTasksResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  tasks: Type.Array(Task),
  total: Uint32({ description: 'How many are in this answer.' }),
});
export type ListTasksResponse = Static<typeof ListTasksResponse>;
