// The managed registry with its data in the bucket of a real S3 server: an image goes in and comes out, and a removed
// one goes with its bytes.
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ManagedRegistry } from '#cli/up/managed-registry.ts';
import { RegistryClient } from '#scheduler/fleet/registry/client.ts';
import type { TestDocker } from '../helpers/docker.ts';
import { docker } from '../helpers/docker.ts';
import type { S3Server } from '../helpers/s3-server.ts';
import { anS3Server } from '../helpers/s3-server.ts';
import { tempDirectory } from '../helpers/services.ts';
import { silent } from '../integration/store-fixture.ts';

const REPOSITORY = 'longshore-built/0f8fad5b-d9cb-469f-a165-70867728950e';
const MANIFEST = 'application/vnd.docker.distribution.manifest.v2+json';
const sha256 = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
const directory = tempDirectory('registry');
let engine: TestDocker;
let server: S3Server;
let registry: ManagedRegistry;
let client: RegistryClient;

async function open(): Promise<void> {
  registry = new ManagedRegistry({
    program: 'docker-registry',
    settings: {
      LONGSHORE_DATA_DIR: directory.path,
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
  await registry.start();
  client = new RegistryClient(registry.address);
}

async function close(): Promise<void> {
  await client.close();
  await registry.stop();
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
