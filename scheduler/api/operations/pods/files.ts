// Files of a container. Their bytes are in the messages here; files of any size pass as streams by
// `/containers/{id}/files` (http/containers/files.ts).
import {
  PodDirectoryRequest,
  PodDone,
  PodDownloadRequest,
  PodFileInfoResponse,
  PodFileRequest,
  PodFileResponse,
  PodFilesResponse,
  PodFindRequest,
  PodFoundResponse,
  PodPathRequest,
  PodReplaceRequest,
  PodUploadRequest,
} from '#shared/api/pods.ts';
import { AppError } from '#shared/errors.ts';
import type { ReachedContainer } from '../../../fleet/inside/access.ts';
import type { Entry } from '../../../fleet/inside/messages.ts';
import { podOperation } from './pod-operation.ts';
import type { PodParts } from './pod-operation.ts';
import type { Operation } from '../operation.ts';

/** Most bytes of a file in a message. */
const MOST_FILE_BYTES = 32 * 1024 * 1024;
/** Most bytes of a request that brings a file: as base64, with the rest of the message. */
export const MOST_UPLOAD_BYTES = Math.ceil((MOST_FILE_BYTES * 4) / 3) + 64 * 1024;
const MOST_PATH = 4096;
const MOST_PATTERN = 4096;
const MOST_REPLACEMENT = 256 * 1024;
const MOST_MATCHES = 10_000;
const FILE_MODE = 0o644;
const DIRECTORY_MODE = 0o755;
/** Time to read or write a file. */
const BYTES_WITHIN_MS = 60_000;

