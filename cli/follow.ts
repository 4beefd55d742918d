// Follows a stream of server-sent events, for as long as a person wants: a stream that ends is dialled again, and goes
// on behind the last record that came.
import { createParser } from 'eventsource-parser';
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Client } from './client.ts';
import { CliError } from './errors.ts';
import { Outage } from './outage.ts';
import { note } from './print.ts';

/** Time without a byte after which a stream counts as lost: the server sends a ping every 15 s. */
const SILENT_MS = 45_000;
const DIAL_MS = 10_000;
const MOST_PAUSE_MS = 5_000;

export interface Followed {
  readonly event: string;
  readonly data: string;
}

export interface FollowOptions {
  /** Takes a record. Answering true ends the stream. */
  readonly onRecord: (record: Followed) => boolean | void;
  /** Ends the stream quietly. */
  readonly signal?: AbortSignal | undefined;
  /** Whether the end of a stream is the end of it all, such as that of a task. */
  readonly isFinite?: boolean;
  /** Told when the connection is lost and when it is back; by default a person is. */
  readonly onNote?: (text: string) => void;
}

/**
 * Follows a stream until it ends by itself, by the signal, or by `onRecord`.
 * @param path - below `/api/v1`, with its query
 * @throws CliError when the server refuses
 */
export async function follow(client: Client, path: string, options: FollowOptions): Promise<void> {
  const { onRecord, signal, isFinite = false, onNote = note } = options;
  let lastId: string | undefined;
  let failures = 0;
  const outage = new Outage();
  const isAborted = (): boolean => signal?.aborted === true;
  while (!isAborted()) {
    const dial = new AbortController();
    const end = (): void => dial.abort();
    signal?.addEventListener('abort', end, { once: true });
    let timer = setTimeout(end, DIAL_MS);
    let isOver = false;
    try {
      const parser = createParser({
        onEvent: ({ id, event = 'message', data }) => {
          if (id !== undefined) lastId = id;
          if (!isOver && onRecord({ event, data }) === true) isOver = true;
        },
      });
      const headers = lastId === undefined ? {} : { 'last-event-id': lastId };
      // A start that the query names would win over the header.
      const from = lastId === undefined ? path : withoutStart(path);
      const { body } = await client.open('GET', `/api/v1${from}`, undefined, { headers, signal: dial.signal });
      body.setEncoding('utf8');
      for await (const text of body as AsyncIterable<string>) {
        clearTimeout(timer);
        timer = setTimeout(end, SILENT_MS);
        if (outage.over()) onNote('connected again');
        failures = 0;
        parser.feed(text);
        if (isOver) return;
      }
      if (isFinite) return;
    } catch (error) {
      if (isAborted()) return;
      if (isRefusal(error)) throw error;
      failures += 1;
      const text = outage.failed(performance.now());
      if (text !== undefined) onNote(text);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      dial.abort();
    }
    await sleep(backoffMs(failures + 1, { baseMs: 250, capMs: MOST_PAUSE_MS }), signal);
  }
}

/** Whether the server answered, and a later try would be answered alike. */
const isRefusal = (error: unknown): boolean =>
  error instanceof CliError && error.status !== undefined && error.status < 500 && error.status !== 429;

function withoutStart(path: string): string {
  const at = path.indexOf('?');
  if (at < 0) return path;
  const query = new URLSearchParams(path.slice(at + 1));
  for (const name of ['seq_num', 'timestamp', 'start_time', 'tail_offset']) query.delete(name);
  return `${path.slice(0, at)}?${query.toString()}`;
}
