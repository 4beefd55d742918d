import { Type } from 'typebox';
import type { Static } from 'typebox';
import { beyondDocument, Bytes, Filters, Flag, Float, ListLimit, Text, Timestamp, Uint32 } from './fields.ts';

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
  rerunOf: beyondDocument(Text({ description: 'the task whose input this one has; empty: none' })),
  createdAt: Timestamp(),
  updatedAt: Timestamp(),
});
export type Task = Static<typeof Task>;

export const ListTasksRequest = Type.Object({ filters: Filters(), limit: ListLimit() });
export type ListTasksRequest = Static<typeof ListTasksRequest>;

export const ListTasksResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  tasks: Type.Array(Task),
  total: Uint32({ description: 'How many are in this answer.' }),
});
export type ListTasksResponse = Static<typeof ListTasksResponse>;

export const StartTaskRequest = Type.Object({ taskId: Text(), containerId: Text() });
export type StartTaskRequest = Static<typeof StartTaskRequest>;

/** The answer of StartTask and EndTask, which has no field for a text. */
export const TaskVerbResponse = Type.Object({ ok: Flag() });
export type TaskVerbResponse = Static<typeof TaskVerbResponse>;

export const EndTaskRequest = Type.Object({
  taskId: Text(),
  taskDuration: Float({ description: 'seconds' }),
  taskStatus: Text({ description: 'COMPLETE, ERROR or RETRY' }),
  containerId: Text(),
  containerHostname: Text(),
  keepWarmSeconds: Float(),
  result: Bytes(),
});
export type EndTaskRequest = Static<typeof EndTaskRequest>;

export const StopTasksRequest = Type.Object({ taskIds: Type.Array(Text()) });
export type StopTasksRequest = Static<typeof StopTasksRequest>;
