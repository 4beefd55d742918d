// A page of this machine that is no registry: an image's name makes the engine ask it, unless the agent's guard stands
// before. The engine is the real one.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { loadAgentConfig } from '#agent/config.ts';
import { openHost } from '#agent/compose/host.ts';
import { createLog } from '#shared/log.ts';
import { tempDirectory } from '../helpers/programs.ts';

test('no pull and no question about a digest reaches a page on loopback, unless the operator opened it', async ({
  onTestFinished,
}) => {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url ?? '');
    response.writeHead(404).end('<h1>s3cret page</h1>');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const place = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const tries = async (registries: string): Promise<readonly string[]> => {
    const directory = tempDirectory('guard');
    const ends: (() => Promise<void> | void)[] = [];
    const config = loadAgentConfig({
      LONGSHORE_DATA_DIR: directory.path,
      LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_NETWORK: 'ls-test-no-such',
      LONGSHORE_AGENT_REGISTRIES: registries,
      ...(process.env['DOCKER_HOST'] === undefined ? {} : { DOCKER_HOST: process.env['DOCKER_HOST'] }),
    });
    const log = createLog({ name: 'agent', level: 'silent' });
    const atStop = (end: () => Promise<void> | void): void => void ends.push(end);
    const { runtime } = await openHost({ config, log, pythonSource: undefined, atStop });
    try {
      const options = {
        auth: undefined,
        silenceMs: 10_000,
        signal: AbortSignal.timeout(10_000),
        onProgress: () => undefined,
      };
      const words = (call: Promise<string>): Promise<string> =>
        call.then(
          () => 'no failure',
          (error: Error) => error.message,
        );
      return [
        await words(runtime.pull(`${place}/a/b:latest`, options)),
        await words(runtime.registryDigest(`${place}/a/b`, undefined, 10_000)),
      ];
    } finally {
      for (const end of ends.toReversed()) await end();
      directory.remove();
    }
  };
  for (const message of await tries('')) expect(message).toContain(`registry ${place} is closed`);
  expect(asked).toEqual([]);
  for (const message of await tries(place)) {
    expect(message).toContain('404');
    expect(message).not.toContain('s3cret');
  }
  expect(asked.length).toBeGreaterThan(0);
});
