// Pods and sandboxes do not exist yet. Their clients give up at any other
// status, so each of their routes answers 200 with the sentence that says so.
import type { TObject } from 'typebox';
import {
  PodCheckpointResponse,
  PodConnectResponse,
  PodDone,
  PodExecResponse,
  PodFileInfoResponse,
  PodFileResponse,
  PodFilesResponse,
  PodFoundResponse,
  PodImageResponse,
  PodPathRequest,
  PodProcessesResponse,
  PodRequest,
  PodStatusResponse,
  PodStderrResponse,
  PodStdoutResponse,
  PodUrlResponse,
  PodUrlsResponse,
} from '#shared/api/pods.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

const NOT_YET = 'pods and sandboxes are not available in this version';

/** Routes: [name, route below `/pods/{containerId}`, answer]. */
const ROUTES: readonly (readonly [string, string, TObject])[] = [
  ['SandboxConnect', 'POST /connect', PodConnectResponse],
  ['SandboxExec', 'POST /exec', PodExecResponse],
  ['SandboxStatus', 'GET /status', PodStatusResponse],
  ['SandboxStdout', 'GET /stdout', PodStdoutResponse],
  ['SandboxStderr', 'GET /stderr', PodStderrResponse],
  ['SandboxKill', 'POST /kill', PodDone],
  ['SandboxListProcesses', 'GET /processes', PodProcessesResponse],
  ['SandboxUploadFile', 'POST /files/upload', PodDone],
  ['SandboxDownloadFile', 'GET /files/download/{path}', PodFileResponse],
  ['SandboxStatFile', 'GET /files/stat', PodFileInfoResponse],
  ['SandboxListFiles', 'GET /files', PodFilesResponse],
  ['SandboxFindInFiles', 'POST /files/find', PodFoundResponse],
  ['SandboxReplaceInFiles', 'POST /files/replace', PodFoundResponse],
  ['SandboxDeleteFile', 'DELETE /files/{path}', PodDone],
  ['SandboxCreateDirectory', 'POST /directories', PodDone],
  ['SandboxDeleteDirectory', 'DELETE /directories/{path}', PodDone],
  ['SandboxExposePort', 'POST /ports/expose', PodUrlResponse],
  ['SandboxListUrls', 'GET /urls', PodUrlsResponse],
  ['SandboxUpdateTTL', 'POST /ttl', PodDone],
  // A published client sends PATCH, and the published gateway has POST.
  ['SandboxPatchTTL', 'PATCH /ttl', PodDone],
  ['SandboxUpdateNetworkPermissions', 'POST /network/update', PodDone],
  ['SandboxSnapshotMemory', 'POST /snapshot-memory', PodCheckpointResponse],
  ['SandboxCreateImageFromFilesystem', 'POST /create-image-from-filesystem', PodImageResponse],
];

/** The refusing answer. Absent fields are empty; a process that never ran has not ended. */
const refused = (response: TObject): Record<string, unknown> => ({
  ok: false,
  errorMsg: NOT_YET,
  ...('exitCode' in response.properties ? { exitCode: -1 } : {}),
});

export function podOperations(): readonly Operation[] {
  return ROUTES.map(([name, route, response]) =>
    operation({
      name,
      http: route.replace(' ', ' /pods/{containerId}'),
      scope: 'any',
      request: route.includes('{path}') ? PodPathRequest : PodRequest,
      response,
      handle: () => refused(response),
    }),
  );
}
