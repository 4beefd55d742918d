import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Watch } from '../../../agent/telemetry/disk-limits.ts';
import { LOW_EVERY_MS, SLOW_MS, TOGETHER_MS, newWatch, overLimit, tick } from '../../../agent/telemetry/disk-limits.ts';

const GIB = 1024 ** 3;
const limitBytes = 8 * GIB;
const free = (...gib: number[]) => gib.map((one) => ({ freeBytes: one * GIB, low: false }));
const asked = { limitBytes, containers: 50 };

test.each([1, 3, 50, 111])(
  'nobody is looked at while nothing is written, but each of %d in its turn within five minutes, some together',
  (containers) => {
    let watch: Watch = newWatch(0);
    let [looks, looked] = [0, 0];
    for (let nowMs = 0; nowMs <= SLOW_MS; nowMs += 2000) {
      const next = tick(watch, free(100, 100), { limitBytes, containers }, nowMs);
      if (next.look > 0) looks += 1;
      looked += next.look;
      watch = next.watch;
    }
    expect(looked).toBeGreaterThanOrEqual(containers);
    expect(looked).toBeLessThanOrEqual(containers + 10);
    expect(looks).toBeLessThanOrEqual(SLOW_MS / TOGETHER_MS);
  },
);

test('an eighth of a limit taken from either file system has everybody looked at, once', () => {
  for (const after of [free(98.9, 100), free(100, 98.9)]) {
    const first = tick(newWatch(0), free(100, 100), asked, 0);
    const { look, watch } = tick(first.watch, after, asked, 2000);
    expect(look).toBe(50);
    expect(tick(watch, after, asked, 2001).look).toBe(0);
  }
});

test('what somebody frees between two ticks does not hide what was written at another', () => {
  let { watch } = tick(newWatch(0), free(100), asked, 0);
  ({ watch } = tick(watch, free(99.4), asked, 100));
  ({ watch } = tick(watch, free(100), asked, 200));
  expect(tick(watch, free(99.4), asked, 300).look).toBe(50);
});

test('a nearly full disk has everybody looked at, at most every ten seconds', () => {
  const low = [{ freeBytes: GIB, low: true }];
  const first = tick(newWatch(0), low, asked, LOW_EVERY_MS);
  expect(first.look).toBe(50);
  expect(tick(first.watch, low, asked, LOW_EVERY_MS + 2000).look).toBe(0);
  expect(tick(first.watch, low, asked, 2 * LOW_EVERY_MS).look).toBe(50);
});

test('without a limit what was written is counted slowly, and nobody is over it', () => {
  const unlimited = { limitBytes: 0, containers: 1 };
  const { watch } = tick(newWatch(0), free(100), unlimited, 0);
  expect(tick(watch, free(1), unlimited, 2000).look).toBe(0);
  expect(tick(watch, free(1), unlimited, SLOW_MS).look).toBe(1);
  expect(overLimit([{ usedBytes: 1e18 }], 0)).toEqual([]);
});

test('whoever writes passes its limit by no more than an eighth and what it writes in one tick, whatever it frees of others', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 2000 }), { minLength: 1, maxLength: 200 }), (mib) => {
      let { watch } = tick(newWatch(0), free(1000), { limitBytes, containers: 1 }, 0);
      let used = 0;
      for (const [at, one] of mib.entries()) {
        used += one * 1024 ** 2;
        const systems = [{ freeBytes: 1000 * GIB - used, low: false }];
        const next = tick(watch, systems, { limitBytes, containers: 1 }, at);
        watch = next.watch;
        if (next.look > 0 && used > limitBytes) return;
        expect(used).toBeLessThanOrEqual(limitBytes * 1.125);
      }
    }),
  );
});

test('those over the limit go largest first', () => {
  const used = [{ usedBytes: 9 }, { usedBytes: 11 }, { usedBytes: 30 }, { usedBytes: 10 }];
  expect(overLimit(used, 10)).toEqual([{ usedBytes: 30 }, { usedBytes: 11 }]);
});
