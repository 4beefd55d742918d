// Requests of machines for the managed registry, against the real one: who gets what, and what nobody gets.
import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Registry } from '#shared/metrics.ts';
import { builtImageName, builtRepository, builtTag } from '#shared/domain/built-images.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { encodeLine } from '#shared/protocol/byte-connections.ts';
import { ByteConnections } from '#scheduler/fleet/byte-connections.ts';
import { Allowance } from '#scheduler/fleet/registry/allowance.ts';
import { RegistryAccess } from '#scheduler/fleet/registry/access.ts';
import { RegistryClient } from '#scheduler/fleet/registry/client.ts';
import { RegistryMetrics } from '#scheduler/fleet/registry/metrics.ts';
import { RegistryProxy } from '#scheduler/fleet/registry/proxy.ts';
import { RegistrySweep } from '#scheduler/fleet/registry/sweep.ts';
import { TOKEN_LIFE_MS, issueToken } from '#scheduler/fleet/registry/tokens.ts';
import { endPush, forgetDigest, imageById } from '#scheduler/stores/store/queries/images.ts';
import { registryBytes } from '#scheduler/stores/store/queries/registry-blobs.ts';
import type { ManagedRegistry } from '#cli/up/managed-registry.ts';
import { registryIn } from '../helpers/managed-registry.ts';
import { tempDirectory, waitFor } from '../helpers/services.ts';
import { aDb, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const { privateKey: signingKey, publicKey } = generateKeyPairSync('ed25519');
const keys = { signingKey, publicKey };
const OPERATORS = 'aaaa0001' as MachineId;
const OWN_POOL_OF_OTHER = 'bbbb0002' as MachineId;
const MOST_BYTES = 1_000_000;
const MANIFEST = 'application/vnd.docker.distribution.manifest.v2+json';
const sha256 = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

let opened: OpenedDb;
let one: WorkspaceId;
let other: WorkspaceId;
let registry: ManagedRegistry;
let client: RegistryClient;
let proxy: RegistryProxy;
let access: RegistryAccess;
let nowMs = Date.now();
const directory = tempDirectory('registry');
const machines = new Map<MachineId, { owner: () => WorkspaceId | null }>([
  [OPERATORS, { owner: () => null }],
  [OWN_POOL_OF_OTHER, { owner: () => other }],
]);
/** A port for each machine, as its agent's link. */
const ports = new Map<MachineId, Server>();

/** The registry's program. A collection of layers says that it has begun, and waits until the test lets it go on. */
const program = join(directory.path, 'docker-registry');
const held = join(directory.path, 'held');
const begun = join(directory.path, 'begun');

const aRegistry = (): ManagedRegistry => registryIn(directory.path, { program });

beforeAll(async () => {
  const waits = `[ "$1" != garbage-collect ] || { : >'${begun}'; while [ -e '${held}' ]; do sleep 0.05; done; }`;
  writeFileSync(program, `#!/bin/sh\n${waits}\nexec docker-registry "$@"\n`, { mode: 0o755 });
  opened = await aDb('pglite');
  one = (await aWorkspace(opened.db)).id;
  other = (await aWorkspace(opened.db)).id;
  registry = aRegistry();
  await registry.start();
  await registry.whenWritable();
  client = new RegistryClient(registry.address);
  const get = (id: MachineId) => {
    const machine = machines.get(id);
    return machine && ({ row: { id, poolWorkspaceId: machine.owner() }, inventory: { registry: true } } as never);
  };
  const allowance = new Allowance({ db: opened.db, mostBytes: () => Promise.resolve(MOST_BYTES) });
  access = new RegistryAccess({ db: opened.db, keys, machines: { get }, allowance, nowMs: () => nowMs });
  proxy = new RegistryProxy({
    client,
    keys,
    allowance,
    isMachine: (id) => get(id) !== undefined,
    onMissing: (workspaceId, digest) => void forgetDigest(opened.db, workspaceId, digest),
    nowMs: () => nowMs,
    metrics: new RegistryMetrics(new Registry()),
    log: silent,
  });
  for (const id of machines.keys()) {
    const server = createServer((socket) => proxy.accept(id, socket));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    ports.set(id, server);
  }
});
afterAll(async () => {
  proxy.close();
  for (const server of ports.values()) server.close();
  await client.close();
  await registry.stop();
  await opened.stop();
  directory.remove();
});

interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

/** Asks as the engine of a machine does. */
async function ask(
  machineId: MachineId,
  method: string,
  path: string,
  options: { token?: string; body?: Buffer; headers?: Record<string, string> } = {},
): Promise<Answer> {
  const { port } = (ports.get(machineId) as Server).address() as AddressInfo;
  const basic = Buffer.from(`longshore:${options.token ?? ''}`).toString('base64');
  const sent = httpRequest({
    host: '127.0.0.1',
    port,
    method,
    path,
    agent: false,
    headers: {
      ...(options.token === undefined ? {} : { authorization: `Basic ${basic}` }),
      ...(options.body === undefined ? {} : { 'content-length': String(options.body.length) }),
      ...options.headers,
    },
  });
  sent.end(options.body);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const parts: Buffer[] = [];
  for await (const part of response) parts.push(part as Buffer);
  return { status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(parts) };
}

/** The whole answer to a request that comes in one piece with the lines before it. */
async function askAtOnce(machineId: MachineId, request: string): Promise<string> {
  const connections = new ByteConnections({ sessionOf: () => ({ machineId, waiting: new Set() }) });
  connections.onRegistry((id, bytes) => proxy.accept(id, bytes));
  const server = createServer((socket) => connections.accept(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const link = connect((server.address() as AddressInfo).port, '127.0.0.1');
  link.write(Buffer.concat([encodeLine({ sessionId: '', authorization: '' }), encodeLine({ registry: true })]));
  link.end(request);
  let text = '';
  for await (const part of link.setEncoding('utf8')) text += String(part);
  server.close();
  return text;
}

async function upload(machineId: MachineId, token: string, repository: string, bytes: Buffer): Promise<number> {
  const begun = await ask(machineId, 'POST', `/v2/${repository}/blobs/uploads/`, { token });
  if (begun.status !== 202) return begun.status;
  const at = new URL(String(begun.headers.location));
  const patched = await ask(machineId, 'PATCH', `${at.pathname}${at.search}`, {
    token,
    body: bytes,
    headers: { 'content-type': 'application/octet-stream' },
  });
  if (patched.status !== 202) return patched.status;
  const then = new URL(String(patched.headers.location));
  then.searchParams.set('digest', sha256(bytes));
  return (await ask(machineId, 'PUT', `${then.pathname}${then.search}`, { token })).status;
}

function manifestOf(config: Buffer, layer: Buffer): Buffer {
  const about = (bytes: Buffer, mediaType: string) => ({ mediaType, size: bytes.length, digest: sha256(bytes) });
  return Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: about(config, 'application/vnd.docker.container.image.v1+json'),
      layers: [about(layer, 'application/vnd.docker.image.rootfs.diff.tar.gzip')],
    }),
  );
}

