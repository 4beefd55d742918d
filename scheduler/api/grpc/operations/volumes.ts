// Volumes and their files for published clients: lists, moves, signed addresses, and uploads in parts. The bytes pass
// by HTTP, at the addresses that answers name.
import { Done, timestampOf } from '#shared/api/fields.ts';
import {
  ADDRESS_METHODS,
  CreateMultipartUploadRequest,
  CreateMultipartUploadResponse,
  CreatePresignedUrlRequest,
  CreatePresignedUrlResponse,
  DeletePathResponse,
  DeleteVolumeRequest,
  GetFileServiceInfoResponse,
  ListPathResponse,
  ListVolumesResponse,
  MovePathRequest,
  MovePathResponse,
  MultipartUploadRequest,
  NoFields,
  PathRequest,
  StatPathResponse,
} from '#shared/api/volume-files.ts';
import type { PathInfo } from '#shared/api/volume-files.ts';
import { filePathProblem } from '#shared/domain/volume-file-paths.ts';
import { AppError } from '#shared/errors.ts';
import type { CacheVolumes } from '../../../fleet/cache-volumes.ts';
import { countOf, newUpload, rangeOf, readPart, readUploadId, uploadIdOf } from '../../../fleet/parted-uploads.ts';
import type { PartedUpload } from '../../../fleet/parted-uploads.ts';
import type { VolumeCalls } from '../../../fleet/volume-calls.ts';
import { deleteVolume, removedOf } from '../../../fleet/volume-deletion.ts';
import { VolumeEntries, readNamedPath } from '../../../fleet/volume-entries.ts';
import type { FoundEntry } from '../../../fleet/volume-entries.ts';
import { FILE_ADDRESS_LIFE_MS } from '../../../fleet/volume-files.ts';
import type { VolumeFiles } from '../../../fleet/volume-files.ts';
import type { VolumeRow } from '../../../stores/store/queries/volumes.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import type { Volumes } from '../../../workspaces/deployments/volumes.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { unrouted } from '../../operations/operation.ts';
import type { UnroutedOperation } from '../../operations/operation.ts';

export interface VolumeFileOperationParts {
  readonly volumes: Pick<Volumes, 'list' | 'usersOf' | 'forget'>;
  readonly volumeFiles: Pick<VolumeFiles, 'named' | 'reachable' | 'hasFiles' | 'sign' | 'signParts' | 'takes'>;
  readonly volumeCalls: Pick<VolumeCalls, 'ask'>;
  readonly cacheVolumes: Pick<CacheVolumes, 'deleted'>;
  readonly directory: Pick<Directory, 'workspaceName'>;
}

/** Volumes of one answer; more than limits of workspaces allow. */
const MOST_VOLUMES = 10_000;
/** Time for the last bytes of a large file to reach the disk. */
const COMPLETE_WITHIN_MS = 600_000;
/** Time for a removal, which may take several calls of the file server. */
const REMOVE_WITHIN_MS = 120_000;
/** Version of the client's copying that speaks with these addresses. */
const COMMAND_VERSION = 1;

const reading = { scope: 'full', grants: { scopes: ['read'] } } as const;

export function volumeFileOperations(parts: VolumeFileOperationParts): readonly UnroutedOperation[] {
  return [
    ...recordOperations(parts),
    ...entryOperations(parts),
    ...addressOperations(parts),
    ...uploadOperations(parts),
  ];
}

const OK = { ok: true, errMsg: '' } as const;

// ---- volumes -------------------------------------------------------------------------------------------------------
const recordOperations = (parts: VolumeFileOperationParts): readonly UnroutedOperation[] => [
  unrouted({
    ...reading,
    name: 'ListVolumes',
    request: NoFields,
    response: ListVolumesResponse,
    handle: async ({ workspaceId }) => {
      const [rows, workspaceName] = await Promise.all([
        parts.volumes.list(workspaceId, '', MOST_VOLUMES),
        parts.directory.workspaceName(workspaceId),
      ]);
      const volumes = rows.map(({ id, name, createdAtMs, updatedAtMs }) => ({
        id,
        name,
        createdAt: timestampOf(createdAtMs),
        updatedAt: timestampOf(updatedAtMs),
        workspaceId,
        workspaceName,
      }));
      return { ...OK, volumes };
    },
  }),
  unrouted({
    name: 'DeleteVolume',
    scope: 'full',
    withinMs: REMOVE_WITHIN_MS,
    request: DeleteVolumeRequest,
    response: Done,
    handle: async ({ workspaceId }, { name }) => {
      const volume = await parts.volumeFiles.named(workspaceId, name);
      await untilComplete(() => deleteVolume(parts, volume));
      return OK;
    },
  }),
];

