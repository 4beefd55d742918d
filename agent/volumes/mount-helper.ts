/**
 * The agent's end of the mount helper, which mounts buckets for it: this process has no right to mount. Must stay true:
 * every request has a deadline; no file of a mount is touched here.
 */
import { messageOf } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import { NoAnswer } from '../child.ts';
import type { BucketWanted, MountState, VolumeRemoved, VolumeWanted } from './mount-messages.ts';

/** Deadline of a mount; the helper gives up before. */
const MOUNT_MS = 60_000;
const VOLUME_MS = 90_000;
const REMOVE_MS = 11 * 60_000;
const ASK_MS = 10_000;
const MOST_BYTES = 16 * 1024 * 1024;
// Node's exports of HTTP, imported by name, would load its `fetch`.
const { request: sendRequest } = process.getBuiltinModule('node:http');

/** The helper is not there: it was never set up, or does not run. */
export class NoMountHelper extends NoAnswer {
  constructor(cause: unknown) {
    super('the mount helper of this machine does not run (docs/volumes.md)', { cause });
  }
}

export class MountHelper {
  readonly #socketPath: string;

  constructor(socketPath: string) {
    this.#socketPath = socketPath;
  }

  /** Mounts a bucket. @returns its path on this machine @throws NoAnswer, or Error with the fault */
  async bucket(wanted: BucketWanted): Promise<string> {
    return pathIn(await this.#ask('/bucket', wanted, MOUNT_MS));
  }

  /** Makes an `s3` volume if missing. @returns its path on this machine @throws NoAnswer, or Error with the fault */
  async volume(wanted: VolumeWanted): Promise<string> {
    return pathIn(await this.#ask('/volume', wanted, VOLUME_MS));
  }

  async remove(volume: VolumeRemoved): Promise<void> {
    await this.#ask('/remove', volume, REMOVE_MS);
  }

  async probe(): Promise<void> {
    await this.#ask('/probe', {}, ASK_MS);
  }

  /** Names all holders of mounts, and asks for the helper's state. */
  async sync(holders: readonly string[]): Promise<MountState> {
    return stateIn(await this.#ask('/sync', { holders }, ASK_MS));
  }

  /** The helper's state, for somebody who is not the agent and knows no holders. */
  async state(): Promise<MountState> {
    return stateIn(await this.#ask('/state', {}, ASK_MS));
  }

  #ask(path: string, body: object, deadlineMs: number): Promise<Readonly<Record<string, unknown>>> {
    return new Promise((resolve, reject) => {
      const signal = AbortSignal.timeout(deadlineMs);
      const text = JSON.stringify(body);
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
      const options = { socketPath: this.#socketPath, path, method: 'POST', headers, agent: false, signal };
      const failed = (error: unknown): void =>
        reject(
          signal.aborted
            ? new NoAnswer(`the mount helper did not answer within ${deadlineMs / 1000} s`)
            : new NoMountHelper(error),
        );
      const sent = sendRequest(options, (response) => {
        const parts: Buffer[] = [];
        let bytes = 0;
        response.on('error', failed);
        response.on('data', (part: Buffer) => {
          parts.push(part);
          bytes += part.length;
          if (bytes > MOST_BYTES) response.destroy(new Error('the answer is too large'));
        });
        response.on('end', () => {
          try {
            const answer: unknown = JSON.parse(Buffer.concat(parts).toString('utf8'));
            if (!isRecord(answer)) throw new Error('the answer is no object');
            if (response.statusCode === 200) resolve(answer);
            else if (answer['silent'] === true) reject(new NoAnswer(String(answer['message'])));
            else reject(new Error(String(answer['message'])));
          } catch (error) {
            reject(new Error(`the mount helper's answer cannot be read: ${messageOf(error)}`, { cause: error }));
          }
        });
      });
      sent.on('error', failed);
      sent.end(text);
    });
  }
}

const stateIn = ({ volumes, mounts, lost }: Readonly<Record<string, unknown>>): MountState => ({
  volumes: volumes === true,
  mounts: typeof mounts === 'number' ? mounts : 0,
  lost: Array.isArray(lost) ? lost.filter(isLost) : [],
});

function pathIn({ path }: Readonly<Record<string, unknown>>): string {
  if (typeof path !== 'string' || !path.startsWith('/')) throw new Error('the mount helper named no path');
  return path;
}

const isLost = (value: unknown): value is MountState['lost'][number] =>
  isRecord(value) && typeof value['holder'] === 'string' && typeof value['why'] === 'string';
