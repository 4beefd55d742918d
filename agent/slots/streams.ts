/**
 * Streamed calls of one container. The agent opens a stream to the scheduler for each, a runner process dials
 * `streams.sock`, and the bytes pass between the two unread, with back-pressure both ways. The socket is made with the
 * container's first streamed call. Must stay true: a connection gets the stream of an attempt that its own container
 * holds, once; the end of either side ends the other.
 */
import type { Socket } from 'node:net';
import type { ClientDuplexStream } from '@grpc/grpc-js';
import type { CarryFromAgent, CarryToAgent__Output } from '#shared/protocol/generated/messages.ts';
import { FrameReader, textOf } from '#shared/protocol/frames.ts';
import { keyOf } from './attempts.ts';
import { SocketListener } from './listener.ts';

export type CarryCall = ClientDuplexStream<CarryFromAgent, CarryToAgent__Output>;

/** Connections beside one of each slot: those that end, and strangers. */
const SPARE_CONNECTIONS = 16;
/** Deadline for the frame that names the attempt. */
const NAMED_WITHIN_MS = 10_000;
/** The first frame of a connection is short: a longer one is no runner's. */
const MOST_FIRST_BYTES = 4096;
/** Time for the scheduler to end its side after the runner has closed. */
const LINGER_MS = 10_000;

export interface ContainerStreamsParts {
  readonly path: string;
  /** Slots of the container: it has at most so many streamed calls. */
  readonly slots: number;
  /** Opens a stream to the scheduler; undefined: there is no session. */
  readonly open: () => CarryCall | undefined;
  /** Called for a connection that no runner makes. */
  readonly onFault: () => void;
  /** Called with 1 when a stream opens, with -1 when it is over. */
  readonly onCount: (by: number) => void;
}

export class ContainerStreams {
  readonly #parts: ContainerStreamsParts;
  readonly #listener: SocketListener;
  readonly #sockets = new Set<Socket>();
  /** Streams whose runner has not dialled yet, by attempt. */
  readonly #expected = new Map<string, CarryCall>();
  #listening: Promise<void> | undefined;
  #isListening = false;

  constructor(parts: ContainerStreamsParts) {
    this.#parts = parts;
    this.#listener = new SocketListener(parts.path, (socket) => this.#accept(socket), {
      most: parts.slots + SPARE_CONNECTIONS,
      onRefused: parts.onFault,
    });
  }

  /** Listens for runner processes. @returns a promise the first time; undefined: it listens already */
  listen(): Promise<void> | undefined {
    if (this.#isListening) return undefined;
    this.#listening ??= this.#listener.listen().then(() => void (this.#isListening = true));
    return this.#listening;
  }

  /** Opens the stream of an attempt, before its runner is told. @returns false: there is no session */
  expect(taskId: string, token: string): boolean {
    const call = this.#parts.open();
    if (call === undefined) return false;
    const key = keyOf(taskId, token);
    this.#expected.set(key, call);
    this.#parts.onCount(1);
    let isOver = false;
    const over = (): void => {
      if (isOver) return;
      isOver = true;
      this.#parts.onCount(-1);
      if (this.#expected.get(key) === call) this.#expected.delete(key);
    };
    // The scheduler's refusal or end: the runner then finds no stream, or its end.
    call.on('error', over);
    call.on('close', over);
    call.on('status', over);
    call.write({ head: { taskId, token } });
    return true;
  }

  /** The attempt has ended: a stream whose runner never dialled ends too. */
  over(key: string): void {
    const call = this.#expected.get(key);
    if (call === undefined) return;
    this.#expected.delete(key);
    call.end();
    // The scheduler's answer is not awaited: it ends the stream when its caller is answered.
    call.resume();
  }

  close(): void {
    this.#listener.close();
    for (const call of this.#expected.values()) call.cancel();
    this.#expected.clear();
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => this.#sockets.delete(socket));
    const unnamed = setTimeout(() => this.#refuse(socket), NAMED_WITHIN_MS);
    unnamed.unref();
    socket.once('close', () => clearTimeout(unnamed));
    const reader = new FrameReader();
    let bytes = 0;
    const read = (chunk: Buffer): void => {
      bytes += chunk.length;
      try {
        const [frame] = bytes > MOST_FIRST_BYTES ? this.#refused(socket) : reader.push(chunk);
        if (frame === undefined) return;
        clearTimeout(unnamed);
        socket.off('data', read);
        socket.pause();
        const key = keyOf(textOf(frame.header, 'taskId'), textOf(frame.header, 'token'));
        const call = frame.kind === 'stream' ? this.#expected.get(key) : undefined;
        // The caller left while the runner dialled, or no runner dialled at all.
        if (call === undefined) return void socket.destroy();
        this.#expected.delete(key);
        joinCarried(socket, call);
      } catch {
        this.#refuse(socket);
      }
    };
    socket.on('data', read);
  }

  #refused(socket: Socket): readonly undefined[] {
    this.#refuse(socket);
    return [];
  }

  #refuse(socket: Socket): void {
    socket.destroy();
    this.#parts.onFault();
  }
}

/** Passes bytes between a connection of a container and its stream until both are over. */
export function joinCarried(socket: Socket, call: CarryCall): void {
  let isOver = false;
  socket.on('data', (data: Buffer) => {
    if (isOver || call.write({ data })) return;
    socket.pause();
    call.once('drain', () => socket.resume());
  });
  socket.once('end', () => call.end());
  socket.once('close', () => {
    if (isOver) return;
    call.end();
    call.resume();
    setTimeout(() => {
      if (!isOver) call.cancel();
    }, LINGER_MS).unref();
  });
  call.on('data', ({ data }: CarryToAgent__Output) => {
    if (socket.destroyed || socket.write(data)) return;
    call.pause();
    socket.once('drain', () => call.resume());
  });
  const over = (): void => {
    if (isOver) return;
    isOver = true;
    // Nobody reads what the runner still sends: it hears of the end at its next read or write.
    socket.destroySoon();
  };
  call.on('end', over);
  call.on('error', over);
  call.on('close', over);
  call.on('status', over);
  socket.resume();
}
