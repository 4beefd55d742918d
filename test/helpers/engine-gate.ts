/**
 * A gate before the container engine: requests that a pattern names
 * wait there, or are cut off, while it is shut; all others pass.
 */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connectionOptions } from '../../agent/containers/engine/options.ts';

export interface EngineGate {
  /** Address in the form of DOCKER_HOST. */
  readonly host: string;
  /** From now on matching requests do not reach the engine. @param request - their first line, e.g. `/^GET \/info/` */
  shut(request: RegExp, how: 'wait' | 'cut'): void;
  /** Lets the waiting requests go on. */
  open(): void;
  /**
   * From now on each piece of a request reaches the engine as `how` returns it.
   * The length header stays, so a request with a body must keep its length.
   */
  change(how: (piece: string) => string): void;
  /** Number of requests that came while the gate was shut. */
  readonly met: number;
  close(): Promise<void>;
}

export async function engineGate(): Promise<EngineGate> {
  const directory = await mkdtemp(join(tmpdir(), 'lsg-'));
  const path = join(directory, 'engine.sock');
  const at = connectionOptions(process.env['DOCKER_HOST']);
  const address = 'socketPath' in at ? { path: at.socketPath } : { host: at.host, port: at.port };
  const sockets = new Set<Socket>();
  const waiting: (() => void)[] = [];
  let shut: { readonly request: RegExp; readonly how: 'wait' | 'cut' } | undefined;
  let met = 0;
  let change: ((piece: string) => string) | undefined;
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const engine = connect({ ...address, allowHalfOpen: true });
    for (const socket of [client, engine]) {
      sockets.add(socket);
      socket.on('error', () => socket.destroy()).on('close', () => sockets.delete(socket));
    }
    engine.pipe(client);
    engine.on('close', () => client.destroy());
    client.on('close', () => engine.destroy());
    client.on('end', () => engine.end());
    // A client sends a request only after the answer to the one before, so each begins a piece of its own.
    client.on('data', (data: Buffer) => {
      if (shut?.request.test(data.toString('latin1', 0, 300)) !== true) {
        engine.write(change === undefined ? data : Buffer.from(change(data.toString('latin1')), 'latin1'));
        return;
      }
      met += 1;
      if (shut.how === 'cut') client.destroy();
      else waiting.push(() => engine.write(data));
    });
  });
  server.listen(path);
  await once(server, 'listening');
  return {
    host: `unix://${path}`,
    shut: (request, how) => {
      shut = { request, how };
    },
    open: () => {
      shut = undefined;
      for (const go of waiting.splice(0)) go();
    },
    change: (how) => {
      change = how;
    },
    get met() {
      return met;
    },
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
