// A call of the platform itself to a deployment that streams: the same admission, queue and slot as any synchronous
// task, then one request with a whole body, and its answer as a head and a stream of bytes.
// Invariant: nothing of the answer is held beyond the buffers of the connections. A body that was cut ends with an
// error, and never looks whole. Whoever gives the call up frees its slot.
import { request as httpRequest } from 'node:http';
import type { IncomingHttpHeaders } from 'node:http';
import { Readable } from 'node:stream';
import type { Duplex } from 'node:stream';
import type { TaskId } from '#shared/domain/ids.ts';
import { FrameStream } from '#shared/protocol/frame-stream.ts';
import type { Frame } from '#shared/protocol/frames.ts';
import type { Ending } from '../../../domain/endings.ts';
import type { Target } from '../../../domain/stub-config.ts';
import type { Call, Submission } from '../../../tasks/admission/calls.ts';
import type { Submissions } from '../../../tasks/admission/submissions.ts';
import type { Finished } from '../../../tasks/dispatch/replies.ts';
import type { Streams } from '../../../tasks/streams/streams.ts';
import { responseHead } from './head.ts';
import type { HeaderList } from './head.ts';
import { LAST_BYTES_MS, MOST_HEAD_BYTES, OWN_END_MS, PORT_WAIT_MS, noHead, tooLongAfter } from './limits.ts';
import { PortConnection } from './port-connection.ts';

export interface BackendCallParts {
  readonly submissions: Pick<Submissions, 'submit'>;
  readonly streams: Pick<Streams, 'expect'>;
  /** Ends a task that runs, because its limit wants so. */
  readonly cancel: (taskId: TaskId, ending: Ending) => Promise<void>;
}

export interface BackendRequest {
  readonly target: Target;
  /** Port of a pod; absent: an application that a runner process serves. */
  readonly port?: number;
  readonly path: string;
  readonly headers: HeaderList;
  readonly body: Buffer;
  readonly call: Pick<Call, 'putBy' | 'calledBy' | 'serving'>;
}

export interface BackendAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: IncomingHttpHeaders;
  /** Ends with an error when the answer is not whole. */
  readonly body: Readable;
  readonly taskId?: TaskId;
  /** Milliseconds until a container had the call; absent: the backend is another server. */
  readonly queueWaitMs?: number;
}

/** Why a deployment gave no answer: it was not called, its task ended otherwise, or the bytes broke off. */
export type NoAnswer =
  | { readonly kind: 'refused'; readonly submission: Exclude<Submission, { kind: 'accepted' }> }
  | { readonly kind: 'finished'; readonly finished: Finished }
  | { readonly kind: 'broken' };

export class BackendError extends Error {
  readonly why: NoAnswer;
  /** undefined: the call did not become a task. */
  readonly taskId: TaskId | undefined;
  constructor(why: NoAnswer, taskId?: TaskId) {
    super(`the backend gave no answer: ${why.kind}`);
    this.name = 'BackendError';
    this.why = why;
    this.taskId = taskId;
  }
}

/**
 * Calls a deployment.
 * @param signal - gives the call up, before the answer and while its body comes
 * @throws BackendError; the signal's reason
 */
export function callDeployment(
  request: BackendRequest,
  parts: BackendCallParts,
  signal: AbortSignal,
): Promise<BackendAnswer> {
  signal.throwIfAborted();
  return new Promise((resolve, reject) => new BackendCall(request, parts, signal, resolve, reject).begin());
}

const EMPTY = Buffer.alloc(0);

class BackendCall {
  #request: BackendRequest;
  readonly #parts: BackendCallParts;
  readonly #signal: AbortSignal;
  readonly #resolve: (answer: BackendAnswer) => void;
  readonly #reject: (error: unknown) => void;
  readonly #sinceMs = performance.now();
  #queueWaitMs = 0;
  #taskId: TaskId | undefined;
  #forget: () => void = () => undefined;
  #callerLeft: () => void = () => undefined;
  #bytes: Duplex | undefined;
  #body: Readable | undefined;
  #finished: Finished | undefined;
  #limit: NodeJS.Timeout | undefined;
  #last: NodeJS.Timeout | undefined;
  #isBroken = false;
  #isOver = false;
  readonly #onAbort = (): void => this.#giveUp();

