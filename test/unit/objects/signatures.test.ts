import { expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { ObjectId } from '#shared/domain/ids.ts';
import { SignedAddresses } from '../../../scheduler/stores/objects/signatures.ts';

const [old, recent] = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)];
const NOW_MS = 1_800_000_000_000;
const id = newId<ObjectId>();
const queryOf = (path: string): Record<string, string> => Object.fromEntries(new URL(path, 'http://x').searchParams);

test('an address is valid until its moment, under each key of the installation, and for one kind of request', () => {
  const downloads = new SignedAddresses('/down/', 'get', () => [old]);
  const path = downloads.sign(id, NOW_MS + 10_000);
  expect(path.startsWith(`/down/${id}?`)).toBe(true);
  const query = queryOf(path);
  expect(downloads.isValid(id, query, NOW_MS + 9_999)).toBe(true);
  expect(downloads.isValid(id, query, NOW_MS + 10_000)).toBe(false);
  expect(downloads.isValid(newId(), query, NOW_MS)).toBe(false);
  expect(new SignedAddresses('/down/', 'get', () => [recent, old]).isValid(id, query, NOW_MS)).toBe(true);
  expect(new SignedAddresses('/down/', 'get', () => [recent]).isValid(id, query, NOW_MS)).toBe(false);
  // The same keys for both kinds would not let a download's signature upload.
  expect(new SignedAddresses('/up/', 'put', () => [old]).isValid(id, query, NOW_MS)).toBe(false);
});
