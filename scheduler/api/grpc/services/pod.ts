// Pods and sandboxes: what they run, their files, ports, network and snapshots.
import { isIP } from 'node:net';
import type { Plain } from '../descriptor.ts';
import type { Adapter, Service } from './service.ts';

const NO_IMAGE = 'image_id: a pod is made of a stub: make one with the image, and send stub_id';
const NO_MACHINE =
  'machine_id: machines are chosen by pool and GPU: put the machine into a pool of its own, and name that: pool="…"';
const NO_SECRETS = 'secrets: a program gets those of its sandbox: name them when you make it';
const NO_DISKS = 'snapshots of disks are not available in this version: create_image_from_filesystem keeps the files';

function podRefused({ image_id: image, machine_id: machine }: Plain): string | undefined {
  if (typeof image === 'string' && image !== '') return NO_IMAGE;
  return typeof machine === 'string' && machine !== '' ? NO_MACHINE : undefined;
}

/** Bytes of a file in an answer. */
const MOST_PIECE = 4 * 1024 * 1024;
const pieceRefused = ({ length }: Plain): string | undefined =>
  Number(length) >= 1 && Number(length) <= MOST_PIECE
    ? undefined
    : `length must be from 1 to ${MOST_PIECE} bytes: read larger files piece by piece`;

const withPath = (message: Plain): Plain => ({ ...message, path: message['container_path'] });
const onlyNew = (message: Plain): Plain => ({ ...message, only_new: true });

/** An address alone is a range of one. */
const withRanges = (message: Plain): Plain => ({
  ...message,
  allow_list: (message['allow_list'] as readonly string[]).map((address) => {
    const family = isIP(address);
    return family === 0 ? address : `${address}/${family === 4 ? 32 : 128}`;
  }),
});

/** Messages of calls on sandboxes have a word before the name of their call. */
const sandboxes = (calls: Readonly<Record<string, Adapter>>): Readonly<Record<string, Adapter>> =>
  Object.fromEntries(
    Object.entries(calls).map(([name, adapter]) => [
      name,
      name.startsWith('Sandbox') ? { messages: `Pod${name}`, ...adapter } : adapter,
    ]),
  );

/** Reads change nothing: a repeated one is done again. */
const READ = { repeats: 'anew' } as const satisfies Adapter;
const ONCE = { repeats: 'once' } as const satisfies Adapter;
const DONE = 'ok 1 bool; error_msg 2';
const OF_CONTAINER = 'container_id 1';
const OF_PROCESS = 'container_id 1; pid 2 int32';
const OF_PATH = 'container_id 1; container_path 2';
const OF_STUB = 'stub_id 1; container_id 2';

