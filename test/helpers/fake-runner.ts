/** A runner process for tests of the agent: dials its unix socket and speaks frames as told, nothing by itself. */
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import type { Frame, FrameKind } from '../../shared/protocol/frames.ts';
import { FrameReader, encodeFrame } from '../../shared/protocol/frames.ts';
import { until } from './fake-scheduler.ts';

export class FakeRunner {
  readonly frames: Frame[] = [];
  closed = false;
  readonly #socket: Socket;
  readonly #reader = new FrameReader();

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (data: Buffer) => this.frames.push(...this.#reader.push(data)));
    socket.on('error', () => undefined);
    socket.on('close', () => (this.closed = true));
  }

  static async dial(path: string): Promise<FakeRunner> {
    const socket = connect(path);
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    return new FakeRunner(socket);
  }

  /** Dials and says hello. */
  static async process(
    path: string,
    hello: { containerId: string; process: number; slots: number; pid?: number; holding?: object[] },
  ): Promise<FakeRunner> {
    const runner = await FakeRunner.dial(path);
    runner.send('hello', { version: 1, pid: 1000 + hello.process, python: '3.11', ...hello });
    await runner.next('welcome');
    return runner;
  }

  send(kind: FrameKind, header: object, body: string | Buffer = ''): void {
    this.#socket.write(encodeFrame(kind, header, Buffer.from(body)));
  }

  /** Sends a frame in two writes, cut at a byte. */
  async sendCut(at: number, kind: FrameKind, header: object, body: string): Promise<void> {
    const frame = encodeFrame(kind, header, Buffer.from(body));
    await new Promise<void>((resolve) => this.#socket.write(frame.subarray(0, at), () => resolve()));
    this.#socket.write(frame.subarray(at));
  }

  raw(bytes: Buffer): void {
    this.#socket.write(bytes);
  }

  /** The next frame of a kind, taken out of those that came. */
  next(kind: FrameKind): Promise<Frame> {
    return until(`a ${kind} frame`, () => {
      const at = this.frames.findIndex((frame) => frame.kind === kind);
      return at < 0 ? undefined : this.frames.splice(at, 1)[0];
    });
  }

  /** Whether it reads what it is sent. */
  reads(isReading: boolean): void {
    if (isReading) this.#socket.resume();
    else this.#socket.pause();
  }

  hangUp(): void {
    this.#socket.destroy();
  }
}
