// How the agent asks a registry that a tenant chose: certificates, names that change their address, the engine's proxy,
// and answers without an end. Real sockets; names are resolved by the test.
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer, get } from 'node:http';
import type { IncomingMessage, RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Server } from 'node:net';
import { join } from 'node:path';
import { createSecureContext } from 'node:tls';
import type { SecureContext } from 'node:tls';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { RegistryAuth } from '#agent/containers/runtime.ts';
import { PullProxy } from '#agent/images/guard/pull-proxy.ts';
import { Routes } from '#agent/images/guard/routes.ts';
import type { RoutesParts } from '#agent/images/guard/routes.ts';
import { trustFor } from '#agent/images/guard/trust.ts';
import { RegistryGuard } from '#agent/images/registry-guard.ts';
import { dialThrough } from '#agent/upstream/tunnel.ts';
import { SERVER_NAME } from '#shared/protocol/link.ts';
import { issueServerCertificate, makeCertificateAuthority } from '../../scheduler/workspaces/identity/certificates.ts';
import { ConnectProxy } from '../helpers/connect-proxy.ts';
import { sha256 } from '../helpers/registry.ts';
import { tempDirectory } from '../helpers/programs.ts';

/** The address that the operator opened. */
const OPEN = '127.0.0.2';
const TYPE = 'application/vnd.docker.distribution.manifest.v2+json';
const MANIFEST = JSON.stringify({
  schemaVersion: 2,
  config: { digest: sha256('{}'), size: 2 },
  layers: [{ digest: sha256('layer'), size: 100_000_000 }],
});

const serveManifest: RequestListener = (_request, response) =>
  void response.writeHead(200, { 'content-type': TYPE }).end(MANIFEST);

const servers: Server[] = [];
let certificate: { readonly cert: string; readonly key: string };
let authority: string;
beforeAll(async () => {
  const ca = await makeCertificateAuthority(Date.now());
  const { chainPem, keyPem } = await issueServerCertificate(ca, Date.now());
  certificate = { cert: chainPem, key: keyPem };
  authority = ca.certPem;
});
afterAll(() => {
  for (const server of servers) server.close();
});

async function listening<One extends Server>(server: One, host: string, port = 0): Promise<number> {
  servers.push(server);
  server.listen(port, host);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}
const plain = (answer: RequestListener, host = OPEN, port = 0): Promise<number> =>
  listening(createServer(answer), host, port);
const tls = (answer: RequestListener, host = OPEN): Promise<number> =>
  listening(createTlsServer(certificate, answer), host);

interface World extends Partial<RoutesParts> {
  readonly addressesOf?: (host: string) => Promise<readonly string[]>;
  readonly insecure?: readonly string[];
  readonly httpsProxy?: string;
  readonly trust?: SecureContext;
  readonly auth?: RegistryAuth;
}

async function client(reference: string, world: World = {}) {
  const { addressesOf = () => Promise.resolve([OPEN]), insecure = [], httpsProxy = '', trust } = world;
  const guard = new RegistryGuard({
    opened: [`${OPEN}/32`],
    closedRanges: [],
    ownAddresses: () => [],
    bridgeRanges: () => Promise.resolve([]),
    addressesOf,
  });
  const routes = new Routes({
    guard,
    settings: () => Promise.resolve({ insecure, proxies: { HTTP_PROXY: '', HTTPS_PROXY: httpsProxy, NO_PROXY: '' } }),
    proxies: world.proxies ?? {},
    tunnel: dialThrough,
    trustFor: () => Promise.resolve(trust ?? createSecureContext({ ca: authority })),
  });
  const made = await routes.clientOf(reference, {
    auth: world.auth,
    silenceMs: 10_000,
    signal: AbortSignal.timeout(30_000),
  });
  onTestFinished(() => made.close());
  return made;
}

test('a registry with a certificate that the engine trusts is asked, and no other one', async () => {
  const reference = `${SERVER_NAME}:${await tls(serveManifest)}/app:1`;
  const { digest } = await (await client(reference)).resolve();
  expect(digest).toBe(sha256(MANIFEST));
  const strange = await client(reference, { trust: createSecureContext({}) });
  await expect(strange.resolve()).rejects.toThrow(/^x509: the certificate of \S+ is not accepted/);
  const misnamed = await client(reference.replace(SERVER_NAME, 'other.example'));
  await expect(misnamed.resolve()).rejects.toThrow(/^x509: the certificate of \S+ is not accepted/);
});