export const POD: Service = {
  pack: 'pod',
  name: 'PodService',
  messages: {
    CreatePodRequest: 'stub_id 1; image_id 2 string?; checkpoint_id 3 string?; machine_id 4 string?',
    CreatePodResponse: 'ok 1 bool; container_id 2; error_msg 3; stub_id 4; task_id 5; app_id 6',
    PodSandboxConnectRequest: OF_CONTAINER,
    PodSandboxConnectResponse: `${DONE}; stub_id 3`,
    PodSandboxCreateDirectoryRequest: `${OF_PATH}; mode 3 int32`,
    PodSandboxCreateDirectoryResponse: DONE,
    PodSandboxCreateImageFromFilesystemRequest: OF_STUB,
    PodSandboxCreateImageFromFilesystemResponse: `${DONE}; image_id 3`,
    PodSandboxDeleteDirectoryRequest: OF_PATH,
    PodSandboxDeleteDirectoryResponse: DONE,
    PodSandboxDeleteFileRequest: OF_PATH,
    PodSandboxDeleteFileResponse: DONE,
    PodSandboxDownloadFileRequest: `${OF_PATH}; offset 3 int64; length 4 int32`,
    PodSandboxDownloadFileResponse: `${DONE}; data 3 bytes`,
    PodSandboxExecRequest: `
      container_id 1; command 2; cwd 3; env 4 map<string,string>; wait 5 bool; secrets 6 string[]`,
    PodSandboxExecResponse: `${DONE}; pid 3 int32; done 4 bool; exit_code 5 int32; stdout 6; stderr 7`,
    PodSandboxExposePortRequest: 'container_id 1; stub_id 2; port 3 int32',
    PodSandboxExposePortResponse: 'ok 1 bool; url 2; error_msg 3',
    PodSandboxFileInfo: `
      mode 1 int32; size 2 int64; mod_time 3 int64; owner 4; group 5; is_dir 6 bool; name 7;
      permissions 8 uint32`,
    PodSandboxFindInFilesRequest: `${OF_PATH}; pattern 3`,
    PodSandboxFindInFilesResponse: `${DONE}; results 3 types.FileSearchResult[]`,
    PodSandboxKillRequest: OF_PROCESS,
    PodSandboxKillResponse: DONE,
    PodSandboxListFilesRequest: OF_PATH,
    PodSandboxListFilesResponse: `${DONE}; files 3 PodSandboxFileInfo[]`,
    PodSandboxListProcessesRequest: OF_CONTAINER,
    PodSandboxListProcessesResponse: `${DONE}; processes 3 types.ProcessInfo[]`,
    PodSandboxListUrlsRequest: OF_CONTAINER,
    PodSandboxListUrlsResponse: 'ok 1 bool; urls 2 map<int32,string>; error_msg 3',
    PodSandboxReplaceInFilesRequest: `${OF_PATH}; pattern 3; new_string 4`,
    PodSandboxReplaceInFilesResponse: DONE,
    PodSandboxSnapshotDisksRequest: OF_STUB,
    PodSandboxSnapshotDisksResponse: DONE,
    PodSandboxSnapshotMemoryRequest: `${OF_STUB}; terminate_after_checkpoint 3 bool`,
    PodSandboxSnapshotMemoryResponse: `${DONE}; checkpoint_id 3`,
    PodSandboxStatFileRequest: OF_PATH,
    PodSandboxStatFileResponse: `${DONE}; file_info 3 PodSandboxFileInfo`,
    PodSandboxStatusRequest: OF_PROCESS,
    PodSandboxStatusResponse: `${DONE}; status 3; exit_code 4 int32`,
    PodSandboxStderrRequest: OF_PROCESS,
    PodSandboxStderrResponse: `${DONE}; stderr 3`,
    PodSandboxStdoutRequest: OF_PROCESS,
    PodSandboxStdoutResponse: `${DONE}; stdout 3`,
    PodSandboxUpdateNetworkPermissionsRequest: 'container_id 1; stub_id 2; block_network 3 bool; allow_list 4 string[]',
    PodSandboxUpdateNetworkPermissionsResponse: DONE,
    PodSandboxUpdateTtlRequest: 'container_id 1; ttl 2 int32',
    PodSandboxUpdateTtlResponse: DONE,
    PodSandboxUploadFileRequest: `${OF_PATH}; mode 3 int32; data 4 bytes; offset 5 int64`,
    PodSandboxUploadFileResponse: DONE,
  },
  calls: sandboxes({
    CreatePod: { refuses: podRefused },
    SandboxConnect: READ,
    SandboxCreateDirectory: ONCE,
    SandboxCreateImageFromFilesystem: {},
    SandboxDeleteDirectory: { ...ONCE, read: withPath },
    SandboxDeleteFile: { ...ONCE, read: withPath },
    SandboxDownloadFile: { ...READ, read: withPath, refuses: pieceRefused, isLarge: true },
    SandboxExec: {
      ...ONCE,
      refuses: ({ secrets }) => ((secrets as readonly unknown[]).length > 0 ? NO_SECRETS : undefined),
    },
    SandboxExposePort: ONCE,
    SandboxFindInFiles: READ,
    SandboxKill: ONCE,
    SandboxListFiles: READ,
    SandboxListProcesses: READ,
    SandboxListUrls: READ,
    SandboxReplaceInFiles: ONCE,
    SandboxSnapshotDisks: { operation: 'SandboxSnapshotMemory', always: { ok: false, errorMsg: NO_DISKS } },
    SandboxSnapshotMemory: {},
    SandboxStatFile: READ,
    SandboxStatus: READ,
    SandboxStderr: { ...ONCE, read: onlyNew },
    SandboxStdout: { ...ONCE, read: onlyNew },
    SandboxUpdateNetworkPermissions: { ...ONCE, read: withRanges },
    SandboxUpdateTTL: { ...ONCE, messages: 'PodSandboxUpdateTtl' },
    SandboxUploadFile: { ...ONCE, isLarge: true },
  }),
};
