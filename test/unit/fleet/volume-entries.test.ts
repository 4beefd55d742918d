import { expect, test } from 'vitest';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { VolumeCall } from '#scheduler/fleet/volume-calls.ts';
import { VolumeEntries, readNamedPath } from '#scheduler/fleet/volume-entries.ts';
import type { VolumeRow } from '#scheduler/stores/store/queries/volumes.ts';

const volume = { id: 'v', workspaceId: 'w' as WorkspaceId, name: 'v', driver: 'local' } as VolumeRow;

/** A file server with these files; each folder of theirs is there. */
function entriesOf(files: readonly string[], hasFiles = true) {
  const asked: string[] = [];
  const ask = async (_volumeId: string, { path = '', limit }: VolumeCall) => {
    asked.push(path);
    if (files.includes(path))
      return {
        kind: 'file',
        entries: [{ path: path.split('/').at(-1), kind: 'file', size: 3, mtimeNs: '5000000' }],
        next: '',
      };
    const base = path === '' ? '' : `${path}/`;
    const below = files.filter((file) => file.startsWith(base)).map((file) => file.slice(base.length));
    if (below.length === 0) throw new AppError('volume_file_not_found', 'the volume has no such file');
    const names = new Map(below.map((name) => [name.split('/')[0] ?? '', name.includes('/') ? 'folder' : 'file']));
    const entries = [...names].map(([name, kind]) => ({ path: name, kind, size: 3, mtimeNs: '5000000' }));
    return {
      kind: 'folder',
      entries: entries.slice(0, Number(limit)),
      next: entries.length > Number(limit) ? 'x' : '',
    };
  };
  const entries = new VolumeEntries({
    files: { reachable: async () => volume, hasFiles: async () => hasFiles },
    calls: { ask },
  });
  const paths = async (path: string) => (await entries.list(volume, path)).map((entry) => entry.path);
  return { entries, asked, paths };
}

const FILES = ['top.txt', 'a/one.txt', 'a/two.json', 'a/deep/three.txt', 'b/one.txt', 'odd[1]/x'];

test('a path begins with the name of the volume, and slashes too many do not count', () => {
  expect(readNamedPath('v')).toEqual({ volumeName: 'v', path: '' });
  expect(readNamedPath('/v//a/b/')).toEqual({ volumeName: 'v', path: 'a/b' });
  expect(readNamedPath('')).toEqual({ volumeName: '', path: '' });
});

test('a folder lists what is in it, a file itself, each with its path from the root', async () => {
  const { entries, paths } = entriesOf(FILES);
  expect(await paths('')).toEqual(['top.txt', 'a', 'b', 'odd[1]']);
  expect(await paths('a')).toEqual(['a/one.txt', 'a/two.json', 'a/deep']);
  expect(await entries.list(volume, 'a/one.txt')).toEqual([
    { path: 'a/one.txt', isFolder: false, size: 3, modifiedAtMs: 5 },
  ]);
  await expect(paths('a/none')).rejects.toMatchObject({ code: 'volume_file_not_found' });
  await expect(paths('../etc')).rejects.toMatchObject({ code: 'invalid_query' });
});

test('wildcards are matched name by name, and only folders that match are looked into', async () => {
  const { asked, paths } = entriesOf(FILES);
  expect(await paths('*/*.txt')).toEqual(['a/one.txt', 'b/one.txt']);
  expect(await paths('[ab]/one.*')).toEqual(['a/one.txt', 'b/one.txt']);
  expect(asked).toEqual(['', 'a', 'b', 'odd[1]', '', 'a', 'b']);
  expect(await paths('a/**')).toEqual(['a/one.txt', 'a/two.json', 'a/deep']);
  expect(await paths('none*')).toEqual([]);
  // A name that has brackets itself is found as it is written.
  expect(await paths('odd[1]/**')).toEqual(['odd[1]/x']);
});

test('one entry is told with its kind, and nothing where nothing is', async () => {
  const { entries } = entriesOf(FILES);
  expect(await entries.at(volume, '')).toMatchObject({ isFolder: true });
  expect(await entries.at(volume, 'a')).toMatchObject({ path: 'a', isFolder: true });
  expect(await entries.at(volume, 'a/one.txt')).toMatchObject({ path: 'a/one.txt', isFolder: false, size: 3 });
  expect(await entries.at(volume, 'c')).toBeUndefined();
});

test('a volume that no machine has yet is empty', async () => {
  const { entries, asked, paths } = entriesOf([], false);
  expect(await paths('')).toEqual([]);
  expect(await paths('*.txt')).toEqual([]);
  await expect(paths('a')).rejects.toMatchObject({ code: 'volume_file_not_found' });
  expect(await entries.at(volume, 'a')).toBeUndefined();
  expect(asked).toEqual([]);
});

test('a folder of more entries than an answer has, and a pattern of too many folders, are refused', async () => {
  const many = entriesOf(Array.from({ length: 10_001 }, (_none, at) => `f/${at}`));
  await expect(many.paths('f')).rejects.toMatchObject({ code: 'bad_request' });
  const wide = entriesOf(Array.from({ length: 201 }, (_none, at) => `${at}/x`));
  await expect(wide.paths('*/x')).rejects.toThrow('more than 200 folders');
});
