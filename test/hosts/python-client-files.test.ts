// Volumes, secrets and health by the published command line, installed from its index and unchanged, against a whole
// installation over gRPC. The bytes of files pass by HTTP.
import { createHash, randomBytes } from 'node:crypto';
import {
  createReadStream,
  createWriteStream,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { once } from 'node:events';
import { pipeline } from 'node:stream/promises';
import { expect } from 'vitest';
import { aPerson } from '../helpers/python-client.ts';
import type { Ran } from '../helpers/python-client.ts';
import { test } from '../helpers/seen-calls.ts';

const GIB = 1024 ** 3;

type Beta9 = (...args: readonly string[]) => Promise<Ran>;

/** Runs commands that must succeed. */
const succeeding =
  (beta9: Beta9): Beta9 =>
  async (...args) => {
    const ran = await beta9(...args);
    expect([ran.code, ran.text]).toEqual([0, ran.text]);
    return ran;
  };

interface Shown {
  readonly path: string;
  readonly size?: string;
  readonly is_dir?: boolean;
}
const shown = (ran: Ran): readonly Shown[] => ran.json() as Shown[];
const pathsOf = (ran: Ran): readonly string[] => shown(ran).map(({ path }) => path);

async function writeLarge(path: string, bytes: number): Promise<void> {
  const out = createWriteStream(path);
  const block = randomBytes(16 * 1024 * 1024);
  for (let at = 0; at < bytes; at += block.length) {
    // Each block differs, so that parts in each other's place are noticed.
    block.writeUInt32LE(at / block.length);
    if (!out.write(Buffer.from(block.subarray(0, Math.min(block.length, bytes - at))))) await once(out, 'drain');
  }
  out.end();
  await once(out, 'close');
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}

function writeTree(folder: string, files: Readonly<Record<string, string>>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
}

const treeOf = (folder: string): Readonly<Record<string, string>> =>
  Object.fromEntries(
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
      .toSorted()
      .map((path) => [path.slice(folder.length + 1), readFileSync(path, 'utf8')]),
  );

test('files are copied up and down, listed, moved and removed', { timeout: 900_000 }, async ({ platform }) => {
  const { folder, beta9 } = await aPerson(platform);
  const runs = succeeding(beta9);
  await runs('volume', 'create', 'data');
  expect((await runs('volume', 'list')).text).toContain('data');

  const files = {
    'a.txt': 'one',
    'sub/b.txt': 'two',
    'sub/deep/c.json': '{}',
    'sub/empty': '',
    'odd [1]/ü?.txt': 'odd',
  };
  writeTree(join(folder, 'tree'), files);
  await runs('cp', 'tree', 'beta9://data/tree');
  expect(pathsOf(await runs('ls', 'data/tree', '--format', 'json')).toSorted()).toEqual([
    'tree/a.txt',
    'tree/odd [1]',
    'tree/sub',
  ]);
  const [entry] = shown(await runs('ls', 'data/tree/a.txt', '--format', 'json'));
  expect(entry).toMatchObject({ path: 'tree/a.txt', size: '3' });
  expect(pathsOf(await runs('ls', 'data/tree/[a-s]*/*.txt', '--format', 'json'))).toEqual([
    'tree/odd [1]/ü?.txt',
    'tree/sub/b.txt',
  ]);
  mkdirSync(join(folder, 'down'));
  await runs('cp', 'beta9://data/tree', 'down');
  expect(treeOf(join(folder, 'down'))).toEqual(files);

  await runs('mv', 'data/tree/a.txt', 'data/moved/a.txt');
  expect(pathsOf(await runs('ls', 'data/moved', '--format', 'json'))).toEqual(['moved/a.txt']);
  const taken = await beta9('mv', 'data/moved/a.txt', 'data/tree/sub/b.txt');
  expect([taken.code, taken.text]).toEqual([1, expect.stringContaining('has an entry of that path already')]);
  expect((await runs('rm', 'data/tree/sub/*.txt')).text).toContain('1 object deleted');
  expect((await runs('rm', 'data/tree')).text).toContain('tree');
  expect(pathsOf(await runs('ls', 'data', '--format', 'json'))).toEqual(['moved']);

  for (const [text, ...args] of [
    ['no such file', 'rm', 'data/none'],
    ['no such file', 'ls', 'data/none'],
    ['no volume of that name', 'ls', 'nobody/a'],
    ['no volume of that name', 'cp', 'tree/a.txt', 'beta9://nobody/a.txt'],
    ['must name an entry', 'rm', 'data'],
  ] as const) {
    const refused = await beta9(...args);
    expect([args, refused.code, refused.text.replaceAll(/\s+/g, ' ')]).toEqual([
      args,
      1,
      expect.stringContaining(text),
    ]);
  }
  await runs('volume', 'delete', 'data', '--yes');
  expect((await runs('volume', 'list')).text).not.toContain('data');
});

test('a file of 2 GiB comes back as it went', { timeout: 900_000 }, async ({ platform }) => {
  const { folder, beta9 } = await aPerson(platform);
  const runs = succeeding(beta9);
  await runs('volume', 'create', 'large');
  const [up, down] = [join(folder, 'up.bin'), join(folder, 'down.bin')];
  await writeLarge(up, 2 * GIB);
  await runs('cp', 'up.bin', 'beta9://large/up.bin');
  const [entry] = shown(await runs('ls', 'large', '--format', 'json'));
  expect(entry).toMatchObject({ path: 'up.bin', size: String(2 * GIB) });
  const sent = await digestOf(up);
  rmSync(up);
  await runs('cp', 'beta9://large/up.bin', 'down.bin');
  expect(await digestOf(down)).toBe(sent);
  await runs('volume', 'delete', 'large', '--yes');
});

test('secrets are made, changed, listed and deleted, and never shown', { timeout: 300_000 }, async ({ platform }) => {
  const { beta9 } = await aPerson(platform);
  const runs = succeeding(beta9);
  expect((await runs('secret', 'create', 'API_KEY', 'first')).text).toContain('API_KEY');
  const twice = await beta9('secret', 'create', 'API_KEY', 'first');
  expect([twice.code, twice.text]).toEqual([1, expect.stringContaining('there is a secret API_KEY already')]);
  await runs('secret', 'modify', 'API_KEY', 'second');
  const listed = await runs('secret', 'list', '--format', 'json');
  expect(listed.json()).toMatchObject([{ name: 'API_KEY' }]);
  const hidden = await beta9('secret', 'show', 'API_KEY');
  expect([hidden.code, hidden.text]).toEqual([1, expect.stringContaining('LONGSHORE_SECRET_VALUES')]);
  const bound = await beta9('secret', 'create', 'BOUND', 'x', '--host', 'api.example.org');
  expect([bound.code, bound.text]).toEqual([1, expect.stringContaining('hosts is not taken')]);
  for (const { text } of [listed, hidden, bound]) expect(text).not.toContain('second');
  await runs('secret', 'delete', 'API_KEY');
  expect((await runs('secret', 'list', '--format', 'json')).json()).toEqual([]);
});

const APPS = `from beta9 import asgi, endpoint


@endpoint(name="waited", cpu=0.25, memory=128)
def waited():
    return {}


@asgi(name="site", cpu=0.25, memory=128)
def site():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"nothing here"})

    return app
`;

test(
  'a deployment is waited for without a container, and refusals have texts',
  { timeout: 600_000 },
  async ({ platform }) => {
    const { folder, beta9 } = await aPerson(platform);
    const runs = succeeding(beta9);
    writeFileSync(join(folder, 'app.py'), APPS);
    for (const name of ['waited', 'site']) {
      await runs('deploy', `app.py:${name}`);
      const deployments = (await runs('deployment', 'list', '--format', 'json')).json() as {
        readonly id: string;
        readonly name: string;
        readonly stub_id: string;
      }[];
      const made = deployments.find((one) => one.name === name);
      const waited = await runs('deployment', 'wait', made?.id ?? '', '--timeout', '60');
      expect(waited.json()).toMatchObject({ status: 'ready', stub_id: made?.stub_id });
    }
    expect((await runs('task', 'list', '--format', 'json')).json()).toEqual([]);
    // With a container the application is asked, and has no such path.
    expect((await platform.call('/asgi/site/v1/', { method: 'GET' })).status).toBe(404);
    const health = await platform.call('/asgi/site/v1/health', { method: 'GET' });
    expect([health.status, health.text]).toEqual([200, '{"status":"ok"}']);

    await runs('pool', 'create', 'edge');
    expect((await runs('pool', 'join-command', 'edge')).text).toContain('LONGSHORE_JOIN_TOKEN=');
    await runs('pool', 'machines', 'edge');
    await runs('pool', 'delete', 'edge');
    expect((await runs('disk', 'list', '--format', 'json')).json()).toEqual({ disks: [] });
    const disk = await beta9('disk', 'create', 'd', '--size', '1Gi');
    expect([disk.code, disk.text.replaceAll(/\s+/g, ' ')]).toEqual([1, expect.stringContaining('use a volume')]);
  },
);

test('the calls of docs/clients.md were answered', ({ seen }) => seen.keep(import.meta.filename));
