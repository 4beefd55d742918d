/**
 * Streamed calls of one container. The agent opens a connection to the scheduler for each, a runner process dials
 * `streams.sock`, and the bytes pass between the two unread, with back-pressure both ways. The socket is made with the
 * container's first streamed call. Must stay true: a runner process gets the connection of an attempt that its own
 * container holds, once; the end of either side ends the other; slow callers of earlier answers keep no new call out.
 */
import type { Socket } from 'node:net';
import type { StreamLine } from '#shared/protocol/byte-connections.ts';
import { passOn } from '#shared/pass-on.ts';
import { FrameReader, textOf } from '#shared/protocol/frames.ts';
import { keyOf } from './attempts.ts';
import { SocketListener } from './listener.ts';

/** Opens a connection to the scheduler for the bytes of a stream; undefined: there is no session. */
export type OpenBytes = (line: StreamLine) => Promise<Socket> | undefined;

/** Connections beside one of each slot that have not named their attempt: those that begin, and strangers. */
const SPARE_CONNECTIONS = 16;
/** Bound on answers whose attempts are over and whose ends wait here for slow callers. Beyond it, the oldest is cut. */
export const MOST_ENDING = 256;
/** Deadline for the frame that names the attempt. */
const NAMED_WITHIN_MS = 10_000;
/** The first frame of a connection is short: a longer one is no runner's. */
const MOST_FIRST_BYTES = 4096;
/**
 * Time for the scheduler to end its side after the runner has closed. The end of a response may wait here for a slow
 * caller: the scheduler cuts one that reads nothing for 300 s.
 */
const LINGER_MS = 330_000;

export interface ContainerStreamsParts {
  readonly path: string;
  /** Attempts that the container may hold: it has at most so many streamed calls. */
  readonly slots: () => number;
  readonly open: OpenBytes;
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
  readonly #expected = new Map<string, Expected>();
  /** Streams whose runner has dialled, by attempt. */
  readonly #joined = new Map<string, Joined>();
  /** Streams whose attempts are over, the oldest first. */
  readonly #ending = new Set<Joined>();
  /** Connections that have not named their attempt. */
  #unnamed = 0;
  #listening: Promise<void> | undefined;
  #isListening = false;