test('the directory of a registry’s certificates counts, as for the engine', async () => {
  const directory = tempDirectory('certs');
  onTestFinished(() => directory.remove());
  const registry = `${SERVER_NAME}:${await tls(serveManifest)}`;
  mkdirSync(join(directory.path, registry));
  writeFileSync(join(directory.path, registry, 'ca.crt'), authority);
  const trust = await trustFor(registry, directory.path);
  expect((await (await client(`${registry}/app`, { trust })).resolve()).digest).toBe(sha256(MANIFEST));
  const others = await trustFor('other.example', directory.path);
  await expect((await client(`${registry}/app`, { trust: others })).resolve()).rejects.toThrow(/^x509: /);
});

test('nothing leads from https to plain http, and a registry without TLS is asked only where the engine asks it', async () => {
  const asked: string[] = [];
  const page = await plain((request, response) => {
    asked.push(request.url ?? '');
    serveManifest(request, response);
  });
  const redirects = await tls(
    (_request, response) => void response.writeHead(307, { location: `http://${OPEN}:${page}/redirect` }).end(),
  );
  const realm = await tls(
    (_request, response) =>
      void response.writeHead(401, { 'www-authenticate': `Bearer realm="http://${OPEN}:${page}/token"` }).end(),
  );
  for (const port of [redirects, realm])
    await expect((await client(`${SERVER_NAME}:${port}/app`)).resolve()).rejects.toThrow('that is not https');
  await expect((await client(`${OPEN}:${page}/app`)).resolve()).rejects.toThrow();
  expect(asked).toEqual([]);
  const insecure = await client(`${OPEN}:${page}/app`, { insecure: [`${OPEN}/32`] });
  expect((await insecure.resolve()).digest).toBe(sha256(MANIFEST));
});

const PASSWORD = { serverAddress: OPEN, username: 'user', password: 'word', identityToken: '' };
const REFUSED = 'unauthorized: authentication required';

test.for<[string, readonly string[]]>([
  ['Bearer before Basic', ['Bearer realm="TOKEN",service="s", Basic realm="x"']],
  ['Basic before Bearer', ['Basic realm="x", Bearer realm="TOKEN",service="s"']],
  ['two headers', ['Bearer realm="TOKEN",service="s"', 'Basic realm="x"']],
  ['a Bearer without a server before it', ['Bearer realm="x"', 'Bearer service="s",realm="TOKEN"']],
  ['a realm that looks like another challenge', ['Basic realm="x, Bearer realm=\\"y\\"", bearer Realm="TOKEN"']],
])('a registry that offers %s gets a token', async ([, challenges]) => {
  const registry = await plain((request, response) => {
    const { url = '', headers } = request;
    if (url.startsWith('/token')) return void response.end('{"token":"own"}');
    if (headers.authorization === 'Bearer own') return serveManifest(request, response);
    const token = `http://${OPEN}:${registry}/token`;
    response.writeHead(401, { 'www-authenticate': challenges.map((one) => one.replace('TOKEN', token)) }).end();
  });
  const made = await client(`${OPEN}:${registry}/app`, { insecure: [`${OPEN}/32`], auth: PASSWORD });
  expect((await made.resolve()).digest).toBe(sha256(MANIFEST));
});

test('a registry whose Bearer names no server gets name and password where it takes them', async () => {
  const basic = `Basic ${Buffer.from('user:word').toString('base64')}`;
  const registry = await plain((request, response) => {
    if (request.headers.authorization === basic) return serveManifest(request, response);
    response.writeHead(401, { 'www-authenticate': 'Bearer realm="none", Basic realm="x"' }).end();
  });
  const made = await client(`${OPEN}:${registry}/app`, { insecure: [`${OPEN}/32`], auth: PASSWORD });
  expect((await made.resolve()).digest).toBe(sha256(MANIFEST));
});

