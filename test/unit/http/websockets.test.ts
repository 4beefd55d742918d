// WebSockets of callers, with a real socket and a runner process that this test plays.
import { once } from 'node:events';
import { ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Duplex } from 'node:stream';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { WebSocket } from 'ws';
import { encodeFrame } from '#shared/protocol/frames.ts';
import { FrameStream } from '#scheduler/api/http/streams/frame-stream.ts';
import { WebSockets } from '#scheduler/api/http/streams/websockets.ts';
import { waitFor } from '../../helpers/programs.ts';

/** More than the interval of pings. */
const INTERVAL_MS = 30_001;

/** The way to a runner process: takes nothing more until it is told to. */
class SlowRunner extends Duplex {
  taken = 0;
  writes = 0;
  #held: (() => void) | undefined;
  isSlow = true;

  constructor() {
    super({ highWaterMark: 1024 });
  }

  override _read(): void {
    // The test sends nothing from this side.
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.taken += chunk.length;
    this.writes += 1;
    if (this.isSlow) this.#held = done;
    else done();
  }

  go(): void {
    this.isSlow = false;
    this.#held?.();
  }
}

beforeEach(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }));
afterEach(() => void vi.useRealTimers());

async function bridged(isStopping = false) {
  const webSockets = new WebSockets();
  if (isStopping) webSockets.closeAll();
  const runner = new SlowRunner();
  const ends: number[] = [];
  const sockets: Duplex[] = [];
  const server = createServer();
  server.on('upgrade', (request, socket, head) => {
    sockets.push(socket);
    const frames = new FrameStream(runner, { onFrame: () => undefined, onOver: () => undefined });
    const acceptance = { accept: true, subprotocol: null, headers: [] } as const;
    const response = new ServerResponse(request);
    response.assignSocket(socket as Parameters<ServerResponse['assignSocket']>[0]);
    webSockets.accept(
      request,
      response,
      { take: () => ({ socket, head }) },
      { acceptance, added: [], frames },
      { onOver: (code) => ends.push(code), onBytes: () => undefined },
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const connections: Duplex[] = [];
  const client = new WebSocket(`ws://127.0.0.1:${port}`, { autoPong: false });
  client.on('upgrade', ({ socket }) => connections.push(socket));
  let pings = 0;
  client.on('ping', (data: Buffer) => {
    pings += 1;
    client.pong(data);
  });
  client.on('error', () => undefined);
  await once(client, 'open');
  return {
    client,
    /** The client's own, below its WebSocket. */
    connection: () => connections[0] as Duplex,
    runner,
    ends,
    pings: () => pings,
    /** Bytes for the caller that the kernel has not taken. */
    unsentBytes: () => sockets.reduce((sum, { writableLength }) => sum + writableLength, 0),
    close: () => {
      client.terminate();
      server.close();
    },
  };
}

test('a caller whose messages wait for the container is not taken for gone', async () => {
  const { client, runner, ends, pings, close } = await bridged();
  for (let sent = 0; sent < 20; sent += 1) client.send(Buffer.alloc(100_000));
  await waitFor(() => runner.taken > 0, 'the first message is on its way');
  for (let round = 0; round < 4; round += 1) {
    vi.advanceTimersByTime(INTERVAL_MS);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect(ends).toEqual([]);
  runner.go();
  await waitFor(() => runner.taken > 2_000_000, 'all messages are there');
  vi.advanceTimersByTime(INTERVAL_MS);
  await waitFor(() => pings() === 5, 'every ping came');
  close();
});

test('a caller who answers no ping is gone', async () => {
  const { client, ends, close } = await bridged();
  client.pause();
  vi.advanceTimersByTime(INTERVAL_MS);
  vi.advanceTimersByTime(INTERVAL_MS);
  await waitFor(() => ends.length === 1, 'the WebSocket is over');
  expect(ends).toEqual([1006]);
  close();
});

test('a caller who reads nothing of many small messages makes the container wait', async () => {
  const { client, runner, unsentBytes, close } = await bridged();
  client.pause();
  const message = encodeFrame('message', { text: true }, Buffer.from('x'));
  const many = Buffer.concat(Array.from({ length: 1000 }, () => message));
  await waitFor(() => {
    for (let sent = 0; sent < 50 && !runner.isPaused(); sent += 1) runner.push(many);
    return runner.isPaused();
  }, 'the runner process has to wait');
  // A message of three bytes costs some hundred.
  expect(unsentBytes()).toBeLessThan(50_000);
  close();
});

test('many messages at once to a container that waits add no listener and no buffer each', async () => {
  const { connection, runner, close } = await bridged();
  // In a single write: the messages must arrive together, before the pause holds up what is behind them.
  const message = Buffer.from([0x81, 0x81, 0, 0, 0, 0, 0x78]);
  connection().write(Buffer.concat(Array.from({ length: 5_000 }, () => message)));
  await waitFor(() => runner.writableLength > 10_000, 'they wait');
  expect(runner.listenerCount('drain')).toBeLessThan(3);
  // A buffer for each message would take many times its bytes.
  runner.go();
  await waitFor(() => runner.taken === 5_000 * encodeFrame('message', { text: true }, Buffer.from('x')).length, 'all');
  expect(runner.writes).toBeLessThan(500);
  close();
});

test('a WebSocket that is accepted while the service stops is told to come again', async () => {
  const { client, ends, close } = await bridged(true);
  const [code] = client.readyState === WebSocket.CLOSED ? [1012] : ((await once(client, 'close')) as [number]);
  expect(code).toBe(1012);
  await waitFor(() => ends.length === 1, 'the WebSocket is over');
  expect(ends).toEqual([1012]);
  close();
});
