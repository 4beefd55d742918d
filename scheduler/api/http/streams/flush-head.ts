// Sends the head of a message ahead of its body, byte by byte.
import type { OutgoingMessage } from 'node:http';

/**
 * Does what `flushHeaders` does, but for the coding: that writes the head as UTF-8, so that each byte from 0x80 of a
 * value would become two. An empty write of a body would leave out messages without one.
 * @param message - its head is set
 */
export function flushHead(message: OutgoingMessage): void {
  (message as unknown as { _send(data: string, encoding: 'latin1'): void })._send('', 'latin1');
}
