// Messages of maps, queues, signals and outputs as published clients send them over gRPC. HTTP has other forms of them:
// `rest/shared-state.ts`, `rest/outputs.ts`.
import { Type } from 'typebox';
import { Bytes, Flag, Int64, Text, Timestamp, Uint32, nullable } from './fields.ts';

const name = { name: Text() };
const answer = { ok: Flag(), errMsg: Text() };

export const MapSetRequest = Type.Object({ ...name, key: Text(), value: Bytes(), ttl: Int64() });
export const MapKeyRequest = Type.Object({ ...name, key: Text() });
export const NameRequest = Type.Object(name);
export const ValueResponse = Type.Object({ ...answer, value: Bytes() });
export const MapCountResponse = Type.Object({ ...answer, count: Uint32() });
export const MapKeysResponse = Type.Object({ ...answer, keys: Type.Array(Text()) });

export const QueuePutRequest = Type.Object({ ...name, value: Bytes() });
export const QueueEmptyResponse = Type.Object({ ...answer, empty: Flag() });
export const QueueSizeResponse = Type.Object({ ...answer, size: Int64() });

export const SignalSetRequest = Type.Object({ ...name, ttl: Int64() });
export const SignalMonitorResponse = Type.Object({ ...answer, set: Flag() });

export const OutputSaveRequest = Type.Object({ taskId: Text(), filename: Text(), content: Bytes() });
export const OutputSaveResponse = Type.Object({ ...answer, id: Text() });
export const OutputStatRequest = Type.Object({ id: Text(), taskId: Text(), filename: Text() });
export const OutputStatResponse = Type.Object({
  ...answer,
  stat: nullable(Type.Object({ mode: Text(), size: Int64(), atime: Timestamp(), mtime: Timestamp() })),
});
export const OutputPublicUrlRequest = Type.Object({
  id: Text(),
  taskId: Text(),
  filename: Text(),
  expires: Uint32({ description: 'seconds; 0: an hour' }),
});
export const OutputPublicUrlResponse = Type.Object({ ...answer, publicUrl: Text() });
