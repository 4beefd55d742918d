import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { CachedVolume, CacheRoom } from '#agent/volumes/evict-caches.ts';
import { chooseCacheEvictions, RECENT_MS } from '#agent/volumes/evict-caches.ts';
import { stories } from '../../helpers/stories.ts';

const NOW = 10_000_000_000;
const aCache = (volumeId: string, changes: Partial<CachedVolume> = {}): CachedVolume => ({
  workspaceId: 'w-1',
  volumeId,
  bytes: 10,
  usedAtMs: NOW - 2 * RECENT_MS,
  grownAtMs: 0,
  mounted: false,
  condemned: false,
  ...changes,
});
const ROOMY: CacheRoom = {
  machineBytes: 1000,
  workspaceBytes: 1000,
  freeBytes: 500,
  usableBytes: 1000,
  minFreeRatio: 0.15,
};
const choose = (volumes: readonly CachedVolume[], room: Partial<CacheRoom> = {}) => {
  const { evict, excess } = chooseCacheEvictions(volumes, { ...ROOMY, ...room }, NOW);
  return {
    evict: evict.map(({ volume, reason }) => `${volume.volumeId} ${reason}`),
    excess: excess.map(({ volume, bound }) => `${volume.volumeId} ${bound}`),
  };
};
const old = (ms: number): Partial<CachedVolume> => ({ usedAtMs: ms });

describe('cache volumes leave', () => {
  test('for the bound of a machine, the least recently used of any workspace first, and no more than needed', () => {
    const volumes = [aCache('b', old(2)), aCache('a', old(1)), aCache('c', { ...old(3), workspaceId: 'w-2' })];
    expect(choose(volumes, { machineBytes: 30 })).toEqual({ evict: [], excess: [] });
    expect(choose(volumes, { machineBytes: 29 }).evict).toEqual(['a machine']);
    expect(choose(volumes, { machineBytes: 5 }).evict).toEqual(['a machine', 'b machine', 'c machine']);
  });

  test('for the bound of a workspace, of that workspace alone', () => {
    const volumes = [aCache('a', old(3)), aCache('b', old(4)), aCache('c', { ...old(1), workspaceId: 'w-2' })];
    expect(choose(volumes, { workspaceBytes: 15 }).evict).toEqual(['a workspace']);
  });

  test('on a full disk, up to a twentieth of it more than must be free', () => {
    const volumes = [aCache('a', { ...old(1), bytes: 40 }), aCache('b', { ...old(2), bytes: 40 }), aCache('c')];
    expect(choose(volumes, { freeBytes: 150 }).evict).toEqual([]);
    expect(choose(volumes, { freeBytes: 149 }).evict).toEqual(['a disk', 'b disk']);
  });

  test('never while a container mounts them, or may be about to', () => {
    const volumes = [aCache('a', { mounted: true }), aCache('b', { usedAtMs: NOW - RECENT_MS + 1 })];
    expect(choose(volumes, { machineBytes: 1, freeBytes: 0 }).evict).toEqual([]);
  });

  test('without content, since nothing is lost', () => {
    const volumes = [aCache('a', { bytes: 0 }), aCache('b', { bytes: 0, mounted: true })];
    expect(choose(volumes).evict).toEqual(['a empty']);
  });
});

describe('containers end at a bound', () => {
  test('when nothing is left to evict: those of the volume that grew last', () => {
    const volumes = [
      aCache('large', { mounted: true, bytes: 90, grownAtMs: 5 }),
      aCache('grows', { mounted: true, bytes: 20, grownAtMs: 9, workspaceId: 'w-2' }),
      aCache('unused', old(1)),
    ];
    expect(choose(volumes, { machineBytes: 100 })).toEqual({ evict: ['unused machine'], excess: ['grows machine'] });
  });

  test('not where a volume that was used a moment ago would make room when it leaves', () => {
    const volumes = [aCache('a', { mounted: true, bytes: 90 }), aCache('b', { usedAtMs: NOW, bytes: 20 })];
    expect(choose(volumes, { machineBytes: 100 })).toEqual({ evict: [], excess: [] });
  });

  test('of one workspace, without a word to another', () => {
    const volumes = [
      aCache('a', { mounted: true, bytes: 60, grownAtMs: 1 }),
      aCache('b', { mounted: true, bytes: 40, grownAtMs: 9, workspaceId: 'w-2' }),
    ];
    expect(choose(volumes, { workspaceBytes: 50 }).excess).toEqual(['a workspace']);
  });

  test('never for a full disk', () => {
    expect(choose([aCache('a', { mounted: true })], { freeBytes: 0 })).toEqual({ evict: [], excess: [] });
  });

  test('once: a condemned volume leaves as soon as nothing mounts it', () => {
    const over = { mounted: true, condemned: true, bytes: 90 };
    expect(choose([aCache('a', over)], { machineBytes: 50 })).toEqual({ evict: [], excess: [] });
    const left = aCache('a', { ...over, mounted: false, usedAtMs: NOW });
    expect(choose([left], { machineBytes: 50 }).evict).toEqual(['a bound']);
  });
});

test('whatever the volumes: bounds hold in the end, nothing that is mounted leaves, and nobody within a bound ends', () => {
  const cache = fc
    .record({
      workspaceId: fc.constantFrom('w-1', 'w-2', 'w-3'),
      bytes: fc.nat({ max: 100 }),
      usedAtMs: fc.constantFrom(NOW, NOW - RECENT_MS, NOW - 5 * RECENT_MS),
      grownAtMs: fc.nat({ max: 5 }),
      mounted: fc.boolean(),
      condemned: fc.constantFrom(false, false, true),
    })
    .map((one) => aCache('', one));
  const room = fc.record({
    machineBytes: fc.nat({ max: 300 }),
    workspaceBytes: fc.nat({ max: 200 }),
    freeBytes: fc.nat({ max: 1000 }),
  });
  fc.assert(
    fc.property(fc.array(cache, { maxLength: 8 }), room, (list, changes) => {
      const volumes = list.map((one, index) => ({ ...one, volumeId: `v-${index}` }));
      const { evict, excess } = chooseCacheEvictions(volumes, { ...ROOMY, ...changes }, NOW);
      const gone = new Set(evict.map(({ volume }) => volume));
      expect(gone.size).toBe(evict.length);
      for (const { volume } of evict) expect(volume.mounted).toBe(false);
      const ends = new Set(excess.map(({ volume }) => volume));
      // Condemned volumes, and those used a moment ago, leave later.
      const stays = volumes.filter((one) => !gone.has(one) && one.mounted && !one.condemned);
      const sum = (some: readonly CachedVolume[]): number => some.reduce((total, { bytes }) => total + bytes, 0);
      for (const one of ends) {
        const own = stays.filter(({ workspaceId }) => workspaceId === one.workspaceId);
        expect(sum(own) > changes.workspaceBytes || sum(stays) > changes.machineBytes).toBe(true);
      }
      if (ends.size === 0) expect(sum(stays)).toBeLessThanOrEqual(changes.machineBytes);
    }),
    { numRuns: stories(2_000) },
  );
});
