// `longshore workspace delete` against a real HTTP server that answers as a scheduler does: what it asks,
// prints and leaves alone.
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { playedServer } from '../helpers/played-server.ts';

const ID = '0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11';
const CONTENTS = {
  ...{ deployments: 2, containers: 1, volumes: 1, volume_bytes: 2048, objects: 3, object_bytes: 1_048_576 },
  ...{ images: 0, secrets: 1, models: 0, machines: 0 },
};
const WORDS =
  'workspace team-a has 2 deployments, 1 container, 1 volume (2.0 KiB), 3 objects (1.0 MiB), 0 images, 1 secret, 0 models, 0 machines\n';

let asked: string[] = [];
let state: Record<string, unknown> = {};
const server = playedServer(({ method = '', url: path = '' }, response) => {
  asked.push(`${method} ${path.split('?')[0] ?? ''}`);
  const record = { id: ID, name: 'team-a', state: 'present', hold: '', refusal: '', ...CONTENTS, ...state };
  const isList = path.startsWith('/api/v1/workspace?');
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(isList ? { data: [{ id: ID, name: 'team-a' }], next: '' } : record));
});

async function run(now: Record<string, unknown>, ...args: readonly string[]) {
  state = now;
  asked = [];
  const ended = await runCommand(['workspace', 'delete', 'team-a', ...args], {
    LONGSHORE_URL: server.url,
    LONGSHORE_TOKEN: 'eyJ.test',
    LONGSHORE_CONTEXT_FILE: join(import.meta.dirname, 'no-such-file.json'),
  });
  return { ...ended, isDeleted: asked.includes(`DELETE /api/v1/workspace/${ID}`) };
}

test('a dry run prints what would go or what the deletion waits for, and changes nothing', async () => {
  expect(await run({}, '--dry-run')).toEqual({ code: 0, stdout: WORDS, stderr: '', isDeleted: false });
  const waits = await run({ state: 'deleting', hold: 'volume data: its machine is away' }, '--dry-run');
  expect(waits.stdout).toBe(`${WORDS}it is being deleted, and waits: volume data: its machine is away\n`);
});

test('without a terminal it wants --yes, and what keeps the workspace is an error', async () => {
  const refused = await run({});
  expect([refused.code, refused.stderr, refused.isDeleted]).toEqual([
    2,
    expect.stringContaining('without a terminal, say --yes: nothing was deleted'),
    false,
  ]);
  const kept = await run({ refusal: 'workspace team-a has machines of its own' }, '--yes');
  expect([kept.code, kept.stderr, kept.isDeleted]).toEqual([
    1,
    expect.stringContaining('has machines of its own'),
    false,
  ]);
  const done = await run({}, '--yes');
  expect([done.code, done.isDeleted]).toEqual([0, true]);
});
