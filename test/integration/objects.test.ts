import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { ObjectId, WorkspaceId } from '#shared/domain/ids.ts';
import { openFileObjects } from '../../scheduler/stores/objects/files.ts';
import { createObjects } from '../../scheduler/stores/objects/service.ts';
import type { Objects } from '../../scheduler/stores/objects/service.ts';
import { tempDirectory } from '../helpers/services.ts';
import { aDb, aWorkspace } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

async function* chunks(...parts: (Uint8Array | string | Error)[]): AsyncGenerator<Uint8Array> {
  for (const part of parts) {
    if (part instanceof Error) throw part;
    yield typeof part === 'string' ? Buffer.from(part) : part;
  }
}

async function textOf(stream: AsyncIterable<unknown>): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(part as Buffer);
  return Buffer.concat(parts).toString();
}

describe('objects', () => {
  let opened: OpenedDb;
  let directory: string;
  let objects: Objects;
  let owner: { workspaceId: WorkspaceId };
  beforeAll(async () => {
    opened = await aDb('pglite');
    directory = join(opened.dataDir, 'objects');
    objects = createObjects({
      db: opened.db,
      backend: await openFileObjects(directory),
      installation: { deriveKeys: () => [new Uint8Array(32)] },
      maxObjectBytes: 1_000_000,
    });
    owner = { workspaceId: (await aWorkspace(opened.db)).id };
  });
  afterAll(() => opened.stop());
  const files = (): string[] =>
    readdirSync(directory, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => entry.name);

  test('an archive is announced, uploaded, found by its hash, and read by agents with our own checksum', async () => {
    const bytes = randomBytes(300_000);
    const hash = newId<ObjectId>();
    expect(await objects.head(owner, hash)).toBeUndefined();
    const { objectId, uploadPath } = await objects.create(owner, { hash, size: bytes.length, overwrite: false });
    expect(uploadPath).toContain(objectId);
    expect(await objects.head(owner, hash)).toBeUndefined();
    expect(await objects.open(objectId)).toBeUndefined();
    const stored = await objects.receive(objectId, chunks(bytes.subarray(0, 7), bytes.subarray(7)), bytes.length);
    expect(stored).toEqual({ size: bytes.length, sha256: sha256(bytes) });
    expect(await objects.head(owner, hash)).toMatchObject({ id: objectId, size: bytes.length, sha256: stored.sha256 });
    const read = await objects.open(objectId);
    expect(read).toMatchObject(stored);
    const digest = createHash('sha256');
    for await (const part of read!.stream) digest.update(part as Buffer);
    expect(digest.digest('hex')).toBe(stored.sha256);
  });

  test('a known hash is uploaded again only when asked, or when its bytes are gone', async () => {
    const object = { hash: 'known', size: 3 };
    const first = await objects.create(owner, { ...object, overwrite: false });
    const unfinished = await objects.create(owner, { ...object, overwrite: false });
    expect(unfinished.objectId).toBe(first.objectId);
    expect(unfinished.uploadPath).not.toBeNull();
    await objects.receive(first.objectId, chunks('one'));
    expect(await objects.create(owner, { ...object, overwrite: false })).toEqual({
      objectId: first.objectId,
      uploadPath: null,
    });
    const again = await objects.create(owner, { ...object, overwrite: true });
    expect(again.objectId).toBe(first.objectId);
    const reader = await objects.open(first.objectId);
    await objects.receive(first.objectId, chunks('three'));
    expect(await textOf(reader!.stream)).toBe('one');
    expect(await textOf((await objects.open(first.objectId))!.stream)).toBe('three');
    await objects.removeBytes(first.objectId);
    expect(await objects.head(owner, 'known')).toBeUndefined();
    expect((await objects.create(owner, { ...object, overwrite: false })).uploadPath).not.toBeNull();
  });

  test('a workspace sees only its own objects', async () => {
    const other = { workspaceId: (await aWorkspace(opened.db)).id };
    const mine = await objects.create(owner, { hash: 'same', size: 1, overwrite: true });
    await objects.receive(mine.objectId, chunks('m'));
    expect(await objects.head(other, 'same')).toBeUndefined();
    expect(await objects.find(other, mine.objectId)).toBeUndefined();
    expect((await objects.find(owner, mine.objectId))?.id).toBe(mine.objectId);
    const theirs = await objects.create(other, { hash: 'same', size: 1, overwrite: true });
    expect(theirs.objectId).not.toBe(mine.objectId);
  });

  test('an upload that fails leaves nothing and keeps what was there', async () => {
    const { objectId } = await objects.create(owner, { hash: 'fails', size: 5, overwrite: true });
    const before = files();
    const large = new Uint8Array(600_000);
    await expect(objects.receive(objectId, chunks(large, large))).rejects.toMatchObject({ code: 'body_too_large' });
    await expect(objects.receive(objectId, chunks(), 1_000_001)).rejects.toMatchObject({ code: 'body_too_large' });
    await expect(objects.receive(objectId, chunks('abc'), 5)).rejects.toMatchObject({ code: 'upload_incomplete' });
    await expect(objects.receive(objectId, chunks('abcdef'), 5)).rejects.toMatchObject({ code: 'upload_incomplete' });
    const cut = Object.assign(new Error('aborted'), { code: 'ECONNRESET' });
    await expect(objects.receive(objectId, chunks('ab', cut))).rejects.toMatchObject({ code: 'upload_incomplete' });
    await expect(objects.receive(newId(), chunks('x'))).rejects.toMatchObject({ code: 'object_not_found' });
    expect(files()).toEqual(before);
    expect(await objects.head(owner, 'fails')).toBeUndefined();
    await objects.receive(objectId, chunks('whole'), 5);
    await expect(objects.receive(objectId, chunks('x', cut))).rejects.toMatchObject({ code: 'upload_incomplete' });
    expect(await textOf((await objects.open(objectId))!.stream)).toBe('whole');
  });

  test('unfinished uploads go a day after their last byte, those of a lost writer too, and younger ones stay', async () => {
    const begun = async (hash: string, ageMs: number): Promise<ObjectId> => {
      const { objectId } = await objects.create(owner, { hash, size: 4, overwrite: true });
      await objects.receivePart(objectId, { first: 0, end: 2, total: 4 }, chunks('ab'));
      const path = join(directory, 'incoming', `${objectId}.4.part`);
      const at = new Date(Date.now() - ageMs);
      utimesSync(path, at, at);
      return objectId;
    };
    const old = await begun('old', 86_400_001);
    const young = await begun('young', 86_300_000);
    const lost = await objects.create(owner, { hash: 'lost', size: 4, overwrite: true });
    const left = join(directory, 'incoming', `${lost.objectId}.4.0123456789abcdef.writing`);
    writeFileSync(left, 'abc');
    utimesSync(left, new Date(0), new Date(0));
    expect(await objects.takeUploads(0, 1_000)).toBe(2);
    expect((await objects.uploadState(old)).unfinished).toBeUndefined();
    expect((await objects.uploadState(lost.objectId)).unfinished).toBeUndefined();
    expect((await objects.uploadState(young)).unfinished).toMatchObject({ received: 2, total: 4, isBusy: false });
    await expect(objects.receivePart(old, { first: 2, end: 4, total: 4 }, chunks('cd'))).rejects.toMatchObject({
      code: 'upload_offset_mismatch',
      details: { received: 0 },
    });
    await objects.receivePart(young, { first: 2, end: 4, total: 4 }, chunks('cd'));
    expect(await textOf((await objects.open(young))!.stream)).toBe('abcd');
  });

  test('a full disk is told apart', async () => {
    const { objectId } = await objects.create(owner, { hash: 'full', size: 1, overwrite: true });
    const full = Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
    await expect(objects.receive(objectId, chunks('a', full))).rejects.toMatchObject({ code: 'disk_full' });
  });

  test('task bodies are kept and read back whole, within a bound', async () => {
    const bytes = Buffer.from('{"a":"é"}');
    const id = await objects.putBytes(bytes);
    expect(Buffer.from((await objects.getBytes(id, 100))!).toString()).toBe('{"a":"é"}');
    await expect(objects.getBytes(id, 5)).rejects.toMatchObject({ code: 'body_too_large' });
    await objects.removeBytes(id);
    await objects.removeBytes(id);
    expect(await objects.getBytes(id, 100)).toBeUndefined();
    expect(await objects.getBytes('../secret.key' as ObjectId, 100)).toBeUndefined();
    const named = `input-${newId()}` as ObjectId;
    expect(await objects.putBytes(Buffer.from('{}'), named)).toBe(named);
    const kept = await Array.fromAsync(objects.keptBytes());
    expect(kept.find(({ key }) => key === named)?.writtenAtMs).toBeGreaterThan(Date.now() - 60_000);
    await objects.removeBytes(named);
    expect((await Array.fromAsync(objects.keptBytes())).map(({ key }) => key)).not.toContain(named);
    const empty = await objects.putBytes(new Uint8Array());
    expect(await objects.getBytes(empty, 100)).toHaveLength(0);
  });
});

test('what a crash left half-written is removed after a day, what another replica writes is not', async () => {
  const directory = tempDirectory('obj');
  try {
    const incoming = join(directory.path, 'incoming');
    mkdirSync(incoming);
    writeFileSync(join(incoming, 'old'), '');
    writeFileSync(join(incoming, 'new'), '');
    utimesSync(join(incoming, 'old'), new Date(0), new Date(0));
    await openFileObjects(directory.path);
    expect(existsSync(join(incoming, 'old'))).toBe(false);
    expect(existsSync(join(incoming, 'new'))).toBe(true);
  } finally {
    chmodSync(directory.path, 0o755);
    directory.remove();
  }
});