  constructor(
    request: BackendRequest,
    parts: BackendCallParts,
    signal: AbortSignal,
    resolve: (answer: BackendAnswer) => void,
    reject: (error: unknown) => void,
  ) {
    this.#request = request;
    this.#parts = parts;
    this.#signal = signal;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  begin(): void {
    const { submissions, streams } = this.#parts;
    const { target, call } = this.#request;
    this.#signal.addEventListener('abort', this.#onAbort, { once: true });
    submissions
      .submit(target, {
        ...call,
        input: '',
        onStreamed: (taskId) => {
          this.#taskId = taskId;
          this.#forget = streams.expect(taskId, (bytes) => this.#connect(bytes));
        },
      })
      .then((submission) => {
        if (submission.kind !== 'accepted') return this.#fail({ kind: 'refused', submission });
        this.#callerLeft = submission.callerLeft;
        if (this.#isOver) submission.callerLeft();
        return submission.finished.then((finished) => this.#end(finished));
      })
      .catch((error: unknown) => {
        this.#close();
        this.#reject(error);
      });
  }

  /** A container has the task: the request goes out. */
  #connect(bytes: Duplex): void {
    if (this.#isOver) return void bytes.destroy();
    this.#bytes = bytes;
    this.#queueWaitMs = Math.max(0, Math.round(performance.now() - this.#sinceMs));
    this.#limitHead();
    if (this.#request.port === undefined) this.#speakFrames(bytes);
    else this.#speakHttp(bytes, this.#request.port);
    // The body goes out by itself from here on, and nothing keeps it for the time of the answer.
    this.#request = { ...this.#request, body: EMPTY };
  }

  /** Frames of a runner process that serves an application. */
  #speakFrames(bytes: Duplex): void {
    const { path, headers, body } = this.#request;
    const frames: FrameStream = new FrameStream(bytes, {
      onFrame: (frame) => this.#onFrame(frame, frames),
      onOver: () => this.#broke(),
    });
    const head = {
      type: 'http',
      method: 'POST',
      path,
      rootPath: '',
      query: '',
      scheme: 'http',
      httpVersion: '1.1',
      headers: [['host', 'longshore'], ...headers, ['content-length', String(body.length)]],
      client: null,
      server: ['longshore', 80],
    };
    frames.send('request', {}, Buffer.from(JSON.stringify(head), 'utf8'));
    frames.sendPieces('data', Buffer.from(body));
    frames.send('end');
  }

  #onFrame({ kind, body }: Frame, frames: FrameStream): void {
    if (kind === 'response') {
      if (this.#body !== undefined) return;
      const head = responseHead(body);
      if (head === undefined || 'accept' in head) return this.#broke();
      const answer = new Readable({
        read: () => frames.resume(),
        destroy: (error, done) => {
          this.#close();
          done(error);
        },
      });
      return this.#begun(
        head.status,
        Object.fromEntries(head.headers.map(([name, value]) => [name.toLowerCase(), value])),
        answer,
      );
    }
    if (kind === 'data') {
      if (this.#body === undefined) return this.#broke();
      // Frames share the memory of a read, which is used again.
      if (body.length > 0 && !this.#body.push(Buffer.from(body))) frames.pause();
      return;
    }
    if (kind !== 'end') return;
    if (this.#body === undefined) return this.#broke();
    this.#body.push(null);
    this.#whole();
    frames.close();
  }

  /** HTTP with the program on a port of a pod. */
  #speakHttp(bytes: Duplex, port: number): void {
    const { path, headers, body } = this.#request;
    const connection = new PortConnection(bytes, port, PORT_WAIT_MS);
    const request = httpRequest({
      method: 'POST',
      path,
      headers: {
        host: 'localhost',
        ...Object.fromEntries(headers),
        'content-length': String(body.length),
        connection: 'close',
      },
      maxHeaderSize: MOST_HEAD_BYTES,
      createConnection: () => connection,
    });
    request.on('error', () => this.#broke());
    request.on('response', (response) => {
      this.#begun(response.statusCode ?? 502, response.headers, response);
      response.once('end', () => {
        this.#whole();
        connection.finish();
      });
      // Node counts a body without a length as complete, however its connection ended.
      response.once('close', () => this.#close());
    });
    request.end(body);
  }

  #begun(status: number, headers: IncomingHttpHeaders, body: Readable): void {
    if (this.#isOver) return void body.destroy();
    clearTimeout(this.#limit);
    clearTimeout(this.#last);
    this.#body = body;
    // The reader sees the error; without a reader nobody does.
    body.on('error', () => undefined);
    const taskId = this.#taskId;
    const queueWaitMs = this.#queueWaitMs;
    this.#resolve({ status, headers, body, queueWaitMs, ...(taskId === undefined ? {} : { taskId }) });
  }

  /** The answer is whole: the task may go on for as long as its execution limit. */
  #whole(): void {
    this.#isOver = true;
    this.#signal.removeEventListener('abort', this.#onAbort);
    this.#forget();
    const { timeoutSeconds } = this.#request.target.config;
    if (this.#finished !== undefined || timeoutSeconds <= 0) return;
    this.#limit = setTimeout(() => this.#cancel(tooLongAfter(timeoutSeconds)), timeoutSeconds * 1000).unref();
  }

  #limitHead(): void {
    const { timeoutSeconds } = this.#request.target.config;
    if (timeoutSeconds <= 0) return;
    this.#limit = setTimeout(() => this.#cancel(noHead(timeoutSeconds)), timeoutSeconds * 1000).unref();
  }

  #cancel(ending: Ending): void {
    const taskId = this.#taskId;
    if (taskId === undefined) return;
    this.#parts.cancel(taskId, ending).catch(() => {
      this.#fail({ kind: 'finished', finished: { ...ending, body: '' } });
    });
  }

  /** The bytes broke off, or are no answer. */
  #broke(): void {
    if (this.#isOver || this.#isBroken) return;
    this.#isBroken = true;
    if (this.#body !== undefined) return void this.#body.destroy(new BackendError({ kind: 'broken' }));
    if (this.#finished !== undefined) return this.#fail({ kind: 'finished', finished: this.#finished });
    // The end of the task has the reason, if it comes soon.
    this.#last = setTimeout(() => this.#fail({ kind: 'broken' }), LAST_BYTES_MS).unref();
  }

  /** The task has ended. */
  #end(finished: Finished): void {
    this.#finished = finished;
    if (this.#isOver) {
      clearTimeout(this.#limit);
      return clearTimeout(this.#last);
    }
    if (this.#body !== undefined) {
      // The bytes come by another way than the end, and may be behind it.
      if (finished.status !== 'COMPLETE')
        this.#last = setTimeout(() => this.#body?.destroy(new BackendError({ kind: 'broken' })), LAST_BYTES_MS).unref();
      return;
    }
    const mayFollow = finished.status === 'COMPLETE' && this.#bytes !== undefined && !this.#isBroken;
    if (!mayFollow) return this.#fail({ kind: 'finished', finished });
    this.#last = setTimeout(() => this.#fail({ kind: 'broken' }), LAST_BYTES_MS).unref();
  }

  #fail(why: NoAnswer): void {
    if (this.#isOver) return;
    this.#close();
    this.#reject(new BackendError(why, why.kind === 'refused' ? undefined : this.#taskId));
  }

  #giveUp(): void {
    if (this.#isOver) return;
    const { reason } = this.#signal as { readonly reason: unknown };
    const error = reason instanceof Error ? reason : new Error('given up');
    if (this.#body === undefined) this.#reject(error);
    else this.#body.destroy(error);
    this.#close();
  }

  /** Ends the call for its backend: a waiting task is cancelled, and a running one sees that its caller is gone. */
  #close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#signal.removeEventListener('abort', this.#onAbort);
    clearTimeout(this.#limit);
    clearTimeout(this.#last);
    this.#forget();
    this.#bytes?.destroy();
    if (this.#finished !== undefined) return;
    if (!this.#isBroken || this.#body === undefined) return this.#callerLeft();
    // A container that is gone within its answer says so soon: its reason goes first.
    this.#last = setTimeout(() => this.#callerLeft(), OWN_END_MS).unref();
  }
}
