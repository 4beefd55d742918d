// Volumes and their files. Every path is checked here, where the refusal names its field, and again by the file server.
import { timestampOf } from '#shared/api/fields.ts';
import {
  CreateVolume,
  FileAddress,
  FileAddressQuery,
  FileList,
  FileListQuery,
  MoveFile,
  Moved,
  PackAddress,
  PackAddressQuery,
  RemoveFilesQuery,
  UploadQuery,
  UploadState,
  VolumeDetails,
  VolumeList,
  VolumeListQuery,
  VolumeRecord,
  VolumeSize,
  VolumeSizeQuery,
} from '#shared/api/rest/volumes.ts';
import { Removed } from '#shared/api/rest/lists.ts';
import type { VolumeEntry } from '#shared/api/rest/volumes.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { filePathProblem, folderPathProblem } from '#shared/domain/volume-file-paths.ts';
import { AppError } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import type { CacheVolumes } from '../../../fleet/cache-volumes.ts';
import type { VolumeAnswer, VolumeCalls } from '../../../fleet/volume-calls.ts';
import { deleteVolume, removedOf } from '../../../fleet/volume-deletion.ts';
import type { VolumeFiles } from '../../../fleet/volume-files.ts';
import type { VolumeRow } from '../../../stores/store/queries/volumes.ts';
import type { Volumes } from '../../../workspaces/deployments/volumes.ts';
import type { Origin } from '../../operations/operation.ts';
import { nameCursorOf, pageByName, pageLimit } from './paging.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';

export interface VolumeRouteParts {
  readonly volumes: Pick<Volumes, 'getOrCreate' | 'list' | 'homeOf' | 'usersOf' | 'forget'>;
  readonly volumeFiles: Pick<VolumeFiles, 'sign' | 'named' | 'reachable' | 'copiesOf' | 'settle' | 'hasFiles'>;
  readonly cacheVolumes: Pick<CacheVolumes, 'deleted'>;
  readonly volumeCalls: Pick<VolumeCalls, 'ask'>;
  readonly originOf: (request: RestRequest['http']) => Origin;
}

const DEFAULT_FILES = 1_000;
const MOST_FILES = 10_000;
/** Refusals of the machine that has a volume's files. */
const FILE_ERRORS = ['volume_not_found', 'too_many_transfers', 'machine_away', 'volume_failed', 'machine_silent'];
const PATH_ERRORS = [...FILE_ERRORS, 'volume_is_cache', 'volume_file_not_found', 'volume_file_irregular'];

export const volumeRoutes = (parts: VolumeRouteParts): readonly RestRoute[] => [
  ...recordRoutes(parts),
  ...entryRoutes(parts),
  ...addressRoutes(parts),
];

// ---- records -------------------------------------------------------------------------------------------------------
const recordRoutes = ({ volumes, volumeFiles, volumeCalls, cacheVolumes }: VolumeRouteParts): readonly RestRoute[] => [
  restRoute({
    http: 'GET /volume/{ws}',
    summary: 'Volumes by name',
    scope: 'full',
    grants: { scopes: ['read'] },
    query: VolumeListQuery,
    answer: VolumeList,
    errors: ['invalid_cursor'],
    handle: async ({ workspaceId, query }) => {
      const limit = pageLimit(query);
      const rows = await volumes.list(workspaceId, nameCursorOf(query), limit + 1);
      const { page, next } = pageByName(rows, limit);
      return { data: page.map((row) => recordOf(row, row.homeMachineId)), next };
    },
  }),
  restRoute({
    http: 'POST /volume/{ws}',
    summary: 'Make a volume; a local one may be given its home',
    scope: 'full',
    status: 201,
    body: CreateVolume,
    answer: VolumeRecord,
    errors: ['volume_exists', 'machine_not_found'],
    handle: async ({ workspaceId, body }) => {
      const outcome = await volumes.getOrCreate({ workspaceId }, body.name, body.driver ?? '');
      if (outcome.kind === 'refused') throw new AppError('invalid_body', outcome.text);
      const { volume, isNew } = outcome;
      if (!isNew) throw new AppError('volume_exists', `there is a volume ${volume.name} already`);
      if (body.machine_id !== undefined && body.machine_id !== '') {
        await volumeFiles.settle(volume, body.machine_id).catch(async (error: unknown) => {
          await volumes.forget(volume);
          throw error;
        });
      }
      return recordOf(volume, await volumes.homeOf(volume));
    },
  }),
  restRoute({
    http: 'GET /volume/{ws}/{volumeName}',
    summary: 'A volume, and what mounts it',
    scope: 'full',
    grants: { scopes: ['read'] },
    answer: VolumeDetails,
    errors: ['volume_not_found'],
    handle: async ({ workspaceId, params }) => {
      const volume = await volumeFiles.named(workspaceId, params['volumeName'] ?? '');
      const { deployments, containers } = await volumes.usersOf(volume);
      return {
        ...recordOf(volume, await volumes.homeOf(volume)),
        deployments: deployments.map(({ id, name, version, stubType, active }) => ({
          id,
          name,
          version,
          kind: stubType.split('/', 1)[0] ?? '',
          active,
        })),
        containers,
        copies: volumeFiles.copiesOf(volume).map(({ machineId, bytes }) => ({ machine_id: machineId, bytes })),
      };
    },
  }),
  restRoute({
    http: 'DELETE /volume/{ws}/{volumeName}',
    summary: 'Delete a volume with all its files, unless an active deployment or a container mounts it',
    scope: 'full',
    answer: Removed,
    errors: [...FILE_ERRORS, 'volume_in_use'],
    handle: async ({ workspaceId, params }) => {
      const volume = await volumeFiles.named(workspaceId, params['volumeName'] ?? '');
      return deleteVolume({ volumes, volumeFiles, volumeCalls, cacheVolumes }, volume);
    },
  }),
];

