// A hostile registry: its redirects, its token server and its layers, and a real engine that pulls from it through the
// agent. The operator opened the registry's address alone, so everything else of this machine is closed.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { loadAgentConfig } from '#agent/config.ts';
import { openHost } from '#agent/compose/host.ts';
import type { ContainerRuntime, RegistryAuth } from '#agent/containers/runtime.ts';
import { pinnedTo } from '#shared/domain/image-reference.ts';
import { createLog } from '#shared/log.ts';
import { freePort, tempDirectory } from '../helpers/programs.ts';
import type { Fault } from '../helpers/registry.ts';
import { FakeRegistry, sha256 } from '../helpers/registry.ts';

/** Loopback, so the engine needs no TLS there; another address than that of the page. */
const REGISTRY = '127.0.0.2';

const registry = new FakeRegistry();
const directory = tempDirectory('guarded');
const ends: (() => Promise<void> | void)[] = [];
/** A page of this machine that is no registry. */
const page = createServer((request, response) => answerPage(request, response));
const pageAsked: string[] = [];
/** A server of the registry's owner, beside the registry. */
const beside = createServer((request, response) => answerBeside(request, response));
let answerBeside: (request: IncomingMessage, response: ServerResponse) => void;
let runtime: ContainerRuntime;
let pagePort: number;
let proxyAddress: string;

function answerPage(request: IncomingMessage, response: ServerResponse): void {
  pageAsked.push(request.url ?? '');
  response.writeHead(200).end('s3cret page');
}

const portOf = (server: Server): number => (server.address() as AddressInfo).port;

beforeAll(async () => {
  // Both families, so that each spelling of loopback finds the page.
  page.listen(0, '::');
  beside.listen(0, REGISTRY);
  await Promise.all([once(page, 'listening'), once(beside, 'listening'), registry.start(REGISTRY)]);
  pagePort = portOf(page);
  ends.push(
    () => void page.close(),
    () => void beside.close(),
    () => registry.stop(),
  );
  proxyAddress = `127.0.0.1:${await freePort()}`;
  const config = loadAgentConfig({
    LONGSHORE_AGENT_PULL_ADDRESS: proxyAddress,
    LONGSHORE_DATA_DIR: directory.path,
    LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
    LONGSHORE_AGENT_NETWORK: 'ls-test-no-such',
    LONGSHORE_AGENT_REGISTRIES: `${REGISTRY}/32`,
    ...(process.env['DOCKER_HOST'] === undefined ? {} : { DOCKER_HOST: process.env['DOCKER_HOST'] }),
  });
  const log = createLog({ name: 'agent', level: 'silent' });
  ({ runtime } = await openHost({ config, log, pythonSource: undefined, atStop: (end) => void ends.push(end) }));
});
afterAll(async () => {
  for (const name of await runtime.listImages())
    if (name.startsWith(`${registry.host}/`)) await runtime.removeImage(name);
  for (const end of ends.toReversed()) await end();
  directory.remove();
});
beforeEach(() => {
  registry.fault = () => false;
  registry.credentials = '';
  registry.asked.length = 0;
  pageAsked.length = 0;
  answerBeside = (_request, response) => void response.writeHead(404).end();
});

const pull = (reference: string, auth?: RegistryAuth, maxBytes?: number): Promise<string> =>
  runtime.pull(reference, {
    auth,
    silenceMs: 10_000,
    signal: AbortSignal.timeout(30_000),
    onProgress: () => undefined,
    ...(maxBytes === undefined ? {} : { maxBytes }),
  });
const words = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => 'no failure',
    (error: Error) => error.message,
  );
const redirecting =
  (kind: string, location: () => string): Fault =>
  (request) => {
    if (request.kind !== kind) return false;
    request.response.writeHead(307, { location: location() }).end();
    return true;
  };

