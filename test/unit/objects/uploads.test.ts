import { expect, test } from 'vitest';
import { UPLOAD_LIFE_MS, UPLOAD_PATH, createObjects } from '../../../scheduler/stores/objects/service.ts';
import type { ObjectBackend } from '../../../scheduler/stores/objects/backend.ts';
import type { Db } from '../../../scheduler/stores/store/db.ts';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';

const nothingStored: ObjectBackend = {
  put: () => Promise.reject(new Error('not in this test')),
  open: () => Promise.resolve(undefined),
  exists: () => Promise.resolve(false),
  remove: () => Promise.resolve(),
  list: async function* () {},
};
/** Answers getOrCreateObject as a database without that hash would. */
const emptyDb = {
  query: <R>(_sql: string, params: readonly unknown[] = []) =>
    Promise.resolve({
      rows: [
        {
          id: params[0],
          workspace_id: params[1],
          hash: params[2],
          size: params[3],
          sha256: null,
          uploaded_at: null,
          created_at: new Date(0),
        },
      ] as R[],
      rowCount: 1,
    }),
} as Partial<Db> as Db;
let nowMs = 1_800_000_000_000;
const clock = { nowMs: () => nowMs, monotonicMs: () => nowMs };
const service = (fill = 1, maxObjectBytes = 100) =>
  createObjects({
    db: emptyDb,
    backend: nothingStored,
    installation: { deriveKeys: () => [new Uint8Array(32).fill(fill)] },
    maxObjectBytes,
    clock,
  });
const owner = { workspaceId: newId<WorkspaceId>() };

async function signedUpload() {
  const { uploadPath, objectId } = await service().create(owner, { hash: 'h', size: 1, overwrite: true });
  const url = new URL(uploadPath ?? '', 'http://x');
  expect(url.pathname).toBe(UPLOAD_PATH + objectId);
  return {
    objectId,
    expires: url.searchParams.get('expires') ?? '',
    signature: url.searchParams.get('signature') ?? '',
  };
}

test('a signed address lets its bearer upload that object for a day', async () => {
  const { objectId, expires, signature } = await signedUpload();
  expect(service().verifyUpload(objectId, { expires, signature })).toBe(true);
  nowMs += UPLOAD_LIFE_MS - 1_000;
  expect(service().verifyUpload(objectId, { expires, signature })).toBe(true);
  nowMs += 1_000;
  expect(service().verifyUpload(objectId, { expires, signature })).toBe(false);
});

test('another object, a later end, another installation or a missing part is refused', async () => {
  const { objectId, expires, signature } = await signedUpload();
  expect(service().verifyUpload(newId(), { expires, signature })).toBe(false);
  expect(service().verifyUpload(objectId, { expires: String(Number(expires) + 1), signature })).toBe(false);
  expect(service(2).verifyUpload(objectId, { expires, signature })).toBe(false);
  expect(service().verifyUpload(objectId, { expires })).toBe(false);
  expect(service().verifyUpload(objectId, { signature })).toBe(false);
  expect(service().verifyUpload('../../etc/passwd', { expires, signature })).toBe(false);
  expect(service().verifyUpload(objectId, { expires, signature: signature.slice(1) })).toBe(false);
});

test.each([
  ['hash', { hash: '', size: 1 }],
  ['hash', { hash: 'x'.repeat(257), size: 1 }],
  ['size', { hash: 'h', size: -1 }],
  ['size', { hash: 'h', size: 1.5 }],
])('a bad %s is named', async (field, object) => {
  await expect(service().create(owner, { ...object, overwrite: true })).rejects.toMatchObject({
    code: 'invalid_object',
    details: { field },
  });
});

test('an object announced above the bound is refused before anything is uploaded', async () => {
  await expect(service().create(owner, { hash: 'h', size: 101, overwrite: true })).rejects.toMatchObject({
    code: 'body_too_large',
  });
});
