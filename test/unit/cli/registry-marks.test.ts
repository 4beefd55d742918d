// Registries on one bucket while others serve or collect there. The bucket is a list, with a clock of its own.
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test as base } from 'vitest';
import { createLog } from '#shared/log.ts';
import { RegistryMarks, STALE_MS } from '#cli/up/registry-marks.ts';

interface Bucket {
  readonly marks: Map<string, number>;
  nowMs: number;
  isAway: boolean;
  /** Whether the list lacks what was written last. */
  isLate: boolean;
  /** Number of times that the bucket was listed. */
  lists: number;
  readonly open: (id: string) => RegistryMarks;
}

// oxlint-disable-next-line no-empty-pattern -- vitest reads a fixture's needs from the pattern
const test = base.extend('bucket', async ({}, { onCleanup }): Promise<Bucket> => {
  const opened: RegistryMarks[] = [];
  const check = async (): Promise<void> => {
    await sleep(1);
    if (bucket.isAway) throw new Error('the bucket is away');
  };
  const bucket: Bucket = {
    marks: new Map(),
    nowMs: 1_000_000_000,
    isAway: false,
    isLate: false,
    lists: 0,
    open: (id) => {
      const marks = new RegistryMarks({
        store: {
          put: async (key) => {
            await check();
            bucket.marks.set(key, bucket.nowMs);
            return { size: 0, sha256: '' };
          },
          remove: async (key) => {
            await check();
            bucket.marks.delete(key);
          },
          list: async function* list() {
            await check();
            bucket.lists += 1;
            if (bucket.isLate) return;
            for (const [key, writtenAtMs] of bucket.marks) yield { key, writtenAtMs };
          },
        },
        id: id.repeat(16),
        log: createLog({ name: 'test', level: 'silent' }),
        renewMs: 5,
        pollMs: 1,
      });
      opened.push(marks);
      return marks;
    },
  };
  onCleanup(async () => {
    bucket.isAway = false;
    for (const marks of opened) await marks.close();
    expect([...bucket.marks.keys()].filter((key) => !key.endsWith('f'))).toEqual([]);
  });
  await Promise.resolve();
  return bucket;
});
const never = new AbortController().signal;

test('one that is alone collects, before it serves and again later', async ({ bucket }) => {
  const one = bucket.open('a');
  for (let day = 0; day < 2; day += 1) {
    expect(await one.collecting()).toBeDefined();
    await one.serving(never);
    expect([...bucket.marks.keys()]).toEqual(['serving-aaaaaaaaaaaaaaaa']);
  }
});

test('beside one that serves nobody collects, and everybody serves', async ({ bucket }) => {
  const [one, other] = [bucket.open('a'), bucket.open('b')];
  await one.serving(never);
  expect(await other.collecting()).toBeUndefined();
  await other.serving(never);
  expect(await one.collecting()).toBeUndefined();
  await one.serving(never);
  await other.close();
  expect(await one.collecting()).toBeDefined();
});

test('of several that begin at once one collects at most, and none serves meanwhile', async ({ bucket }) => {
  for (let round = 0; round < 20; round += 1) {
    let [collecting, serving] = [0, 0];
    const all = ['a', 'b', 'c'].map((id) => bucket.open(id));
    await Promise.all(
      all.map(async (marks) => {
        await sleep(Math.random() * 8);
        if ((await marks.collecting()) !== undefined) {
          collecting += 1;
          expect([collecting, serving]).toEqual([1, 0]);
          await sleep(5);
          expect([collecting, serving]).toEqual([1, 0]);
          collecting -= 1;
        }
        await marks.serving(never);
        serving += 1;
        expect(collecting).toBe(0);
      }),
    );
    for (const marks of all) await marks.close();
  }
});

test('one that serves waits for another that collects, and no longer when it ends itself', async ({ bucket }) => {
  const [one, other] = [bucket.open('a'), bucket.open('b')];
  expect(await one.collecting()).toBeDefined();
  let serves = false;
  const serving = other.serving(never).then(() => (serves = true));
  const before = bucket.lists;
  await expect.poll(() => bucket.lists).toBeGreaterThan(before + 3);
  expect(serves).toBe(false);
  await one.serving(never);
  await serving;
  expect(serves).toBe(true);

  expect(await other.collecting()).toBeUndefined();
  const stop = new AbortController();
  bucket.marks.set(`collecting-${'f'.repeat(16)}`, bucket.nowMs);
  const ended = other.serving(stop.signal);
  stop.abort();
  await ended;
});

test('a mark that is old by the clock of the bucket is of a registry that is gone; a mark in use stays new', async ({
  bucket,
}) => {
  const [one, other] = [bucket.open('a'), bucket.open('b')];
  bucket.marks.set(`serving-${'f'.repeat(16)}`, bucket.nowMs);
  bucket.nowMs += STALE_MS - 1;
  expect(await one.collecting()).toBeUndefined();
  bucket.nowMs += 1;
  expect(await one.collecting()).toBeDefined();
  bucket.nowMs += 10 * STALE_MS;
  await expect.poll(() => bucket.marks.get(`collecting-${'a'.repeat(16)}`)).toBe(bucket.nowMs);
  expect(await other.collecting()).toBeUndefined();
});

test('a bucket that does not answer, or does not list what it has, lets nobody collect', async ({ bucket }) => {
  const one = bucket.open('a');
  bucket.isAway = true;
  await expect(one.collecting()).rejects.toThrow('the bucket is away');
  await expect(one.serving(never)).rejects.toThrow('the bucket is away');
  bucket.isAway = false;
  bucket.isLate = true;
  expect(await one.collecting()).toBeUndefined();
  bucket.isLate = false;
  expect(await one.collecting()).toBeDefined();
});

test('other objects below that prefix are no marks', async ({ bucket }) => {
  for (const key of ['serving-xf', 'anything-f', `serving-${'b'.repeat(17)}f`]) bucket.marks.set(key, bucket.nowMs);
  expect(await bucket.open('a').collecting()).toBeDefined();
});