interface Pushed {
  readonly image: string;
  readonly digest: string;
  readonly layer: Buffer;
}

/** An image of a workspace, pushed by the operator's machine with its own token. */
async function pushed(workspaceId: WorkspaceId, layer: Buffer = randomBytes(2000)): Promise<Pushed> {
  const image = builtImageName(randomBytes(16).toString('hex'));
  await opened.db.query(
    `insert into images (id, workspace_id, definition, state, built_at) values ($1, $2, '{}', 'READY', now())`,
    [image, workspaceId],
  );
  const right = await access.toPush(OPERATORS, workspaceId, image);
  if (typeof right === 'string') throw new Error(right);
  const token = right.auth?.password ?? '';
  const repository = builtRepository(workspaceId);
  const config = Buffer.from(JSON.stringify({ of: image }));
  for (const blob of [config, layer]) expect(await upload(OPERATORS, token, repository, blob)).toBe(201);
  const manifest = manifestOf(config, layer);
  const put = await ask(OPERATORS, 'PUT', `/v2/${repository}/manifests/${builtTag(image)}`, {
    token,
    body: manifest,
    headers: { 'content-type': MANIFEST },
  });
  expect([put.status, put.headers['docker-content-digest']]).toEqual([201, sha256(manifest)]);
  const stored = await client.image(repository, sha256(manifest));
  expect(stored?.digest).toBe(sha256(manifest));
  const row = await imageById(opened.db, workspaceId, image);
  const end = { digest: sha256(manifest) };
  await endPush(opened.db, { id: image, builtAtMs: row?.builtAtMs ?? 0 }, end);
  return { image, digest: sha256(manifest), layer };
}

const pullToken = async (machineId: MachineId, workspaceId: WorkspaceId, image: string): Promise<string> =>
  (await access.toPull(machineId, workspaceId, image))?.auth?.password ?? '';

