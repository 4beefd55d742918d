import { chmodSync, chownSync, lstatSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { addressOf } from '../../../scheduler/stores/embedded/connect.ts';
import { makePrivateDirectory, socketPathIn } from '../../../shared/socket-path.ts';

describe('REDIS_URL', () => {
  test('names host, port, database and login', () => {
    expect(addressOf({ url: 'redis://user:p%40ss@cache.internal:6380/3' })).toEqual({
      host: 'cache.internal',
      port: 6380,
      db: 3,
      username: 'user',
      password: 'p@ss',
    });
    expect(addressOf({ url: 'redis://cache' })).toEqual({ host: 'cache', port: 6379, db: 0 });
  });

  test('rediss asks for TLS with the host as the name', () => {
    expect(addressOf({ url: 'rediss://cache' })).toMatchObject({ tls: { servername: 'cache' } });
  });

  test('unix names a socket', () => {
    expect(addressOf({ url: 'unix:///run/redis/r.sock' })).toMatchObject({ path: '/run/redis/r.sock' });
  });

  test('redis+sentinel names the sentinels, the primary and the database', () => {
    expect(addressOf({ url: 'redis+sentinel://:secret@h1:26380,h2,[::1]:5/main/2' })).toMatchObject({
      sentinels: [
        { host: 'h1', port: 26_380 },
        { host: 'h2', port: 26_379 },
        { host: '::1', port: 5 },
      ],
      name: 'main',
      db: 2,
      password: 'secret',
    });
  });

  test.each([
    'nonsense',
    'http://cache',
    'redis://cache/x',
    'redis+sentinel://h1',
    'redis+sentinel:///main',
    'redis://',
  ])('%s is refused by name of the setting', (url) => {
    expect(() => addressOf({ url })).toThrow(/REDIS_URL is not a Redis address/);
  });
});

test('a socket in a directory with a long path gets a short, stable stand-in of its own', () => {
  const long = `/data/${'x'.repeat(100)}`;
  expect(socketPathIn('/data', 'redis.sock')).toBe('/data/redis.sock');
  expect(Buffer.byteLength(socketPathIn(long, 'redis.sock'))).toBeLessThanOrEqual(107);
  expect(socketPathIn(long, 'redis.sock')).toBe(socketPathIn(long, 'redis.sock'));
  expect(socketPathIn(long, 'redis.sock')).not.toBe(socketPathIn(`${long}y`, 'redis.sock'));
});

test('a directory for sockets is this user’s alone, and one that others can enter or that is a link is refused', async () => {
  const place = mkdtempSync(join(tmpdir(), 'sockets-'));
  const [fresh, open, link] = ['fresh', 'open', 'link'].map((name) => join(place, name)) as [string, string, string];
  try {
    await makePrivateDirectory(fresh);
    await makePrivateDirectory(fresh);
    expect(lstatSync(fresh).mode & 0o777).toBe(0o700);
    mkdirSync(open);
    chmodSync(open, 0o777);
    symlinkSync(fresh, link);
    const refused = /is not a directory of this user alone/;
    await expect(makePrivateDirectory(open)).rejects.toThrow(refused);
    await expect(makePrivateDirectory(link)).rejects.toThrow(refused);
    if (process.getuid?.() === 0) {
      chownSync(fresh, 65_534, 65_534);
      await expect(makePrivateDirectory(fresh)).rejects.toThrow(refused);
    }
  } finally {
    rmSync(place, { recursive: true });
  }
});
