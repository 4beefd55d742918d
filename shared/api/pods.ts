// Answers of pod and sandbox routes. The interface document does
// not describe them; field names follow published clients.
import { Type } from 'typebox';
import { Anything, Flag, Int32, Text, Uint32 } from './fields.ts';

/** Requests differ by route and mean nothing yet. */
export const PodRequest = Type.Object({ containerId: Text() });
export const PodPathRequest = Type.Object({ containerId: Text(), path: Text() });
export const CreatePodRequest = Type.Object({ stubId: Text(), checkpointId: Text() });

const answer = { ok: Flag(), errorMsg: Text() };
export const PodDone = Type.Object(answer);
export const CreatePodResponse = Type.Object({ ...answer, containerId: Text(), stubId: Text() });
export const PodConnectResponse = Type.Object({ ...answer, stubId: Text() });
export const PodExecResponse = Type.Object({
  ...answer,
  pid: Uint32(),
  done: Flag(),
  exitCode: Int32({ description: '-1 until it ended' }),
  stdout: Text(),
  stderr: Text(),
});
export const PodStatusResponse = Type.Object({ ...answer, status: Text(), exitCode: Int32() });
export const PodStdoutResponse = Type.Object({ ...answer, stdout: Text() });
export const PodStderrResponse = Type.Object({ ...answer, stderr: Text() });
export const PodProcessesResponse = Type.Object({ ...answer, processes: Type.Array(Anything()) });
export const PodFileResponse = Type.Object({ ...answer, data: Text() });
export const PodFileInfoResponse = Type.Object({ ...answer, fileInfo: Anything() });
export const PodFilesResponse = Type.Object({ ...answer, files: Type.Array(Anything()) });
export const PodFoundResponse = Type.Object({ ...answer, results: Type.Array(Anything()) });
export const PodUrlResponse = Type.Object({ ...answer, url: Text() });
export const PodUrlsResponse = Type.Object({ ...answer, urls: Type.Record(Type.String(), Text()) });
export const PodCheckpointResponse = Type.Object({ ...answer, checkpointId: Text() });
export const PodImageResponse = Type.Object({ ...answer, imageId: Text() });
