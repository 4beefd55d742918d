// Operations on pods and sandboxes, with a supervisor that is a real process.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ReachedContainer } from '#scheduler/fleet/inside/access.ts';
import { HANDLER, POD, aContainerWorld } from '../helpers/containers.ts';
import type { ContainerWorld } from '../helpers/containers.ts';

type Json = Record<string, unknown>;

let world: ContainerWorld;
beforeAll(async () => {
  world = await aContainerWorld();
});
afterAll(() => world.stop());

const at = (route: string, id = POD): string => route.replace(' ', ` /pods/${id}`);
async function asked(route: string, body?: unknown): Promise<Json> {
  const { status, json } = await world.call(at(route), body);
  expect({ status, json }).toMatchObject({ status: 200, json: { ok: true, errorMsg: '' } });
  return json;
}
async function refused(route: string, body?: unknown): Promise<string> {
  const { status, json } = await world.call(at(route), body);
  expect({ status, ok: json['ok'] }).toEqual({ status: 200, ok: false });
  return String(json['errorMsg']);
}
async function ended(pid: unknown): Promise<number> {
  for (;;) {
    const { exitCode, status } = await asked(`GET /status?pid=${String(pid)}`);
    if (status === 'exited') return Number(exitCode);
    expect(exitCode).toBe(-1);
  }
}

describe('programs', () => {
  test('exec waits for the end where it is asked to, and tells all of the output', async () => {
    const done = await asked('POST /exec', {
      command: 'echo "$A"; echo wrong >&2; exit 3',
      env: { A: 'ä b' },
      wait: true,
    });
    expect(done).toMatchObject({ done: true, exitCode: 3, stdout: 'ä b\n', stderr: 'wrong\n' });
    expect(Number(done['pid'])).toBeGreaterThan(0);
  });

  test('exec without a wait answers at once; status, output and processes tell of the program', async () => {
    const { pid, ...rest } = await asked('POST /exec', { command: 'echo one; read x < gate; echo two', cwd: '' });
    expect(rest).toMatchObject({ done: false, exitCode: -1, stdout: '', stderr: '' });
    const fifo = await asked('POST /exec', { command: 'mkfifo gate2; true', wait: true });
    expect(fifo['exitCode']).toBe(0);
    expect(await ended(pid)).toBe(0);
    // Published clients compare what they got before: a second reading holds the first one.
    for (const _ of [1, 2]) expect((await asked(`GET /stdout?pid=${String(pid)}`))['stdout']).toBe('one\ntwo\n');
    expect((await asked(`GET /stderr?pid=${String(pid)}`))['stderr']).toContain('gate');
    const { processes } = await asked('GET /processes');
    expect(processes).toContainEqual(
      expect.objectContaining({ pid, cmd: 'echo one; read x < gate; echo two', running: false, exitCode: 0 }),
    );
  });

  test('new output is told once, and everything still is', async () => {
    const { pid } = await asked('POST /exec', { command: 'echo out; echo err >&2' });
    await ended(pid);
    for (const stream of ['stdout', 'stderr']) {
      const text = `${stream.slice(3)}\n`;
      const read = async (query = ''): Promise<unknown> =>
        (await asked(`GET /${stream}?pid=${String(pid)}${query}`))[stream];
      expect([await read('&onlyNew=true'), await read('&onlyNew=true'), await read()]).toEqual([text, '', text]);
    }
  });

  test('without a program the status is that of the container', async () => {
    expect(await asked('GET /status')).toMatchObject({ status: 'running', exitCode: -1 });
  });

  test('kill ends a program and what it started', async () => {
    const { pid } = await asked('POST /exec', { command: 'sleep 100 & sleep 100' });
    await asked('POST /kill', { pid });
    expect(await ended(pid)).toBe(137);
  });

  test('bad input is named, and starts nothing', async () => {
    expect(await refused('POST /exec', { command: ' ' })).toBe('command is empty');
    expect(await refused('POST /exec', { command: 'true', env: { 'A=B': '' } })).toContain('env: "A=B"');
    expect(await refused('POST /exec', { command: 'true', cwd: '/no/such' })).toContain('/no/such');
    expect(await refused('GET /status?pid=99999')).toContain('99999');
    expect(await refused('POST /kill', {})).toContain('pid');
  });
});

