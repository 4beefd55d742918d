/**
 * A connection through an HTTP proxy: CONNECT, and then the bytes go on to the scheduler. Each step has a deadline,
 * since proxies that accept connections and answer none are common.
 */
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { AppError } from '#shared/errors.ts';
import type { Proxy } from '../proxy.ts';

const ANSWER_DEADLINE_MS = 10_000;

/**
 * @param address - host:port for the proxy, which looks names up itself
 * @throws AppError `scheduler_unreachable`, with a text without secrets
 */
export async function dialThrough(proxy: Proxy, address: string): Promise<Socket> {
  const socket = await new Promise<Socket>((resolve, reject) => {
    const made = connect({ host: proxy.host, port: proxy.port, timeout: ANSWER_DEADLINE_MS });
    const fail = (cause: Error): void => {
      made.destroy();
      reject(new AppError('scheduler_unreachable', `cannot reach the proxy ${proxy.shown}`, { cause }));
    };
    const late = (): void => fail(new Error(`no answer within ${ANSWER_DEADLINE_MS / 1000} s`));
    made.on('error', fail).once('timeout', late);
    made.once('connect', () => {
      made.off('timeout', late).setTimeout(0);
      resolve(made);
    });
  });
  return await tunnelOn(socket, proxy, address);
}

/**
 * @param socket - connected to the proxy; destroyed on failure
 * @throws AppError `scheduler_unreachable`
 */
export async function tunnelOn(socket: Socket, proxy: Proxy, address: string): Promise<Socket> {
  const { authorization, shown } = proxy;
  // TLS on top of an open tunnel gets its errors as well.
  socket.on('error', () => undefined);
  return await new Promise<Socket>((resolve, reject) => {
    const fail = (words: string, cause?: Error): void => {
      clearTimeout(deadline);
      socket.destroy();
      reject(new AppError('scheduler_unreachable', words, cause === undefined ? {} : { cause }));
    };
    // An import by name would load Node's fetch with the module.
    const asking = process.getBuiltinModule('node:http').request({
      method: 'CONNECT',
      path: address,
      headers: { host: address, ...(authorization === undefined ? {} : { 'proxy-authorization': authorization }) },
      createConnection: () => socket,
    });
    const deadline = setTimeout(
      () => fail(`the proxy ${shown} does not answer for ${address} within ${ANSWER_DEADLINE_MS / 1000} s`),
      ANSWER_DEADLINE_MS,
    );
    deadline.unref();
    asking.once('connect', ({ statusCode = 0, statusMessage = '' }, _socket, head) => {
      if (statusCode < 200 || statusCode > 299) {
        // The header comes from elsewhere: it is cut to printable characters, and in length.
        const said = statusMessage.replaceAll(/[^ -~]/g, '').slice(0, 100);
        fail(`the proxy ${shown} refuses ${address}: ${`${statusCode} ${said}`.trim()}`);
        return;
      }
      clearTimeout(deadline);
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    asking.on('error', (error) => fail(`the proxy ${shown} gives no connection to ${address}`, error));
    asking.end();
  });
}
