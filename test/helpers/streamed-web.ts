// An ASGI application in a container of a whole installation, for tests that speak to it through the scheduler.
import { expect } from 'vitest';
import { WebSocket } from 'ws';
import { jsonOf, test as base } from './platform.ts';
import type { Deployment, Platform } from './platform.ts';
import { RawConnection } from './raw-http.ts';

export interface Web extends Deployment {
  /** Path of its URL. */
  readonly path: string;
}

export const test = base
  .extend('web', { scope: 'file' }, async ({ platform }): Promise<Web> => {
    const deployment = await platform.deploy({
      app: 'web.py',
      handler: 'app',
      name: 'web',
      stubType: 'asgi/deployment',
      concurrentRequests: 50,
      maxPendingTasks: 200,
      keepWarmSeconds: 60,
    });
    expect(await platform.call(`${deployment.url}/`)).toMatchObject({ status: 200 });
    return { ...deployment, path: new URL(deployment.url).pathname };
  })
  .extend('raw', async ({ platform }, { onCleanup }) => {
    const open: RawConnection[] = [];
    onCleanup(() => open.forEach((connection) => connection.close()));
    return async (): Promise<RawConnection> => {
      const connection = new RawConnection(platform.httpAddress);
      open.push(connection);
      await connection.opened;
      return connection;
    };
  });

export const stateOf = async (platform: Platform, web: Web) =>
  jsonOf<{ seen: Record<string, number>; gone: unknown[]; pid: number }>(await platform.call(`${web.url}/`));

export interface Socketed {
  readonly socket: WebSocket;
  readonly messages: (string | Buffer)[];
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>;
}

export async function openSocket(
  platform: Platform,
  web: Web,
  path: string,
  protocols: string[] = [],
): Promise<Socketed> {
  const socket = new WebSocket(`ws://${platform.httpAddress}${web.path}${path}`, protocols, {
    headers: { authorization: `Bearer ${platform.token}` },
  });
  const messages: (string | Buffer)[] = [];
  socket.on('message', (data, isBinary) => messages.push(isBinary ? (data as Buffer) : (data as Buffer).toString()));
  const closed = new Promise<{ code: number; reason: string }>((resolve) =>
    socket.on('close', (code, reason) => resolve({ code, reason: reason.toString() })),
  );
  await new Promise<void>((resolve, reject) => {
    socket.once('open', () => resolve());
    socket.once('error', reject);
  });
  return { socket, messages, closed };
}