describe('an image in the registry', () => {
  test('is pulled with a token for it, and its bytes come back', async () => {
    const { image, digest, layer } = await pushed(one);
    const token = await pullToken(OPERATORS, one, image);
    const repository = builtRepository(one);
    expect((await ask(OPERATORS, 'GET', '/v2/', { token })).status).toBe(200);
    const manifest = await ask(OPERATORS, 'GET', `/v2/${repository}/manifests/${digest}`, {
      token,
      headers: { accept: MANIFEST },
    });
    expect(sha256(manifest.body)).toBe(digest);
    const blob = await ask(OPERATORS, 'GET', `/v2/${repository}/blobs/${sha256(layer)}`, { token });
    expect(blob.body.equals(layer)).toBe(true);
  });

  test('is not for a machine of another workspace, nor with a token of another machine', async () => {
    const { image, digest } = await pushed(one);
    expect(await access.toPull(OWN_POOL_OF_OTHER, one, image)).toBeUndefined();
    expect(await access.toPush(OWN_POOL_OF_OTHER, one, image)).toMatch(/not for this workspace/);
    const token = await pullToken(OPERATORS, one, image);
    const path = `/v2/${builtRepository(one)}/manifests/${digest}`;
    expect((await ask(OWN_POOL_OF_OTHER, 'GET', path, { token })).status).toBe(401);
    expect((await ask(OPERATORS, 'GET', path, { token })).status).toBe(200);
  });

  test('is not given without a token, with a wrong or expired one, or to a machine that is gone', async () => {
    const { image, digest } = await pushed(one);
    const path = `/v2/${builtRepository(one)}/manifests/${digest}`;
    const bare = await ask(OPERATORS, 'GET', path);
    expect([bare.status, bare.headers['www-authenticate']]).toEqual([401, 'Basic realm="longshore"']);
    expect((await ask(OPERATORS, 'GET', '/v2/')).status).toBe(401);
    const token = await pullToken(OPERATORS, one, image);
    expect((await ask(OPERATORS, 'GET', path, { token: `${token.slice(0, -4)}AAAA` })).status).toBe(401);
    const machine = machines.get(OPERATORS);
    machines.delete(OPERATORS);
    expect((await ask(OPERATORS, 'GET', path, { token })).status).toBe(401);
    if (machine !== undefined) machines.set(OPERATORS, machine);
    expect((await ask(OPERATORS, 'GET', path, { token })).status).toBe(200);
    nowMs += TOKEN_LIFE_MS + 60_000;
    expect((await ask(OPERATORS, 'GET', path, { token })).status).toBe(401);
    nowMs = Date.now();
  });

  test('of another workspace is out of reach of a token, also by its digests', async () => {
    const theirs = await pushed(other);
    const { image } = await pushed(one);
    const token = await pullToken(OPERATORS, one, image);
    for (const path of [
      `/v2/${builtRepository(other)}/manifests/${theirs.digest}`,
      `/v2/${builtRepository(other)}/blobs/${sha256(theirs.layer)}`,
      `/v2/${builtRepository(one)}/manifests/${theirs.digest}`,
      '/v2/_catalog',
    ])
      expect((await ask(OPERATORS, 'GET', path, { token })).status).toBe(403);
    // The registry has the bytes, and gives them to no repository that does not name them.
    const blob = await ask(OPERATORS, 'GET', `/v2/${builtRepository(one)}/blobs/${sha256(theirs.layer)}`, { token });
    expect(blob.status).toBe(404);
  });
});

test('a request that comes in one piece with the lines before it is answered', async () => {
  const answer = await askAtOnce(OPERATORS, 'GET /v2/ HTTP/1.1\r\nhost: registry\r\nconnection: close\r\n\r\n');
  expect(answer).toMatch(/^HTTP\/1\.1 401 /);
});

describe('a push', () => {
  const rightOf = async (workspaceId: WorkspaceId, image: string): Promise<string> => {
    const right = await access.toPush(OPERATORS, workspaceId, image);
    return typeof right === 'string' ? '' : (right.auth?.password ?? '');
  };

  test('goes to its own repository and tag alone', async () => {
    const { image } = await pushed(one);
    const token = await rightOf(one, image);
    expect(await upload(OPERATORS, token, builtRepository(other), Buffer.from('x'))).toBe(403);
    for (const tag of [
      `${builtRepository(other)}/manifests/${builtTag(image)}`,
      `${builtRepository(one)}/manifests/${'0'.repeat(32)}`,
    ])
      expect((await ask(OPERATORS, 'PUT', `/v2/${tag}`, { token, body: Buffer.from('{}') })).status).toBe(403);
    const reading = await pullToken(OPERATORS, one, image);
    expect(await upload(OPERATORS, reading, builtRepository(one), Buffer.from('x'))).toBe(403);
  });

  test('takes no layer of another workspace, neither by a mount nor by a manifest', async () => {
    const theirs = await pushed(other);
    const { image } = await pushed(one);
    const token = await rightOf(one, image);
    const layer = sha256(theirs.layer);
    const repository = builtRepository(one);
    const mounted = await ask(
      OPERATORS,
      'POST',
      `/v2/${repository}/blobs/uploads/?mount=${layer}&from=${builtRepository(other)}`,
      { token },
    );
    // An ordinary upload begins instead.
    expect(mounted.status).toBe(202);
    expect((await ask(OPERATORS, 'HEAD', `/v2/${repository}/blobs/${layer}`, { token })).status).toBe(404);
    const config = Buffer.from('{}');
    expect(await upload(OPERATORS, token, repository, config)).toBe(201);
    const put = await ask(OPERATORS, 'PUT', `/v2/${repository}/manifests/${builtTag(image)}`, {
      token,
      body: manifestOf(config, theirs.layer),
      headers: { 'content-type': MANIFEST },
    });
    expect([put.status, put.body.toString()]).toEqual([400, expect.stringContaining('BLOB_UNKNOWN') as string]);
  });
});