/** Removes until nothing is left. @throws AppError `bad_request`: it takes longer than a call may */
async function untilComplete(
  remove: () => Promise<{ readonly removed: number; readonly complete: boolean }>,
): Promise<void> {
  let removed = 0;
  const untilMs = performance.now() + REMOVE_WITHIN_MS - 30_000;
  while (performance.now() < untilMs) {
    const done = await remove();
    removed += done.removed;
    if (done.complete) return;
  }
  throw new AppError('bad_request', `${removed} entries were removed, and there are more: call again`);
}

// ---- entries -------------------------------------------------------------------------------------------------------
const entryOperations = (parts: VolumeFileOperationParts): readonly UnroutedOperation[] => {
  const entries = new VolumeEntries({ files: parts.volumeFiles, calls: parts.volumeCalls });
  return [
    unrouted({
      ...reading,
      name: 'ListPath',
      request: PathRequest,
      response: ListPathResponse,
      handle: async ({ workspaceId }, request) => {
        const named = readNamedPath(request.path);
        const found = await entries.list(await entries.volume(workspaceId, named), named.path);
        return { ...OK, pathInfos: found.map(infoOf) };
      },
    }),
    unrouted({
      ...reading,
      name: 'StatPath',
      request: PathRequest,
      response: StatPathResponse,
      handle: async ({ workspaceId }, request) => {
        const named = readNamedPath(request.path);
        const found = await entries.at(await entries.volume(workspaceId, named), named.path);
        // The client takes a path that is not there as a file to be, and reads the text for that.
        return found === undefined
          ? { ok: true, errMsg: 'the volume has no such file', pathInfo: null }
          : { ...OK, pathInfo: infoOf(found) };
      },
    }),
    unrouted({
      name: 'DeletePath',
      scope: 'full',
      withinMs: REMOVE_WITHIN_MS,
      request: PathRequest,
      response: DeletePathResponse,
      handle: async ({ workspaceId }, request) => {
        const { volumeName, path } = readNamedPath(request.path);
        if (path === '') throw new AppError('invalid_query', WHOLE_VOLUME);
        const volume = await entries.volume(workspaceId, { volumeName, path });
        const found = await entries.matching(volume, path);
        if (found.length === 0) throw new AppError('volume_file_not_found', 'the volume has no such file');
        const deleted: string[] = [];
        await untilComplete(async () => {
          const next = found[deleted.length];
          if (next === undefined) return { removed: 0, complete: true };
          const done = removedOf(
            await parts.volumeCalls.ask(volume.id, { purpose: 'remove', path: next.path, recursive: true }),
          );
          if (done.complete) deleted.push(next.path);
          return { ...done, complete: deleted.length === found.length };
        });
        return { ...OK, deleted };
      },
    }),
    unrouted({
      name: 'MovePath',
      scope: 'full',
      request: MovePathRequest,
      response: MovePathResponse,
      handle: async ({ workspaceId }, request) => {
        const [from, to] = [readNamedPath(request.originalPath), readNamedPath(request.newPath)];
        if (from.volumeName !== to.volumeName)
          throw new AppError(
            'invalid_query',
            'new_path must be in the volume of original_path: entries move within one',
          );
        requirePath('original_path', from.path);
        requirePath('new_path', to.path);
        const volume = await entries.volume(workspaceId, from);
        const moved = { purpose: 'move', from: from.path, to: to.path, replace: false } as const;
        await parts.volumeCalls.ask(volume.id, moved);
        return { ...OK, newPath: `${to.volumeName}/${to.path}` };
      },
    }),
  ];
};

const WHOLE_VOLUME =
  "path must name an entry of the volume; `volume delete` removes the volume, and 'NAME/*' all in it";

function requirePath(field: string, path: string): void {
  const problem = filePathProblem(path);
  if (problem !== undefined) throw new AppError('invalid_query', `${field} ${problem}`);
}

const infoOf = ({ path, size, modifiedAtMs, isFolder }: FoundEntry): PathInfo => ({
  path,
  size,
  modTime: timestampOf(modifiedAtMs),
  isDir: isFolder,
});