export function fileOperations(parts: PodParts): readonly Operation[] {
  const { inside } = parts;
  return [
    podOperation(parts, {
      name: 'SandboxUploadFile',
      route: 'POST /files/upload',
      request: PodUploadRequest,
      response: PodDone,
      mostBytes: MOST_UPLOAD_BYTES,
      problem: ({ containerPath, mode, data, offset }) =>
        pathProblem('containerPath', containerPath) ??
        modeProblem(mode) ??
        offsetProblem(offset) ??
        (data.byteLength > MOST_FILE_BYTES ? `data has ${tooLarge}` : undefined),
      handle: async (container, { containerPath: path, mode: asked, data, offset }) => {
        const mode = asked === 0 ? FILE_MODE : asked;
        const fields =
          offset === 0
            ? { path, mode, append: false, parents: true }
            : { path, mode, append: true, offset, parents: false };
        await inside.write(container, fields, data, { withinMs: BYTES_WITHIN_MS });
        return {};
      },
    }),
    podOperation(parts, {
      name: 'SandboxDownloadFile',
      route: 'GET /files/download/{path}',
      request: PodDownloadRequest,
      response: PodFileResponse,
      problem: ({ path, offset }) => pathProblem('path', path) ?? offsetProblem(offset),
      handle: async (container, { path, offset, length }) => {
        const asked = { path, offset, length: Math.min(length === 0 ? Infinity : length, MOST_FILE_BYTES + 1) };
        const options = { withinMs: BYTES_WITHIN_MS };
        const { bytes } = await inside.read(container, 'read', asked, MOST_FILE_BYTES + 1, options);
        if (bytes.length > MOST_FILE_BYTES) throw new AppError('body_too_large', `${path} has ${tooLarge}`);
        return { data: bytes };
      },
    }),
    podOperation(parts, {
      name: 'SandboxStatFile',
      route: 'GET /files/stat',
      request: PodFileRequest,
      response: PodFileInfoResponse,
      problem: ({ containerPath }) => pathProblem('containerPath', containerPath),
      handle: async (container, { containerPath: path }) => ({
        fileInfo: infoOf((await inside.ask(container, 'stat', { path })).entry),
      }),
    }),
    podOperation(parts, {
      name: 'SandboxListFiles',
      route: 'GET /files',
      request: PodFileRequest,
      response: PodFilesResponse,
      problem: ({ containerPath }) => pathProblem('containerPath', containerPath),
      handle: async (container, { containerPath: path }) => ({
        files: (await inside.ask(container, 'list', { path })).entries.map(infoOf),
      }),
    }),
    podOperation(parts, {
      name: 'SandboxFindInFiles',
      route: 'POST /files/find',
      request: PodFindRequest,
      response: PodFoundResponse,
      problem: ({ containerPath, pattern }) => pathProblem('containerPath', containerPath) ?? patternProblem(pattern),
      handle: async (container, { containerPath: path, pattern }) => ({
        results: (await inside.ask(container, 'find', { path, pattern, most: MOST_MATCHES })).results,
      }),
    }),
    podOperation(parts, {
      name: 'SandboxReplaceInFiles',
      route: 'POST /files/replace',
      request: PodReplaceRequest,
      response: PodFoundResponse,
      problem: ({ containerPath, pattern, newString }) =>
        pathProblem('containerPath', containerPath) ??
        patternProblem(pattern) ??
        (Buffer.byteLength(newString) > MOST_REPLACEMENT
          ? `newString has more than ${MOST_REPLACEMENT / 1024} KiB`
          : undefined),
      handle: async (container, { containerPath: path, pattern, newString }) => ({
        results: (await inside.ask(container, 'replace', { path, pattern, newString })).results,
      }),
    }),
    podOperation(parts, {
      name: 'SandboxDeleteFile',
      route: 'DELETE /files/{path}',
      request: PodPathRequest,
      response: PodDone,
      problem: ({ path }) => pathProblem('path', path),
      handle: async (container, { path }) => {
        if (isDirectory(await stat(container, path)))
          throw new AppError('path_conflict', `${path} is a directory: delete it as one`);
        await inside.ask(container, 'remove', { path, recursive: false });
        return {};
      },
    }),
    podOperation(parts, {
      name: 'SandboxCreateDirectory',
      route: 'POST /directories',
      request: PodDirectoryRequest,
      response: PodDone,
      problem: ({ containerPath, mode }) => pathProblem('containerPath', containerPath) ?? modeProblem(mode),
      handle: async (container, { containerPath: path, mode }) => {
        await inside.ask(container, 'mkdir', { path, mode: mode === 0 ? DIRECTORY_MODE : mode, parents: true });
        return {};
      },
    }),
    podOperation(parts, {
      name: 'SandboxDeleteDirectory',
      route: 'DELETE /directories/{path}',
      request: PodPathRequest,
      response: PodDone,
      problem: ({ path }) => pathProblem('path', path),
      handle: async (container, { path }) => {
        if (!isDirectory(await stat(container, path)))
          throw new AppError('path_conflict', `${path} is no directory: delete it as a file`);
        await inside.ask(container, 'remove', { path, recursive: true });
        return {};
      },
    }),
  ];

  async function stat(container: ReachedContainer, path: string): Promise<Entry> {
    return (await inside.ask(container, 'stat', { path })).entry;
  }
}

const tooLarge = `more than ${MOST_FILE_BYTES / 1024 ** 2} MiB: files of any size pass by /api/v1/gateway/containers/{id}/files?path= (\`longshore container cp\`)`;

const isDirectory = ({ isDir, isLink }: Entry): boolean => isDir && !isLink;

const infoOf = ({ name, isDir, size, mode, modTimeMs, owner, group }: Entry) => ({
  name,
  isDir,
  size,
  mode,
  modTime: Math.floor(modTimeMs / 1000),
  permissions: mode,
  owner,
  group,
});

function pathProblem(field: string, path: string): string | undefined {
  if (path === '') return `${field} is missing`;
  return Buffer.byteLength(path) > MOST_PATH ? `${field} has more than ${MOST_PATH} bytes` : undefined;
}

const offsetProblem = (offset: number): string | undefined =>
  offset < 0 ? 'offset must be a place in the file, from 0 on' : undefined;

const modeProblem = (mode: number): string | undefined =>
  mode > 0o7777 ? 'mode has other bits than those of permissions' : undefined;

function patternProblem(pattern: string): string | undefined {
  if (pattern === '') return 'pattern is missing';
  return Buffer.byteLength(pattern) > MOST_PATTERN ? `pattern has more than ${MOST_PATTERN} bytes` : undefined;
}
