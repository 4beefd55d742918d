// The bound of transfers of any size: no whole-request limit, but a least number of bytes in each window of time that
// the sender is waited for. A transfer that makes progress is never cut.
import type { FastifyReply } from 'fastify';
import { AppError } from '#shared/errors.ts';

export interface PaceRules {
  /** Time waited for the sender after which the bytes of the window are counted. */
  readonly windowMs: number;
  readonly bytesPerWindow: number;
}

/** 1 KiB per second; at least a minute passes without it before a transfer ends. */
export const PACE_RULES: PaceRules = { windowMs: 60_000, bytesPerWindow: 60 * 1024 };

/**
 * Passes the bytes on while they come fast enough. Time in which the receiver does not read does not count.
 * @throws AppError `body_too_slow`
 */
export async function* paced(
  source: AsyncIterable<Uint8Array>,
  { windowMs, bytesPerWindow }: PaceRules = PACE_RULES,
): AsyncGenerator<Uint8Array> {
  const iterator = source[Symbol.asyncIterator]();
  let waiting: Promise<IteratorResult<Uint8Array>> | undefined;
  let waitedMs = 0;
  let bytes = 0;
  try {
    for (;;) {
      const sinceMs = performance.now();
      waiting ??= iterator.next();
      const next = await withinMs(waiting, windowMs - waitedMs);
      waitedMs += performance.now() - sinceMs;
      if (next !== undefined) waiting = undefined;
      if (next?.done === true) return;
      bytes += next?.value.length ?? 0;
      if (waitedMs >= windowMs || next === undefined) {
        if (bytes < bytesPerWindow) throw tooSlow(windowMs, bytesPerWindow);
        waitedMs = 0;
        bytes = 0;
      }
      if (next !== undefined) yield next.value;
    }
  } finally {
    // An iterator that still waits ends with its connection.
    if (waiting === undefined) await iterator.return?.();
    else waiting.catch(() => undefined);
  }
}

/** The value, or undefined when there is none after that time. */
async function withinMs<T>(value: Promise<T>, ms: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((done) => {
    timer = setTimeout(() => done(undefined), Math.max(1, ms));
  });
  try {
    return await Promise.race([value, late]);
  } finally {
    clearTimeout(timer);
  }
}

const tooSlow = (windowMs: number, bytes: number): AppError =>
  new AppError('body_too_slow', `fewer than ${bytes} bytes came in ${windowMs / 1000} s`);

/** Ends the connection of an answer that its reader takes nothing of for that time. */
export function cutWhenStalled(reply: FastifyReply, windowMs: number = PACE_RULES.windowMs): void {
  reply.raw.setTimeout(windowMs, () => reply.raw.destroy());
}