// ---- addresses -----------------------------------------------------------------------------------------------------
const addressOperations = (parts: VolumeFileOperationParts): readonly UnroutedOperation[] => [
  unrouted({
    ...reading,
    name: 'GetFileServiceInfo',
    request: NoFields,
    response: GetFileServiceInfoResponse,
    handle: () => ({ ...OK, enabled: true, commandVersion: COMMAND_VERSION }),
  }),
  unrouted({
    name: 'CreatePresignedURL',
    scope: 'full',
    request: CreatePresignedUrlRequest,
    response: CreatePresignedUrlResponse,
    handle: async ({ workspaceId }, request, { baseUrl }) => {
      const { volumeName, method, expires, params } = request;
      const path = pathOf(request.volumePath);
      const { get, put, head, part } = ADDRESS_METHODS;
      if (method === part) {
        const upload = readUploadId(params?.uploadId ?? '');
        const found = readPart(upload, String(params?.partNumber ?? 0));
        if (found === undefined) throw new AppError('invalid_query', 'params must name a part of an upload');
        const volume = await parts.volumeFiles.reachable(workspaceId, volumeName);
        const [address = ''] = parts.volumeFiles.signParts(volume, path, [found]);
        return { ...OK, url: `${baseUrl}${address}` };
      }
      if (method !== get && method !== put && method !== head)
        throw new AppError('invalid_query', 'method must be 0 (get), 1 (put), 2 (head) or 3 (part)');
      const lifeMs = expires === 0 ? FILE_ADDRESS_LIFE_MS : Math.min(expires * 1000, FILE_ADDRESS_LIFE_MS);
      const purpose = method === put ? 'put' : 'get';
      const signed = await parts.volumeFiles.sign(workspaceId, volumeName, path, purpose, lifeMs);
      return { ...OK, url: `${baseUrl}${signed.path}` };
    },
  }),
];

/** A path as this client sends it, which may begin with slashes. */
function pathOf(volumePath: string): string {
  const { path } = readNamedPath(`volume/${volumePath}`);
  requirePath('volume_path', path);
  return path;
}

// ---- uploads -------------------------------------------------------------------------------------------------------
const uploadOperations = (parts: VolumeFileOperationParts): readonly UnroutedOperation[] => [
  unrouted({
    name: 'CreateMultipartUpload',
    scope: 'full',
    request: CreateMultipartUploadRequest,
    response: CreateMultipartUploadResponse,
    handle: async ({ workspaceId }, request, { baseUrl }) => {
      const path = pathOf(request.volumePath);
      const upload = newUpload(request.fileSize, request.chunkSize);
      if (typeof upload === 'string') throw new AppError('invalid_query', upload);
      const volume = await parts.volumeFiles.reachable(workspaceId, request.volumeName);
      // A bucket takes a file whole each time that it was written to.
      if (volume.driver === 's3') throw new AppError('invalid_query', NO_PARTS_IN_BUCKETS);
      await parts.volumeFiles.takes(volume, upload.total);
      await parts.volumeCalls.ask(volume.id, { purpose: 'begin', path, upload });
      const asked = Array.from({ length: countOf(upload) }, (_none, at) => ({ upload, number: at + 1 }));
      const fileUploadParts = parts.volumeFiles.signParts(volume, path, asked).map((address, at) => ({
        number: at + 1,
        ...rangeOf(upload, at + 1),
        url: `${baseUrl}${address}`,
      }));
      return { ...OK, uploadId: uploadIdOf(upload), fileUploadParts };
    },
  }),
  unrouted({
    name: 'CompleteMultipartUpload',
    scope: 'full',
    withinMs: COMPLETE_WITHIN_MS,
    request: MultipartUploadRequest,
    response: Done,
    handle: async (caller, request) => {
      const { volume, path, upload } = await begun(parts, caller, request);
      await parts.volumeCalls.ask(volume.id, { purpose: 'complete', path, upload }, COMPLETE_WITHIN_MS);
      return OK;
    },
  }),
  unrouted({
    name: 'AbortMultipartUpload',
    scope: 'full',
    request: MultipartUploadRequest,
    response: Done,
    handle: async (caller, request) => {
      const { volume, path, upload } = await begun(parts, caller, request);
      await parts.volumeCalls.ask(volume.id, { purpose: 'abort', path, upload });
      return OK;
    },
  }),
];

const NO_PARTS_IN_BUCKETS =
  'files of a bucket are sent whole, not in parts: copy with `longshore volume cp`, or with `cp --no-multipart`';

/** The upload that a request names. @throws AppError `upload_not_found`, `volume_not_found` */
async function begun(
  { volumeFiles }: Pick<VolumeFileOperationParts, 'volumeFiles'>,
  { workspaceId }: Pick<Caller, 'workspaceId'>,
  request: { readonly uploadId: string; readonly volumeName: string; readonly volumePath: string },
): Promise<{ readonly volume: VolumeRow; readonly path: string; readonly upload: PartedUpload }> {
  const path = pathOf(request.volumePath);
  const volume = await volumeFiles.reachable(workspaceId, request.volumeName);
  const upload = readUploadId(request.uploadId);
  if (upload === undefined) throw new AppError('upload_not_found', 'upload_id names no upload in parts');
  return { volume, path, upload };
}
