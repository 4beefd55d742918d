import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import type { Log } from '#shared/log.ts';
import type { ImageFacts } from '../../../agent/containers/runtime.ts';
import { ImageCache } from '../../../agent/images/cache.ts';
import { ImageLedger } from '../../../agent/images/ledger.ts';

const directory = mkdtempSync(join(tmpdir(), 'cache-'));
afterAll(() => rmSync(directory, { recursive: true }));

const [NAME, ID] = ['registry.test/app:1', `sha256:${'a'.repeat(64)}`];

test('an image whose name somebody removed keeps its rights until the image is gone', async () => {
  const ledger = new ImageLedger(join(directory, 'ledger.json'));
  await ledger.pulled(NAME, 1, { private: true, imageId: ID, workspaceId: 'w-1' });
  const here = new Map<string, ImageFacts>();
  const cache = new ImageCache({
    runtime: {
      image: (reference) => Promise.resolve(here.get(reference)),
      imageIdsInUse: () => Promise.resolve(new Set<string>()),
      removeImage: () => Promise.resolve(false),
    },
    ledger,
    readDisk: () => Promise.resolve({ freeBytes: 9, usableBytes: 10, totalBytes: 10, freeInodesRatio: 1 }),
    minFreeRatio: 0.1,
    pulling: () => new Set(),
    wanted: () => new Set(),
    onBytes: () => undefined,
    onFreed: () => undefined,
    log: { info: () => undefined } as unknown as Log,
  });
  here.set(ID, { id: ID, digests: [], isLocal: true, bytes: 1, builtFor: '' });
  await cache.collect(false);
  expect(ledger.allowedPrivately(ID, ID)).toBeDefined();
  here.clear();
  await cache.collect(false);
  expect(ledger.allowedPrivately(ID, ID)).toBeUndefined();
});