test.for<[string, RegistryAuth]>([
  ['password', PASSWORD],
  ['identity token', { ...PASSWORD, username: '', password: '', identityToken: 'identity' }],
])('a host that a redirect names gets no %s by asking for one', async ([, auth]) => {
  const asked: string[] = [];
  const elsewhere = await plain((request, response) => {
    asked.push(`${request.method} ${request.url} ${request.headers.authorization}`);
    if (request.url?.startsWith('/token') === true) return void response.end('{"token":"taken"}');
    const realm = `http://${OPEN}:${elsewhere}/token`;
    response.writeHead(401, { 'www-authenticate': `Bearer realm="${realm}"` }).end();
  });
  const registry = await plain(
    (_request, response) => void response.writeHead(307, { location: `http://${OPEN}:${elsewhere}/page` }).end(),
  );
  const made = await client(`${OPEN}:${registry}/app`, { insecure: [`${OPEN}/32`], auth });
  const calls = [() => made.blob(sha256('layer'), ''), () => made.digest(), () => made.resolve()];
  for (const call of calls) await expect(call()).rejects.toThrow(REFUSED);
  expect(asked).toEqual(['GET /page undefined', 'HEAD /page undefined', 'GET /page undefined']);
});

test('a token of the registry goes along a redirect to the registry alone, and not when another host leads back', async () => {
  const asked: string[] = [];
  const hear = (who: string, { url = '', headers }: IncomingMessage): void =>
    void asked.push(`${who} ${url.replace(/\?.*/, '').split('/').at(-1)} ${headers.authorization}`);
  const elsewhere = await plain((request, response) => {
    hear('elsewhere', request);
    response.writeHead(307, { location: `http://${OPEN}:${registry}/back` }).end();
  });
  const registry = await plain((request, response) => {
    hear('registry', request);
    const { url = '', headers } = request;
    const token = `http://${OPEN}:${registry}/token`;
    if (url.startsWith('/token')) return void response.end('{"token":"own"}');
    if (url.includes('/blobs/'))
      return void response.writeHead(307, { location: `http://${OPEN}:${elsewhere}/away` }).end();
    if (url.includes('/manifests/')) return void response.writeHead(307, { location: '/own' }).end();
    if (headers.authorization !== undefined) return serveManifest(request, response);
    response.writeHead(401, { 'www-authenticate': `Bearer realm="${token}"` }).end();
  });
  const made = await client(`${OPEN}:${registry}/app`, { insecure: [`${OPEN}/32`], auth: PASSWORD });
  expect((await made.resolve()).digest).toBe(sha256(MANIFEST));
  const basic = `Basic ${Buffer.from('user:word').toString('base64')}`;
  expect(asked.splice(0)).toEqual([
    'registry latest undefined',
    'registry own undefined',
    `registry token ${basic}`,
    'registry latest Bearer own',
    'registry own Bearer own',
  ]);
  await expect(made.blob(sha256('layer'), '')).rejects.toThrow(REFUSED);
  expect(asked).toEqual([
    `registry ${sha256('layer')} Bearer own`,
    'elsewhere away undefined',
    'registry back undefined',
  ]);
});

test('a name that changes its address after the check is dialled where it was checked', async () => {
  const asked: string[] = [];
  const port = await plain((request, response) => {
    asked.push('registry');
    if (asked.length > 1) return serveManifest(request, response);
    response.writeHead(307, { location: `http://rebound.example:${port}/v2/app/manifests/1` }).end();
  });
  await plain(
    (_request, response) => {
      asked.push('page');
      response.end();
    },
    '127.0.0.1',
    port,
  );
  let times = 0;
  const addressesOf = (): Promise<readonly string[]> => Promise.resolve([(times += 1) <= 2 ? OPEN : '127.0.0.1']);
  const world = { addressesOf, insecure: [`rebound.example:${port}`] };
  // Asked once for https and once for http; the redirect asks again, and finds another address.
  await expect((await client(`rebound.example:${port}/app:1`, world)).resolve()).rejects.toThrow(
    /is closed to images of workspaces: it leads to/,
  );
  expect(asked).toEqual(['registry']);
  const mixed = { ...world, addressesOf: () => Promise.resolve([OPEN, '127.0.0.1']) };
  await expect((await client(`rebound.example:${port}/app:1`, mixed)).resolve()).rejects.toThrow(/is closed/);
  expect(asked).toEqual(['registry']);
});

