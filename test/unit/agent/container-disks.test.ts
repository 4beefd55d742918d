// Charges of a container where a part of its files cannot be counted, or is counted late.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test as base } from 'vitest';
import type { ContainerDisksParts, DiskUse } from '../../../agent/telemetry/container-disks.ts';
import { ContainerDisks, overDiskText } from '../../../agent/telemetry/container-disks.ts';
import { createLog } from '../../../shared/log.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const MIB = 1024 ** 2;
const LIMIT = 5 * MIB;

interface Host {
  readonly disks: ContainerDisks;
  readonly over: DiskUse[];
  /** Writes so many MiB somewhere on the disk, and looks. */
  readonly write: (mib: number) => Promise<void>;
  /** Ids of containers whose root takes so many MiB. */
  readonly root: (id: string, mib: number) => void;
}

// oxlint-disable-next-line no-empty-pattern -- vitest reads a fixture's needs from the pattern
const test = base.extend('host', async ({}, { onCleanup }) => {
  const directory = tempDirectory('disks');
  onCleanup(() => directory.remove());
  return (volumesOf: (id: string) => readonly string[], parts: Partial<ContainerDisksParts>): Host => {
    let freeBytes = 1e12;
    const ids: string[] = [];
    const folder = (name: string): string => join(directory.path, name);
    mkdirSync(folder('view'), { recursive: true });
    const over: DiskUse[] = [];
    const disks = new ContainerDisks({
      runtime: {
        rootPath: (id) => Promise.resolve(folder(id)),
        imageVolumes: (id) => Promise.resolve(volumesOf(id)),
        writtenBytes: () => Promise.resolve(0),
      },
      running: () => ids.map((id) => ({ containerId: id, dockerId: id, shortId: id })),
      viewOf: () => folder('view'),
      limitBytes: LIMIT,
      fileSystems: () => Promise.resolve([{ freeBytes, low: false }]),
      countByHelper: () => Promise.reject(new Error('no helper')),
      countVolumes: () => Promise.reject(new Error('no helper')),
      onLook: () => undefined,
      log: createLog({ name: 'test', level: 'silent' }),
      ...parts,
    });
    disks.onOver((use) => over.push(use));
    return {
      disks,
      over,
      write: (mib) => {
        freeBytes -= mib * MIB;
        return disks.look();
      },
      root: (id, mib) => {
        mkdirSync(folder(id));
        writeFileSync(join(folder(id), 'big'), Buffer.alloc(mib * MIB, 1));
        ids.push(id);
      },
    };
  };
});

test('roots over the limit are told although no volume of their images can be counted, now or ever', async ({
  host,
}) => {
  for (const countVolumes of [
    () => Promise.reject(new Error('deadline')),
    () => new Promise<never>(() => undefined),
    () => Promise.resolve(new Map<string, number>()),
  ]) {
    const { root, over, write } = host(() => ['/volumes/a/_data'], { countVolumes });
    const id = `c${countVolumes.toString().length}`;
    root(id, 8);
    await write(0);
    await write(8);
    expect(over[0]).toMatchObject({ containerId: id, isCounted: true });
  }
});

test('volumes of all containers are counted by one helper, and told together with roots', async ({ host }) => {
  const asked: (readonly string[])[] = [];
  const { root, over, write, disks } = host((id) => (id === 'plain' ? [] : [`/volumes/${id}/_data`]), {
    countVolumes: (folders) => {
      asked.push(folders);
      return Promise.resolve(new Map(folders.map((one) => [one, one.includes('big') ? 4 * MIB : MIB])));
    },
  });
  for (const id of ['plain', 'small', 'big']) root(id, 2);
  await write(0);
  await write(8);
  await disks.round();
  expect(asked).toEqual([['/volumes/small/_data', '/volumes/big/_data']]);
  expect(over).toMatchObject([{ containerId: 'big', isCounted: true }]);
  expect(disks.usedBy('small')).toBeGreaterThanOrEqual(3 * MIB);
});

test('a container whose volumes cannot be counted twice is charged with all that was written since', async ({
  host,
}) => {
  let fails = true;
  const { root, over, write, disks } = host((id) => [`/volumes/${id}/_data`], {
    countVolumes: (folders) =>
      Promise.resolve(new Map(folders.filter((one) => !fails || one.includes('fair')).map((one) => [one, MIB]))),
  });
  for (const id of ['evades', 'fair']) root(id, 1);
  await write(0);
  for (const mib of [1.5, 1.5]) {
    await write(mib);
    await disks.round();
  }
  // Two failed counts, and 1 MiB beside 3 MiB taken: not above the limit.
  expect(over).toEqual([]);
  fails = false;
  await write(2);
  await disks.round();
  expect(over).toEqual([]);
  fails = true;
  for (const mib of [2, 2]) {
    await write(mib);
    await disks.round();
  }
  expect(over).toMatchObject([{ containerId: 'evades', usedBytes: expect.any(Number) as number, isCounted: false }]);
  expect(overDiskText(over[0] ?? { usedBytes: 0, isCounted: true }, LIMIT)).toMatch(
    /^it has too many files to be counted in time, .* wrote up to \d+ MiB/,
  );
});

test('a root that neither a walk nor the engine can count is charged as well', async ({ host }) => {
  const { root, over, write, disks } = host(() => [], {
    runtime: {
      rootPath: () => Promise.resolve(''),
      imageVolumes: () => Promise.resolve([]),
      writtenBytes: () => Promise.reject(new Error('deadline')),
    },
  });
  root('many', 1);
  await write(0);
  for (const mib of [3, 3]) {
    await write(mib);
    await disks.round();
  }
  expect(over).toMatchObject([{ containerId: 'many', isCounted: false }]);
});

test('a helper that hangs delays no tick, and no root of another container', async ({ host }) => {
  const { root, over, write } = host((id) => (id === 'slow' ? ['/volumes/slow/_data'] : []), {
    countVolumes: () => new Promise<never>(() => undefined),
  });
  root('slow', 1);
  await write(0);
  await write(2);
  root('later', 8);
  await write(8);
  expect(over).toMatchObject([{ containerId: 'later' }]);
});
