// Work of a copy side by side, and requests that are sent again when they break off.
import { backoffMs, sleep } from '#shared/backoff.ts';
import { CliError, errorCode } from '../errors.ts';
import { isConnectionLost } from '../client.ts';
import { BrokenPack } from './pack.ts';

/** Requests of a copy at once; a workspace may have 16. */
export const LANES = 4;
const MOST_TRIES = 8;
const BACKOFF = { baseMs: 250, capMs: 5_000, floorMs: 100 };
const SEND_AGAIN: ReadonlySet<number> = new Set([403, 408, 429, 502, 503, 504]);

/** Works on all items, some at once. The first failure ends all of them. */
export async function inLanes<Item>(
  items: readonly Item[],
  signal: AbortSignal,
  work: (item: Item, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  const rest = items.values();
  const lane = async (): Promise<void> => {
    for (const item of rest) {
      either.throwIfAborted();
      await work(item, either);
    }
  };
  const lanes = Array.from({ length: Math.min(LANES, items.length) }, () =>
    lane().catch((error: unknown) => {
      failed.abort(error);
      throw error;
    }),
  );
  await Promise.allSettled(lanes);
  if (signal.aborted) throw signal.reason;
  if (failed.signal.aborted) throw failed.signal.reason;
}

/** Tries again, later each time, where the machine, its agent or the connection may come back. */
export async function persistently(signal: AbortSignal, attempt: (tries: number) => Promise<void>): Promise<void> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await attempt(tries);
    } catch (error) {
      signal.throwIfAborted();
      if (tries + 1 >= MOST_TRIES || !mayComeBack(error)) throw error;
      await sleep(backoffMs(tries + 2, BACKOFF), signal);
    }
  }
}

function mayComeBack(error: unknown): boolean {
  if (error instanceof BrokenPack || isConnectionLost(error)) return true;
  if (error instanceof CliError) return error.status !== undefined && SEND_AGAIN.has(error.status);
  return ['UND_ERR_SOCKET', 'UND_ERR_ABORTED', 'ECONNRESET', 'EPIPE'].includes(errorCode(error));
}