const recordOf = (row: VolumeRow, home: string): VolumeRecord => ({
  id: row.id,
  external_id: row.id,
  name: row.name,
  driver: row.driver,
  machine_id: row.driver === 'local' ? home : '',
  created_at: timestampOf(row.createdAtMs),
  updated_at: timestampOf(row.updatedAtMs),
});

// ---- folders and entries -------------------------------------------------------------------------------------------
const entryRoutes = ({ volumeFiles, volumeCalls }: VolumeRouteParts): readonly RestRoute[] => [
  restRoute({
    http: 'GET /volume/{ws}/{volumeName}/files',
    summary: 'Entries of a folder of a volume, by name',
    scope: 'full',
    grants: { scopes: ['read'] },
    query: FileListQuery,
    answer: FileList,
    errors: [...PATH_ERRORS, 'invalid_cursor'],
    handle: async ({ workspaceId, params, query }) => {
      const { path = '', recursive = false, cursor = '' } = query;
      requirePath('path', folderPathProblem(path));
      const volume = await volumeFiles.reachable(workspaceId, params['volumeName'] ?? '');
      if (!(await volumeFiles.hasFiles(volume))) return emptyListing(path);
      const limit = Math.min(query.limit === undefined || query.limit === 0 ? DEFAULT_FILES : query.limit, MOST_FILES);
      const answer = await volumeCalls.ask(volume.id, { purpose: 'list', path, recursive, limit, cursor });
      const entries = Array.isArray(answer['entries']) ? answer['entries'].filter(isRecord) : [];
      return { kind: kindOf(answer), data: entries.map(entryOf), next: textOf(answer, 'next') };
    },
  }),
  restRoute({
    http: 'DELETE /volume/{ws}/{volumeName}/files',
    summary: 'Remove a file, a link or an empty folder; with recursive, a folder and all in it',
    scope: 'full',
    query: RemoveFilesQuery,
    answer: Removed,
    errors: [...PATH_ERRORS, 'volume_folder_not_empty'],
    handle: async ({ workspaceId, params, query }) => {
      const { path = '', recursive = false } = query;
      requirePath('path', recursive ? folderPathProblem(path) : filePathProblem(path));
      const volume = await withFiles(volumeFiles, workspaceId, params['volumeName'] ?? '');
      return removedOf(await volumeCalls.ask(volume.id, { purpose: 'remove', path, recursive }));
    },
  }),
  restRoute({
    http: 'POST /volume/{ws}/{volumeName}/files/move',
    summary: 'Give a file, a folder or a link of a volume another path',
    scope: 'full',
    body: MoveFile,
    answer: Moved,
    errors: [...PATH_ERRORS, 'volume_file_exists'],
    handle: async ({ workspaceId, params, body }) => {
      const { from, to, replace = false } = body;
      requirePath('from', filePathProblem(from));
      requirePath('to', filePathProblem(to));
      const volume = await withFiles(volumeFiles, workspaceId, params['volumeName'] ?? '');
      const answer = await volumeCalls.ask(volume.id, { purpose: 'move', from, to, replace });
      return { from, to, kind: kindOf(answer) };
    },
  }),
  restRoute({
    http: 'GET /volume/{ws}/{volumeName}/size',
    summary: 'How much is in a volume, or in a folder of it',
    scope: 'full',
    grants: { scopes: ['read'] },
    query: VolumeSizeQuery,
    answer: VolumeSize,
    errors: [...PATH_ERRORS, 'invalid_cursor'],
    handle: async ({ workspaceId, params, query }) => {
      const { path = '', cursor = '' } = query;
      requirePath('path', folderPathProblem(path));
      const volume = await volumeFiles.reachable(workspaceId, params['volumeName'] ?? '');
      if (!(await volumeFiles.hasFiles(volume)) && path === '') return sizeOf({});
      return sizeOf(await volumeCalls.ask(volume.id, { purpose: 'measure', path, cursor }));
    },
  }),
  restRoute({
    http: 'GET /volume/{ws}/{volumeName}/upload',
    grants: NOT_LIMITED,
    summary: 'How much of a large file of packs has arrived',
    scope: 'full',
    query: UploadQuery,
    answer: UploadState,
    errors: PATH_ERRORS,
    handle: async ({ workspaceId, params, query }) => {
      const { path = '', size = 0, key = '' } = query;
      requirePath('path', filePathProblem(path));
      const volume = await volumeFiles.reachable(workspaceId, params['volumeName'] ?? '');
      if (!(await volumeFiles.hasFiles(volume))) return { received: 0 };
      return { received: countOf(await volumeCalls.ask(volume.id, { purpose: 'state', path, size, key }), 'received') };
    },
  }),
];

