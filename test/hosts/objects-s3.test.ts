// Objects in a bucket of a real S3 server that checks signatures. The tests cover the upload protocol by signed
// addresses, arrived objects, reads, refusals, and collected objects.
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { ObjectId, WorkspaceId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import type { ObjectBackend } from '#scheduler/stores/objects/backend.ts';
import { ObjectCollector, ObjectMetrics } from '#scheduler/stores/objects/collector.ts';
import { openS3Objects } from '#scheduler/stores/objects/s3.ts';
import { createObjects } from '#scheduler/stores/objects/service.ts';
import type { Objects } from '#scheduler/stores/objects/service.ts';
import type { TestDocker } from '../helpers/docker.ts';
import { docker } from '../helpers/docker.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import type { S3Server } from '../helpers/s3-server.ts';
import { anS3Server } from '../helpers/s3-server.ts';
import { aPostgres, aRedis, waitFor } from '../helpers/services.ts';
import { aDb, aWorkspace, silent } from '../integration/store-fixture.ts';
import type { OpenedDb } from '../integration/store-fixture.ts';

let engine: TestDocker;
let server: S3Server;
let opened: OpenedDb;
let backend: ObjectBackend;
let objects: Objects;
let owner: { workspaceId: WorkspaceId };
let replaced: ObjectId[] = [];
const settings = () => ({ ...server, region: 'us-east-1', pathStyle: true, prefix: 'team/' });
beforeAll(async () => {
  engine = await docker();
  [server, opened] = await Promise.all([anS3Server(engine), aDb('pglite')]);
  backend = await openS3Objects(settings());
  objects = createObjects({
    db: opened.db,
    backend,
    installation: { deriveKeys: () => [new Uint8Array(32)] },
    maxObjectBytes: 1_000_000,
  });
  objects.onReplaced((id) => void replaced.push(id));
  owner = { workspaceId: (await aWorkspace(opened.db)).id };
});
afterAll(async () => {
  backend.close?.();
  await opened.stop();
  await engine.cleanUp();
});

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const put = (url: string, bytes: Uint8Array): Promise<Response> =>
  fetch(url, { method: 'PUT', body: Buffer.from(bytes), headers: { 'content-type': 'application/zip' } });
async function announced(hash: string, size: number): Promise<{ readonly objectId: ObjectId; readonly url: string }> {
  const { objectId, uploadPath } = await objects.create(owner, { hash, size, overwrite: true });
  if (uploadPath === null) throw new Error('nothing to upload');
  return { objectId, url: uploadPath };
}
async function bytesOf(objectId: string): Promise<Buffer> {
  const found = await objects.open(objectId);
  if (found === undefined) throw new Error('it is not there');
  const parts: Buffer[] = [];
  for await (const part of found.stream) parts.push(part as Buffer);
  expect(sha256(Buffer.concat(parts))).toBe(found.sha256);
  return Buffer.concat(parts);
}

test('an archive goes to the store by a signed address, and is known with our checksum when it is asked for', async () => {
  const bytes = randomBytes(300_000);
  const { objectId, url } = await announced('first', bytes.length);
  expect(url.startsWith(`${server.endpoint}/longshore/team/incoming/`)).toBe(true);
  expect(await objects.head(owner, 'first')).toBeUndefined();
  expect(await objects.use(objectId)).toMatchObject({ sha256: null });
  const answer = await put(url, bytes);
  expect(answer.status, await answer.text()).toBe(200);
  expect(await objects.head(owner, 'first')).toMatchObject({ id: objectId, sha256: sha256(bytes), size: bytes.length });
  expect((await bytesOf(objectId)).equals(bytes)).toBe(true);
  // The upload was taken once: nothing is left at the upload addresses.
  expect(await Array.fromAsync(backend.uploads!.list())).toEqual([]);
  expect((await objects.create(owner, { hash: 'first', size: 1, overwrite: false })).uploadPath).toBeNull();
});

test('the same address takes other bytes later, and whoever has the object hears of it when it is asked for', async () => {
  const { objectId, url } = await announced('again', 3);
  await put(url, Buffer.from('one'));
  expect(await objects.use(objectId)).toMatchObject({ sha256: sha256(Buffer.from('one')) });
  replaced = [];
  await put(url, Buffer.from('other'));
  // Until the new upload completes, the old bytes and their checksum stay.
  expect((await bytesOf(objectId)).toString()).toBe('one');
  const [a, b] = await Promise.all([objects.use(objectId), objects.head(owner, 'again')]);
  expect([a?.sha256, b?.sha256]).toContain(sha256(Buffer.from('other')));
  expect((await bytesOf(objectId)).toString()).toBe('other');
  expect(replaced).toContain(objectId);
});

test('an address that was changed, or is for something else, is refused by the store', async () => {
  const { url } = await announced('tampered', 3);
  const { url: another } = await announced('another', 3);
  const signed = new URL(url);
  const swapped = new URL(another);
  swapped.search = signed.search;
  signed.searchParams.set('X-Amz-Expires', '604800');
  for (const bad of [signed.href, swapped.href]) {
    expect((await put(bad, Buffer.from('abc'))).status, bad).toBe(403);
  }
  expect((await put(url.split('?')[0] ?? '', Buffer.from('abc'))).status).toBeGreaterThanOrEqual(400);
  expect((await fetch(url)).status).toBe(403);
  expect(await objects.head(owner, 'tampered')).toBeUndefined();
});

test('a download goes to the store by a signed address that serves ranges, and uploads nothing', async () => {
  const bytes = randomBytes(50_000);
  const { objectId, url } = await announced('download', bytes.length);
  expect(await objects.signDownload(owner, objectId)).toBeUndefined();
  await put(url, bytes);
  const signed = await objects.signDownload(owner, objectId);
  expect(signed).toMatchObject({ size: bytes.length, sha256: sha256(bytes) });
  const path = signed?.path ?? '';
  expect(path.startsWith(`${server.endpoint}/longshore/team/objects/`)).toBe(true);
  const part = await fetch(path, { headers: { range: 'bytes=-10' } });
  expect([part.status, part.headers.get('content-range')]).toEqual([206, 'bytes 49990-49999/50000']);
  expect(Buffer.from(await part.arrayBuffer()).equals(bytes.subarray(-10))).toBe(true);
  expect(Buffer.from(await (await fetch(path)).arrayBuffer()).equals(bytes)).toBe(true);
  expect((await fetch(path, { headers: { range: 'bytes=50000-' } })).status).toBe(416);
  expect((await put(path, bytes)).status).toBe(403);
  const other = { workspaceId: (await aWorkspace(opened.db)).id };
  expect(await objects.signDownload(other, objectId)).toBeUndefined();
  // The store takes uploads; the scheduler has neither parts nor bytes.
  await expect(objects.uploadState(objectId)).rejects.toMatchObject({ code: 'object_not_found' });
  expect(await objects.openDownload(objectId)).toBeUndefined();
});

test('an upload that is too large is gone, and says so', async () => {
  const { objectId, url } = await announced('large', 10);
  expect((await put(url, Buffer.alloc(1_000_001))).status).toBe(200);
  await expect(objects.use(objectId)).rejects.toMatchObject({ code: 'body_too_large' });
  expect(await objects.use(objectId)).toMatchObject({ sha256: null });
});

test('bodies of tasks are kept, read within a bound, listed and removed', async () => {
  const id = await objects.putBytes(Buffer.from('{"a":"é"}'));
  expect(Buffer.from((await objects.getBytes(id, 100))!).toString()).toBe('{"a":"é"}');
  await expect(objects.getBytes(id, 5)).rejects.toMatchObject({ code: 'body_too_large' });
  const kept = await Array.fromAsync(objects.keptBytes());
  expect(kept.find(({ key }) => key === id)?.writtenAtMs).toBeGreaterThan(Date.now() - 600_000);
  await objects.removeBytes(id);
  await objects.removeBytes(id);
  expect(await objects.getBytes(id, 100)).toBeUndefined();
  expect(await objects.getBytes('../secret' as ObjectId, 100)).toBeUndefined();
  const empty = await objects.putBytes(new Uint8Array());
  expect(await objects.getBytes(empty, 100)).toHaveLength(0);
});

test('what nothing refers to goes, uploads that nobody asked for are taken in, and those without a row go', async () => {
  const { objectId: unused, url } = await announced('unused', 3);
  await put(url, Buffer.from('abc'));
  const { objectId: forgotten, url: late } = await announced('forgotten', 3);
  await put(late, Buffer.from('def'));
  const stray = newId<ObjectId>();
  await put(await backend.uploads!.sign(stray, 60), Buffer.from('ghi'));
  await objects.use(unused);
  await opened.db.query("update objects set touched_at = now() - interval '26 hours' where id = $1", [unused]);
  const collector = new ObjectCollector({
    db: opened.db,
    kept: () => objects.keptBytes(),
    remove: (key) => objects.removeBytes(key),
    takeUploads: (beforeMs, most) => objects.takeUploads(beforeMs, most),
    isOthers: () => false,
    metrics: new ObjectMetrics(new Registry()),
    // The clock is past the time for which uploads are left alone, and before the grace.
    clock: { nowMs: () => Date.now() + 3_600_000 } as never,
    log: silent,
    graceMs: 26 * 3_600_000,
  });
  expect((await collector.round()).objects).toBe(1);
  expect(await backend.exists(unused)).toBe(false);
  expect(await objects.find(owner, forgotten)).toMatchObject({ sha256: sha256(Buffer.from('def')) });
  expect(await Array.fromAsync(backend.uploads!.list())).toEqual([]);
});

test('a bucket that is not there, a wrong secret and a store that does not answer end the start with the settings', async () => {
  const wrong = { ...server.credentials, secretAccessKey: 'WRONG' };
  for (const bad of [{ bucket: 'nowhere' }, { credentials: wrong }, { endpoint: 'http://127.0.0.1:1' }]) {
    const error = await openS3Objects({ ...settings(), ...bad }).catch((caught: unknown) => caught);
    expect(error).toMatchObject({
      code: 'object_store_failed',
      message: expect.stringContaining('LONGSHORE_OBJECTS_'),
    });
    expect(String(error)).not.toMatch(/WRONG|SECRET/);
  }
});

test('a scheduler on a bucket takes an archive, makes a stub of it, and keeps a large result there', async () => {
  const [postgres, redis] = await Promise.all([aPostgres(), aRedis()]);
  const set = new ReplicaSet(postgres, redis, postgres.url, {
    LONGSHORE_OBJECTS_BUCKET: server.bucket,
    LONGSHORE_OBJECTS_ENDPOINT: server.endpoint,
    LONGSHORE_OBJECTS_PATH_STYLE: 'true',
    LONGSHORE_OBJECTS_PREFIX: 'scheduler/',
    LONGSHORE_OBJECTS_ACCESS_KEY_ID: server.credentials.accessKeyId,
    LONGSHORE_OBJECTS_SECRET_ACCESS_KEY: server.credentials.secretAccessKey,
  });
  try {
    const at = await set.add();
    await set.agent({ handle: () => JSON.stringify('x'.repeat(300_000)) });
    const made = await set.gateway(at, '/objects', { objectMetadata: {}, hash: 'h', size: 3, overwrite: true });
    const early = await set.call(at, '/api/v1/gateway/stubs', {
      body: { objectId: made['objectId'], stubType: 'endpoint', name: 'n', handler: 'a:b', cpu: 100, memory: 64 },
    });
    expect(early.text).toContain('has no content yet');
    expect((await put(String(made['presignedUrl']), Buffer.from('zip'))).status).toBe(200);
    const head = await set.gateway<{ readonly exists: boolean }>(at, '/objects/h');
    expect(head).toMatchObject({ exists: true, objectId: made['objectId'], useWorkspaceStorage: true });
    const app = await set.deploy(at, 'bucket', { objectId: made['objectId'] });
    const answer = await set.call(at, app.path, { body: {} });
    expect([answer.status, answer.text.length]).toEqual([200, 300_002]);
    const task = await waitFor(async () => {
      const one = await set.call(at, `/api/v1/task/${set.workspaceId}/${answer.taskId}`);
      return one.text.includes('COMPLETE') ? one.text : undefined;
    }, 'the task is recorded');
    expect(task.length).toBeGreaterThan(300_000);
  } finally {
    await set.stop();
    await Promise.all([postgres.stop(), redis.stop()]);
  }
});