  constructor(parts: ContainerStreamsParts) {
    this.#parts = parts;
    this.#listener = new SocketListener(parts.path, (socket) => this.#accept(socket), {
      // Twice as many as held answers and attempts need: ends that the agent has not read yet count, too.
      most: 2 * (parts.slots() + SPARE_CONNECTIONS + MOST_ENDING),
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
    const opening = this.#parts.open({ taskId, token });
    if (opening === undefined) return false;
    const key = keyOf(taskId, token);
    const expected = new Expected(opening, () => {
      this.#parts.onCount(-1);
      if (this.#expected.get(key) === expected) this.#expected.delete(key);
    });
    this.#expected.set(key, expected);
    this.#parts.onCount(1);
    return true;
  }

  /** The attempt has ended: a stream whose runner never dialled ends too. The end of an answer may still go out. */
  over(key: string): void {
    this.#expected.get(key)?.end();
    this.#expected.delete(key);
    const joined = this.#joined.get(key);
    if (joined === undefined) return;
    this.#joined.delete(key);
    this.#ending.add(joined);
    this.#boundEnding();
  }

  /** Cuts the oldest of too many answers that wait for their callers. A caller sees that its answer is not whole. */
  #boundEnding(): void {
    if (this.#ending.size <= MOST_ENDING) return;
    const held = [...this.#ending].filter(({ link }) => (link?.writableLength ?? 0) > 0);
    for (const { runner, link } of held.slice(0, Math.max(0, held.length - MOST_ENDING))) {
      link?.destroy();
      runner.destroy();
    }
  }

  /** Remembers a stream until its connection to the scheduler is over. */
  #join(key: string, expected: Expected, runner: Socket): void {
    const joined: Joined = { runner, link: undefined };
    this.#joined.set(key, joined);
    expected.join(
      runner,
      (link) => (joined.link = link),
      () => {
        this.#ending.delete(joined);
        if (this.#joined.get(key) === joined) this.#joined.delete(key);
      },
    );
  }

  close(): void {
    this.#listener.close();
    for (const expected of this.#expected.values()) expected.end();
    this.#expected.clear();
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => this.#sockets.delete(socket));
    if (this.#unnamed >= this.#parts.slots() + SPARE_CONNECTIONS) return this.#refuse(socket);
    this.#unnamed += 1;
    const unnamed = setTimeout(() => this.#refuse(socket), NAMED_WITHIN_MS);
    unnamed.unref();
    let isCounted = true;
    const named = (): void => {
      if (isCounted) this.#unnamed -= 1;
      isCounted = false;
      clearTimeout(unnamed);
    };
    socket.once('close', named);
    const reader = new FrameReader();
    let bytes = 0;
    const read = (chunk: Buffer): void => {
      bytes += chunk.length;
      try {
        const [frame] = bytes > MOST_FIRST_BYTES ? this.#refused(socket) : reader.push(chunk);
        if (frame === undefined) return;
        named();
        socket.off('data', read);
        socket.pause();
        const key = keyOf(textOf(frame.header, 'taskId'), textOf(frame.header, 'token'));
        const expected = frame.kind === 'stream' ? this.#expected.get(key) : undefined;
        // The caller left while the runner dialled, or no runner dialled at all.
        if (expected === undefined) return void socket.destroy();
        this.#expected.delete(key);
        this.#join(key, expected, socket);
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

/** Both connections of a stream. */
interface Joined {
  readonly runner: Socket;
  /** Undefined: it is still being opened. */
  link: Socket | undefined;
}

/** A connection to the scheduler, opened or still being opened, whose runner process is awaited. */
class Expected {
  readonly #opening: Promise<Socket>;

  /** @param onOver - called once, when the connection is over or was not opened */
  constructor(opening: Promise<Socket>, onOver: () => void) {
    this.#opening = opening;
    opening.then(
      // The scheduler's refusal or end comes as the end of a connection that is read.
      (link) => {
        if (link.destroyed) onOver();
        else link.once('close', onOver);
      },
      onOver,
    );
  }

  /**
   * @param onJoined - called when the bytes begin to pass
   * @param onOver - called once, when the connection to the scheduler is over or was not opened
   */
  join(runner: Socket, onJoined: (link: Socket) => void, onOver: () => void): void {
    this.#opening.then(
      (link) => {
        if (link.destroyed) onOver();
        else onJoined(link.once('close', onOver));
        joinSockets(runner, link);
      },
      () => {
        runner.destroy();
        onOver();
      },
    );
  }

  /** Ends a connection that no runner process takes. */
  end(): void {
    this.#opening.then(
      (link) => leave(link),
      () => undefined,
    );
  }
}

/**
 * Ends the agent's side, and reads what the scheduler still sends until it ends its own.
 * @param last - goes out before
 */
export function leave(link: Socket, last?: Buffer): void {
  // The scheduler's side is over already where an answer was whole: `end` would make an error for nobody.
  if (link.destroyed) return;
  if (last !== undefined) link.write(last);
  link.end();
  link.resume();
  const late = setTimeout(() => link.destroy(), LINGER_MS);
  late.unref();
  link.once('close', () => clearTimeout(late));
}

/** Passes bytes between a connection of a container and one of the scheduler until both are over. */
export function joinSockets(runner: Socket, link: Socket): void {
  if (link.destroyed) return void runner.destroy();
  if (runner.destroyed) return leave(link);
  passOn(runner, link);
  passOn(link, runner);
  runner.once('close', () => leave(link));
  // Nobody reads what the runner still sends: it hears of the end at its next read or write.
  const over = (): void => runner.destroySoon();
  link.once('end', over);
  link.once('close', over);
}
