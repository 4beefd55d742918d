// Connections that agents dial for bytes: each waits here, authenticated, until its agent names the stream that it is
// for. Shape: shared/protocol/byte-connections.ts.
// Invariant: a connection belongs to one session that lives. It ends with that session unless a stream has it, and a
// stream gets it once.
import type { Socket } from 'node:net';
import type { Static, TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import type { Validator } from 'typebox/compile';
import type { AttemptToken, MachineId, TaskId } from '#shared/domain/ids.ts';
import { KEEP_ALIVE_MS, MOST_LINE_BYTES, SessionLine, StreamLine } from '#shared/protocol/byte-connections.ts';

/** Time for the line that names the session. */
const NAMED_WITHIN_MS = 10_000;
/**
 * Connections whose session is not known yet: beyond it, the oldest one is closed. An agent names its session at once,
 * so strangers who name none cannot keep agents out.
 */
const MOST_UNKNOWN = 1024;
/** Connections of a session that wait for their stream: beyond it, new ones are closed. */
const MOST_WAITING = 64;
const NEWLINE = 0x0a;
const NOTHING: Buffer = Buffer.alloc(0);
const isSession = Compile(SessionLine);
const isStream = Compile(StreamLine);

/** Takes the bytes of a streamed call to its caller. */
export type StreamedCall = (machineId: MachineId, taskId: TaskId, token: AttemptToken, bytes: Socket) => void;

/** Takes the bytes of a stream that was ordered from an agent. */
export type OrderedStream = (machineId: MachineId, streamId: string, bytes: Socket) => void;

/** Takes a connection that speaks HTTP for the managed registry. */
export type RegistryConnection = (machineId: MachineId, bytes: Socket) => void;

export interface BytesSession {
  readonly machineId: MachineId;
  /** Connections that wait for their stream. */
  readonly waiting: Set<Socket>;
}

export interface ByteConnectionsParts {
  /** The session that lives by that id, when the authorization is its machine's; undefined: refused. */
  readonly sessionOf: (line: SessionLine) => BytesSession | undefined | Promise<BytesSession | undefined>;
}

export class ByteConnections {
  readonly #parts: ByteConnectionsParts;
  readonly #open = new Set<Socket>();
  /** In the order in which they came. */
  readonly #unknown = new Set<Socket>();
  #takeStream: StreamedCall = (_machineId, _taskId, _token, bytes) => bytes.destroy();
  #takeOrdered: OrderedStream = (_machineId, _streamId, bytes) => bytes.destroy();

  #takeRegistry: RegistryConnection = (_machineId, bytes) => bytes.destroy();

  constructor(parts: ByteConnectionsParts) {
    this.#parts = parts;
  }

  onStream(handler: StreamedCall): void {
    this.#takeStream = handler;
  }

  onOrderedStream(handler: OrderedStream): void {
    this.#takeOrdered = handler;
  }

  onRegistry(handler: RegistryConnection): void {
    this.#takeRegistry = handler;
  }

  /** @param onKnown - called once the connection's session is known */
  accept(socket: Socket, onKnown: () => void = () => undefined): void {
    socket.on('error', () => undefined);
    if (this.#unknown.size >= MOST_UNKNOWN) this.#closeOldest();
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    this.#unknown.add(socket);
    const late = setTimeout(() => socket.destroy(), NAMED_WITHIN_MS);
    late.unref();
    const known = (): void => {
      this.#unknown.delete(socket);
      clearTimeout(late);
    };
    socket.once('close', known);
    readLine(
      socket,
      (first, rest) =>
        void this.#named(socket, first, rest, () => {
          known();
          onKnown();
        }),
    );
  }

  #closeOldest(): void {
    const [oldest] = this.#unknown;
    if (oldest === undefined) return;
    this.#unknown.delete(oldest);
    oldest.destroy();
  }

  async #named(socket: Socket, first: Buffer, rest: Buffer, known: () => void): Promise<void> {
    try {
      const line = decodeLine(isSession, first);
      const found = line && this.#parts.sessionOf(line);
      const session = found instanceof Promise ? await found : found;
      if (session === undefined || session.waiting.size >= MOST_WAITING) return void socket.destroy();
      known();
      if (socket.destroyed) return;
      session.waiting.add(socket);
      const gone = (): void => void session.waiting.delete(socket);
      socket.once('close', gone);
      readLine(
        socket,
        (second, behind) => {
          gone();
          socket.off('close', gone);
          this.#handOver(session.machineId, socket, second, behind);
        },
        rest,
      );
    } catch {
      socket.destroy();
    }
  }

  #handOver(machineId: MachineId, socket: Socket, second: Buffer, behind: Buffer): void {
    const line = decodeLine(isStream, second);
    if (line === undefined) return void socket.destroy();
    if (behind.length > 0) socket.unshift(behind);
    if ('streamId' in line) this.#takeOrdered(machineId, line.streamId, socket);
    else if ('registry' in line) this.#takeRegistry(machineId, socket);
    else this.#takeStream(machineId, line.taskId as TaskId, line.token as AttemptToken, socket);
  }

  /** Ends the connections of a session that wait for their stream. */
  end(session: BytesSession): void {
    for (const socket of session.waiting) socket.destroy();
  }

  /** Ends all connections. */
  close(): void {
    for (const socket of this.#open) socket.destroy();
  }
}

/** @returns undefined for a line that is not of that shape */
function decodeLine<T extends TSchema>(shape: Validator<Record<never, never>, T>, line: Buffer): Static<T> | undefined {
  try {
    const value: unknown = JSON.parse(line.toString('utf8'));
    return shape.Check(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Calls back with the next line and what came behind it; the socket is paused then. A longer line than any of the
 * protocol's, or the peer's end, closes the connection.
 * @param begun - bytes that have come already
 */
function readLine(socket: Socket, then: (line: Buffer, rest: Buffer) => void, begun: Buffer = NOTHING): void {
  let pending: Buffer = NOTHING;
  /** @returns whether reading is over */
  const read = (chunk: Buffer): boolean => {
    pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
    const at = pending.indexOf(NEWLINE);
    if (at < 0 && pending.length <= MOST_LINE_BYTES) return false;
    socket.pause();
    socket.off('data', read);
    if (at < 0 || at > MOST_LINE_BYTES) socket.destroy();
    else then(pending.subarray(0, at), pending.subarray(at + 1));
    return true;
  };
  socket.on('data', read);
  if (begun.length === 0 || !read(begun)) socket.resume();
}
