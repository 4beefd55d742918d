// Counts of several folders by one child. The walking program is a stand-in for folders that are slow, or on a disk
// that does not answer; else it is the real one.
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test as base } from 'vitest';
import { ContainerDisks } from '../../../agent/telemetry/container-disks.ts';
import { countEachHere } from '../../../agent/telemetry/count-blocks.ts';
import { createLog } from '../../../shared/log.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const KIB = 1024;
const never = (): Promise<never> => new Promise(() => undefined);

interface World {
  /** Makes a folder that takes so much. */
  readonly folder: (name: string, kib: number) => string;
  readonly du: string;
}

// oxlint-disable-next-line no-empty-pattern -- vitest reads a fixture's needs from the pattern
const test = base.extend('world', async ({}, { onCleanup }): Promise<World> => {
  const directory = tempDirectory('count');
  onCleanup(() => directory.remove());
  const { path } = directory;
  const du = join(path, 'du');
  // A stopped `timeout` ends nothing, as one that waits for a process that no kill ends.
  const script = `case $3 in
    *long*) sleep 0.3 ;;
    *slow*) exec sleep 60 ;;
    *stuck*) kill -STOP $PPID; exec sleep 60 ;;
  esac
  exec du "$@"`;
  writeFileSync(du, `#!/bin/sh\n${script}\n`);
  chmodSync(du, 0o755);
  const folder = (name: string, kib: number): string => {
    mkdirSync(join(path, name));
    writeFileSync(join(path, name, 'file'), Buffer.alloc(kib * KIB, 1));
    return join(path, name);
  };
  return { folder, du };
});

describe('of folders that are counted together', () => {
  test('slow ones cost themselves their count, and one that does not end costs no other its own', async ({ world }) => {
    const { folder, du } = world;
    const each = [
      [folder('one', 100)],
      [folder('slow', 1)],
      // These four together take longer than one folder may.
      ...[1, 2, 3, 4].map((at) => [folder(`long${at}`, 600)]),
      [folder('two', 200), folder('three', 300)],
      [folder('stuck', 1)],
      [folder('four', 400)],
    ];
    const counted = await countEachHere(each, { walkMs: 800, marginMs: 700, du });
    // A folder itself takes a block.
    const inHundreds = counted.map((bytes) => (bytes === undefined ? '-' : Math.floor(bytes / KIB / 100)));
    expect(inHundreds).toEqual([1, '-', 6, 6, 6, 6, 5, '-', 4]);
  });
});

test('containers over their limit are told of while another waits for the engine', async ({ world }) => {
  const small = world.folder('small', 1);
  const roots: Readonly<Record<string, string>> = {
    d1: '',
    d2: world.folder('root', 600),
    d3: world.folder('more', 900),
    // Counted after the first ten.
    d12: world.folder('later', 700),
  };
  const view = world.folder('view', 1);
  const over: string[] = [];
  let freeBytes = 1e9;
  const disks = new ContainerDisks({
    // The engine gives no folder for the first container, and never answers how much it wrote.
    runtime: {
      rootPath: (dockerId) => Promise.resolve(roots[dockerId] ?? small),
      imageVolumes: () => Promise.resolve([]),
      writtenBytes: never,
    },
    running: () =>
      Array.from({ length: 12 }, (_, at) => at + 1).map((n) => ({
        containerId: `c${n}`,
        dockerId: `d${n}`,
        shortId: `s${n}`,
      })),
    viewOf: () => view,
    limitBytes: 500 * KIB,
    fileSystems: () => Promise.resolve([{ freeBytes: (freeBytes -= 1e6), low: false }]),
    countByHelper: never,
    countVolumes: never,
    onLook: () => undefined,
    log: createLog({ name: 'test', level: 'silent' }),
  });
  disks.onOver(({ containerId }) => over.push(containerId));
  await disks.round();
  void disks.round();
  await expect.poll(() => over).toEqual(['c3', 'c2', 'c12']);
});
