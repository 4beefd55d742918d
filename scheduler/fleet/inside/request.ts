// A request to the supervisor of a container, on a stream of its own: the request goes out at once, the answer is
// awaited, and the frames behind it go to whoever takes the request on.
// Invariant: an answer is believed only in its shape. Nothing is read behind the answer until somebody takes it, and
// then no faster than it is taken.
import type { Duplex } from 'node:stream';
import type { Static } from 'typebox';
import { Compile } from 'typebox/compile';
import type { Validator } from 'typebox/compile';
import { AppError } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import { FrameStream } from '#shared/protocol/frame-stream.ts';
import type { FrameEvents } from '#shared/protocol/frame-stream.ts';
import type { Frame } from '#shared/protocol/frames.ts';
import { ANSWERS, MOST_REQUEST_BYTES } from './messages.ts';
import type { AnswerOf, RequestType, Requests } from './messages.ts';

/** Error codes for the codes of supervisors. */
const CODES: Readonly<Record<string, string>> = {
  not_found: 'not_found',
  bad_request: 'bad_request',
  not_a_directory: 'path_conflict',
  is_a_directory: 'path_conflict',
  exists: 'path_conflict',
  not_empty: 'path_conflict',
  denied: 'path_denied',
  no_space: 'disk_full',
  too_many_processes: 'too_many_processes',
  too_large: 'body_too_large',
  refused: 'port_refused',
  failed: 'container_failed',
};
const MOST_TEXT = 2000;

/** Failures of a container that breaks its protocol. */
export const containerFailed = (text: string): AppError => new AppError('container_failed', text);

/** A connection that ended in the middle: a request that may be repeated may succeed on another one. */
export const brokenOff = (): AppError =>
  new AppError('container_failed', 'the container, or its machine, broke the connection off', {
    details: { passes: true },
  });

const checks = new Map<RequestType, Validator>();

function checkOf(type: RequestType): Validator {
  let check = checks.get(type);
  if (check === undefined) checks.set(type, (check = Compile(ANSWERS[type])));
  return check;
}

export class OpenRequest<T extends RequestType> {
  readonly frames: FrameStream;
  readonly #type: T;
  readonly #answer = Promise.withResolvers<Frame | undefined>();
  /** Frames that came in the same read as the answer. */
  #behind: { readonly frame: Frame; readonly used: (() => void) | undefined }[] = [];
  #taken: FrameEvents | undefined;
  #isOver = false;
  readonly #onClosed: () => void;

  /**
   * Sends the request.
   * @param onClosed - called once the connection is closed, or is being closed from here
   * @throws AppError `body_too_large`
   */
  constructor(bytes: Duplex, type: T, fields: Requests[T], onClosed: () => void = () => undefined) {
    this.#type = type;
    this.#onClosed = onClosed;
    bytes.once('close', onClosed);
    if (bytes.destroyed) onClosed();
    let hasAnswer = false;
    this.frames = new FrameStream(bytes, {
      onFrame: (frame, used) => {
        if (this.#taken !== undefined) return this.#taken.onFrame(frame, used);
        if (hasAnswer) return void this.#behind.push({ frame, used });
        if (frame.kind !== 'response') return used?.();
        hasAnswer = true;
        this.frames.pause();
        this.#answer.resolve(frame);
      },
      onOver: () => {
        this.#isOver = true;
        this.#answer.resolve(undefined);
        this.#taken?.onOver();
      },
    });
    const body = Buffer.from(JSON.stringify({ type, ...fields }), 'utf8');
    if (body.length > MOST_REQUEST_BYTES) {
      this.close();
      throw new AppError('body_too_large', `the request has more than ${MOST_REQUEST_BYTES} bytes`);
    }
    this.frames.send('request', {}, body);
  }

  /**
   * Waits for the answer.
   * @throws AppError of the supervisor's refusal; `container_failed`
   */
  async answer(): Promise<AnswerOf<T>> {
    const frame = await this.#answer.promise;
    if (frame === undefined) throw brokenOff();
    const value = jsonOf(frame.body);
    if (value?.['ok'] === false) throw refusalOf(value);
    if (value?.['ok'] !== true || !checkOf(this.#type).Check(value)) {
      throw containerFailed('the container gave an answer that is not of its protocol');
    }
    return value as Static<(typeof ANSWERS)[T]>;
  }

  /** Takes the frames behind the answer, those first that have come already. */
  take(events: FrameEvents): void {
    this.#taken = events;
    const behind = this.#behind;
    this.#behind = [];
    for (const { frame, used } of behind) events.onFrame(frame, used);
    if (this.#isOver) events.onOver();
    else this.frames.resume();
  }

  /** Ends the connection. */
  close(): void {
    this.frames.close();
    this.#isOver = true;
    this.#answer.resolve(undefined);
    this.#onClosed();
  }
}

function jsonOf(body: Buffer): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    return isRecord(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function refusalOf({ code, error }: Readonly<Record<string, unknown>>): AppError {
  const known = typeof code === 'string' ? CODES[code] : undefined;
  const text = typeof error === 'string' && error !== '' ? error.slice(0, MOST_TEXT) : 'the container refused it';
  return new AppError(known ?? 'container_failed', text);
}
