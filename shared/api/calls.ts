// Messages of calls that published clients make over gRPC. HTTP has other forms of them: invoke URLs.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Bytes, Flag, Int64, Text } from './fields.ts';

export const TaskQueuePutRequest = Type.Object({
  stubId: Text(),
  payload: Bytes({ description: 'JSON: `{"args": […], "kwargs": {…}}`' }),
});
export type TaskQueuePutRequest = Static<typeof TaskQueuePutRequest>;

export const TaskQueuePutResponse = Type.Object({ ok: Flag(), taskId: Text(), errMsg: Text() });
export type TaskQueuePutResponse = Static<typeof TaskQueuePutResponse>;

export const TaskQueueLengthRequest = Type.Object({ stubId: Text() });
export type TaskQueueLengthRequest = Static<typeof TaskQueueLengthRequest>;

export const TaskQueueLengthResponse = Type.Object({ ok: Flag(), length: Int64(), errMsg: Text() });
export type TaskQueueLengthResponse = Static<typeof TaskQueueLengthResponse>;
