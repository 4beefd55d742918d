// The output of a container on a WebSocket, as JSON texts `{"output","done","exitCode"}`. A pod or sandbox shows what
// its first program prints; any other container, the lines of its log. The caller may change files below the working
// directory meanwhile. Source: interface, gateway §10.
import type { WebSocket } from 'ws';
import type { Access, ReachedContainer } from '../../../fleet/inside/access.ts';
import { isPod } from '../../../fleet/inside/access.ts';
import type { Inside } from '../../../fleet/inside/inside.ts';
import type { LogReads } from '../../../fleet/logs/log-service.ts';
import { attachedEntrypoint } from './attached-entrypoint.ts';
import { attachedLog } from './attached-log.ts';
import type { Said } from './attached-log.ts';
import { takeFileOperations } from './file-operations.ts';
import { CLOSES, Outgoing } from './sockets.ts';

/** Interval of empty outputs: proxies close idle connections. */
const STILL_MS = 10_000;

export interface AttachParts {
  readonly webSocket: WebSocket;
  readonly inside: Pick<Inside, 'open' | 'ask' | 'write'>;
  readonly access: Pick<Access, 'find'>;
  readonly logs: LogReads;
  readonly container: ReachedContainer;
}

const messageOf = ({ output, done = false, exitCode = 0 }: Said): string => JSON.stringify({ output, done, exitCode });

/** Tells a caller that there is no such container, as published gateways do. */
export function sayNotFound(webSocket: WebSocket): void {
  webSocket.send(messageOf({ output: 'Container not found', done: true, exitCode: 1 }));
  webSocket.close(CLOSES.done);
}

export async function serveAttach(parts: AttachParts): Promise<void> {
  const { webSocket, container } = parts;
  const left = new AbortController();
  const still = setInterval(() => webSocket.send(messageOf({ output: '' })), STILL_MS);
  still.unref();
  webSocket.once('close', () => {
    clearInterval(still);
    left.abort();
  });
  takeFileOperations(parts, (text) => webSocket.send(messageOf({ output: `${text}\n` })));
  if (isPod(container.row)) await showEntrypoint(parts, left.signal);
  else await showLog(parts, left.signal);
}

async function showEntrypoint(parts: AttachParts, left: AbortSignal): Promise<void> {
  const { webSocket } = parts;
  await attachedEntrypoint(parts, left, (frames) => {
    const out = new Outgoing(webSocket, frames);
    return {
      say: (said) => {
        out.text(messageOf(said));
        if (said.done === true) webSocket.close(CLOSES.done);
      },
      onLost: () => webSocket.close(CLOSES.comeBack, 'the connection to the container was lost'),
    };
  });
}

/** Follows the log to the end of the container. */
async function showLog(parts: AttachParts, left: AbortSignal): Promise<void> {
  const { webSocket } = parts;
  for await (const said of attachedLog(parts, left)) await sent(webSocket, messageOf(said));
  if (!left.aborted) webSocket.close(CLOSES.done);
}

/** Sends, and waits until the caller's connection has taken it. */
const sent = (webSocket: WebSocket, text: string): Promise<void> =>
  new Promise((resolve) => webSocket.send(text, () => resolve()));
