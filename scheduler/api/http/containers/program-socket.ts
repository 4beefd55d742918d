// A program in a container, as its caller sees it on a WebSocket: input and output as bytes; sizes, signals and the
// exit code as texts.
// Invariant: a program outlives a connection that was lost, and the caller comes back to it. The exit code comes behind
// all output.
import type { WebSocket } from 'ws';
import { AppError } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import type { Frame } from '#shared/protocol/frames.ts';
import { numberOf, textOf } from '#shared/protocol/frames.ts';
import type { ReachedContainer } from '../../../fleet/inside/access.ts';
import type { Inside } from '../../../fleet/inside/inside.ts';
import type { OpenRequest } from '../../../fleet/inside/request.ts';
import type { ProgramRequest } from './program-request.ts';
import { sizeOf } from './program-request.ts';
import { CLOSES, Outgoing, passIn, refuse } from './sockets.ts';

/** Time for the supervisor to start a program, or to find it. */
const ANSWER_WITHIN_MS = 25_000;
/** Time without a caller after which the programs of a terminal get SIGHUP. */
export const HANG_UP_AFTER_MS = 300_000;
/** Time for the container to take a hang-up: one that does not must not keep the connection, which is a use of it. */
const LAST_MS = 30_000;

/** Reasons that may be over when the caller comes back once more. */
const MAY_PASS: ReadonlySet<string> = new Set(['machine_silent', 'deadline_exceeded', 'container_failed']);

const STREAMS = ['stdout', 'stderr'] as const;
type StreamName = (typeof STREAMS)[number];

export interface ProgramSocketParts {
  readonly webSocket: WebSocket;
  readonly inside: Pick<Inside, 'open'>;
  readonly container: ReachedContainer;
  /** Output messages begin with a byte: 1 for stdout, 2 for stderr. */
  readonly hasStreamByte: boolean;
}

/** Starts or finds the program, and passes everything on until either side ends. */
export async function serveProgram(request: ProgramRequest, parts: ProgramSocketParts): Promise<void> {
  const { webSocket, inside, container } = parts;
  const left = new AbortController();
  const early: [Buffer, boolean][] = [];
  const hold = (data: Buffer, isBinary: boolean): void => void early.push([data, isBinary]);
  let closed: number | undefined;
  const gone = (code: number): void => {
    closed = code;
    left.abort();
  };
  webSocket.on('message', hold);
  webSocket.once('close', gone);
  webSocket.pause();
  const late = setTimeout(() => left.abort(), ANSWER_WITHIN_MS);
  let opened: OpenRequest<'start' | 'attach'> | undefined;
  left.signal.addEventListener('abort', () => opened?.close(), { once: true });
  try {
    opened = await open(request, inside, container, left.signal);
    if (left.signal.aborted) opened.close();
    const answer = await opened.answer();
    webSocket.off('close', gone);
    const isTerminal = 'terminal' in answer ? answer.terminal : request.kind === 'start' && request.terminal !== null;
    const seen =
      request.kind === 'start' ? { stdout: 0, stderr: 0 } : { stdout: request.stdout, stderr: request.stderr };
    const program = new ProgramSocket(opened, parts, isTerminal, seen);
    const { pid, input } = answer;
    const counted = request.countsInput ? { input } : {};
    program.begin({ pid, running: 'running' in answer ? answer.running : true, ...counted });
    webSocket.off('message', hold);
    for (const [data, isBinary] of early) program.onMessage(data, isBinary);
    if (closed !== undefined) program.onClose(closed);
    webSocket.resume();
  } catch (error) {
    opened?.close();
    webSocket.resume();
    if (closed !== undefined) return;
    const problem = left.signal.aborted
      ? new AppError('deadline_exceeded', 'the container did not answer')
      : error instanceof AppError && error;
    if (problem === false) throw error;
    // A machine whose link is lost comes back, and its programs run on.
    const mayPass = request.kind === 'attach' && MAY_PASS.has(problem.code);
    refuse(webSocket, problem, mayPass ? CLOSES.comeBack : CLOSES.refused);
  } finally {
    clearTimeout(late);
  }
}

function open(
  request: ProgramRequest,
  inside: Pick<Inside, 'open'>,
  container: ReachedContainer,
  signal: AbortSignal,
): Promise<OpenRequest<'start' | 'attach'>> {
  if (request.kind === 'attach') {
    const { pid, stdout, stderr, countsInput } = request;
    return inside.open(container, 'attach', { pid, stdout, stderr, input: countsInput }, signal);
  }
  const { command, cwd, env, terminal, countsInput } = request;
  const hangUp = terminal === null ? {} : { hangUpAfterMs: HANG_UP_AFTER_MS };
  const fields = { command, cwd, env, terminal, attach: true, input: countsInput, ...hangUp };
  return inside.open(container, 'start', fields, signal);
}

