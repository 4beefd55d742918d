/**
 * A slow cable in front of a server: all connections through it share a number of bytes a second each way. The proxy
 * buffers no more than the connections' sockets hold.
 */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export interface ThrottleProxy {
  readonly address: string;
  /** Bytes that came from the target. */
  readonly received: () => number;
  readonly stop: () => void;
}

/** @param host - the address to listen on */
export async function throttleProxy(
  target: string,
  bytesPerSecond: number,
  host = '127.0.0.1',
): Promise<ThrottleProxy> {
  const colon = target.lastIndexOf(':');
  const upstreamOf = { host: target.slice(0, colon), port: Number(target.slice(colon + 1)), allowHalfOpen: true };
  const sockets = new Set<Socket>();
  const [up, down] = [new Lane(bytesPerSecond), new Lane(bytesPerSecond)];
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const upstream = connect(upstreamOf);
    for (const socket of [client, upstream]) {
      socket.setNoDelay(true);
      sockets.add(socket);
      socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
    }
    void up.carry(client, upstream);
    void down.carry(upstream, client);
  });
  server.listen(0, host);
  await once(server, 'listening');
  return {
    address: `${host}:${(server.address() as AddressInfo).port}`,
    received: () => down.bytes,
    stop: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

/** A direction: first come, first served, a socket's buffer at a time. */
class Lane {
  bytes = 0;
  readonly #bytesPerMs: number;
  #freeAtMs = 0;

  constructor(bytesPerSecond: number) {
    this.#bytesPerMs = bytesPerSecond / 1000;
  }

  async carry(from: Socket, to: Socket): Promise<void> {
    try {
      for await (const chunk of from) {
        const { length } = chunk as Buffer;
        this.#freeAtMs = Math.max(this.#freeAtMs, performance.now()) + length / this.#bytesPerMs;
        const waitMs = this.#freeAtMs - performance.now();
        // The shortest that a timer can do.
        if (waitMs > 1) await sleep(waitMs);
        this.bytes += length;
        if (!to.writable) break;
        if (!to.write(chunk as Buffer)) await Promise.race([once(to, 'drain'), once(to, 'close')]);
      }
      to.end();
    } catch {
      to.destroy();
    }
  }
}
