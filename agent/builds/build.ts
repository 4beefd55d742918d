// A build that was ordered, and the connection for its events.
import type { Socket } from 'node:net';
import { cut, encodeEvent } from '#shared/protocol/build-events.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import type { BuildImage__Output } from '#shared/protocol/generated/messages.ts';

const MOST_UNREAD_BYTES = 8 * 1024 * 1024;
const LINGER_MS = 10_000;

export interface Build {
  readonly id: string;
  readonly workspaceId: string;
  readonly order: BuildImage__Output;
  readonly link: Socket;
  readonly abort: AbortController;
  readonly orderedAtMs: number;
}

/** The last event of a build that failed. */
export const failure = (text: string): BuildEvent => ({ failed: cut(text), step: '' });

/** Sends an event of a build. */
export function tell({ link, abort }: Build, event: BuildEvent): void {
  if (!link.writable) return;
  link.write(encodeEvent(event));
  // The scheduler reads all the time: one that does not is gone.
  if (link.writableLength > MOST_UNREAD_BYTES) abort.abort();
}

/** Sends the last event, and ends the connection. */
export function finish(link: Socket, last: BuildEvent): void {
  if (link.writable) link.end(encodeEvent(last));
  setTimeout(() => link.destroy(), LINGER_MS).unref();
}
