import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { CachedImage, EvictInput } from '#agent/images/evict.ts';
import { chooseEvictions, EVICT_MARGIN_RATIO, YOUNG_MS } from '#agent/images/evict.ts';
import type { DiskReading } from '#agent/telemetry/disks.ts';
import { CLEAR_AFTER_MS, fullNow, NO_PRESSURE, pressureAfter } from '#agent/telemetry/disks.ts';
import { stories } from '../../helpers/stories.ts';

const NOW = 10_000_000_000;
const anImage = (reference: string, changes: Partial<CachedImage> = {}): CachedImage => ({
  reference,
  bytes: 10,
  pulledAtMs: NOW - 2 * YOUNG_MS,
  usedAtMs: NOW - YOUNG_MS,
  inUse: false,
  pulling: false,
  ours: true,
  ...changes,
});
const anInput = (changes: Partial<EvictInput>): EvictInput => ({
  images: [],
  freeBytes: 10,
  totalBytes: 100,
  minFreeRatio: 0.15,
  going: false,
  urgent: false,
  ...changes,
});

describe('eviction', () => {
  test('begins below the share that must be free, takes the least recently used first, and ends a tenth of the disk later', () => {
    const images = [
      anImage('new', { usedAtMs: NOW }),
      anImage('old', { usedAtMs: 1 }),
      anImage('middle', { usedAtMs: 2 }),
    ];
    expect(chooseEvictions(anInput({ images, freeBytes: 15 }), NOW)).toEqual([]);
    expect(chooseEvictions(anInput({ images, freeBytes: 14 }), NOW)).toEqual(['old', 'middle']);
    expect(chooseEvictions(anInput({ images, freeBytes: 16, going: true }), NOW)).toEqual(['old']);
    expect(chooseEvictions(anInput({ images, freeBytes: 25, going: true }), NOW)).toEqual([]);
  });

  test('makes room once for a pull that found none, whatever the shares are', () => {
    expect(
      chooseEvictions(anInput({ images: [anImage('a'), anImage('b')], freeBytes: 90, urgent: true }), NOW),
    ).toEqual(['a']);
  });

  test('never takes what is in use, being pulled, young or not ours; never more than it takes; the oldest first', () => {
    const image = fc.record({
      bytes: fc.integer({ min: 0, max: 50 }),
      pulledAtMs: fc.integer({ min: NOW - 2 * YOUNG_MS, max: NOW }),
      usedAtMs: fc.integer({ min: NOW - 2 * YOUNG_MS, max: NOW }),
      inUse: fc.boolean(),
      pulling: fc.boolean(),
      ours: fc.boolean(),
    });
    const input = fc.record({
      images: fc.array(image, { maxLength: 12 }).map((all) => all.map((one, at) => anImage(`i${at}`, one))),
      freeBytes: fc.integer({ min: 0, max: 100 }),
      totalBytes: fc.constant(100),
      minFreeRatio: fc.double({ min: 0, max: 0.5, noNaN: true }),
      going: fc.boolean(),
      urgent: fc.boolean(),
    });
    fc.assert(
      fc.property(input, (given) => {
        const byName = new Map(given.images.map((one) => [one.reference, one]));
        const chosen = chooseEvictions(given, NOW).map((reference) => byName.get(reference));
        const goal = given.totalBytes * (given.minFreeRatio + EVICT_MARGIN_RATIO);
        let free = given.freeBytes;
        chosen.forEach((one, at) => {
          if (one === undefined) throw new Error('it is none of them');
          expect(one).toMatchObject({ inUse: false, pulling: false, ours: true });
          expect(NOW - one.pulledAtMs).toBeGreaterThanOrEqual(YOUNG_MS);
          // Each image was needed: before it, the goal was not reached.
          expect(free < goal || (given.urgent && at === 0)).toBe(true);
          free += one.bytes;
        });
        const left = given.images.filter(
          (one) => !chosen.includes(one) && one.ours && !one.inUse && !one.pulling && NOW - one.pulledAtMs >= YOUNG_MS,
        );
        for (const one of left)
          for (const gone of chosen) expect(gone?.usedAtMs ?? 0).toBeLessThanOrEqual(one.usedAtMs);
        // The result falls short of the goal only when nothing more may go.
        const began = given.going || given.urgent || given.freeBytes < given.totalBytes * given.minFreeRatio;
        if (began && free < goal) expect(left).toEqual([]);
        if (!began) expect(chosen).toEqual([]);
      }),
      { numRuns: stories(500) },
    );
  });
});

describe('disk pressure', () => {
  const disk = (freeBytes: number, freeInodesRatio = 1): DiskReading => ({
    freeBytes,
    usableBytes: 100,
    totalBytes: 100,
    freeInodesRatio,
  });
  const after = (images: DiskReading, root = disk(50)) => pressureAfter(NO_PRESSURE, { images, root }, 0.15, 0);

  test('holds below 15 % of the images, 10 % of the root, 5 % of the inodes', () => {
    expect(after(disk(15)).holds).toBe(false);
    expect(after(disk(14))).toMatchObject({ holds: true, why: 'images: 14 % free, 15 % wanted' });
    expect(after(disk(50), disk(10)).holds).toBe(false);
    expect(after(disk(50), disk(9))).toMatchObject({ holds: true, why: 'root: 9 % free, 10 % wanted' });
    expect(after(disk(50, 0.05)).holds).toBe(false);
    expect(after(disk(50, 0.04))).toMatchObject({
      holds: true,
      why: 'images: 4 % of the inodes free, 5 % wanted',
    });
  });

  test('holds for every other disk that is written to, and not for a disk that does not answer', () => {
    const room = { images: disk(50), root: disk(50) };
    for (const name of ['state', 'volumes', 'cache'] as const) {
      const when = (reading: DiskReading | undefined) =>
        pressureAfter(NO_PRESSURE, { ...room, [name]: reading }, 0.15, 0);
      expect(when(disk(10)).holds).toBe(false);
      expect(when(disk(9)).why).toBe(`${name}: 9 % free, 10 % wanted`);
      expect(when(disk(50, 0.04)).why).toBe(`${name}: 4 % of the inodes free, 5 % wanted`);
      expect(when(undefined).holds).toBe(false);
    }
  });

  test('is over when there was room for five minutes without a break', () => {
    const room = { images: disk(50), root: disk(50) };
    let now = fullNow('a pull found no space left');
    now = pressureAfter(now, room, 0.15, 1000);
    now = pressureAfter(now, { ...room, images: disk(10) }, 0.15, 2000);
    now = pressureAfter(now, room, 0.15, 3000);
    now = pressureAfter(now, room, 0.15, 3000 + CLEAR_AFTER_MS - 1);
    expect(now.holds).toBe(true);
    expect(pressureAfter(now, room, 0.15, 3000 + CLEAR_AFTER_MS)).toEqual(NO_PRESSURE);
  });

  test('an operator who asks for less gets less of the root, too', () => {
    const reading = { images: disk(6), root: disk(6) };
    expect(pressureAfter(NO_PRESSURE, reading, 0.05, 0).holds).toBe(false);
  });
});
