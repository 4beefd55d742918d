// The deadline of every command of a connection, kept by looking at its oldest command now and then instead of a timer
// for each. Answers come in order, so an unchanged head of the queue means that none arrives.
// Invariant: no command waits longer than the deadline and one look, whether Redis
// is gone, frozen or cut off. A stall of this process's event loop fails no command.
import type { Redis } from 'ioredis';

const LOOKS = 5;

/**
 * Fails commands without an answer within `deadlineMs` (and a fifth of it at most) and reconnects. Fails commands under
 * way at once when the connection breaks. A command that failed so may have run.
 */
export function failUnanswered(client: Redis, deadlineMs: number): void {
  let head: object | undefined;
  let seen = 0;
  const look = setInterval(() => {
    const oldest = client.commandQueue.peekFront();
    if (oldest === undefined || oldest !== head) {
      head = oldest;
      seen = 0;
      return;
    }
    // Looks are counted instead of time: after a stall one look comes first, and then the waiting answers are read.
    seen += 1;
    if (seen < LOOKS) return;
    head = undefined;
    reject(client, 'Command timed out');
    client.stream?.destroy();
  }, deadlineMs / LOOKS);
  look.unref();
  client.on('close', () => reject(client, 'Connection is closed.'));
  client.on('end', () => clearInterval(look));
}

/** Asks for an answer now and then on a connection that only listens: broken, it would be silent for ever. */
export function askNowAndThen(client: Redis, everyMs: number): void {
  const asking = setInterval(() => {
    if (client.status === 'ready') client.ping().catch(() => undefined);
  }, everyMs);
  asking.unref();
  client.on('end', () => clearInterval(asking));
}

function reject(client: Redis, text: string): void {
  for (let item = client.commandQueue.shift(); item !== undefined; item = client.commandQueue.shift()) {
    item.command.reject(new Error(text));
  }
}
