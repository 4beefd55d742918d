// Uploads an archive as an object, unless the installation has it.
import { createReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { bytesOf } from '../format.ts';
import { textField } from '../json.ts';
import { canShowProgress, endProgress, progress } from '../print.ts';
import { rateText } from '../transfer/rate.ts';
import type { Archive } from './archive.ts';

/** Uploads may be large and disks slow; a stalled one still ends. */
const UPLOAD_TIMEOUT_MS = 30 * 60_000;
/** Time between two looks at how far an upload is: on a terminal, and where each is a line of its own. */
const SHOWN_EVERY_MS = 200;
const SAID_EVERY_MS = 10_000;

/** Uploads unless the installation has these bytes already; the hash is the key. */
export async function uploadArchive(
  client: Client,
  archive: Pick<Archive, 'path' | 'size' | 'sha256'>,
  onStep: (line: string) => void,
): Promise<string> {
  const head = await client.gateway('GET', `/objects/${archive.sha256}`);
  if (head['exists'] === true) return textField(head, 'objectId');
  onStep(`uploading ${bytesOf(archive.size)}`);
  const created = await client.gateway('POST', '/objects', {
    objectMetadata: { name: archive.sha256, size: String(archive.size) },
    hash: archive.sha256,
    size: String(archive.size),
    overwrite: true,
  });
  const isLive = canShowProgress();
  const answer = await client
    .call(textField(created, 'presignedUrl'), {
      method: 'PUT',
      body: Readable.from(shown(archive, isLive ? progress : onStep, isLive ? SHOWN_EVERY_MS : SAID_EVERY_MS), {
        objectMode: false,
      }),
      contentLength: archive.size,
      contentType: 'application/zip',
      anonymous: true,
      timeoutMs: UPLOAD_TIMEOUT_MS,
    })
    .finally(() => isLive && endProgress());
  if (answer.status !== 200) {
    const text = answer.body.toString('utf8').slice(0, 300);
    throw new CliError(`the upload was refused with ${answer.status}: ${text}`);
  }
  return textField(created, 'objectId');
}

/** The archive's bytes; says how far they are. */
async function* shown(
  { path, size }: Pick<Archive, 'path' | 'size'>,
  say: (line: string) => void,
  everyMs: number,
): AsyncGenerator<Buffer> {
  const startMs = performance.now();
  let [bytes, saidMs] = [0, startMs];
  for await (const part of createReadStream(path) as AsyncIterable<Buffer>) {
    const nowMs = performance.now();
    if (nowMs - saidMs >= everyMs) {
      saidMs = nowMs;
      say(`uploading: ${rateText(bytes, size, (nowMs - startMs) / 1000)}`);
    }
    bytes += part.length;
    yield part;
  }
}
