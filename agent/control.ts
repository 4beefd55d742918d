/**
 * Requests of this host's administrator to a running agent, over a socket in its state directory, which only its user
 * can enter. The units use it. A request is one JSON line; the answer is lines: `{"text": …}` on the way, `{"done":
 * true}` or `{"failed": …}` at the end.
 */
import { rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { StartupError, messageOf } from '#shared/errors.ts';
import { hasCode } from './durable.ts';
import type { HostDrain } from './host-drain.ts';

export type ControlRequest =
  | { readonly kind: 'drain'; readonly seconds: number }
  | { readonly kind: 'undrain' }
  | { readonly kind: 'end-containers' };

export type ControlHandler = (
  request: ControlRequest,
  tell: (text: string) => void,
  signal: AbortSignal,
) => Promise<void>;

/** Requests as the parts of the agent answer them. @param stopping - aborted when the agent stops */
export function controlOf(
  hostDrain: Pick<HostDrain, 'drain' | 'undrain'>,
  endContainers: () => Promise<void>,
  stopping: AbortSignal,
): ControlHandler {
  return async (request, tell, signal) => {
    if (request.kind === 'undrain') hostDrain.undrain();
    else if (request.kind === 'end-containers') await endContainers();
    else {
      const left = await hostDrain.drain(request.seconds, tell, AbortSignal.any([signal, stopping]));
      if (left > 0) tell(`the time is over: ${left} containers are left`);
    }
  };
}

const MOST_AT_ONCE = 8;
const MAX_REQUEST_BYTES = 4096;

export const controlPath = (stateDir: string): string => join(stateDir, 'control.sock');

/** Listens until the returned function is called. */
export async function serveControl(stateDir: string, handle: ControlHandler): Promise<() => Promise<void>> {
  const path = controlPath(stateDir);
  await rm(path, { force: true });
  const open = new Set<Socket>();
  const server: Server = createServer((socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
    socket.on('error', () => socket.destroy());
    void answer(socket, handle);
  });
  server.maxConnections = MOST_AT_ONCE;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ path }, resolve);
  });
  return async () => {
    for (const socket of open) socket.destroy();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
}

async function answer(socket: Socket, handle: ControlHandler): Promise<void> {
  const gone = new AbortController();
  socket.on('close', () => gone.abort());
  const say = (line: object): void => {
    if (socket.writable) socket.write(`${JSON.stringify(line)}\n`);
  };
  try {
    await handle(await requestOf(socket), (text) => say({ text }), gone.signal);
    say({ done: true });
  } catch (error) {
    say({ failed: messageOf(error) });
  }
  socket.end();
}

function requestOf(socket: Socket): Promise<ControlRequest> {
  return new Promise((resolve, reject) => {
    let text = '';
    socket.setEncoding('utf8');
    socket.on('data', (chunk: string) => {
      text += chunk;
      if (text.length > MAX_REQUEST_BYTES) reject(new Error('the request is too long'));
      const end = text.indexOf('\n');
      if (end < 0) return;
      try {
        resolve(parse(text.slice(0, end)));
      } catch (error) {
        reject(error instanceof Error ? error : new Error('not a request'));
      }
    });
    socket.once('close', () => reject(new Error('nothing was asked')));
  });
}

function parse(line: string): ControlRequest {
  const value = JSON.parse(line) as { readonly kind?: unknown; readonly seconds?: unknown };
  if (value.kind === 'undrain' || value.kind === 'end-containers') return { kind: value.kind };
  if (value.kind === 'drain' && typeof value.seconds === 'number' && value.seconds >= 0)
    return { kind: 'drain', seconds: Math.floor(value.seconds) };
  throw new Error('there is no such request');
}

/**
 * Asks the agent that runs on a state directory.
 * @param tell - called with each line of text on the way
 * @returns false when no agent runs there
 * @throws StartupError `agent_refused`
 */
export async function askAgent(
  stateDir: string,
  request: ControlRequest,
  tell: (text: string) => void,
): Promise<boolean> {
  const socket = connect({ path: controlPath(stateDir) });
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ECONNREFUSED')) return false;
    throw error;
  }
  socket.write(`${JSON.stringify(request)}\n`);
  for await (const line of createInterface({ input: socket })) {
    const said = JSON.parse(line) as { readonly text?: string; readonly done?: boolean; readonly failed?: string };
    if (said.text !== undefined) tell(said.text);
    else if (said.done === true) return true;
    else if (said.failed !== undefined) throw new StartupError('agent_refused', said.failed);
  }
  throw new StartupError('agent_refused', 'the agent ended before it had answered');
}
