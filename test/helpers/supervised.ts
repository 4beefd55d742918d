// The scheduler's end of streams into containers: connections for bytes that an agent dials, and the frames on them.
import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { randomBytes } from 'node:crypto';
import type { Frame } from '#shared/protocol/frames.ts';
import { FrameReader, encodeFrame } from '#shared/protocol/frames.ts';
import { bytesSocketOf } from '#shared/protocol/byte-connections.ts';
import type { FakeScheduler } from './fake-scheduler.ts';
import { until } from './fake-scheduler.ts';

/** A stream: frames out, frames in. */
export class PlayedStream {
  readonly socket: Socket;
  readonly frames: Frame[] = [];
  closed = false;
  #taken = 0;

  constructor(socket: Socket, first: Buffer) {
    this.socket = socket;
    const reader = new FrameReader();
    const take = (chunk: Buffer): void => void this.frames.push(...reader.push(Buffer.from(chunk)));
    if (first.length > 0) take(first);
    socket.on('data', take);
    socket.on('error', () => undefined);
    socket.on('close', () => (this.closed = true));
    socket.on('end', () => (this.closed = true));
    socket.resume();
  }

  /** The next frame. */
  async next(what: string): Promise<Frame> {
    const frame = await until(what, () => this.frames[this.#taken], 30_000);
    this.#taken += 1;
    return frame;
  }

  request(body: object): void {
    this.socket.write(encodeFrame('request', {}, Buffer.from(JSON.stringify(body))));
  }

  data(text: string): void {
    this.socket.write(encodeFrame('data', {}, Buffer.from(text)));
  }

  /** The answer to the request. */
  async response(): Promise<Record<string, unknown>> {
    const frame = await this.next('the response');
    if (frame.kind !== 'response') throw new Error(`a frame of kind ${frame.kind} came first`);
    return JSON.parse(frame.body.toString()) as Record<string, unknown>;
  }

  /** Text of the `data` frames so far. */
  get text(): string {
    return this.frames
      .filter(({ kind }) => kind === 'data')
      .map(({ body }) => body.toString())
      .join('');
  }
}

/** Listens where an agent with a link socket dials connections for bytes. */
export class PlayedStreams {
  readonly #scheduler: FakeScheduler;
  readonly #server: Server;
  readonly #streams = new Map<string, PlayedStream>();

  constructor(scheduler: FakeScheduler) {
    this.#scheduler = scheduler;
    this.#server = createServer((socket) => this.#accept(socket));
  }

  async listen(): Promise<void> {
    const path = bytesSocketOf(this.#scheduler.socketPath ?? '');
    await new Promise<void>((resolve) => this.#server.listen(path, resolve));
  }

  close(): void {
    this.#server.close();
    for (const { socket } of this.#streams.values()) socket.destroy();
  }

  #accept(socket: Socket): void {
    let read = Buffer.alloc(0);
    socket.on('error', () => undefined);
    const onData = (chunk: Buffer): void => {
      read = Buffer.concat([read, chunk]);
      const first = read.indexOf(10);
      const second = first === -1 ? -1 : read.indexOf(10, first + 1);
      if (second === -1) return;
      socket.off('data', onData);
      const line = JSON.parse(read.toString('utf8', first + 1, second)) as Record<string, string>;
      const name = line['streamId'] ?? `${line['taskId']} ${line['token']}`;
      this.#streams.set(name, new PlayedStream(socket, read.subarray(second + 1)));
    };
    socket.on('data', onData);
  }

  of(name: string): Promise<PlayedStream> {
    return until(`the stream ${name}`, () => this.#streams.get(name), 30_000);
  }

  /** Orders a stream into a container. */
  async open(containerId: string): Promise<PlayedStream> {
    const streamId = randomBytes(8).toString('hex');
    this.#scheduler.control?.write({ serveContainer: { streamId, containerId } });
    return this.of(streamId);
  }

  /** A request, and its answer. */
  async ask(containerId: string, body: object): Promise<{ stream: PlayedStream; answer: Record<string, unknown> }> {
    const stream = await this.open(containerId);
    stream.request(body);
    return { stream, answer: await stream.response() };
  }

  /** Runs a program to its end. @returns its exit code and output */
  async run(containerId: string, command: readonly string[]): Promise<{ exitCode: number; output: string }> {
    const start = { type: 'start', command, cwd: '', env: {}, terminal: null, attach: true };
    const { stream, answer } = await this.ask(containerId, start);
    if (answer['ok'] !== true) throw new Error(String(answer['error']));
    const exit = await until('the exit', () => stream.frames.find(({ kind }) => kind === 'exit'), 30_000);
    return { exitCode: Number(exit.header['exitCode']), output: stream.text };
  }
}