test('an image is pulled by its tag and by its digest, and has the names that an engine would give it', async () => {
  const { reference, digest } = registry.add('good/app', 50_000);
  const pinned = pinnedTo(reference, digest);
  expect(await runtime.registryDigest(reference, undefined, 10_000)).toBe(digest);
  expect(await pull(reference)).toBe(digest);
  for (const name of [reference, pinned])
    expect(await runtime.image(name)).toMatchObject({ digests: [digest], isLocal: false });
  expect(new Set((await runtime.listImages()).filter((name) => name.startsWith(registry.host)))).toEqual(
    new Set([reference, pinned]),
  );
  expect(await runtime.removeImage(reference)).toBe(true);
  expect([await runtime.image(reference), await runtime.image(pinned)]).toEqual([undefined, undefined]);

  expect(await pull(pinned)).toBe(digest);
  expect(await runtime.image(reference)).toBeUndefined();
  expect(await runtime.image(pinned)).toMatchObject({ digests: [digest], isLocal: false });
  expect(await runtime.removeImage(pinned)).toBe(true);
  expect(await runtime.image(pinned)).toBeUndefined();
  expect((await runtime.listImages()).filter((name) => /longshore-(?:pull|sha256)/.test(name))).toEqual([]);
});

test('the digest of an index stays the digest of the image that the engine chooses from it', async () => {
  const { reference, digest } = registry.addIndex('good/index');
  const pinned = pinnedTo(reference, digest);
  for (const name of [reference, pinned]) {
    expect(await pull(name)).toBe(digest);
    expect((await runtime.image(pinned))?.digests).toContain(digest);
    expect(await runtime.removeImage(name)).toBe(true);
    expect(await runtime.image(pinned)).toBeUndefined();
  }
});

test('pulls at once of one image, and of images that share a layer, all succeed', async () => {
  const { reference, digest } = registry.add('shared/app', 3_000_000);
  const names = [reference, pinnedTo(reference, digest), reference];
  expect(await Promise.all(names.map((name) => pull(name)))).toEqual([digest, digest, digest]);
  expect(await runtime.removeImage(reference)).toBe(true);
  expect(await runtime.image(reference)).toBeUndefined();
});

const LOOPBACK = [
  '127.0.0.1',
  '127.1',
  'localhost',
  '[::1]',
  '[::ffff:127.0.0.1]',
  '[::]',
  '0.0.0.0',
  '2130706433',
  '0x7f.0.0.1',
  '017700000001',
];

test.for(LOOPBACK)('no redirect of a layer or of a manifest leads to a page of this machine at %s', async (host) => {
  const { reference } = registry.add(`redirects/${sha256(host).slice(7, 15)}`);
  for (const kind of ['blob', 'manifest']) {
    registry.fault = redirecting(kind, () => `http://${host}:${pagePort}/latest/meta-data`);
    expect(await words(pull(reference))).toMatch(/registry \S+ is closed to images of workspaces: it leads to/);
  }
  expect(await words(runtime.registryDigest(reference, undefined, 10_000))).toMatch(/is closed to images/);
  expect(pageAsked).toEqual([]);
});

test.for([...LOOPBACK, '169.254.169.254', '[fd00:ec2::254]', '[::ffff:169.254.169.254]'])(
  'no token server is asked at %s',
  async (host) => {
    const { reference } = registry.add(`realms/${sha256(host).slice(7, 15)}`);
    registry.fault = ({ response }) => {
      const realm = `http://${host}:${pagePort}/latest/meta-data`;
      response.writeHead(401, { 'www-authenticate': `Bearer realm="${realm}",service="x"` }).end();
      return true;
    };
    const message = /registry \S+ is closed to images of workspaces: it leads to/;
    expect(await words(pull(reference))).toMatch(message);
    expect(await words(runtime.registryDigest(reference, undefined, 10_000))).toMatch(message);
    expect(pageAsked).toEqual([]);
  },
);

