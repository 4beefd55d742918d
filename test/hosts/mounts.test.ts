// The mount helper with real buckets: an S3 server that checks signatures, s3fs, and containers that use the mounts.
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { once } from 'node:events';
import { createServer, request as sendRequest } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { agentWorld } from '../helpers/agent.ts';
import type { TestDocker } from '../helpers/docker.ts';
import { docker } from '../helpers/docker.ts';
import type { TestMounts } from '../helpers/mounts.ts';
import { testMounts, volumesOn } from '../helpers/mounts.ts';
import type { S3Server } from '../helpers/s3-server.ts';
import { anS3Server } from '../helpers/s3-server.ts';
import { runProgram, tempDirectory, waitFor } from '../helpers/services.ts';

let engine: TestDocker;
let server: S3Server;
let mounts: TestMounts;
beforeAll(async () => {
  engine = await docker();
  server = await anS3Server(engine);
  const network = new URL(server.endpoint).hostname.replace(/\.\d+$/, '.0/24');
  mounts = testMounts({ ...volumesOn(server), LONGSHORE_BUCKET_ALLOW: network });
  await mounts.start();
});
afterAll(async () => {
  // Undefined after a failed start.
  await (mounts as TestMounts | undefined)?.cleanUp();
  await engine.cleanUp();
});

const wanted = (more: Readonly<Record<string, unknown>> = {}) => ({
  holder: 'c-1',
  workspaceId: 'ws-1',
  bucket: server.bucket,
  endpoint: server.endpoint,
  region: 'us-east-1',
  pathStyle: true,
  readOnly: false,
  accessKey: server.credentials.accessKeyId,
  secretKey: server.credentials.secretAccessKey,
  ...more,
});
const exitOf = async (path: string, script: string, readOnly = false): Promise<number> => {
  const container = await engine.run({
    Cmd: ['sh', '-c', script],
    User: '4321',
    HostConfig: {
      Mounts: [{ Type: 'bind', Source: path, Target: '/d', ReadOnly: readOnly }],
      NetworkMode: 'none',
      CapDrop: ['ALL'],
    },
  });
  return ((await container.wait()) as { StatusCode: number }).StatusCode;
};

test('any user of a container reads what another container wrote, renames, appends and links', async () => {
  const path = await mounts.client.volume({ holder: 'c-1', workspaceId: 'ws-1', volumeId: 'v-1' });
  const write = 'mkdir -p /d/a/b && echo one > /d/a/b/f && echo two >> /d/a/b/f && mv /d/a /d/c && ln -s c/b/f /d/l';
  expect(await exitOf(path, write)).toBe(0);
  expect(
    await exitOf(path, 'test "$(cat /d/l)" = "one\ntwo" && printf x | dd of=/d/c/b/f bs=1 seek=1 conv=notrunc'),
  ).toBe(0);
  expect(await exitOf(path, 'test "$(head -n1 /d/c/b/f)" = oxe')).toBe(0);
  expect(await exitOf(path, 'echo no > /d/x', true)).not.toBe(0);
});

test('what one workspace keeps, no other sees; a link in the bucket leads nowhere outside a container', async () => {
  const mine = await mounts.client.volume({ holder: 'c-1', workspaceId: 'ws-1', volumeId: 'v-1' });
  const theirs = await mounts.client.volume({ holder: 'c-2', workspaceId: 'ws-2', volumeId: 'v-1' });
  writeFileSync(join(mine, 'mine'), 'x');
  expect(readdirSync(theirs)).toEqual([]);
  symlinkSync('/etc/hostname', join(mine, 'out'));
  expect(await exitOf(mine, 'test "$(cat /d/out)" = "$(cat /etc/hostname)" && test ! -e /d/../v-1')).toBe(0);
  symlinkSync('/etc', join(theirs, '..', 'linked'));
  await expect(mounts.client.volume({ holder: 'c-2', workspaceId: 'ws-2', volumeId: 'linked' })).rejects.toThrow(
    'is a link',
  );
  for (const odd of ['..', '.', 'a/b', '', '-rf'])
    await expect(mounts.client.volume({ holder: 'c-1', workspaceId: 'ws-1', volumeId: odd })).rejects.toThrow(
      'request',
    );
});

test('a removed volume is gone with all its files, and its neighbour stays', async () => {
  const gone = await mounts.client.volume({ holder: 'c-1', workspaceId: 'ws-1', volumeId: 'v-gone' });
  const kept = await mounts.client.volume({ holder: 'c-1', workspaceId: 'ws-1', volumeId: 'v-kept' });
  mkdirSync(join(gone, 'deep', 'er'), { recursive: true });
  writeFileSync(join(gone, 'deep', 'er', 'f'), 'x');
  writeFileSync(join(kept, 'f'), 'x');
  await mounts.client.remove({ workspaceId: 'ws-1', volumeId: 'v-gone' });
  await mounts.client.remove({ workspaceId: 'ws-1', volumeId: 'v-gone' });
  expect(existsSync(gone)).toBe(false);
  expect(readFileSync(join(kept, 'f'), 'utf8')).toBe('x');
});