describe('files', () => {
  test('a file goes in and comes out, with its mode', async () => {
    const data = Buffer.from('bytes \u0000 and more').toString('base64');
    await asked('POST /files/upload', { containerPath: 'a b/ä.txt', mode: 0o600, data });
    const path = join(world.supervisor.directory, 'a b/ä.txt');
    expect(readFileSync(path).toString('base64')).toBe(data);
    const encoded = encodeURIComponent(path);
    expect((await asked(`GET /files/download/${encoded}`))['data']).toBe(data);
    const query = new URLSearchParams({ containerPath: path });
    const { fileInfo } = await asked(`GET /files/stat?${String(query)}`);
    expect(fileInfo).toMatchObject({ name: 'ä.txt', isDir: false, size: '16', mode: 0o600, permissions: 0o600 });
    const { files } = await asked(`GET /files?${String(new URLSearchParams({ containerPath: 'a b' }))}`);
    expect(files).toEqual([fileInfo]);
    await asked(`DELETE /files/${encoded}`);
    expect(await refused(`GET /files/download/${encoded}`)).toContain('ä.txt');
  });

  test('a file comes and goes in pieces', async () => {
    const piece = (text: string, offset: number) => ({
      containerPath: 'pieces',
      data: Buffer.from(text).toString('base64'),
      offset: String(offset),
    });
    for (const [text, offset] of [
      ['one ', 0],
      ['two', 4],
      ['two', 4],
    ] as const)
      await asked('POST /files/upload', piece(text, offset));
    expect(readFileSync(join(world.supervisor.directory, 'pieces'), 'utf8')).toBe('one two');
    const part = await asked('GET /files/download/pieces?offset=2&length=3');
    expect(Buffer.from(String(part['data']), 'base64').toString()).toBe('e t');
    expect(await refused('POST /files/upload', piece('x', 9))).toContain('pieces');
  });

  test('a file in a message has at most 32 MiB; the refusal names the way of larger ones', async () => {
    const largest = Buffer.alloc(32 * 1024 * 1024, 7);
    await asked('POST /files/upload', { containerPath: 'large', data: largest.toString('base64') });
    const back = Buffer.from(String((await asked('GET /files/download/large'))['data']), 'base64');
    expect(back.equals(largest)).toBe(true);
    const more = Buffer.alloc(largest.length + 1);
    expect(await refused('POST /files/upload', { containerPath: 'more', data: more.toString('base64') })).toContain(
      '/containers/{id}/files',
    );
    writeFileSync(join(world.supervisor.directory, 'more'), more);
    expect(await refused('GET /files/download/more')).toContain('/containers/{id}/files');
  }, 60_000);

  test('directories are made and deleted, files are found and changed in them', async () => {
    await asked('POST /directories', { containerPath: 'd/e', mode: 0o755 });
    writeFileSync(join(world.supervisor.directory, 'd/e/f.txt'), 'one\nold two\n');
    const found = await asked('POST /files/find', { containerPath: 'd', pattern: 'o.d' });
    const match = { range: { start: { line: 2, column: 1 }, end: { line: 2, column: 4 } }, content: 'old two' };
    expect(found['results']).toEqual([{ path: expect.stringMatching(/d\/e\/f\.txt$/), matches: [match] }]);
    await asked('POST /files/replace', { containerPath: 'd', pattern: 'old', newString: 'new' });
    expect(readFileSync(join(world.supervisor.directory, 'd/e/f.txt'), 'utf8')).toBe('one\nnew two\n');
    expect((await asked('POST /files/find', { containerPath: 'd', pattern: 'no such' }))['results']).toEqual([]);
    expect(await refused('DELETE /files/d')).toContain('is a directory');
    expect(await refused('DELETE /directories/d%2Fe%2Ff.txt')).toContain('no directory');
    await asked('DELETE /directories/d');
    expect(await refused('GET /files?containerPath=d')).toContain('d');
  });

  test('bad input is named', async () => {
    expect(await refused('POST /files/upload', { data: '' })).toBe('containerPath is missing');
    expect(await refused('POST /files/upload', { containerPath: 'a', mode: 65_536 })).toContain('mode');
    expect(await refused('POST /files/find', { containerPath: '.', pattern: '(' })).not.toBe('');
    expect(await refused('GET /files/stat')).toBe('containerPath is missing');
  });
});