test('the second redirect is checked like the first, and the sixth is none', async () => {
  const { reference } = registry.add('redirects/chain');
  const besideUrl = `http://${REGISTRY}:${portOf(beside)}`;
  answerBeside = (_request, response) =>
    void response.writeHead(302, { location: `http://127.0.0.1:${pagePort}/` }).end();
  registry.fault = redirecting('blob', () => `${besideUrl}/first`);
  expect(await words(pull(reference))).toMatch(/is closed to images/);
  let times = 0;
  answerBeside = (_request, response) => {
    times += 1;
    response.writeHead(302, { location: `${besideUrl}/${times}` }).end();
  };
  registry.fault = redirecting('manifest', () => `${besideUrl}/first`);
  expect(await words(pull(reference))).toMatch(/redirects more than 5 times/);
  expect(times).toBe(5);
  expect(pageAsked).toEqual([]);
});

test('credentials go to the registry and its token server, and a redirect leaves them behind', async () => {
  const { reference, digest } = registry.add('private/app', 20_000);
  const heard: string[] = [];
  const basic = `Basic ${Buffer.from('user:word').toString('base64')}`;
  const besideUrl = `http://${REGISTRY}:${portOf(beside)}`;
  answerBeside = (request, response) => {
    const { authorization = 'nothing' } = request.headers;
    const [path = ''] = (request.url ?? '').split('?');
    heard.push(`${path} ${authorization}`);
    if (path === '/token') return void response.end(JSON.stringify({ token: 't0ken' }));
    response.end(registry.blob(path.slice(1)));
  };
  registry.fault = ({ kind, url, authorization, response }) => {
    if (authorization !== 'Bearer t0ken') {
      response.writeHead(401, { 'www-authenticate': `Bearer realm="${besideUrl}/token",service="x"` }).end();
      return true;
    }
    if (kind !== 'blob') return false;
    response.writeHead(307, { location: `${besideUrl}/${url.slice(url.lastIndexOf('/') + 1)}` }).end();
    return true;
  };
  const auth = { serverAddress: registry.host, username: 'user', password: 'word', identityToken: '' };
  expect(await pull(reference, auth)).toBe(digest);
  expect(heard.filter((line) => line.startsWith('/token'))).toEqual([`/token ${basic}`]);
  expect(heard.filter((line) => line.startsWith('/sha256')).length).toBeGreaterThan(0);
  for (const line of heard.filter((one) => one.startsWith('/sha256'))) expect(line).toMatch(/ nothing$/);
});

test('an image whose layers are larger together than allowed is not begun', async () => {
  const { reference } = registry.add('large/app', 60_000);
  expect(await words(pull(reference, undefined, 50_000))).toMatch(/^image \S+ is too large: it has /);
  expect(registry.count('blob')).toBe(0);
});

test('a layer with more bytes than its manifest says is cut', async () => {
  const { reference } = registry.add('longer/app', 1000);
  let sent = 0;
  registry.fault = ({ kind, bytes, response }) => {
    if (kind !== 'blob') return false;
    response.writeHead(200);
    response.write(bytes);
    const more = (): void => {
      if (response.destroyed) return;
      sent += 64 * 1024;
      response.write(Buffer.alloc(64 * 1024), more);
    };
    more();
    return true;
  };
  expect(await words(pull(reference))).toMatch(/a layer is larger than the manifest says/);
  // Buffers of the connection hold what was sent before it was cut.
  expect(sent).toBeLessThan(32 * 1024 ** 2);
});

test('a stranger on loopback gets nothing from the proxy', async () => {
  const { reference, digest } = registry.add('strangers/app', 1000);
  let tried: number[] = [];
  registry.fault = ({ kind, response, bytes }) => {
    if (kind !== 'blob') return false;
    const paths = [`longshore-pull/${'0'.repeat(32)}/manifests/${digest}`, `strangers/app/manifests/${digest}`];
    void Promise.all(paths.map((path) => fetch(`http://${proxyAddress}/v2/${path}`))).then((answers) => {
      tried = answers.map((answer) => answer.status);
      response.writeHead(200).end(bytes);
    });
    return true;
  };
  await pull(reference);
  expect(tried).toEqual([404, 404]);
});