test('a layer of two images counts once', async () => {
  const own = (await aWorkspace(opened.db)).id;
  const layer = randomBytes(50_000);
  await pushed(own, layer);
  const before = await registryBytes(opened.db, own);
  await pushed(own, layer);
  const after = await registryBytes(opened.db, own);
  // The second image has a manifest and a configuration of its own.
  expect(after - before).toBeLessThan(10_000);
  expect(before).toBeGreaterThan(50_000);
});

test('an image without a row leaves the registry, with its bytes at the next start; the others stay', async () => {
  const [kept, gone] = [await pushed(one), await pushed(one)];
  const metrics = new RegistryMetrics(new Registry());
  const sweep = new RegistrySweep({ db: opened.db, client, metrics, log: silent });
  await opened.db.query('delete from images where id = $1', [gone.image]);
  expect(await sweep.round()).toBe(1);
  expect(await sweep.round()).toBe(0);
  const repository = builtRepository(one);
  expect(await client.image(repository, gone.digest)).toBeUndefined();
  await registry.stop();
  registry = aRegistry();
  await registry.start();
  await registry.whenWritable();
  const token = await pullToken(OPERATORS, one, kept.image);
  const blobOf = (layer: Buffer) => ask(OPERATORS, 'GET', `/v2/${repository}/blobs/${sha256(layer)}`, { token });
  expect((await blobOf(kept.layer)).body.equals(kept.layer)).toBe(true);
  expect((await blobOf(gone.layer)).status).toBe(404);
});

test('while layers are collected pulls go on without a gap, and a push waits for the end', async () => {
  const kept = await pushed(one);
  const gone = await pushed(one);
  await client.remove(builtRepository(one), gone.digest);
  const pull = await pullToken(OPERATORS, one, kept.image);
  const repository = builtRepository(one);
  const blobOf = (layer: Buffer) => ask(OPERATORS, 'GET', `/v2/${repository}/blobs/${sha256(layer)}`, { token: pull });
  const statuses = new Map<number, number>();
  let isOver = false;
  const pulling = (async () => {
    while (!isOver) {
      const { status, body } = await blobOf(kept.layer);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      if (status === 200) expect(body.equals(kept.layer)).toBe(true);
    }
  })();
  rmSync(begun, { force: true });
  writeFileSync(held, '');
  try {
    registry.collectNow();
    await waitFor(() => existsSync(begun), 'the collection begins', 30_000);
    let isPushed = false;
    const pushing = pushed(one).finally(() => (isPushed = true));
    const before = statuses.get(200) ?? 0;
    await waitFor(() => (statuses.get(200) ?? 0) > before + 20, 'pulls go on', 30_000);
    expect(isPushed).toBe(false);
    rmSync(held);
    const late = await pushing;
    expect((await client.image(repository, late.digest))?.digest).toBe(late.digest);
  } finally {
    rmSync(held, { force: true });
    isOver = true;
    await pulling;
  }
  expect([...statuses.keys()]).toEqual([200]);
  expect((await blobOf(gone.layer)).status).toBe(404);
});

test('an image that the registry lost is known to be gone', async () => {
  const { image, digest } = await pushed(one);
  const token = await pullToken(OPERATORS, one, image);
  await client.remove(builtRepository(one), digest);
  expect((await ask(OPERATORS, 'GET', `/v2/${builtRepository(one)}/manifests/${digest}`, { token })).status).toBe(404);
  await waitFor(async () => (await imageById(opened.db, one, image))?.digest === '', 'the row says so');
  expect(await access.toPull(OPERATORS, one, image)).toBeUndefined();
});

test('a token for something else is none for the registry', async () => {
  const forged = await issueToken(
    { signingKey: generateKeyPairSync('ed25519').privateKey, publicKey },
    OPERATORS,
    { action: 'pull', repository: builtRepository(one), reference: 'x' },
    Date.now(),
  );
  expect((await ask(OPERATORS, 'GET', '/v2/', { token: forged })).status).toBe(401);
});

test('the files of the registry are for its user alone', async () => {
  const { statSync } = await import('node:fs');
  for (const name of ['registry', 'registry/registry.yml', 'registry/secret'])
    expect(statSync(join(directory.path, name)).mode & 0o077).toBe(0);
});
