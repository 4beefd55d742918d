// The managed registry with its data in the bucket of a real S3 server: an image goes in and comes out, and a removed
// one goes with its bytes.
import { createHash, randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ManagedRegistry } from '#cli/up/managed-registry.ts';
import type { ObjectBackend } from '#scheduler/stores/objects/backend.ts';
import { openS3Objects } from '#scheduler/stores/objects/s3.ts';
import { RegistryClient } from '#scheduler/fleet/registry/client.ts';
import type { TestDocker } from '../helpers/docker.ts';
import { docker } from '../helpers/docker.ts';
import type { S3Server } from '../helpers/s3-server.ts';
import { anS3Server } from '../helpers/s3-server.ts';
import { tempDirectory, waitFor } from '../helpers/services.ts';
import { silent } from '../integration/store-fixture.ts';

const REPOSITORY = 'longshore-built/0f8fad5b-d9cb-469f-a165-70867728950e';
const MANIFEST = 'application/vnd.docker.distribution.manifest.v2+json';
const sha256 = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
const directory = tempDirectory('registry');
let engine: TestDocker;
let server: S3Server;
let registry: ManagedRegistry;
let client: RegistryClient;

const aRegistry = (dataDir: string): ManagedRegistry =>
  new ManagedRegistry({
    program: 'docker-registry',
    settings: {
      LONGSHORE_DATA_DIR: dataDir,
      LONGSHORE_OBJECTS_REGION: 'us-east-1',
      LONGSHORE_OBJECTS_PREFIX: 'team/',
      LONGSHORE_OBJECTS_BUCKET: server.bucket,
      LONGSHORE_OBJECTS_ENDPOINT: server.endpoint,
      LONGSHORE_OBJECTS_ACCESS_KEY_ID: server.credentials.accessKeyId,
      LONGSHORE_OBJECTS_SECRET_ACCESS_KEY: server.credentials.secretAccessKey,
    },
    address: undefined,
    log: silent,
  });

async function open(): Promise<void> {
  registry = aRegistry(directory.path);
  await registry.start();
  await registry.whenWritable();
  client = new RegistryClient(registry.address);
}

async function close(): Promise<void> {
  await client.close();
  await registry.stop();
}

/** Marks of registries in the bucket. */
const marksOf = (): Promise<ObjectBackend> =>
  openS3Objects({ ...server, region: 'us-east-1', pathStyle: true, prefix: 'team/registry-marks/' });
async function marksIn(store: ObjectBackend): Promise<readonly string[]> {
  const keys: string[] = [];
  for await (const { key } of store.list()) keys.push(key);
  return keys;
}

beforeAll(async () => {
  engine = await docker();
  server = await anS3Server(engine);
  await open();
}, 120_000);
afterAll(async () => {
  await close();
  await engine.cleanUp();
  directory.remove();
});

async function send(method: 'POST' | 'PUT' | 'PATCH', path: string, body: Buffer, type: string): Promise<string> {
  const answer = await client.pool.request({ method, path, body, headers: { 'content-type': type } });
  const text = await answer.body.text();
  if (answer.statusCode >= 300) throw new Error(`${method} ${path}: ${answer.statusCode} ${text}`);
  return String(answer.headers['location'] ?? '');
}

async function upload(bytes: Buffer): Promise<void> {
  const begun = new URL(await send('POST', `/v2/${REPOSITORY}/blobs/uploads/`, Buffer.alloc(0), 'text/plain'));
  const sent = new URL(await send('PATCH', `${begun.pathname}${begun.search}`, bytes, 'application/octet-stream'));
  sent.searchParams.set('digest', sha256(bytes));
  await send('PUT', `${sent.pathname}${sent.search}`, Buffer.alloc(0), 'application/octet-stream');
}

async function push(tag: string, layer: Buffer): Promise<string> {
  const config = Buffer.from(JSON.stringify({ tag }));
  const about = (bytes: Buffer, mediaType: string) => ({ mediaType, size: bytes.length, digest: sha256(bytes) });
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: about(config, 'application/vnd.docker.container.image.v1+json'),
      layers: [about(layer, 'application/vnd.docker.image.rootfs.diff.tar.gzip')],
    }),
  );
  await upload(config);
  await upload(layer);
  await send('PUT', `/v2/${REPOSITORY}/manifests/${tag}`, manifest, MANIFEST);
  return sha256(manifest);
}

async function blob(digest: string): Promise<{ readonly status: number; readonly bytes: Buffer }> {
  const answer = await client.pool.request({ method: 'GET', path: `/v2/${REPOSITORY}/blobs/${digest}` });
  return { status: answer.statusCode, bytes: Buffer.from(await answer.body.arrayBuffer()) };
}

test(
  'an image goes into the bucket and comes out, and a removed one goes with its bytes',
  { timeout: 120_000 },
  async () => {
    // Larger than a part of an upload.
    const [kept, gone] = [randomBytes(12 * 1024 * 1024), randomBytes(10_000)];
    const [keptTag, goneTag] = ['a'.repeat(32), 'b'.repeat(32)];
    const keptDigest = await push(keptTag, kept);
    const goneDigest = await push(goneTag, gone);
    expect((await client.image(REPOSITORY, keptDigest))?.layers[sha256(kept)]).toBe(kept.length);
    expect((await blob(sha256(kept))).bytes.equals(kept)).toBe(true);
    expect((await client.tags(REPOSITORY)).toSorted()).toEqual([keptTag, goneTag]);
    await client.remove(REPOSITORY, goneDigest);
    await close();
    await open();
    const repositories: string[] = [];
    for await (const name of client.repositories()) repositories.push(name);
    expect(repositories).toEqual([REPOSITORY]);
    expect(await client.tags(REPOSITORY)).toEqual([keptTag]);
    expect((await blob(sha256(kept))).bytes.equals(kept)).toBe(true);
    expect((await blob(sha256(gone))).status).toBe(404);
  },
);

test(
  'beside a registry that serves from the bucket another one serves, too, and takes no layers',
  { timeout: 120_000 },
  async () => {
    const layer = randomBytes(10_000);
    const digest = await push('c'.repeat(32), layer);
    await client.remove(REPOSITORY, digest);
    const beside = tempDirectory('registry');
    const other = aRegistry(beside.path);
    await other.start();
    await other.whenWritable();
    const theirs = new RegistryClient(other.address);
    expect(await theirs.tags(REPOSITORY)).toContain('a'.repeat(32));
    expect((await blob(sha256(layer))).status).toBe(200);
    await theirs.close();
    await other.stop();
    beside.remove();
    await close();
    await open();
    expect((await blob(sha256(layer))).status).toBe(404);
  },
);

test('a registry waits while another one collects, and leaves no mark when it ends', { timeout: 120_000 }, async () => {
  const marks = await marksOf();
  await close();
  expect(await marksIn(marks)).toEqual([]);
  const key = `collecting-${'f'.repeat(16)}`;
  await marks.put(key, Readable.from([Buffer.alloc(0)]), 0);
  let isOpen = false;
  const opening = open().then(() => (isOpen = true));
  await waitFor(async () => (await marksIn(marks)).some((one) => one.startsWith('serving-')), 'it waits', 30_000);
  expect(isOpen).toBe(false);
  await marks.remove(key);
  await opening;
  expect((await client.tags(REPOSITORY)).length).toBe(1);
  marks.close?.();
});
