import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { bytesOf } from '#cli/format.ts';
import { batchesOf } from '#cli/transfer/batches.ts';
import { inLanes, persistently } from '#cli/transfer/lanes.ts';
import { isSameTime, localTree } from '#cli/transfer/local-tree.ts';
import { BrokenPack, PackReader, packLine } from '#cli/transfer/pack.ts';
import {
  printable,
  requireVolumeOrPlace,
  requireVolumePlace,
  shownPlace,
  volumePlaceOf,
} from '#cli/transfer/places.ts';
import { nanosecondsOf } from '#cli/transfer/volume-files.ts';

const MIB = 1024 * 1024;

describe('a place', () => {
  test.for([
    ['models:', { volume: 'models', path: '', isFolder: true }],
    ['models:/', { volume: 'models', path: '', isFolder: true }],
    ['models:base/a b.bin', { volume: 'models', path: 'base/a b.bin', isFolder: false }],
    ['models:/base/', { volume: 'models', path: 'base', isFolder: true }],
    ['m:a:b', { volume: 'm', path: 'a:b', isFolder: false }],
    ['m:-rf', { volume: 'm', path: '-rf', isFolder: false }],
  ] as const)('%s is in a volume', ([text, place]) => {
    expect(volumePlaceOf(text)).toEqual(place);
  });

  test.for(['models', './models:a', '/a:b', '.a:b', ':a', 'a b:c', ''])('%j is on this machine', (text) => {
    expect(volumePlaceOf(text)).toBeUndefined();
    expect(() => requireVolumePlace(text)).toThrow('must be VOLUME:PATH');
  });

  test.for(['m:../a', 'm:a/../b', 'm:a//b', 'm:./a', `m:${'x'.repeat(256)}`, 'm:a\0b', 'm:.longshore-upload-1/a'])(
    '%j is nowhere',
    (text) => {
      expect(() => volumePlaceOf(text)).toThrow(/^the path in /);
    },
  );

  test('of ls and size may be a volume by its name alone', () => {
    expect(requireVolumeOrPlace('models')).toEqual({ volume: 'models', path: '', isFolder: true });
    expect(requireVolumeOrPlace('models:base')).toEqual({ volume: 'models', path: 'base', isFolder: false });
    expect(() => requireVolumeOrPlace('./models')).toThrow('must be VOLUME:PATH');
    expect(() => requireVolumeOrPlace('stuff/sub/a')).toThrow('must be VOLUME:PATH, probably stuff:sub/a');
  });

  test('is shown on one line, whatever a container called it', () => {
    expect(shownPlace({ volume: 'm', path: 'a\nb\u001b[2J\u009b\u202e' })).toBe('m:a\\x0ab\\x1b[2J\\x9b\\u202e');
    expect(printable('ü 漢字 %')).toBe('ü 漢字 %');
  });
});

test('sizes and times', () => {
  expect([0, 1023, 1024, 1.5 * MIB, 2 ** 50 * 2048].map(bytesOf)).toEqual([
    '0 B',
    '1023 B',
    '1.0 KiB',
    '1.5 MiB',
    '2048.0 PiB',
  ]);
  expect(nanosecondsOf('2023-11-14T22:13:20.123456789Z')).toBe(1_700_000_000_123_456_789n);
  expect(nanosecondsOf('2023-11-14T22:13:20Z')).toBe(1_700_000_000_000_000_000n);
  expect(nanosecondsOf('x')).toBe(0n);
  expect([isSameTime(5n, 1_000_000n), isSameTime(5_000_000n, 1n)]).toEqual([true, false]);
});

test('large files go alone and first, the others together within bounds', () => {
  const file = (size: number) => ({ size });
  const sizes = (files: readonly number[]) => batchesOf(files.map(file)).map((one) => one.map(({ size }) => size));
  expect(sizes([])).toEqual([]);
  expect(sizes([1, 17 * MIB, 2, 16 * MIB, 15 * MIB, 3])).toEqual([[17 * MIB], [1, 2, 16 * MIB, 15 * MIB, 3]]);
  expect(sizes([16 * MIB, 16 * MIB, 1])).toEqual([[16 * MIB, 16 * MIB], [1]]);
  expect(batchesOf(Array.from({ length: 1201 }, () => file(0))).map((one) => one.length)).toEqual([500, 500, 201]);
});