test('a bucket of a workspace is one mount for all its holders, another for another workspace, and read-only if asked', async () => {
  const path = await mounts.client.bucket(wanted());
  expect(await mounts.client.bucket(wanted({ holder: 'c-3' }))).toBe(path);
  expect(await mounts.client.bucket(wanted({ workspaceId: 'ws-2' }))).not.toBe(path);
  const readOnly = await mounts.client.bucket(wanted({ readOnly: true }));
  expect(readOnly).not.toBe(path);
  expect(await exitOf(path, 'echo hello > /d/from-bucket')).toBe(0);
  expect(await exitOf(readOnly, 'test "$(cat /d/from-bucket)" = hello && ! echo no > /d/from-bucket')).toBe(0);
});

test('a wrong key, a missing bucket, a silent server and a closed address are told apart, and no key is anywhere', async () => {
  const started = performance.now();
  await expect(mounts.client.bucket(wanted({ secretKey: 'WRONG-SECRET' }))).rejects.toThrow('refuses the access key');
  await expect(mounts.client.bucket(wanted({ bucket: 'nowhere' }))).rejects.toThrow('no such bucket');
  const silent = new URL(server.endpoint);
  silent.port = '1';
  await expect(mounts.client.bucket(wanted({ endpoint: silent.origin }))).rejects.toThrow('does not answer');
  for (const endpoint of ['http://127.0.0.1:9', 'http://169.254.169.254', 'http://localhost:1', 'http://10.1.2.3'])
    await expect(mounts.client.bucket(wanted({ endpoint }))).rejects.toThrow('LONGSHORE_BUCKET_ALLOW');
  await expect(mounts.client.bucket(wanted({ endpoint: 'http://a,allow_root' }))).rejects.toThrow('endpoint');
  expect(performance.now() - started).toBeLessThan(40_000);
  const kept = ['state.json', ...readdirSync(join(mounts.directory, 'log')).map((name) => join('log', name))];
  for (const name of kept) expect(readFileSync(join(mounts.directory, name), 'utf8')).not.toMatch(/SECRET/);
  expect(mounts.log()).not.toMatch(/SECRET/);
  for (const pid of await mounts.daemons()) expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).not.toMatch(/SECRET/);
});

test('a helper that is killed and started again takes its mounts up, and a container goes on', async () => {
  const path = await mounts.client.bucket(wanted());
  const container = await engine.run({
    Cmd: ['sh', '-c', 'while ! test -e /d/stop; do sleep 0.2; done; echo done > /d/done'],
    HostConfig: { Mounts: [{ Type: 'bind', Source: path, Target: '/d' }], NetworkMode: 'none' },
  });
  const before = await mounts.daemons();
  await mounts.kill();
  await mounts.start();
  expect(await mounts.daemons()).toEqual(before);
  expect(await mounts.client.bucket(wanted({ holder: 'c-9' }))).toBe(path);
  writeFileSync(join(path, 'stop'), '');
  expect(((await container.wait()) as { StatusCode: number }).StatusCode).toBe(0);
  expect(readFileSync(join(path, 'done'), 'utf8')).toBe('done\n');
});

test('a daemon that dies, or stands still, is told to its holders, and the next mount is a new one', async () => {
  const daemonOf = (path: string): number => {
    const text = readFileSync(join(mounts.directory, 'state.json'), 'utf8');
    const state = JSON.parse(text) as { mounts: { path: string; pid: number }[] };
    return state.mounts.find((one) => one.path === path)?.pid ?? 0;
  };
  for (const [holder, signal, says] of [
    ['c-dies', 'SIGKILL', 'its daemon ended'],
    ['c-stands', 'SIGSTOP', 'its daemon does not answer'],
  ] as const) {
    const path = await mounts.client.bucket(wanted({ workspaceId: 'ws-4', holder }));
    process.kill(daemonOf(path), signal);
    await waitFor(
      async () =>
        (await mounts.client.sync([holder])).lost.find((one) => one.holder === holder && one.why.includes(says)),
      `a mount is told as lost: ${says}`,
      90_000,
    );
    const next = await mounts.client.bucket(wanted({ workspaceId: 'ws-4', holder: 'c-next' }));
    expect(next).not.toBe(path);
    expect(await exitOf(next, 'ls /d')).toBe(0);
  }
});

test('a redirect and a changed address lead no daemon to a closed network', async () => {
  const hits: string[] = [];
  const inner = createServer((request, response) => {
    hits.push(request.url ?? '');
    response.end('secret of this machine');
  });
  inner.listen(0, '127.0.0.1');
  await once(inner, 'listening');
  const { port } = inner.address() as AddressInfo;
  // A server on an open network that answers with a redirect to this machine.
  const lures = await engine.run({
    Cmd: [
      'python3',
      '-c',
      `import http.server as h
class H(h.BaseHTTPRequestHandler):
    def do_GET(s): s.send_response(307); s.send_header('Location', 'http://127.0.0.1:${port}' + s.path); s.send_header('Content-Length', '0'); s.end_headers()
    do_HEAD = do_PUT = do_GET
h.ThreadingHTTPServer(('0.0.0.0', 80), H).serve_forever()`,
    ],
  });
  const address = (await lures.inspect()).NetworkSettings.Networks['bridge']?.IPAddress ?? '';
  await waitFor(
    async () => (await fetch(`http://${address}/x`, { redirect: 'manual' }).catch(() => undefined))?.status === 307,
    'it answers',
  );
  await expect(mounts.client.bucket(wanted({ endpoint: `http://${address}` }))).rejects.toThrow();
  expect(hits).toEqual([]);
  inner.close();
});

