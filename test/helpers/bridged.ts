// WebSockets of callers, with a real socket and a runner process that the test plays.
import { once } from 'node:events';
import { ServerResponse, createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { CompressionTurns } from '#scheduler/api/http/streams/compression-turns.ts';
import { FrameStream } from '#shared/protocol/frame-stream.ts';
import type { FullBound, MessageRoom } from '#scheduler/api/http/streams/message-room.ts';
import { WebSockets } from '#scheduler/api/http/streams/websockets.ts';

/** The way to a runner process: takes nothing more until it is told to. */
export class SlowRunner extends Duplex {
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

export interface BridgedOptions {
  readonly isStopping?: boolean;
  readonly room?: MessageRoom;
  readonly turns?: CompressionTurns;
  readonly workspaceId?: string;
  /** The caller offers no compression. */
  readonly isPlain?: boolean;
}

/** A caller's WebSocket through a scheduler's bridge to a runner process that takes nothing yet. */
export async function bridged({
  isStopping = false,
  room,
  turns,
  workspaceId = 'w',
  isPlain = false,
}: BridgedOptions = {}) {
  const webSockets = new WebSockets(room, turns);
  if (isStopping) webSockets.closeAll();
  const runner = new SlowRunner();
  const ends: number[] = [];
  const fulls: FullBound[] = [];
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
      { workspaceId: workspaceId as WorkspaceId, acceptance, added: [], frames },
      { onOver: (code) => ends.push(code), onBytes: () => undefined, onFull: (bound) => fulls.push(bound) },
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const client = new WebSocket(`ws://127.0.0.1:${port}`, { autoPong: false, perMessageDeflate: !isPlain });
  let pings = 0;
  client.on('ping', (data: Buffer) => {
    pings += 1;
    client.pong(data);
  });
  client.on('error', () => undefined);
  await once(client, 'open');
  const { _socket: raw } = client as unknown as { readonly _socket: Socket };
  return {
    client,
    /** The caller's connection, for bytes that its library would not send. */
    raw,
    /** The scheduler gets bytes of its caller in one read. A read brings at most 64 KiB. */
    readAtOnce: (bytes: Buffer) => sockets.forEach((socket) => socket.unshift(bytes)),
    webSockets,
    runner,
    ends,
    fulls,
    pings: () => pings,
    /** Bytes for the caller that the kernel has not taken. */
    unsentBytes: () => sockets.reduce((sum, { writableLength }) => sum + writableLength, 0),
    /** The scheduler has closed its side. */
    hasEnded: () => sockets.every(({ writableEnded }) => writableEnded),
    /** The container is lost. */
    kill: () => void runner.destroy(),
    close: () => {
      client.terminate();
      server.close();
    },
  };
}
