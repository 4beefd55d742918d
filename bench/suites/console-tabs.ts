// Tabs of the console as the scheduler sees them: HTTP/1.1 clients with a stream of topics each. They throw away what
// they get, so that a benchmark does not measure its own reading.
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { topicsOf } from './console-views.ts';
import type { ConsolePlane } from './console-data.ts';

const FIRST_BYTES = 12;

export class Tabs {
  readonly #plane: ConsolePlane;
  readonly #open: Socket[] = [];

  constructor(plane: ConsolePlane) {
    this.#plane = plane;
  }

  /** Opens or closes tabs until `count` are open. @throws Error when a stream is refused */
  async be(count: number): Promise<void> {
    for (const socket of this.#open.splice(count)) socket.destroy();
    while (this.#open.length < count) this.#open.push(await this.#dial());
  }

  /** @throws Error when a stream has ended */
  check(): void {
    const over = this.#open.filter((socket) => socket.destroyed || socket.readableEnded).length;
    if (over > 0) throw new Error(`${over} of ${this.#open.length} tabs lost their stream`);
  }

  async #dial(): Promise<Socket> {
    const { plane, ids } = this.#plane;
    const { url, token } = plane.client.context;
    const { hostname, port, host } = new URL(url);
    const topics = topicsOf(this.#plane)
      .map((topic) => topic.replaceAll(',', '%2C'))
      .join(',');
    const path = `/api/v1/live/${ids.workspaceId}?${new URLSearchParams({ topics }).toString()}`;
    const socket = connect(Number(port), hostname);
    return await new Promise((resolve, reject) => {
      socket.once('error', reject);
      socket.once('data', (bytes: Buffer) => {
        const status = bytes.toString('latin1', 0, FIRST_BYTES);
        if (status !== 'HTTP/1.1 200') return reject(new Error(`${path} answered ${status}`));
        socket.off('error', reject).on('error', () => undefined);
        resolve(socket.resume());
      });
      socket.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${token}\r\n\r\n`);
    });
  }
}
