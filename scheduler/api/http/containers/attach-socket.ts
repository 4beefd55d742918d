// The output of a container on a WebSocket, as JSON texts `{"output","done","exitCode"}`. A pod or sandbox shows what
// its first program prints; any other container, the lines of its log. The caller may change files below the working
// directory meanwhile. Source: interface, gateway §10.
import { StringDecoder } from 'node:string_decoder';
import type { WebSocket } from 'ws';
import { sleep } from '#shared/backoff.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import { numberOf, textOf } from '#shared/protocol/frames.ts';
import type { Access, ReachedContainer } from '../../../fleet/inside/access.ts';
import { isPod } from '../../../fleet/inside/access.ts';
import type { Inside } from '../../../fleet/inside/inside.ts';
import type { LogReads } from '../../../fleet/logs/log-service.ts';
import { takeFileOperations } from './file-operations.ts';
import { CLOSES, Outgoing } from './sockets.ts';

/** Interval of empty outputs: proxies close idle connections. */
const STILL_MS = 10_000;
const ANSWER_WITHIN_MS = 25_000;
/** Interval of looks at the log. */
const LOOK_MS = 1_000;
/** Time for the last lines of a container that has ended to come. */
const LAST_LINES_MS = 3_000;
const LINES = 500;
/** Exit code of a container that no program's own tells: of one that was lost. */
const UNKNOWN_EXIT = 1;
/** The first program of a container. */
const ENTRYPOINT = 0;

export interface AttachParts {
  readonly webSocket: WebSocket;
  readonly inside: Pick<Inside, 'open' | 'ask' | 'write'>;
  readonly access: Pick<Access, 'find'>;
  readonly logs: LogReads;
  readonly container: ReachedContainer;
}

interface Said {
  readonly output: string;
  readonly done?: boolean;
  readonly exitCode?: number;
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

/** Follows the log, as far as it has come to the scheduler, to the end of the container. */
async function showLog({ webSocket, access, logs, container }: AttachParts, left: AbortSignal): Promise<void> {
  const { containerId, workspaceId } = container;
  let afterSeq = 0;
  const show = async (): Promise<void> => {
    for (;;) {
      const { lines, isFull } = await logs.read(workspaceId, { containerId, afterSeq, limit: LINES, page: 0 });
      const last = lines.at(-1);
      if (last === undefined || left.aborted) return;
      afterSeq = last.seq;
      await sent(webSocket, messageOf({ output: lines.map(({ line }) => `${line}\n`).join('') }));
      if (!isFull) return;
    }
  };
  for (;;) {
    const { state, exitCode } = await access.find(containerId, { workspaceId });
    const isOver = isTerminalContainer(state);
    if (isOver && !(await sleep(LAST_LINES_MS, left))) return;
    await show();
    if (left.aborted) return;
    if (isOver) {
      webSocket.send(messageOf({ output: '', done: true, exitCode: exitCode ?? UNKNOWN_EXIT }));
      return webSocket.close(CLOSES.done);
    }
    if (!(await sleep(LOOK_MS, left))) return;
  }
}

/** Sends, and waits until the caller's connection has taken it. */
const sent = (webSocket: WebSocket, text: string): Promise<void> =>
  new Promise((resolve) => webSocket.send(text, () => resolve()));