describe('ports, time to live, network, snapshots', () => {
  test('a port is exposed, and listed beside those of the stub', async () => {
    const url = (port: number): string => `http://here/sandbox/container/stub-1/${POD}/${port}`;
    expect((await asked('POST /ports/expose', { stubId: 'stub-1', port: 9000 }))['url']).toBe(url(9000));
    expect((await asked('GET /urls'))['urls']).toEqual({ 8000: url(8000), 9000: url(9000) });
    expect(await refused('POST /ports/expose', { port: 0 })).toContain('port');
    expect(await refused('POST /ports/expose', { stubId: 'another', port: 80 })).toContain('another');
  });

  test('the time to live is a number of seconds, or none', async () => {
    for (const route of ['POST /ttl', 'PATCH /ttl']) {
      await asked(route, { ttl: 60 });
      await asked(route, { ttl: -1 });
      expect(await refused(route, { ttl: 0 })).toContain('ttl');
    }
  });

  test('network rules reach the agent; wrong ones do not', async () => {
    world.changes.length = 0;
    await asked('POST /network/update', { stubId: 'stub-1', blockNetwork: false, allowList: ['198.51.100.0/24'] });
    await asked('POST /network/update', { blockNetwork: true, allowList: [] });
    for (const allowList of [['example.com'], ['198.51.100.0'], ['198.51.100.0/33'], ['::/129']])
      expect(await refused('POST /network/update', { allowList })).toContain('allowList');
    expect(await refused('POST /network/update', { blockNetwork: true, allowList: ['::/0'] })).toContain('exclude');
    expect(world.changes).toEqual([
      { network: { blockNetwork: false, allowList: ['198.51.100.0/24'], version: 1 } },
      { network: { blockNetwork: true, allowList: [], version: 2 } },
    ]);
  });

  test('files become an image, memory does not', async () => {
    expect(await asked('POST /create-image-from-filesystem', { stubId: 'stub-1' })).toMatchObject({
      imageId: 'longshore-built/1',
    });
    expect(await refused('POST /snapshot-memory', { stubId: 'stub-1' })).toContain('memory');
  });
});

describe('who may', () => {
  const ROUTES: readonly [string, Json | undefined][] = [
    ['POST /connect', {}],
    ['POST /exec', { command: 'touch done' }],
    ['GET /status?pid=1', undefined],
    ['GET /stdout?pid=1', undefined],
    ['GET /stderr?pid=1', undefined],
    ['POST /kill', { pid: 1 }],
    ['GET /processes', undefined],
    ['POST /files/upload', { containerPath: 'done', data: '' }],
    ['GET /files/download/large', undefined],
    ['GET /files/stat?containerPath=.', undefined],
    ['GET /files?containerPath=.', undefined],
    ['POST /files/find', { containerPath: '.', pattern: 'a' }],
    ['POST /files/replace', { containerPath: '.', pattern: 'a', newString: 'b' }],
    ['DELETE /files/large', undefined],
    ['POST /directories', { containerPath: 'done' }],
    ['DELETE /directories/d', undefined],
    ['POST /ports/expose', { port: 7000 }],
    ['GET /urls', undefined],
    ['POST /ttl', { ttl: 60 }],
    ['PATCH /ttl', { ttl: 60 }],
    ['POST /network/update', {}],
    ['POST /snapshot-memory', {}],
    ['POST /create-image-from-filesystem', {}],
  ];

  test.each(ROUTES)('%s: nobody but a full token of the workspace', async (route, body) => {
    world.changes.length = 0;
    world.uses.length = 0;
    for (const token of ['', 'unknown']) expect((await world.call(at(route), body, token)).status).toBe(401);
    for (const token of ['restricted', 'container'])
      expect((await world.call(at(route), body, token)).json).toMatchObject({
        ok: false,
        errorMsg: 'Unauthorized Access',
      });
    const notFound = { ok: false, errorMsg: `Container not found: ${POD}` };
    expect((await world.call(at(route), body, 'other')).json).toMatchObject(notFound);
    const ofHandler = await world.call(at(route, HANDLER), body);
    expect(ofHandler.json).toMatchObject({ ok: false, errorMsg: `Container not found: ${HANDLER}` });
    expect([world.changes, world.uses]).toEqual([[], []]);
  });

  test('the administrator may', async () => {
    const { json } = await world.call(at('POST /exec'), { command: 'true', wait: true }, 'admin');
    expect(json).toMatchObject({ ok: true, exitCode: 0 });
  });
});

test('a workspace has a bounded number of connections into its containers', async () => {
  const small = await aContainerWorld({ mostOfWorkspace: 1 });
  try {
    const { json: begun } = await small.call(at('POST /exec'), { command: 'read x < no-such; sleep 1' });
    const place = { containerId: POD, workspaceId: 'ws-1', machineId: 'machine-1' } as unknown as ReachedContainer;
    const held = small.inside.ask(place, 'wait', { pid: Number(begun['pid']), timeoutMs: 20_000 });
    const { json: refusal } = await small.call(at('GET /processes'));
    expect(refusal).toMatchObject({
      ok: false,
      errorMsg: expect.stringContaining('1 connections into its containers'),
    });
    expect((await held).running).toBe(false);
    expect((await small.call(at('GET /processes'))).json['ok']).toBe(true);
  } finally {
    await small.stop();
  }
});
