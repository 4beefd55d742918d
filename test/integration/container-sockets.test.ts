// WebSockets and streams into containers, with a supervisor that is a real process.
import { once } from 'node:events';
import { chmodSync, readFileSync, readdirSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { WebSocket } from 'ws';
import { HANDLER, POD, aContainerWorld } from '../helpers/containers.ts';
import type { ContainerWorld } from '../helpers/containers.ts';

type Json = Record<string, unknown>;

let world: ContainerWorld;
beforeEach(async () => {
  world = await aContainerWorld({
    settings: { entrypoint: ['sh', '-c', 'echo begun; read x < gate || sleep 1000'] },
  });
});
afterEach(() => world.stop());

/** A WebSocket, with what came. */
class Visit {
  readonly socket: WebSocket;
  readonly texts: Json[] = [];
  readonly out = { 1: '', 2: '' };
  bytes = Buffer.alloc(0);
  code = 0;

  constructor(path: string, { token = 'own', byte = true }: { readonly token?: string; readonly byte?: boolean } = {}) {
    this.socket = new WebSocket(`${world.url.replace('http', 'ws')}${path}`, {
      headers: token === '' ? {} : { authorization: `Bearer ${token}` },
    });
    this.socket.on('error', () => undefined);
    this.socket.on('message', (data: Buffer, isBinary) => {
      if (!isBinary) this.texts.push(JSON.parse(data.toString()) as Json);
      else if (byte) this.out[data[0] as 1 | 2] += data.subarray(1).toString();
      else this.bytes = Buffer.concat([this.bytes, data]);
    });
    this.socket.on('close', (code) => (this.code = code));
  }

  async opened(first?: Json): Promise<this> {
    await once(this.socket, 'open');
    if (first !== undefined) this.socket.send(JSON.stringify(first));
    return this;
  }

  say(control: Json): void {
    this.socket.send(JSON.stringify(control));
  }

  text(key: string): Promise<Json> {
    return vi.waitFor(
      () => {
        const found = this.texts.find((one) => key in one);
        if (found === undefined) throw new Error(`no ${key} in ${JSON.stringify(this.texts)}`);
        return found;
      },
      { timeout: 20_000 },
    );
  }

  seen(text: string): Promise<void> {
    return vi.waitFor(() => expect(this.out[1] + this.out[2] + this.bytes.toString()).toContain(text), {
      timeout: 20_000,
    });
  }

  closed(): Promise<number> {
    return vi.waitFor(
      () => {
        expect(this.code).not.toBe(0);
        return this.code;
      },
      { timeout: 20_000 },
    );
  }
}

const at = (rest: string, id = POD): string => `/api/v1/gateway/containers/${id}/${rest}`;
const exec = (first: Json, token = 'own'): Promise<Visit> => new Visit(at('exec'), { token }).opened(first);

describe('exec', () => {
  test('passes input, both streams and the exit code', async () => {
    const visit = await exec({ command: ['sh', '-c', 'cat; echo "$A" >&2; exit 7'], env: { A: 'wrong' } });
    expect(await visit.text('pid')).toMatchObject({ running: true });
    visit.socket.send(Buffer.from('one\ntwo\n'));
    visit.say({ end: true });
    expect(await visit.text('exitCode')).toEqual({ exitCode: 7, signal: '' });
    expect(await visit.closed()).toBe(1000);
    expect(visit.out).toEqual({ 1: 'one\ntwo\n', 2: 'wrong\n' });
  });

  test('passes large input and output whole, in order', async () => {
    const piece = Buffer.alloc(256 * 1024, 'abcdefgh');
    const visit = new Visit(at('exec'), { byte: false });
    await visit.opened({ command: ['cat'] });
    let got = 0;
    visit.socket.removeAllListeners('message');
    visit.socket.on('message', (data: Buffer, isBinary) => {
      if (!isBinary) visit.texts.push(JSON.parse(data.toString()) as Json);
      else {
        for (let i = 1; i < data.length; i += 4096) expect(data[i]).toBe(97 + ((got + i - 1) % 8));
        got += data.length - 1;
      }
    });
    for (let n = 0; n < 64; n += 1) await new Promise<void>((resolve) => visit.socket.send(piece, () => resolve()));
    visit.say({ end: true });
    expect((await visit.text('exitCode'))['exitCode']).toBe(0);
    expect(got).toBe(64 * piece.length);
  });

  test('a terminal has its size, follows a new one, and passes signals', async () => {
    const visit = await exec({
      command: 'stty size; trap "stty size" WINCH; while :; do sleep 0.05; done',
      terminal: { rows: 31, columns: 97 },
    });
    await visit.seen('31 97');
    visit.say({ resize: { rows: 40, columns: 100 } });
    await visit.seen('40 100');
    visit.say({ signal: 'INT' });
    expect(await visit.text('exitCode')).toMatchObject({ exitCode: 130 });
  });

  test('a lost connection leaves the program, and who comes back gets what it missed', async () => {
    const visit = await exec({ command: 'echo one; read x; echo two; read x; exit 5' });
    const { pid } = await visit.text('pid');
    await visit.seen('one');
    visit.socket.terminate();
    world.supervisor.cut();
    const back = await exec({ pid, stdout: 4, stderr: 0 });
    expect(await back.text('pid')).toMatchObject({ pid, running: true });
    back.socket.send(Buffer.from('\n\n'));
    expect(await back.text('exitCode')).toMatchObject({ exitCode: 5 });
    expect(back.out).toEqual({ 1: 'two\n', 2: '' });
    // The end is remembered, too.
    const later = await exec({ pid, stdout: 0, stderr: 0 });
    expect(await later.text('exitCode')).toMatchObject({ exitCode: 5 });
    expect(later.out[1]).toBe('one\ntwo\n');
  });

  test('counted input goes on from what was taken, and only where the caller asked for the count', async () => {
    const visit = await exec({ command: ['sh', '-c', 'head -c 4 >/dev/null; cat'], input: true });
    const { pid } = await visit.text('pid');
    expect(visit.texts).toEqual([{ pid, running: true, input: 0 }]);
    visit.socket.send(Buffer.from('begun one\n'));
    await visit.seen('one');
    visit.socket.terminate();
    const back = await exec({ pid, stdout: 0, stderr: 0, input: true });
    expect(await back.text('pid')).toEqual({ pid, running: true, input: 10 });
    back.socket.send(Buffer.alloc(600 * 1024, 'x'));
    await vi.waitFor(() => expect(Number(back.texts.at(-1)?.['input'])).toBeGreaterThan(500 * 1024), {
      timeout: 20_000,
    });
    back.say({ end: true });
    expect(await back.text('exitCode')).toMatchObject({ exitCode: 0 });
    const plain = await exec({ pid, stdout: 0, stderr: 0 });
    expect(await plain.text('pid')).toEqual({ pid, running: false });
    const wrong = await exec({ command: ['true'], input: 5 });
    expect((await wrong.text('error'))['error']).toMatchObject({ message: 'input must be true or false' });
  });

  test('the loss of the container’s machine asks the caller to come back', async () => {
    const visit = await exec({ command: 'echo one; sleep 100' });
    await visit.seen('one');
    world.supervisor.cut();
    expect(await visit.closed()).toBe(1012);
  });

  test('dropped output is told', async () => {
    const visit = await exec({ command: 'echo begun; read x; head -c 3000000 /dev/zero | tr "\\0" a; echo end' });
    const { pid } = await visit.text('pid');
    await visit.seen('begun');
    visit.socket.send(Buffer.from('\n'));
    visit.socket.terminate();
    await vi.waitFor(async () => {
      const { json } = await world.call(`GET /pods/${POD}/status?pid=${String(pid)}`);
      expect(json['status']).toBe('exited');
    });
    const back = await exec({ pid, stdout: 6, stderr: 0 });
    await back.text('exitCode');
    const { lost } = back.texts.find((one) => 'lost' in one) as { lost: { stream: string; bytes: number } };
    expect(lost).toEqual({ stream: 'stdout', bytes: 3_000_010 - 6 - back.out[1].length });
    expect(back.out[1].endsWith('aend\n')).toBe(true);
  });

  test('a close by the caller ends the programs of a terminal, and no other', async () => {
    const running = async (pid: unknown): Promise<unknown> =>
      (await world.call(`GET /pods/${POD}/status?pid=${String(pid)}`)).json['status'];
    const [plain, terminal] = await Promise.all([
      exec({ command: 'sleep 100' }),
      exec({ command: 'sleep 100', terminal: { rows: 24, columns: 80 } }),
    ]);
    const [{ pid: first }, { pid: second }] = await Promise.all([plain.text('pid'), terminal.text('pid')]);
    plain.socket.close(1000);
    terminal.socket.close(1000);
    await vi.waitFor(async () => expect(await running(second)).toBe('exited'), { timeout: 10_000 });
    expect(await running(first)).toBe('running');
  });

  test.each([
    ['no json', 'JSON'],
    ['{}', 'command'],
    ['{"command":[]}', 'command'],
    ['{"command":["a"],"env":{"A=":"b"}}', 'env'],
    ['{"command":["a"],"terminal":{"rows":0,"columns":1}}', 'terminal'],
    ['{"command":["a"],"cwd":7}', 'cwd'],
    ['{"pid":"1"}', 'pid'],
    ['{"pid":999999}', '999999'],
    ['{"pid":1,"stdout":-2}', 'stdout'],
    ['{"command":["/no/such"]}', '/no/such'],
  ])('%s is refused with its reason', async (first, word) => {
    const visit = await new Visit(at('exec')).opened();
    visit.socket.send(first);
    expect(JSON.stringify(await visit.text('error'))).toContain(word);
    expect(await visit.closed()).toBe(1008);
  });

  test('a revoked token closes the WebSocket', async () => {
    const visit = await exec({ command: 'sleep 100' });
    await visit.text('pid');
    world.revoke();
    expect(await visit.closed()).toBe(1008);
  });

  test('a scheduler that stops asks its callers to come back, and their programs go on', async () => {
    const visit = await exec({ command: 'sleep 100', terminal: { rows: 24, columns: 80 } });
    const { pid } = await visit.text('pid');
    await world.stopServer();
    expect(await visit.closed()).toBe(1012);
    const place = { containerId: POD, workspaceId: 'ws-1', machineId: 'machine-1' } as never;
    expect((await world.inside.ask(place, 'wait', { pid: Number(pid), timeoutMs: 300 })).running).toBe(true);
  });
});

test('a shell is a terminal whose bytes are plain', async () => {
  const visit = await new Visit(`/shell/id/stub-1/${POD}?rows=33&columns=99`, { byte: false }).opened();
  const { pid } = await visit.text('pid');
  visit.socket.send(Buffer.from('stty size; echo $((6*7))\n'));
  await visit.seen('33 99');
  await visit.seen('42');
  visit.socket.terminate();
  const back = await new Visit(`/shell/id/stub-1/${POD}?pid=${String(pid)}&from=0`, { byte: false }).opened();
  await back.seen('42');
  back.socket.send(Buffer.from('exit 3\n'));
  expect(await back.text('exitCode')).toMatchObject({ exitCode: 3 });
  const wrong = new Visit(`/shell/id/another/${POD}`);
  const [, response] = (await once(wrong.socket, 'unexpected-response')) as [unknown, { statusCode: number }];
  expect(response.statusCode).toBe(404);
});

test('a port is reached, with half-closes; one where nothing listens is refused', async () => {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('data', (data) => socket.write(`got ${String(data)}`));
    socket.on('end', () => socket.end('bye'));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  try {
    const visit = await new Visit(at(`ports/${port}`), { byte: false }).opened();
    visit.socket.send(Buffer.from('this'));
    await visit.seen('got this');
    visit.say({ end: true });
    await visit.seen('bye');
    expect(await visit.text('end')).toEqual({ end: true });
    expect(await visit.closed()).toBe(1000);
  } finally {
    server.close();
  }
  for (const [path, status] of [
    [at(`ports/${port}`), 502],
    [at('ports/0'), 400],
    [at('ports/x'), 400],
  ] as const) {
    const refused = new Visit(path);
    const [, response] = (await once(refused.socket, 'unexpected-response')) as [unknown, { statusCode: number }];
    expect([path, response.statusCode]).toEqual([path, status]);
  }
});

describe('files', () => {
  const fetched = (query: string, init: RequestInit = {}, token = 'own'): Promise<Response> =>
    fetch(`${world.url}${at('files')}?${query}`, { ...init, headers: { authorization: `Bearer ${token}` } });
  const path = (name: string): string => join(world.supervisor.directory, name);

  test('a large file goes in and comes out', async () => {
    const large = Buffer.alloc(48 * 1024 * 1024, 'abcdefg');
    const put = await fetched('path=sub/large&mode=755', { method: 'PUT', body: large });
    expect([put.status, await put.json()]).toEqual([200, { size: large.length }]);
    expect(readFileSync(path('sub/large')).equals(large)).toBe(true);
    const got = await fetched('path=sub/large');
    expect([got.headers.get('x-file-size'), got.headers.get('x-file-mode')]).toEqual([String(large.length), '755']);
    expect(Buffer.from(await got.arrayBuffer()).equals(large)).toBe(true);
    await fetched('path=sub/large&append=true', { method: 'PUT', body: 'end' });
    expect((await (await fetched('path=sub/large&stat=true')).json()) as Json).toMatchObject({
      size: large.length + 3,
      isDir: false,
    });
  }, 60_000);

  test('a directory comes out as a tar and goes in as one', async () => {
    await fetched('path=d/a/one', { method: 'PUT', body: 'first' });
    const tar = Buffer.from(await (await fetched('path=d&archive=tar')).arrayBuffer());
    const unpacked = await fetched('path=e&archive=tar', { method: 'PUT', body: tar });
    expect(unpacked.status).toBe(200);
    expect(readFileSync(path('e/d/a/one'), 'utf8')).toBe('first');
    expect((await fetched('path=e', { method: 'DELETE' })).status).toBe(409);
    expect((await fetched('path=e&recursive=true', { method: 'DELETE' })).status).toBe(200);
    expect((await fetched('path=e&stat=true')).status).toBe(404);
  });

  test('an upload that breaks off leaves the old file, and a refused one is answered', async () => {
    writeFileSync(path('kept'), 'old');
    const abort = new AbortController();
    const body = new ReadableStream({
      start: (to) => to.enqueue(Buffer.alloc(100_000)),
      pull: () => new Promise<void>((resolve) => setTimeout(resolve, 50)).then(() => abort.abort()),
    });
    const init = { method: 'PUT', body, duplex: 'half', signal: abort.signal } as RequestInit;
    await expect(fetched('path=kept', init)).rejects.toThrow();
    expect(readFileSync(path('kept'), 'utf8')).toBe('old');
    const large = Buffer.alloc(8 * 1024 * 1024);
    const refused = await fetched('path=kept/below', { method: 'PUT', body: large });
    expect(refused.status).toBeGreaterThanOrEqual(400);
    for (const query of ['', 'path=', 'path=a&mode=9', 'path=a&archive=zip', 'path=a&append=1'])
      expect([query, (await fetched(query, { method: 'PUT', body: 'x' })).status]).toEqual([query, 400]);
    chmodSync(path('kept'), 0o644);
  });

  test('a revoked token cuts downloads and uploads, and the old file stays', async () => {
    writeFileSync(path('large'), '');
    truncateSync(path('large'), 4 * 1024 ** 3);
    writeFileSync(path('kept'), 'old');
    const got = await fetched('path=large');
    const reader = (got.body as ReadableStream<Uint8Array>).getReader();
    await reader.read();
    const body = new ReadableStream({
      start: (to) => to.enqueue(Buffer.alloc(100_000)),
      pull: () => new Promise<void>(() => undefined),
    });
    const before = readdirSync(world.supervisor.directory);
    const putting = fetched('path=kept', { method: 'PUT', body, duplex: 'half' });
    putting.catch(() => undefined);
    // Bytes are beside the file until it is whole.
    await expect.poll(() => readdirSync(world.supervisor.directory).length).toBeGreaterThan(before.length);
    world.revoke();
    const readAll = async (): Promise<void> => {
      while (!(await reader.read()).done);
    };
    await expect(readAll()).rejects.toThrow();
    await expect(putting).rejects.toThrow();
    expect(readFileSync(path('kept'), 'utf8')).toBe('old');
    await expect.poll(() => readdirSync(world.supervisor.directory)).toEqual(before);
  });

  test('nobody but a full token of the workspace', async () => {
    writeFileSync(path('kept'), 'old');
    for (const method of ['GET', 'PUT', 'DELETE']) {
      const init = { method, ...(method === 'PUT' ? { body: 'new' } : {}) };
      for (const token of ['', 'unknown', 'restricted', 'container'])
        expect([method, token, (await fetched('path=kept', init, token)).status]).toEqual([method, token, 401]);
      expect((await fetched('path=kept', init, 'other')).status).toBe(404);
      // Streams take no token from the query.
      expect((await fetch(`${world.url}${at('files')}?path=kept&auth_token=own`, init)).status).toBe(401);
    }
    expect(readFileSync(path('kept'), 'utf8')).toBe('old');
    expect(await (await fetched('path=kept', {}, 'admin')).text()).toBe('old');
  });
});

describe('attach', () => {
  test('shows the log of a handler’s container, to its end', async () => {
    world.logLines.push({ seq: 1, line: 'first' });
    const visit = await new Visit(at('attach', HANDLER)).opened();
    await visit.text('output');
    world.logLines.push({ seq: 2, line: 'second' });
    world.rows.set(HANDLER, { ...world.rows.get(HANDLER), state: 'STOPPED', exitCode: 4 } as never);
    expect(await visit.closed()).toBe(1000);
    expect(visit.texts.map(({ output }) => output).join('')).toBe('first\nsecond\n');
    expect(visit.texts.at(-1)).toEqual({ output: '', done: true, exitCode: 4 });
  });

  test('shows the output of a pod’s first program, and changes files meanwhile', async () => {
    const place = { containerId: POD, workspaceId: 'ws-1', machineId: 'machine-1' } as never;
    await vi.waitFor(() => world.inside.ask(place, 'wait', { pid: 0, timeoutMs: 0 }), 20_000);
    const visit = await new Visit(at('attach')).opened();
    await vi.waitFor(() => expect(visit.texts.map(({ output }) => output).join('')).toContain('begun'), 20_000);
    const data = Buffer.from('synced').toString('base64');
    visit.say({ op: 'WRITE', path: 'src', isDir: true });
    visit.say({ op: 'WRITE', path: 'src/a.py', data });
    visit.say({ op: 'MOVED', path: 'src/a.py', newPath: 'src/b.py' });
    visit.say({ op: 'WRITE', path: '../out', data });
    await vi.waitFor(() => expect(JSON.stringify(visit.texts)).toContain('below the working directory'), 20_000);
    expect(readFileSync(join(world.supervisor.directory, 'src/b.py'), 'utf8')).toBe('synced');
    visit.say({ op: 'DELETE', path: 'src' });
    await vi.waitFor(() => expect(() => readFileSync(join(world.supervisor.directory, 'src/b.py'))).toThrow(), 20_000);
    const { json } = await world.call(`GET /pods/${POD}/processes`);
    const [first] = (json['processes'] as readonly Json[]).filter(({ cmd }) => String(cmd).startsWith('echo begun'));
    await world.call(`POST /pods/${POD}/kill`, { pid: first?.['pid'] });
    expect(await visit.closed()).toBe(1000);
    expect(visit.texts.at(-1)).toMatchObject({ done: true, exitCode: 137 });
  });

  test('an unknown container, and another workspace’s, are told in a message', async () => {
    for (const [id, token] of [
      ['no-such', 'own'],
      [POD, 'other'],
    ] as const) {
      const visit = await new Visit(at('attach', id), { token }).opened();
      expect(await visit.text('output')).toEqual({ output: 'Container not found', done: true, exitCode: 1 });
    }
  });
});

test('who may open WebSockets: nobody but a full token of the workspace', async () => {
  const paths = [at('exec'), at('attach'), at('ports/80'), `/shell/id/stub-1/${POD}`];
  for (const path of paths) {
    for (const token of ['', 'unknown', 'restricted', 'container']) {
      const visit = new Visit(path, { token });
      const [, response] = (await once(visit.socket, 'unexpected-response')) as [unknown, { statusCode: number }];
      expect([path, token, response.statusCode]).toEqual([path, token, 401]);
    }
    if (path !== at('attach')) {
      const visit = new Visit(path, { token: 'other' });
      const [, response] = (await once(visit.socket, 'unexpected-response')) as [unknown, { statusCode: number }];
      expect([path, response.statusCode]).toEqual([path, 404]);
    }
    // A plain request is no WebSocket.
    const plain = await fetch(`${world.url}${path}`, { headers: { authorization: 'Bearer own' } });
    expect(plain.status).toBe(400);
  }
  const browser = await new Visit(`${at('exec')}?auth_token=own`, { token: '' }).opened({ command: 'true' });
  expect(await browser.text('exitCode')).toMatchObject({ exitCode: 0 });
});
