/** A small HTTP server that a test file plays: a scheduler, a mirror, or whatever the other side of a connection is. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll } from 'vitest';

/** Listens on loopback while the tests of the file run. Its address is there from `beforeAll` on. */
export function playedServer(answer: RequestListener): { readonly url: string } {
  const server = createServer(answer);
  let url = '';
  beforeAll(async () => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    get url() {
      return url;
    },
  };
}