test('a server with HTTPS is reached through the guard, by the authorities that the operator named alone', async () => {
  const made = tempDirectory('mounts-tls');
  const [cert, key] = [join(made.path, 'cert.pem'), join(made.path, 'key.pem')];
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
  await runProgram('openssl', [
    'req',
    '-x509',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-days',
    '2',
    '-keyout',
    key,
    '-out',
    cert,
    ...subject,
  ]);
  // In front of the S3 server, as proxies for TLS are: the signed head passes as it came.
  const front = createSecureServer({ cert: readFileSync(cert), key: readFileSync(key) }, (incoming, response) => {
    const { hostname, port } = new URL(server.endpoint);
    const { method, url: path, headers } = incoming;
    // This S3 server sends a body after HEAD, which a kept connection would take for the next answer.
    const passed = sendRequest({ hostname, port, method, path, headers, setHost: false, agent: false }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      if (method === 'HEAD') response.end();
      else answer.pipe(response);
    });
    passed.on('error', () => {
      if (!response.headersSent) response.destroy();
    });
    incoming.pipe(passed);
  });
  front.listen(0, '127.0.0.1');
  await once(front, 'listening');
  const endpoint = `https://localhost:${(front.address() as AddressInfo).port}`;
  const allow = { LONGSHORE_BUCKET_ALLOW: '127.0.0.1/32' };
  const [trusting, other] = [testMounts({ ...allow, LONGSHORE_CA_BUNDLE: cert }), testMounts(allow)];
  try {
    await Promise.all([trusting.start(), other.start()]);
    const path = await trusting.client.bucket(wanted({ endpoint }));
    expect(await exitOf(path, 'echo sealed > /d/over-tls && test "$(cat /d/over-tls)" = sealed')).toBe(0);
    await expect(other.client.bucket(wanted({ endpoint }))).rejects.toThrow('certificate');
  } finally {
    await trusting.cleanUp();
    await other.cleanUp();
    front.close();
    made.remove();
  }
});

test('a helper that comes after the agent, or serves more than before, is told to the scheduler within its session', async () => {
  const late = testMounts();
  const world = await agentWorld(engine.labels, { LONGSHORE_MOUNTS_DIR: late.directory });
  const { heard, hellos } = world.scheduler;
  const told = () => heard.findLast(({ volumeDrivers }) => volumeDrivers)?.volumeDrivers?.names;
  try {
    await world.agent.start();
    await world.agent.connected;
    expect(hellos.at(-1)?.inventory?.volumeDrivers).toEqual(['cache']);
    await late.start();
    await waitFor(() => told()?.join() === 'cache,bucket', 'the scheduler hears of the helper');
    await late.stop('end');
    await late.start(volumesOn(server));
    await waitFor(() => told()?.join() === 'cache,s3,bucket', 'the scheduler hears of s3 volumes');
    expect(hellos).toHaveLength(1);
  } finally {
    await world.end();
    await late.cleanUp();
  }
});

test('a mount whose open files pass the bound breaks alone, and mounts that nobody holds end', async () => {
  const bounded = testMounts({ ...volumesOn(server), LONGSHORE_MOUNTS_CACHE_MIB: '64' });
  try {
    await bounded.start();
    const large = await bounded.client.volume({ holder: 'c-1', workspaceId: 'ws-1', volumeId: 'v-large' });
    const small = await bounded.client.volume({ holder: 'c-2', workspaceId: 'ws-2', volumeId: 'v-small' });
    writeFileSync(join(small, 'f'), 'x');
    const file = openSync(join(large, 'large'), 'w');
    for (let mib = 0; mib < 100; mib += 1) writeSync(file, Buffer.alloc(1024 * 1024, 1));
    const lost = await waitFor(
      async () => (await bounded.client.sync(['c-1', 'c-2'])).lost[0],
      'the mount breaks',
      60_000,
    );
    expect(lost).toEqual({ holder: 'c-1', why: expect.stringContaining('LONGSHORE_MOUNTS_CACHE_MIB') });
    expect(readFileSync(join(small, 'f'), 'utf8')).toBe('x');
    await waitFor(
      async () => (await bounded.client.sync([])).mounts === 0 && bounded.mounted().length === 0,
      'unused mounts end',
      150_000,
    );
    // The program hears that its file was not sent.
    expect(() => closeSync(file)).toThrow('ENOTCONN');
  } finally {
    await bounded.cleanUp();
  }
}, 300_000);
