// Packs an app's files into a zip whose bytes depend on names, modes and contents
// alone. So the hash of an unchanged app matches, and nothing is uploaded again.
// The zip is a temporary file: an app may be larger than memory should hold.
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { ZipFile } from 'yazl';
import { messageOf } from '#shared/errors.ts';
import { CliError } from '../errors.ts';
import type { AppFile } from './files.ts';

/** A packed app on disk, until `remove`. */
export interface Archive {
  readonly path: string;
  readonly size: number;
  /** Lower-case hex sha256 of the bytes. */
  readonly sha256: string;
  remove(): Promise<void>;
}

/** @throws CliError when a file cannot be read or the temporary directory has no room; nothing is left behind then */
export async function packFiles(files: readonly AppFile[]): Promise<Archive> {
  const directory = await mkdtemp(join(tmpdir(), 'longshore-deploy-'));
  const remove = (): Promise<void> => rm(directory, { recursive: true, force: true });
  try {
    const path = join(directory, 'app.zip');
    const zip = new ZipFile();
    // The format's first day, in local time because the old DOS fields have no zone. The newer field, which has a
    // zone, is left out.
    const mtime = new Date(1980, 0, 1);
    for (const file of files) {
      const mode = file.executable ? 0o100755 : 0o100644;
      zip.addFile(file.fullPath, file.path, { mtime, mode, forceDosTimestamp: true });
    }
    zip.end();
    const hash = createHash('sha256');
    let size = 0;
    const count = new Transform({
      transform(chunk: Buffer, _encoding, done) {
        hash.update(chunk);
        size += chunk.byteLength;
        done(null, chunk);
      },
    });
    // A file that vanishes while it is packed is reported on the zip itself, not on its stream.
    zip.on('error', (error: Error) => count.destroy(error));
    await pipeline(zip.outputStream, count, createWriteStream(path, { mode: 0o600 }));
    return { path, size, sha256: hash.digest('hex'), remove };
  } catch (error) {
    await remove();
    throw new CliError(`cannot pack the app (${messageOf(error)})`, { cause: error });
  }
}
