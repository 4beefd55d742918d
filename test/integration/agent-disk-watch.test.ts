// Disks that an agent watches: each a file system of its own.
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, vi } from 'vitest';
import { createLog } from '#shared/log.ts';
import { DiskWatch } from '#agent/telemetry/disk-watch.ts';
import { test as base } from '../helpers/services.ts';

const NAMES = ['images', 'state', 'volumes', 'cache', 'moved'] as const;
type Name = (typeof NAMES)[number];
const MIB = 1024 ** 2;

/** Disks of 10 MiB each, in memory. */
const test = base.extend('disks', async ({ task: _task }, { onCleanup }) => {
  const folder = await mkdtemp(join(tmpdir(), 'ls-disks-'));
  const at = (name: Name): string => join(folder, name);
  const umount = (name: Name): void => void execFileSync('umount', [at(name)]);
  onCleanup(async () => {
    for (const name of NAMES) umount(name);
    await rm(folder, { recursive: true });
  });
  for (const name of NAMES) {
    await mkdir(at(name));
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=10m', 'tmpfs', at(name)]);
  }
  return {
    at,
    fill: (name: Name, mib: number) =>
      execFileSync('dd', ['if=/dev/zero', `of=${at(name)}/file`, 'bs=1M', `count=${mib}`, 'status=none']),
  };
});

function watchOf(at: (name: Name) => string, askImagesPath: () => string) {
  const seen = { pressure: false, free: new Map<string, number>() };
  const watch = new DiskWatch({
    imagesPath: at('images'),
    askImagesPath: async () => askImagesPath(),
    statePath: at('state'),
    volumePaths: { volumes: at('volumes'), cache: at('cache') },
    minFreeRatio: 0.15,
    conditions: { set: (_name, holds) => (seen.pressure = holds) },
    onFree: (name, bytes) => seen.free.set(name, bytes),
    log: createLog({ name: 'test', level: 'silent' }),
  });
  return { watch, seen };
}

for (const name of ['state', 'volumes', 'cache'] as const)
  test(`a full disk of its own for ${name} is DiskPressure`, async ({ disks }) => {
    const { watch, seen } = watchOf(disks.at, () => disks.at('images'));
    await watch.check();
    expect(seen.pressure).toBe(false);
    disks.fill(name, 9);
    execFileSync('dd', ['if=/dev/zero', `of=${disks.at(name)}/more`, 'bs=1k', 'count=512', 'status=none']);
    await watch.check();
    expect(seen.pressure).toBe(true);
    expect(seen.free.get(name)).toBeLessThan(MIB);
  });

test('images that moved to another disk are watched there', async ({ disks }) => {
  vi.useFakeTimers({ toFake: ['performance'] });
  try {
    let path = disks.at('images');
    const { watch, seen } = watchOf(disks.at, () => path);
    await watch.check();
    path = disks.at('moved');
    disks.fill('moved', 9);
    vi.advanceTimersByTime(61_000);
    await watch.check();
    expect(seen.pressure).toBe(true);
    expect(seen.free.get('images')).toBe(MIB);
  } finally {
    vi.useRealTimers();
  }
});

test('a directory of images that cannot be read leaves the watch where it was', async ({ disks }) => {
  vi.useFakeTimers({ toFake: ['performance'] });
  try {
    const { watch, seen } = watchOf(disks.at, () => '/not/there');
    vi.advanceTimersByTime(61_000);
    await watch.check();
    expect(seen.free.get('images')).toBe(10 * MIB);
  } finally {
    vi.useRealTimers();
  }
});
