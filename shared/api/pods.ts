// Messages of pod and sandbox routes. The interface document does not describe them; field names follow published
// clients.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Bytes, Flag, Int32, Int64, Text, Uint32, nullable } from './fields.ts';

const container = { containerId: Text() };
const process = { ...container, pid: Uint32() };
const file = { ...container, containerPath: Text() };
/** The container's stub, which must be the right one where a request names it. */
const stub = { ...container, stubId: Text() };

export const CreatePodRequest = Type.Object({ stubId: Text(), checkpointId: Text() });
export const PodRequest = Type.Object(container);
export const PodStubRequest = Type.Object(stub);
export const PodExecRequest = Type.Object({
  ...container,
  command: Text({ description: 'run by `sh -c`' }),
  cwd: Text({ description: 'empty: the directory of the code, else of the image' }),
  env: Type.Record(Type.String(), Text()),
  wait: Flag({ description: 'waits for the end, 25 s at most' }),
});
export const PodProcessRequest = Type.Object(process);
export const PodOutputRequest = Type.Object({
  ...process,
  onlyNew: Flag({ description: 'only what no such request has told yet' }),
});
export const PodUploadRequest = Type.Object({
  ...file,
  mode: Uint32({ description: 'permission bits, 420 for rw-r--r--; 0: 420' }),
  data: Bytes(),
  offset: Int64({ description: 'where in the file the bytes go; 0: they are the whole file' }),
});
export const PodPathRequest = Type.Object({ ...container, path: Text() });
export const PodDownloadRequest = Type.Object({
  ...container,
  path: Text(),
  offset: Int64({ description: 'place in the file of the first byte' }),
  length: Uint32({ description: 'most bytes; 0: to the end' }),
});
export const PodFileRequest = Type.Object(file);
export const PodFindRequest = Type.Object({ ...file, pattern: Text({ description: 'a regular expression' }) });
export const PodReplaceRequest = Type.Object({ ...file, pattern: Text(), newString: Text() });
export const PodDirectoryRequest = Type.Object({
  ...file,
  mode: Uint32({ description: 'permission bits; 0: 493 (rwxr-xr-x)' }),
});
export const PodPortRequest = Type.Object({ ...stub, port: Uint32() });
export const PodTtlRequest = Type.Object({
  ...container,
  ttl: Int32({ description: 'seconds without use until it is stopped, from now on; -1: never' }),
});
export const PodNetworkRequest = Type.Object({
  ...stub,
  blockNetwork: Flag(),
  allowList: Type.Array(Text({ description: 'a range of addresses: 198.51.100.0/24' })),
});

const answer = { ok: Flag(), errorMsg: Text() };
const ExitCode = () => Int32({ default: -1, description: '-1 until it ended' });
const Position = Type.Object({ line: Uint32(), column: Uint32() });
const FoundIn = Type.Object({
  path: Text(),
  matches: Type.Array(
    Type.Object({ range: Type.Object({ start: Position, end: Position }), content: Text({ description: 'the line' }) }),
  ),
});
export const PodProcess = Type.Object({
  pid: Uint32(),
  cmd: Text(),
  cwd: Text(),
  env: Type.Array(Text()),
  exitCode: ExitCode(),
  running: Flag(),
});
export type PodProcess = Static<typeof PodProcess>;
export const PodFileInfo = Type.Object({
  name: Text(),
  isDir: Flag(),
  size: Int64(),
  mode: Uint32({ description: 'permission bits' }),
  modTime: Int64({ description: 'seconds since 1970' }),
  permissions: Uint32({ description: 'as mode' }),
  owner: Text(),
  group: Text(),
});
export type PodFileInfo = Static<typeof PodFileInfo>;

export const PodDone = Type.Object(answer);
export const CreatePodResponse = Type.Object({ ...answer, containerId: Text(), stubId: Text() });
export const PodConnectResponse = Type.Object({ ...answer, stubId: Text() });
export const PodExecResponse = Type.Object({
  ...answer,
  pid: Uint32(),
  done: Flag(),
  exitCode: ExitCode(),
  stdout: Text(),
  stderr: Text(),
});
export const PodStatusResponse = Type.Object({
  ...answer,
  status: Text({ description: 'running or exited; of a container that does not run yet, pending' }),
  exitCode: ExitCode(),
});
export const PodStdoutResponse = Type.Object({
  ...answer,
  stdout: Text({ description: 'everything that is kept, the last MiB; with onlyNew, what is new of it' }),
});
export const PodStderrResponse = Type.Object({ ...answer, stderr: Text({ description: 'as stdout' }) });
export const PodProcessesResponse = Type.Object({ ...answer, processes: Type.Array(PodProcess) });
export const PodFileResponse = Type.Object({ ...answer, data: Bytes() });
export const PodFileInfoResponse = Type.Object({ ...answer, fileInfo: nullable(PodFileInfo) });
export const PodFilesResponse = Type.Object({ ...answer, files: Type.Array(PodFileInfo) });
export const PodFoundResponse = Type.Object({ ...answer, results: Type.Array(FoundIn) });
export const PodUrlResponse = Type.Object({ ...answer, url: Text() });
export const PodUrlsResponse = Type.Object({ ...answer, urls: Type.Record(Type.String(), Text()) });
export const PodCheckpointResponse = Type.Object({ ...answer, checkpointId: Text() });
export const PodImageResponse = Type.Object({ ...answer, imageId: Text() });
