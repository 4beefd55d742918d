/**
 * The few calls that set-up makes to the Docker Engine, over its socket; dockerode is not installed before `npm ci`.
 */
import { request as httpRequest } from 'node:http';
import { readFileSync } from 'node:fs';
import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { SetupError } from './log.mjs';

const DEFAULT_SOCKET = '/var/run/docker.sock';

/**
 * The engine's address: DOCKER_HOST, else the usual socket.
 * @returns {{ text: string, explicit: boolean, options: import('node:http').RequestOptions }}
 */
export function engineAddress(env = process.env) {
  const host = env.DOCKER_HOST?.trim();
  if (!host) return { text: DEFAULT_SOCKET, explicit: false, options: { socketPath: DEFAULT_SOCKET } };
  if (host.startsWith('unix://')) {
    const socketPath = host.slice('unix://'.length);
    return { text: socketPath, explicit: socketPath !== DEFAULT_SOCKET, options: { socketPath } };
  }
  const url = /^(tcp|https?):\/\/([^:/]+|\[[^\]]+\])(?::(\d+))?\/?$/.exec(host);
  if (url === null) throw new SetupError(`DOCKER_HOST is ${host}; it must be unix:///path or tcp://host:port.`);
  const tls = Boolean(env.DOCKER_TLS_VERIFY) || url[1] === 'https';
  const options = { host: url[2].replace(/^\[|\]$/g, ''), port: Number(url[3] ?? (tls ? 2376 : 2375)) };
  return { text: host, explicit: true, options: tls ? { ...options, ...tlsFiles(env), protocol: 'https:' } : options };
}

function tlsFiles(env) {
  const folder = env.DOCKER_CERT_PATH ?? join(env.HOME ?? '/root', '.docker');
  const read = (name) => readFileSync(join(folder, name));
  return { ca: read('ca.pem'), cert: read('cert.pem'), key: read('key.pem') };
}

/**
 * Sends one request to the engine; the answer's body is collected, or passed to `onData` in parts.
 * @param {string} method
 * @param {string} path
 * @param {{
 *   timeoutMs?: number, body?: NodeJS.ReadableStream, onData?: (chunk: Buffer) => void, signal?: AbortSignal,
 * }} [options]
 *   `timeoutMs`: longest silence on the connection
 * @returns {Promise<{ status: number, text: string }>}
 */
export function engineRequest(method, path, options = {}) {
  const { timeoutMs = 10_000, body, onData, signal } = options;
  const { options: address } = engineAddress();
  const send = address.protocol === 'https:' ? httpsRequest : httpRequest;
  return new Promise((resolve, reject) => {
    const headers = body === undefined ? {} : { 'content-type': 'application/x-tar' };
    const request = send({ ...address, method, path, headers, signal, agent: false }, (response) => {
      const chunks = [];
      response.on('data', (chunk) => {
        chunks.push(chunk);
        onData?.(chunk);
      });
      response.once('error', reject);
      response.once('end', () =>
        resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString('utf8') }),
      );
    });
    request.setTimeout(timeoutMs, () =>
      request.destroy(new Error(`no answer from Docker within ${timeoutMs / 1000} s`)),
    );
    request.once('error', reject);
    if (body === undefined) {
      request.end();
    } else {
      body.once('error', (error) => request.destroy(error));
      body.pipe(request);
    }
  });
}

/**
 * Whether an engine answers. A `docker` on the PATH proves nothing, the socket does.
 * @returns {Promise<'up' | 'no_permission' | 'silent' | 'down'>} `silent`: it takes connections and does not answer
 */
export async function pingEngine(timeoutMs = 5000) {
  try {
    const { status } = await engineRequest('GET', '/_ping', { timeoutMs });
    return status === 200 ? 'up' : 'silent';
  } catch (error) {
    if (error?.code === 'EACCES' || error?.code === 'EPERM') return 'no_permission';
    if (error?.code === 'ENOENT' || error?.code === 'ECONNREFUSED') return 'down';
    if (error instanceof SetupError) throw error;
    return /no answer/.test(String(error?.message)) ? 'silent' : 'down';
  }
}
