// Connections into containers: each is a stream that the agent of the machine opens to the container's supervisor.
// Operations and routes ask here.
// Invariant: a workspace has a bounded number of connections at this replica. Every call ends within its time. An open
// connection counts as use of its container.
import type { Duplex } from 'node:stream';
import { AppError } from '#shared/errors.ts';
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { Places } from '#shared/places.ts';
import { PIECE_BYTES } from '#shared/protocol/frame-stream.ts';
import { textOf } from '#shared/protocol/frames.ts';
import { OpenRequest, brokenOff, containerFailed } from './request.ts';
import type { AnswerOf, RequestType, Requests } from './messages.ts';

/** Most connections of a workspace into its containers, at this replica. */
export const MOST_OF_WORKSPACE = 256;
/** Longer than a supervisor works on a request, with time for its connection. */
const WITHIN_MS = 25_000;

/** A container that runs. */
export interface RunningContainer {
  readonly containerId: ContainerId;
  readonly workspaceId: WorkspaceId;
  readonly machineId: MachineId;
}

export interface InsideParts {
  /** Opens a stream to the supervisor of a container. */
  readonly streams: {
    open(machineId: MachineId, order: { readonly containerId: string }, signal: AbortSignal): Promise<Duplex>;
  };
  /** The container is in use until the returned function is called. */
  readonly hold: (containerId: ContainerId) => () => void;
  readonly mostOfWorkspace?: number;
  readonly withinMs?: number;
}

export interface CallOptions {
  /** Time for the whole call. */
  readonly withinMs?: number;
  readonly signal?: AbortSignal;
}

export class Inside {
  readonly #parts: InsideParts;
  readonly #places: Places<WorkspaceId>;

  constructor(parts: InsideParts) {
    this.#parts = parts;
    this.#places = new Places(parts.mostOfWorkspace ?? MOST_OF_WORKSPACE);
  }

  /**
   * Opens a connection, and sends a request on it.
   * @throws AppError `machine_silent`, `too_many_connections`, `body_too_large`
   */
  async open<T extends RequestType>(
    container: RunningContainer,
    type: T,
    fields: Requests[T],
    signal: AbortSignal,
  ): Promise<OpenRequest<T>> {
    const { containerId, machineId, workspaceId } = container;
    const done = this.#take(workspaceId);
    const release = this.#parts.hold(containerId);
    const over = (): void => {
      done();
      release();
    };
    try {
      const bytes = await this.#parts.streams.open(machineId, { containerId }, signal);
      return new OpenRequest(bytes, type, fields, over);
    } catch (error) {
      over();
      throw error;
    }
  }

  /**
   * A request with a short answer.
   * @throws AppError of the supervisor's refusal; `container_failed`, `deadline_exceeded`, and as `open`
   */
  ask<T extends RequestType>(
    container: RunningContainer,
    type: T,
    fields: Requests[T],
    options: CallOptions = {},
  ): Promise<AnswerOf<T>> {
    return this.#within(container, type, fields, options, (request) => request.answer());
  }

  /**
   * A request whose answer has bytes behind it.
   * @throws AppError as `ask`; `body_too_large`: there are more
   */
  read<T extends 'read' | 'output'>(
    container: RunningContainer,
    type: T,
    fields: Requests[T],
    mostBytes: number,
    options: CallOptions = {},
  ): Promise<{ readonly answer: AnswerOf<T>; readonly bytes: Buffer }> {
    return this.#within(container, type, fields, options, async (request) => {
      const answer = await request.answer();
      return { answer, bytes: await bytesBehind(request, mostBytes) };
    });
  }

  /**
   * Sends bytes to a port of the container, and reads what comes back until its side ends.
   * @throws AppError as `ask`; `body_too_large`: there are more
   */
  exchange(
    container: RunningContainer,
    port: number,
    bytes: Uint8Array,
    mostBytes: number,
    options: CallOptions = {},
  ): Promise<Buffer> {
    return this.#within(container, 'connect', { port, waitMs: 0 }, options, async (request) => {
      await request.answer();
      request.frames.send('data', {}, bytes);
      return await bytesBehind(request, mostBytes);
    });
  }

  /** Writes a file. @throws AppError as `ask` */
  write(
    container: RunningContainer,
    fields: Requests['write'],
    bytes: Uint8Array,
    options: CallOptions = {},
  ): Promise<AnswerOf<'write'>> {
    return this.#within(container, 'write', fields, options, async (request) => {
      const answer = request.answer();
      answer.catch(() => undefined);
      for (let at = 0; at < bytes.length && !request.frames.isOver; at += PIECE_BYTES) {
        if (request.frames.send('data', {}, bytes.subarray(at, at + PIECE_BYTES))) continue;
        const { promise, resolve } = Promise.withResolvers<void>();
        request.frames.onceWritable(resolve);
        // A refusal comes before all bytes are taken.
        await Promise.race([promise, answer]);
      }
      request.frames.send('end');
      return answer;
    });
  }

  async #within<T extends RequestType, R>(
    container: RunningContainer,
    type: T,
    fields: Requests[T],
    { withinMs = this.#parts.withinMs ?? WITHIN_MS, signal: outer }: CallOptions,
    work: (request: OpenRequest<T>) => Promise<R>,
  ): Promise<R> {
    const timeout = AbortSignal.timeout(withinMs);
    const signal = outer === undefined ? timeout : AbortSignal.any([outer, timeout]);
    const late = (): AppError =>
      new AppError('deadline_exceeded', `the container did not answer within ${Math.ceil(withinMs / 1000)} s`);
    let request: OpenRequest<T> | undefined;
    const onAbort = (): void => request?.close();
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      request = await this.open(container, type, fields, signal);
      if (signal.aborted) throw late();
      return await work(request);
    } catch (error) {
      if (timeout.aborted) throw late();
      throw error;
    } finally {
      signal.removeEventListener('abort', onAbort);
      request?.close();
    }
  }

  #take(workspaceId: WorkspaceId): () => void {
    const giveBack = this.#places.take(workspaceId);
    if (giveBack !== undefined) return giveBack;
    const text = `this workspace has ${this.#places.most} connections into its containers here: close some, or try again`;
    throw new AppError('too_many_connections', text, { details: { retryAfterSeconds: 5 } });
  }
}

/** The bytes behind an answer, to their end. */
function bytesBehind(request: OpenRequest<RequestType>, mostBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    let size = 0;
    let isWhole = false;
    request.take({
      onFrame: ({ kind, body, header }) => {
        if (isWhole) return;
        if (kind === 'data') {
          size += body.length;
          if (size <= mostBytes) return void parts.push(body);
          isWhole = true;
          return reject(new AppError('body_too_large', `there are more than ${mostBytes} bytes`));
        }
        if (kind !== 'end') return;
        isWhole = true;
        const problem = textOf(header, 'error');
        if (problem === '') resolve(Buffer.concat(parts, size));
        else reject(containerFailed(problem.slice(0, 2000)));
      },
      onOver: () => {
        if (!isWhole) reject(brokenOff());
      },
    });
  });
}