class ProgramSocket {
  readonly #opened: OpenRequest<'start' | 'attach'>;
  readonly #webSocket: WebSocket;
  readonly #out: Outgoing;
  readonly #hasStreamByte: boolean;
  readonly #isTerminal: boolean;
  /** Bytes of each stream that the caller has; negative: not known before the first ones come. */
  readonly #seen: Record<StreamName, number>;
  #hasEnded = false;

  constructor(
    opened: OpenRequest<'start' | 'attach'>,
    { webSocket, hasStreamByte }: ProgramSocketParts,
    isTerminal: boolean,
    seen: Record<StreamName, number>,
  ) {
    this.#opened = opened;
    this.#webSocket = webSocket;
    this.#out = new Outgoing(webSocket, opened.frames);
    this.#hasStreamByte = hasStreamByte;
    this.#isTerminal = isTerminal;
    this.#seen = { ...seen };
  }

  begin(facts: { readonly pid: number; readonly running: boolean; readonly input?: number }): void {
    this.#out.json(facts);
    this.#webSocket.on('message', (data, isBinary) => this.onMessage(data as Buffer, isBinary));
    this.#webSocket.once('close', (code) => this.onClose(code));
    this.#opened.take({ onFrame: (frame) => this.#onFrame(frame), onOver: () => this.#onOver() });
  }

  onMessage(data: Buffer, isBinary: boolean): void {
    if (isBinary) return passIn(this.#webSocket, this.#opened.frames, data);
    const control = controlOf(data);
    if (control === undefined) {
      const text = 'a text message is {"end":true}, {"resize":{"rows","columns"}} or {"signal":"INT"}';
      return refuse(this.#webSocket, new AppError('bad_request', text));
    }
    if (control === 'end') this.#opened.frames.send('end');
    else this.#opened.frames.send('control', control);
  }

  onClose(code: number): void {
    const { frames } = this.#opened;
    // Without a close of the caller's own the program waits for it to come back.
    const comesBack = code === 1006 || code === CLOSES.comeBack || code === CLOSES.pause;
    const hangsUp = this.#isTerminal && !this.#hasEnded && !comesBack;
    if (!hangsUp || frames.isOver) return this.#opened.close();
    frames.send('control', { signal: 'HUP' });
    frames.send('end');
    frames.end();
    setTimeout(() => this.#opened.close(), LAST_MS).unref();
  }

  #onFrame({ kind, header, body }: Frame): void {
    if (this.#hasEnded) return;
    if (kind === 'data') this.#output(header, body);
    if (kind === 'control' && header['input'] !== undefined) this.#out.json({ input: numberOf(header, 'input') });
    if (kind !== 'exit') return;
    this.#hasEnded = true;
    this.#out.json({ exitCode: numberOf(header, 'exitCode'), signal: textOf(header, 'signal').slice(0, 32) });
    this.#webSocket.close(CLOSES.done);
    this.#webSocket.resume();
  }

  #output(header: Frame['header'], body: Buffer): void {
    const stream: StreamName = textOf(header, 'stream') === 'stderr' ? 'stderr' : 'stdout';
    const at = numberOf(header, 'at');
    const seen = this.#seen[stream];
    if (seen >= 0 && at > seen) this.#out.json({ lost: { stream, bytes: at - seen } });
    this.#seen[stream] = at + body.length;
    if (!this.#hasStreamByte) return this.#out.bytes(body);
    const message = Buffer.allocUnsafe(body.length + 1);
    message[0] = STREAMS.indexOf(stream) + 1;
    body.copy(message, 1);
    this.#out.bytes(message);
  }

  #onOver(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    // The program may run on, as may the container: the caller finds out when it comes back.
    this.#webSocket.close(CLOSES.comeBack, 'the connection to the container was lost');
    this.#webSocket.resume();
  }
}

type Control = 'end' | { readonly rows: number; readonly columns: number } | { readonly signal: string };

function controlOf(data: Buffer): Control | undefined {
  let value: unknown;
  try {
    value = JSON.parse(data.toString('utf8'));
  } catch {
    return undefined;
  }
  if (!isRecord(value)) return undefined;
  const { end, resize, signal } = value;
  if (end === true) return 'end';
  if (typeof signal === 'string' && /^[A-Z0-9+-]{1,16}$/.test(signal)) return { signal };
  return sizeOf(resize);
}
