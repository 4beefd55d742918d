// Pods and sandboxes of the published JavaScript client, as it comes from its registry.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { once } from 'node:events';
import { mkdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { Platform } from '../helpers/platform.ts';
import { test as base, docker, runProgram } from '../helpers/services.ts';

const CLIENT = join(import.meta.dirname, '../fixtures/beam-js/pods.mjs');

interface Installed {
  readonly platform: Platform;
  /** A service on this machine's network, which containers may be let reach. */
  readonly address: string;
}

const test = base.extend('installed', { scope: 'file' }, async ({}, { onCleanup }): Promise<Installed> => {
  const own = Object.values(networkInterfaces())
    .flatMap((list) => list ?? [])
    .find(({ internal, family }) => !internal && family === 'IPv4');
  if (own === undefined) throw new Error('this machine has no address that containers could reach');
  const server = createServer((socket) => socket.on('error', () => undefined).end());
  server.listen(0, own.address);
  await once(server, 'listening');
  const platform = new Platform(await docker(), { LONGSHORE_AGENT_OPEN_ADDRESSES: own.address });
  onCleanup(async () => {
    server.close();
    await platform.stop();
  });
  await platform.start();
  return { platform, address: `${own.address}:${(server.address() as AddressInfo).port}` };
});

test('a sandbox with its programs, files, ports, network and image; pods', async ({
  installed: { platform, address },
}) => {
  const directory = join(platform.directory, 'js-pods');
  mkdirSync(directory);
  const args = [CLIENT, platform.url, platform.token, platform.workspaceId, address];
  await runProgram(process.execPath, args, { cwd: directory }, 170_000);
  const report = JSON.parse(readFileSync(join(directory, 'report.json'), 'utf8')) as Readonly<Record<string, unknown>>;
  expect(report).toEqual({
    code: [1, 'out a b /tmp\n', 'err\n'],
    quoted: [0, "it's|$HOME||"],
    lines: ['line 1\n', 'line 2\n', 'line 3\n'],
    ended: [7, 'late\n', [7, expect.any(String)]],
    polled: -1,
    listed: [
      [false, expect.stringMatching(/^for i in /), '/', [], 7, false],
      [true, "'sleep' '600'", '/usr', ['WHO=js'], -1, true],
    ],
    killed: 137,
    noSuchProgram: 127,
    noSuchDirectory: 'the directory /no/such: No such file or directory',
    same: true,
    text: 'one\nfoo two foo\n',
    stat: [
      { name: 'κόσμε.txt', isDir: false, size: 16, mode: 0o600, permissions: 0o600, owner: 'root', group: 'root' },
      true,
    ],
    list: [
      ['a file.bin', false, 300_000],
      ['deep', true, expect.any(Number)],
    ],
    found: [
      {
        path: '/tmp/work/deep/κόσμε.txt',
        matches: [
          { content: 'foo two foo', range: { start: { line: 2, column: 1 }, end: { line: 2, column: 4 } } },
          { content: 'foo two foo', range: { start: { line: 2, column: 9 }, end: { line: 2, column: 12 } } },
        ],
      },
    ],
    replaced: 'one\nbar two bar\n',
    left: [],
    noFile: Array.from({ length: 2 }, () => '/tmp/none: No such file or directory'),
    exposed: [200, '<p>from a sandbox</p>'],
    urls: [['8080', true]],
    network: [0, 1, 0, 0],
    badNetwork: expect.stringContaining('example.com'),
    copied: '<p>from a sandbox</p>',
    snapshot: expect.stringContaining('snapshots of memory are not available'),
    connected: [true, '1\n'],
    expired: true,
    terminated: [true, true, true],
    over: Array.from({ length: 2 }, () => expect.stringContaining('the container has ended: user_stop') as unknown),
    pod: [true, [200, '<p>from a pod</p>'], true],
    deployed: [true, 1, [200, '<p>from a pod</p>']],
  });
});
