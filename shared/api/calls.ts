// Messages of calls that published clients make over gRPC. HTTP has other forms of them: invoke URLs.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Bytes, Flag, Int32, Int64, nullable, Text, Uint32 } from './fields.ts';

export const FunctionInvokeRequest = Type.Object({
  stubId: Text(),
  args: Bytes({ description: 'pickled `{"args": …, "kwargs": …}`' }),
  headless: Flag({ description: 'the task goes on without its caller' }),
  taskId: Text({ description: 'the task of this call, where its stream broke off; empty: a new call' }),
  logOffset: Int64({ description: 'bytes of the output that the caller has' }),
});
export type FunctionInvokeRequest = Static<typeof FunctionInvokeRequest>;

/** The first message has the task's id alone, those behind it a piece of the output each, the last one the end. */
export const FunctionInvokeResponse = Type.Object({
  taskId: Text(),
  output: Text(),
  done: Flag(),
  exitCode: Int32(),
  result: Bytes({ description: 'the pickled result' }),
});
export type FunctionInvokeResponse = Static<typeof FunctionInvokeResponse>;

export const FunctionScheduleRequest = Type.Object({ stubId: Text(), when: Text(), deploymentId: Text() });
export type FunctionScheduleRequest = Static<typeof FunctionScheduleRequest>;

export const FunctionScheduleResponse = Type.Object({ ok: Flag(), errMsg: Text(), scheduledJobId: Text() });
export type FunctionScheduleResponse = Static<typeof FunctionScheduleResponse>;

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

/** A development server, whose answer names its container. */
export const StartClientServeRequest = Type.Object({ stubId: Text(), timeout: Int32() });
export type StartClientServeRequest = Static<typeof StartClientServeRequest>;

export const StartClientServeResponse = Type.Object({ ok: Flag(), containerId: Text(), errorMsg: Text() });
export type StartClientServeResponse = Static<typeof StartClientServeResponse>;

/** The first message names the container. Those behind it change a file each, or say nothing. */
export const AttachToContainerRequest = Type.Object({
  attachRequest: nullable(Type.Object({ containerId: Text() })),
  syncContainerWorkspace: nullable(
    Type.Object({
      path: Text(),
      newPath: Text(),
      isDir: Flag(),
      data: Bytes(),
      op: Uint32({ description: '0: write, 1: delete, 2: move' }),
    }),
  ),
});
export type AttachToContainerRequest = Static<typeof AttachToContainerRequest>;

export const AttachToContainerResponse = Type.Object({ output: Text(), done: Flag(), exitCode: Int32() });
export type AttachToContainerResponse = Static<typeof AttachToContainerResponse>;
