import { describe, expect, test } from 'vitest';
import { mountPathsProblem, mountPlaces } from '#shared/domain/mount-paths.ts';

describe('a mount path', () => {
  test.for([
    ['data', ['/volumes/data', '/mnt/code/data']],
    ['./models//large/', ['/volumes/models/large', '/mnt/code/models/large']],
    ['/data', ['/volumes/data', '/data']],
    ['/mnt/data', ['/volumes/mnt/data', '/mnt/data']],
    ['/volumes/data', ['/volumes/volumes/data', '/volumes/data']],
    ['/mnt/code/data', ['/volumes/mnt/code/data', '/mnt/code/data']],
    ['/library', undefined],
    ['/home/me/.cache', ['/volumes/home/me/.cache', '/home/me/.cache']],
    ['/user', ['/volumes/user', '/user']],
    ['/devices', ['/volumes/devices', '/devices']],
    ['...', ['/volumes/...', '/mnt/code/...']],
    ['usr', ['/volumes/usr', '/mnt/code/usr']],
  ] as const)('%s is seen at its places', ([path, targets]) => {
    const check = mountPlaces(path);
    if (targets === undefined) expect(check).toHaveProperty('problem');
    else expect(check).toEqual({ targets });
  });

  test.for([
    '',
    '.',
    './',
    '/',
    '//',
    '..',
    '../x',
    'a/../b',
    '/data/..',
    '/volumes',
    '/volumes/',
    '/mnt',
    '/mnt/code',
    '/mnt/./code/',
    '/proc',
    '/proc/1',
    '/sys/fs',
    '/dev/shm',
    '/run/longshore',
    '/etc',
    '/etc/passwd',
    '/bin',
    '/sbin',
    '/usr/local',
    '/lib',
    '/lib64/x',
    '/opt/longshore/python',
    'a\nb',
    'a\0b',
    'x'.repeat(513),
  ])('%j is refused with a sentence that begins with it', (path) => {
    const check = mountPlaces(path);
    expect('problem' in check && check.problem.startsWith(JSON.stringify(path))).toBe(true);
  });
});

test.for([
  [['data', 'models'], undefined],
  [['data', 'data/inner'], undefined],
  [['data', './data/'], '"./data/" and "data" are the same place (/volumes/data)'],
  [['data', '/data'], '"/data" and "data" are the same place (/volumes/data)'],
  [['/volumes/data', 'data'], '"data" and "/volumes/data" are the same place (/volumes/data)'],
  [['data', '/etc'], '"/etc" belongs to the system: choose another directory, such as "data" or "/data"'],
] as const)('several mount paths must differ in every place: %j', ([paths, problem]) => {
  expect(mountPathsProblem(paths)).toBe(problem);
});
