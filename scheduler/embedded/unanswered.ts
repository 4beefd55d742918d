// The deadline of every command of a connection, kept by one look at its oldest command now and then instead of a timer for each: answers come in order, so a head that stays the same means that
// nothing is answered. What must stay true: no command waits longer than the deadline and one look, whether Redis is gone, frozen or cut off; and a stall of our own event loop fails nobody.
import type { Redis } from 'ioredis';

const LOOKS = 5;

/**
 * Fails what is not answered within `deadlineMs` (and a fifth of it at most) and connects anew, and fails at once what was under way when the connection breaks. A command that failed so may have run.
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
    // Looks are counted, not time: after a stall there is one look, and then the answers that wait are read.
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

function reject(client: Redis, text: string): void {
  for (let item = client.commandQueue.shift(); item !== undefined; item = client.commandQueue.shift()) {
    item.command.reject(new Error(text));
  }
}