/**
 * The volume of that name.
 * @throws AppError `volume_not_found`, `volume_is_cache`; `volume_file_not_found` where it has no files yet
 */
async function withFiles(
  files: Pick<VolumeFiles, 'reachable' | 'hasFiles'>,
  workspaceId: WorkspaceId,
  name: string,
): Promise<VolumeRow> {
  const volume = await files.reachable(workspaceId, name);
  if (await files.hasFiles(volume)) return volume;
  throw new AppError('volume_file_not_found', 'the volume has no such file');
}

/** @throws AppError `invalid_query` that names the field */
function requirePath(field: string, problem: string | undefined): void {
  if (problem !== undefined) throw new AppError('invalid_query', `${field} ${problem}`, { details: { field } });
}

function emptyListing(path: string): { kind: 'folder'; data: VolumeEntry[]; next: string } {
  if (path !== '') throw new AppError('volume_file_not_found', 'the volume has no such file');
  return { kind: 'folder', data: [], next: '' };
}

type Kind = VolumeEntry['kind'];
const kindOf = ({ kind }: VolumeAnswer): Kind =>
  kind === 'file' || kind === 'folder' || kind === 'link' ? kind : 'other';

const textOf = (value: VolumeAnswer, name: string): string => {
  const text = value[name];
  return typeof text === 'string' ? text : '';
};

const countOf = (value: VolumeAnswer, name: string): number => {
  const count = value[name];
  return typeof count === 'number' && count >= 0 ? count : 0;
};

const entryOf = (entry: VolumeAnswer): VolumeEntry => ({
  path: textOf(entry, 'path'),
  kind: kindOf(entry),
  size: countOf(entry, 'size'),
  modified_at: timeOf(textOf(entry, 'mtimeNs')),
  executable: entry['executable'] === true,
  addressable: entry['addressable'] === true,
});

/** The time of nanoseconds, in all of their digits. A time outside the calendar counts as 1970. */
function timeOf(text: string): string {
  const ns = /^\d{1,21}$/.test(text) ? BigInt(text) : 0n;
  const at = new Date(Number(ns / 1_000_000_000n) * 1000);
  if (Number.isNaN(at.getTime())) return new Date(0).toISOString();
  return at.toISOString().replace('.000Z', `.${String(ns % 1_000_000_000n).padStart(9, '0')}Z`);
}

const sizeOf = (answer: VolumeAnswer): VolumeSize => ({
  bytes: countOf(answer, 'bytes'),
  disk_bytes: countOf(answer, 'diskBytes'),
  files: countOf(answer, 'files'),
  folders: countOf(answer, 'folders'),
  others: countOf(answer, 'others'),
  next: textOf(answer, 'next'),
});

// ---- signed addresses ----------------------------------------------------------------------------------------------
const addressRoutes = (parts: VolumeRouteParts): readonly RestRoute[] => [
  restRoute({
    http: 'GET /volume/{ws}/{volumeName}/file-url',
    grants: NOT_LIMITED,
    summary: 'A signed address that downloads or uploads a file of a volume for a day',
    scope: 'full',
    query: FileAddressQuery,
    answer: FileAddress,
    errors: ['volume_not_found', 'volume_without_home', 'volume_is_cache', 'volume_quota_reached'],
    handle: async ({ workspaceId, params, query, http }) => {
      const { path = '', method = 'GET' } = query;
      if (method !== 'GET' && method !== 'PUT') {
        throw new AppError('invalid_query', 'query parameter method must be GET or PUT');
      }
      const purpose = method === 'PUT' ? 'put' : 'get';
      const signed = await parts.volumeFiles.sign(workspaceId, params['volumeName'] ?? '', path, purpose);
      const url = `${parts.originOf(http).baseUrl}${signed.path}`;
      return { url, expires_at: timestampOf(signed.untilMs) };
    },
  }),
  restRoute({
    http: 'GET /volume/{ws}/{volumeName}/pack-url',
    grants: NOT_LIMITED,
    summary: 'A signed address that reads or writes many files of a folder in one request, for a day',
    scope: 'full',
    query: PackAddressQuery,
    answer: PackAddress,
    errors: ['volume_not_found', 'volume_without_home', 'volume_is_cache', 'volume_quota_reached'],
    handle: async ({ workspaceId, params, query, http }) => {
      const { path = '', method = 'POST' } = query;
      if (method !== 'POST' && method !== 'PUT') {
        throw new AppError('invalid_query', 'query parameter method must be POST or PUT');
      }
      const purpose = method === 'PUT' ? 'unpack' : 'pack';
      const signed = await parts.volumeFiles.sign(workspaceId, params['volumeName'] ?? '', path, purpose);
      const url = `${parts.originOf(http).baseUrl}${signed.path}`;
      return { url, expires_at: timestampOf(signed.untilMs) };
    },
  }),
];
