// `longshore container cp`: files and folders, into a container or out of it. Folders travel as a tar, which the `tar`
// of this machine makes, and unpacks (container-unpack.ts).
// Invariant: a file that comes out takes its place whole or not at all.
import { createReadStream, createWriteStream, existsSync, realpathSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join, posix, resolve } from 'node:path';
import { Transform } from 'node:stream';
import type { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CliError, cannotWrite, errorCode, usageError } from '../errors.ts';
import type { Client } from '../client.ts';
import { bytesOf } from '../format.ts';
import { canShowProgress, endProgress, note, progress } from '../print.ts';
import { placeOf } from './container.ts';
import { runTar, unpackFolder } from './container-unpack.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';

const SHOW_EVERY_MS = 200;
const FILE_MODE = 0o644;

interface Remote {
  readonly container: string;
  readonly path: string;
}

export async function runContainerCopy(from: string, to: string, invocation: Invocation): Promise<void> {
  const [source, target] = [remoteOf(from), remoteOf(to)];
  const remote = source ?? target;
  if (remote === undefined || (source !== undefined && target !== undefined))
    throw usageError(
      'one side is in a container, as CONTAINER:PATH (a single letter is a drive, and no container), and the other is a path here or -',
    );
  await withClient(invocation, async (client) => {
    const { container, path } = remote;
    const files = new RemoteFiles(client, (await placeOf(client, container)).id);
    if (source !== undefined) await copyOut(files, path, to);
    else await copyIn(files, from, path);
  });
}

/** A place in a container; undefined: a path here. A single letter is no container: it may be a drive. */
function remoteOf(text: string): Remote | undefined {
  const [, container = '', path = ''] = /^([A-Za-z0-9-]{2,}):(.*)$/s.exec(text) ?? [];
  if (container === '') return undefined;
  if (path === '') throw usageError(`${text}: name a path in the container, such as ${container}:/tmp`);
  return { container, path };
}

class RemoteFiles {
  readonly #client: Client;
  readonly #base: string;

  constructor(client: Client, id: string) {
    this.#client = client;
    this.#base = `/api/v1/gateway/containers/${encodeURIComponent(id)}/files`;
  }

  /** @returns undefined: there is nothing of that name */
  async isDirectory(path: string): Promise<boolean | undefined> {
    try {
      const { isDir } = await this.#client.restCall(
        'GET',
        `${this.#base.slice('/api/v1'.length)}?${query({ path, stat: 'true' })}`,
      );
      return isDir === true;
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  async read(path: string, archive: boolean): Promise<{ readonly body: Readable; readonly mode: number }> {
    const asked = `${this.#base}?${query({ path, ...tar(archive) })}`;
    const { body, headers } = await this.#client.open('GET', asked).catch((error: unknown) => {
      throw isMissing(error) ? new CliError(`the container has no ${path}`, { cause: error }) : error;
    });
    const mode = Number.parseInt(headers['x-file-mode'] ?? '', 8);
    // A container's file never runs with the rights of who copies it.
    return { body, mode: Number.isNaN(mode) ? FILE_MODE : mode & 0o777 };
  }

  async write(path: string, body: Readable, { mode, archive }: { readonly mode?: number; readonly archive: boolean }) {
    const bits = mode === undefined ? {} : { mode: (mode & 0o777).toString(8).padStart(3, '0') };
    const asked = `${this.#base}?${query({ path, ...bits, ...tar(archive) })}`;
    await this.#client.open('PUT', asked, body).catch((error: unknown) => {
      if (!isMissing(error)) throw error;
      throw new CliError(`cannot write ${path} in the container: there can be no such file`, { cause: error });
    });
  }
}

/** Whether the container said that there is nothing of that name. */
const isMissing = (error: unknown): boolean =>
  error instanceof CliError && error.status === 404 && error.answerCode === 'not_found';

const tar = (archive: boolean): Record<string, string> => (archive ? { archive: 'tar' } : {});
const query = (fields: Record<string, string>): string => new URLSearchParams(fields).toString();

async function copyOut(files: RemoteFiles, path: string, to: string): Promise<void> {
  const isDirectory = await files.isDirectory(path);
  if (isDirectory === undefined) throw new CliError(`the container has no ${path}`);
  if (to === '-' && isDirectory)
    throw new CliError(
      `${path} is a folder, and only a file goes to stdout: \`longshore container exec ID -- tar -c ${path}\` packs it`,
    );
  if (to === '-') return copyBytes((await files.read(path, false)).body, process.stdout, path, false);
  const isInto = existsSync(to) && statSync(to).isDirectory();
  if (!isDirectory) {
    const place = isInto ? join(to, basename(path)) : to;
    const { body, mode } = await files.read(path, false);
    const made = `${place}.${process.pid}.part`;
    try {
      await copyBytes(body, createWriteStream(made, { mode, flags: 'wx' }), path, true);
      renameSync(made, place);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).path !== made) throw error;
      throw cannotWrite(place, error);
    } finally {
      rmSync(made, { force: true });
    }
    return;
  }
  if (existsSync(to) && !isInto) throw new CliError(`${to} is a file, and ${path} is a folder`);
  // A name that is not there becomes the folder itself. The container does not choose the name.
  const place = isInto ? join(realpathSync(to), posix.basename(posix.join('/', path))) : resolve(to);
  const { body } = await files.read(path, true);
  await unpackFolder(counted(body, path), place);
}

async function copyIn(files: RemoteFiles, from: string, path: string): Promise<void> {
  if (from === '-') return files.write(path, process.stdin, { archive: false });
  let local;
  try {
    local = statSync(from);
  } catch (error) {
    throw new CliError(`cannot read ${from} (${errorCode(error)})`, { cause: error });
  }
  const isInto = (await files.isDirectory(path)) === true || path.endsWith('/');
  const name = basename(resolve(from));
  if (local.isFile()) {
    const place = isInto ? `${path.replace(/\/+$/, '')}/${name}` : path;
    return files.write(place, counted(createReadStream(from), from), { mode: local.mode, archive: false });
  }
  if (!local.isDirectory()) throw new CliError(`${from} is neither a file nor a folder`);
  const packed = isInto ? ['-C', dirname(resolve(from)), `./${name}`] : ['-C', from, '.'];
  const packing = runTar(['-cf', '-', ...packed], 'stdout');
  const body = counted(packing.child.stdout as Readable, from);
  await Promise.all([files.write(path, body, { archive: true }), packing.ended]);
}

async function copyBytes(body: Readable, to: Writable, what: string, ends: boolean): Promise<void> {
  await pipeline(counted(body, what), to, { end: ends });
}

/** Shows how far a copy is, where that can be seen. */
function counted(body: Readable, what: string): Readable {
  if (!canShowProgress()) return body;
  let bytes = 0;
  let shownAtMs = 0;
  const counting = new Transform({
    transform: (chunk: Buffer, _encoding, done) => {
      bytes += chunk.length;
      const nowMs = performance.now();
      if (nowMs - shownAtMs > SHOW_EVERY_MS) {
        shownAtMs = nowMs;
        progress(`${what}: ${bytesOf(bytes)}`);
      }
      done(null, chunk);
    },
    flush: (done) => {
      endProgress();
      note(`${what}: ${bytesOf(bytes)}`);
      done();
    },
  });
  body.once('error', (error) => counting.destroy(error));
  return body.pipe(counting);
}
