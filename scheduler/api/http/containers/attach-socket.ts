// The output of a container on a WebSocket, as JSON texts `{"output","done","exitCode"}`. A pod or sandbox shows what
// its first program prints; any other container, the lines of its log. The caller may change files below the working
// directory meanwhile. Source: interface, gateway §10.
import { StringDecoder } from 'node:string_decoder';
import type { WebSocket } from 'ws';
import { numberOf, textOf } from '#shared/protocol/frames.ts';
import type { Access, ReachedContainer } from '../../../fleet/inside/access.ts';
import { isPod } from '../../../fleet/inside/access.ts';
import type { Inside } from '../../../fleet/inside/inside.ts';
import type { LogReads } from '../../../fleet/logs/log-service.ts';
import { attachedLog } from './attached-log.ts';
import type { Said } from './attached-log.ts';
import { takeFileOperations } from './file-operations.ts';
import { CLOSES, Outgoing } from './sockets.ts';

/** Interval of empty outputs: proxies close idle connections. */
const STILL_MS = 10_000;
const ANSWER_WITHIN_MS = 25_000;
/** The first program of a container. */
const ENTRYPOINT = 0;

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

async function showEntrypoint({ webSocket, inside, container }: AttachParts, left: AbortSignal): Promise<void> {
  const signal = AbortSignal.any([left, AbortSignal.timeout(ANSWER_WITHIN_MS)]);
  const opened = await inside.open(container, 'attach', { pid: ENTRYPOINT, stdout: 0, stderr: 0 }, signal);
  const onLeft = (): void => opened.close();
  signal.addEventListener('abort', onLeft, { once: true });
  await opened.answer();
  signal.removeEventListener('abort', onLeft);
  left.addEventListener('abort', onLeft, { once: true });
  const out = new Outgoing(webSocket, opened.frames);
  const decoders = { stdout: new StringDecoder('utf8'), stderr: new StringDecoder('utf8') };
  let hasEnded = false;
  opened.take({
    onFrame: ({ kind, header, body }) => {
      if (hasEnded) return;
      if (kind === 'data') {
        const decoder = decoders[textOf(header, 'stream') === 'stderr' ? 'stderr' : 'stdout'];
        out.text(messageOf({ output: decoder.write(body) }));
      }
      if (kind !== 'exit') return;
      hasEnded = true;
      const output = decoders.stdout.end() + decoders.stderr.end();
      out.text(messageOf({ output, done: true, exitCode: numberOf(header, 'exitCode') }));
      webSocket.close(CLOSES.done);
    },
    onOver: () => {
      if (!hasEnded) webSocket.close(CLOSES.comeBack, 'the connection to the container was lost');
    },
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
