// Calls on the folders and entries of a volume: a request to the file server of the volume's machine, and its answer as
// JSON. The server's program is python/longshore/volume_files.
// Invariant: every call ends within its time, and an answer is bounded.
import type { Duplex } from 'node:stream';
import { AppError, messageOf } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import { FrameReader, encodeFrame } from '#shared/protocol/frames.ts';
import type { VolumeFiles } from './volume-files.ts';

/** Longer than the file server works on a call, and shorter than the deadline of a REST request. */
const WITHIN_MS = 27_000;
const MOST_ANSWER_BYTES = 32 * 1024 * 1024;

export interface VolumeCall {
  readonly purpose: 'list' | 'measure' | 'remove' | 'move' | 'state' | 'begin' | 'complete' | 'abort';
  readonly path?: string;
  readonly [field: string]: unknown;
}

export type VolumeAnswer = Readonly<Record<string, unknown>>;

export class VolumeCalls {
  readonly #files: Pick<VolumeFiles, 'open'>;
  readonly #withinMs: number;

  constructor(files: Pick<VolumeFiles, 'open'>, withinMs = WITHIN_MS) {
    this.#files = files;
    this.#withinMs = withinMs;
  }

  /**
   * Asks the file server of a volume.
   * @throws AppError with the server's code; `machine_silent`, `volume_failed`, and as VolumeFiles.open
   */
  async ask(volumeId: string, call: VolumeCall, withinMs = this.#withinMs): Promise<VolumeAnswer> {
    const signal = AbortSignal.timeout(withinMs);
    const { bytes, done } = await this.#files.open(volumeId, signal);
    const onAbort = (): void => void bytes.destroy();
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      bytes.write(requestFrame(call));
      bytes.write(encodeFrame('end', {}));
      const answer = await answerOf(bytes);
      if (answer !== undefined) return valueOf(answer);
      if (signal.aborted) throw new AppError('machine_silent', 'the machine of the volume did not answer in time');
      throw new AppError('volume_failed', 'the machine of the volume broke the call off');
    } finally {
      signal.removeEventListener('abort', onAbort);
      bytes.destroy();
      done();
    }
  }
}

const requestFrame = (call: VolumeCall): Buffer => {
  const head = { type: 'file', method: 'POST', headers: [], requestId: '', ...call };
  return encodeFrame('request', {}, Buffer.from(JSON.stringify(head), 'utf8'));
};

interface Answer {
  readonly status: number;
  readonly body: Buffer;
}

/** The answer to its end; undefined: it broke off. */
async function answerOf(bytes: Duplex): Promise<Answer | undefined> {
  const reader = new FrameReader();
  const parts: Buffer[] = [];
  let size = 0;
  let status = 0;
  try {
    for await (const chunk of bytes as AsyncIterable<Buffer>) {
      for (const { kind, body } of reader.push(chunk)) {
        if (kind === 'end') return { status, body: Buffer.concat(parts, size) };
        if (kind === 'response') status = statusOf(body);
        if (kind !== 'data') continue;
        size += body.length;
        if (size > MOST_ANSWER_BYTES) return undefined;
        parts.push(body);
      }
    }
  } catch (error) {
    // A broken connection says nothing more than its end.
    if (!(error instanceof Error)) throw error;
  }
  return undefined;
}

function statusOf(head: Buffer): number {
  const value: unknown = JSON.parse(head.toString('utf8'));
  return isRecord(value) && typeof value['status'] === 'number' ? value['status'] : 0;
}

/** @throws AppError with the code of a refusal */
function valueOf({ status, body }: Answer): VolumeAnswer {
  const value = jsonOf(body);
  if (status === 200 && value !== undefined) return value;
  const { code, message } = value ?? {};
  if (typeof code === 'string' && typeof message === 'string') throw new AppError(code, message);
  throw new AppError('volume_failed', `the machine of the volume answered ${status} without a word`);
}

function jsonOf(body: Buffer): VolumeAnswer | undefined {
  if (body.length === 0) return undefined;
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    return isRecord(value) ? value : undefined;
  } catch (error) {
    throw new AppError(
      'volume_failed',
      `the machine of the volume gave an answer that is no JSON: ${messageOf(error)}`,
      {
        cause: error,
      },
    );
  }
}
