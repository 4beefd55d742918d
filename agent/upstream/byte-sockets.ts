/**
 * Dials the scheduler for bytes: over TLS, which trusts the installation's CA alone, or over the unix socket of a
 * scheduler on this machine. Each step has a deadline.
 */
import { connect } from 'node:net';
import type { Socket, SocketConstructorOpts } from 'node:net';
import { connect as connectTls, createSecureContext } from 'node:tls';
import type { SecureContext } from 'node:tls';
import { splitAddress } from '#shared/address.ts';
import { AppError } from '#shared/errors.ts';
import { BYTES_ALPN, HELD_BYTES, KEEP_ALIVE_MS } from '#shared/protocol/byte-connections.ts';
import { SERVER_NAME } from '#shared/protocol/link.ts';
import { ReusedReads } from '#shared/reused-reads.ts';
import type { Proxy } from '../proxy.ts';
import { dialThrough } from './tunnel.ts';

const DIAL_DEADLINE_MS = 10_000;

/** Node's own types leave out the sizes of streams. */
const HELD: SocketConstructorOpts & { readonly highWaterMark: number } = { highWaterMark: HELD_BYTES };

let trusted: { readonly caPem: string; readonly context: SecureContext } | undefined;

/** The CA as TLS wants it: made once, since it takes longer than a handshake. */
function trustOf(caPem: string): SecureContext {
  if (trusted?.caPem !== caPem) trusted = { caPem, context: createSecureContext({ ca: caPem }) };
  return trusted.context;
}

/** @param path - a socket where only this user can listen */
export const dialLocalBytes = (path: string): Promise<Socket> =>
  opened(
    ReusedReads.dial((reads) => connect({ path, ...HELD, ...reads })),
    'connect',
    `the socket ${path}`,
  );

/** @throws AppError `scheduler_unreachable` */
export async function dialBytes(address: string, caPem: string, proxy: Proxy | undefined): Promise<Socket> {
  const { host, port } = splitAddress(address);
  const through = proxy === undefined ? undefined : await dialThrough(proxy, address);
  const socket = ReusedReads.dial((reads) =>
    connectTls({
      ...HELD,
      ...reads,
      ...(through === undefined ? { host, port } : { socket: through }),
      servername: SERVER_NAME,
      secureContext: trustOf(caPem),
      ALPNProtocols: [BYTES_ALPN],
    }),
  );
  socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_MS);
  socket.once('close', () => through?.destroy());
  return await opened(socket, 'secureConnect', address);
}

function opened(socket: Socket, event: 'connect' | 'secureConnect', where: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const fail = (cause?: Error): void => {
      clearTimeout(late);
      socket.destroy();
      reject(new AppError('scheduler_unreachable', `cannot open a connection for bytes to ${where}`, { cause }));
    };
    const late = setTimeout(() => fail(new Error('no answer in time')), DIAL_DEADLINE_MS);
    socket.once('error', fail);
    socket.once('close', fail);
    socket.once(event, () => {
      clearTimeout(late);
      socket.off('error', fail);
      socket.off('close', fail);
      resolve(socket);
    });
  });
}
