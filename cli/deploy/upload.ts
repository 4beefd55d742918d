// Uploads an archive as an object, unless the installation has it.
import { createReadStream } from 'node:fs';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { textField } from '../json.ts';
import type { Archive } from './archive.ts';

/** Uploads may be large and disks slow; a stalled one still ends. */
const UPLOAD_TIMEOUT_MS = 30 * 60_000;

/** Uploads unless the installation has these bytes already; the hash is the key. */
export async function uploadArchive(
  client: Client,
  archive: Pick<Archive, 'path' | 'size' | 'sha256'>,
  onStep: (line: string) => void,
): Promise<string> {
  const head = await client.gateway('GET', `/objects/${archive.sha256}`);
  if (head['exists'] === true) return textField(head, 'objectId');
  onStep(`uploading ${formatBytes(archive.size)}`);
  const created = await client.gateway('POST', '/objects', {
    objectMetadata: { name: archive.sha256, size: String(archive.size) },
    hash: archive.sha256,
    size: String(archive.size),
    overwrite: true,
  });
  const answer = await client.call(textField(created, 'presignedUrl'), {
    method: 'PUT',
    body: createReadStream(archive.path),
    contentLength: archive.size,
    contentType: 'application/zip',
    anonymous: true,
    timeoutMs: UPLOAD_TIMEOUT_MS,
  });
  if (answer.status !== 200) {
    const text = answer.body.toString('utf8').slice(0, 300);
    throw new CliError(`the upload was refused with ${answer.status}: ${text}`);
  }
  return textField(created, 'objectId');
}

function formatBytes(bytes: number): string {
  return bytes < 1024 ** 2 ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
}