test('the engine’s proxy is used with the agent’s password, and is asked for no closed address', async () => {
  const proxy = new ConnectProxy();
  proxy.credentials = 'user:word';
  await proxy.up();
  onTestFinished(() => proxy.down());
  const closed = await tls(
    (_request, response) => void response.writeHead(307, { location: 'https://169.254.169.254/latest' }).end(),
  );
  const port = await tls(serveManifest);
  for (const one of [port, closed]) proxy.places.set(`${SERVER_NAME}:${one}`, `${OPEN}:${one}`);
  const masked = proxy.url.replace(/\/\/.*@/, '//xxxxx:xxxxx@');
  const unknown = () => Promise.reject(Object.assign(new Error('no such host'), { code: 'ENOTFOUND' }));
  const world = { httpsProxy: masked, proxies: { HTTPS_PROXY: proxy.url }, addressesOf: unknown };
  expect((await (await client(`${SERVER_NAME}:${port}/app`, world)).resolve()).digest).toBe(sha256(MANIFEST));
  await expect((await client(`${SERVER_NAME}:${closed}/app`, world)).resolve()).rejects.toThrow(/is closed to images/);
  expect(proxy.asked).toEqual([`${SERVER_NAME}:${port}`, `${SERVER_NAME}:${closed}`]);
  const without = await client(`${SERVER_NAME}:${port}/app`, { ...world, proxies: {} });
  await expect(without.resolve()).rejects.toThrow('set HTTPS_PROXY of the agent to the same proxy');
});

test('answers without an end are cut: manifests, tokens and headers', async () => {
  let asked = '';
  const endless = (response: Parameters<RequestListener>[1]): void => {
    const more = (): void => void (response.destroyed || response.write(Buffer.alloc(65_536, ' '), more));
    more();
  };
  const port = await plain((request, response) => {
    const { url = '' } = request;
    if (url.includes('token') || asked === 'manifest') return endless(response);
    if (asked === 'headers') return void response.writeHead(200, { 'x-large': 'x'.repeat(200_000) }).end();
    const realm = `http://${OPEN}:${port}/token`;
    response.writeHead(401, { 'www-authenticate': `Bearer realm="${realm}"` }).end();
  });
  const insecure = { insecure: [`${OPEN}/32`] };
  const words = async (what: string): Promise<string> => {
    asked = what;
    return await (await client(`${OPEN}:${port}/app`, insecure)).resolve().then(
      () => 'no failure',
      (error: Error) => error.message,
    );
  };
  expect(await words('manifest')).toContain('its manifest is too large');
  expect(await words('token')).toContain('the answer of its token server is too large');
  expect(await words('headers')).toMatch(/error parsing HTTP|EOF/);
});

test('a pull whose layer drips ends, because the engine downloads few layers at once', async () => {
  const port = await plain((_request, response) => {
    response.writeHead(200, { 'content-length': 100_000_000 });
    const drip = setInterval(() => response.write('x'), 10);
    response.once('close', () => clearInterval(drip));
  });
  const proxy = new PullProxy();
  await proxy.start('127.0.0.1:0');
  onTestFinished(() => proxy.stop());
  const fetching = async (): Promise<IncomingMessage> => {
    const request = get(`http://${OPEN}:${port}/`);
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    return answer;
  };
  const session = proxy.open({
    client: { manifest: () => Promise.reject(new Error('it is not asked')), blob: fetching, close: () => undefined },
    digest: sha256(MANIFEST),
    first: { bytes: Buffer.from(MANIFEST), type: TYPE },
    maxBytes: Number.POSITIVE_INFINITY,
    tooLarge: () => new Error('too large'),
    minBytesEveryMs: 100,
  });
  const [host = '', ...path] = session.name.split('/');
  const blob = fetch(`http://${host}/v2/${path.join('/')}/blobs/${sha256('layer')}`).then((answer) => answer.text());
  await expect(blob).rejects.toThrow();
  expect(session.failure?.message).toBe('i/o timeout: a layer comes too slowly');
  // A blob that the manifest does not list is nothing to ask for, and a closed session has no path.
  const status = (digest: string) =>
    fetch(`http://${host}/v2/${path.join('/')}/blobs/${digest}`).then((answer) => answer.status);
  expect(await status(sha256('another'))).toBe(404);
  session.close();
  expect(await status(sha256('layer'))).toBe(404);
});
