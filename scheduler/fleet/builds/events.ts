// Events of an agent about a build or a push, read to their end.
import type { Duplex } from 'node:stream';
import { messageOf } from '#shared/errors.ts';
import { MOST_EVENT_BYTES, decodeEvent } from '#shared/protocol/build-events.ts';
import type { LastEvent } from '#shared/protocol/build-events.ts';
import type { Transcript } from './transcript.ts';

/** Reads events into a transcript. @returns the last one; undefined: the connection was cut off */
export async function followEvents(
  bytes: Duplex,
  transcript: Pick<Transcript, 'add'>,
  signal: AbortSignal,
): Promise<LastEvent | undefined> {
  const end = (): void => void bytes.destroy();
  signal.addEventListener('abort', end, { once: true });
  bytes.on('error', () => undefined);
  try {
    for await (const line of linesOf(bytes)) {
      const event = decodeEvent(line);
      if (event === undefined) continue;
      if ('built' in event || 'pushed' in event || 'failed' in event) return event;
      if ('step' in event) transcript.add(`Step ${event.step}/${event.of}: ${event.title}`);
      else if ('note' in event) transcript.add(event.note, true);
      else transcript.add(event.text);
    }
  } catch (error) {
    if (!signal.aborted) transcript.add(`the connection to the machine failed: ${messageOf(error)}`, true);
  } finally {
    signal.removeEventListener('abort', end);
    bytes.destroy();
  }
  return undefined;
}

/** @throws Error for a line that is longer than any event */
async function* linesOf(bytes: Duplex): AsyncGenerator<string> {
  let rest = '';
  const decoder = new TextDecoder();
  for await (const part of bytes) {
    const lines = (rest + decoder.decode(part as Uint8Array, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > MOST_EVENT_BYTES) throw new Error('the agent sent a line that is too long');
    yield* lines;
  }
}