describe('a pack', () => {
  /** Pieces come one by one, in memory that the next one takes. */
  const readerOf = (bytes: Buffer, piece: number): PackReader => {
    const memory = Buffer.alloc(piece);
    let at = 0;
    let hasCome = false;
    return new PackReader({
      next: () => {
        if (!hasCome || at >= bytes.length) return undefined;
        hasCome = false;
        const count = bytes.copy(memory, 0, at, at + piece);
        at += count;
        return memory.subarray(0, count);
      },
      more: async () => {
        await new Promise(setImmediate);
        hasCome = true;
        return at < bytes.length;
      },
      close: () => undefined,
    });
  };

  test.for([1, 2, 7, 1000])('is read in pieces of %i bytes', async (piece) => {
    const reader = readerOf(Buffer.concat([packLine({ a: 1 }), Buffer.from('x\ny'), packLine({ b: 2 })]), piece);
    expect(await reader.line()).toEqual({ a: 1 });
    const runs: Buffer[] = [];
    await reader.take(3, (run) => runs.push(Buffer.from(run)));
    expect(Buffer.concat(runs).toString()).toBe('x\ny');
    expect(await reader.line()).toEqual({ b: 2 });
    expect(await reader.line()).toBeUndefined();
  });

  test('that is cut or is none is told from a whole one', async () => {
    await expect(readerOf(Buffer.from('{"a"'), 9).line()).rejects.toThrow(BrokenPack);
    await expect(readerOf(Buffer.from('[]\n'), 9).line()).rejects.toThrow(BrokenPack);
    await expect(readerOf(Buffer.from('x\n'), 9).line()).rejects.toThrow(BrokenPack);
    await expect(readerOf(Buffer.alloc(70_000, 0x20), 1000).line()).rejects.toThrow('too long');
    await expect(readerOf(Buffer.from('ab'), 9).take(3, () => undefined)).rejects.toThrow(BrokenPack);
  });
});

describe('lanes', () => {
  const never = new AbortController().signal;

  test('work side by side, and the first failure ends all', async () => {
    let most = 0;
    let now = 0;
    const seen: number[] = [];
    const work = async (item: number): Promise<void> => {
      most = Math.max(most, (now += 1));
      await new Promise(setImmediate);
      now -= 1;
      seen.push(item);
    };
    await inLanes([1, 2, 3, 4, 5, 6, 7], never, work);
    expect([seen.toSorted((a, b) => a - b), most]).toEqual([[1, 2, 3, 4, 5, 6, 7], 4]);
    seen.length = 0;
    const failing = inLanes([1, 2, 3, 4, 5, 6, 7, 8, 9], never, async (item) => {
      await work(item);
      if (item === 2) throw new Error('two');
    });
    await expect(failing).rejects.toThrow('two');
    expect(seen.length).toBeLessThan(9);
    const stop = new AbortController();
    stop.abort(new Error('stopped'));
    await expect(inLanes([1], stop.signal, work)).rejects.toThrow('stopped');
  });

  test('what broke off is tried again, and what was refused is not', async () => {
    const tries: number[] = [];
    await persistently(never, async (at) => {
      tries.push(at);
      if (at < 1) throw new BrokenPack('cut');
    });
    expect(tries).toEqual([0, 1]);
    await expect(persistently(never, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  });
});

test('a local folder is told with its odd names, its empty folders and its links', () => {
  const folder = mkdtempSync(join(tmpdir(), 'ls-tree-'));
  try {
    for (const name of ['a b', 'line\nbreak', '-rf', 'sub/ü', 'sub/.hidden', '.longshore-part-1']) {
      mkdirSync(join(folder, name, '..'), { recursive: true });
      writeFileSync(join(folder, name), name);
    }
    chmodSync(join(folder, 'a b'), 0o755);
    mkdirSync(join(folder, 'empty/inner'), { recursive: true });
    symlinkSync('/etc', join(folder, 'link'));
    const tree = localTree(folder, 'to');
    expect(tree.files.map(({ path }) => path).toSorted()).toEqual([
      'to/-rf',
      'to/a b',
      'to/line\nbreak',
      'to/sub/.hidden',
      'to/sub/ü',
    ]);
    expect(tree.files.filter(({ isExecutable }) => isExecutable).map(({ path }) => path)).toEqual(['to/a b']);
    expect([tree.emptyFolders, tree.leftOut, tree.unread]).toEqual([['to/empty/inner'], 1, []]);
    const [file] = localTree(join(folder, 'a b'), '').files;
    expect(file).toMatchObject({ path: 'a b', size: 3 });
    expect(file?.key).toMatch(/^[0-9a-f]{16}$/);
    expect(() => localTree(join(folder, 'absent'), '')).toThrow('cannot read');
  } finally {
    rmSync(folder, { recursive: true });
  }
});
