import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest';
import { tempDirectory } from '../helpers/programs.ts';

// Set-up is plain JavaScript, so that any Node from 20 on runs it; its types are said here.
type Packages = Record<string, { version?: string; integrity?: string; optional?: boolean }>;
const load = async <T>(name: string): Promise<T> => (await import(`../../scripts/setup/${name}.mjs`)) as T;
const { whyStale } = await load<{
  whyStale: (locked: Packages, installed: Packages | undefined) => string | undefined;
}>('node-modules');
const { baseImageTemplate } = await load<{ baseImageTemplate: (reference: string) => string }>('base-image');
const { engineAddress } = await load<{
  engineAddress: (env: Record<string, string>) => { text: string; explicit: boolean; options: object };
}>('engine-api');
const { installCommand } = await load<{ installCommand: (names: string[], more?: string[]) => string }>('packages');
const { stepLog } = await load<{
  stepLog: () => { step: <T>(title: string, work: () => Promise<T>) => Promise<T> };
}>('log');
const { namedEngine } = await load<{ namedEngine: (env: Record<string, string>) => string | undefined }>(
  'named-engine',
);
const { isRoomy, testParent } = await load<{
  isRoomy: (said: { type: number; freeBytes: number; mounts: string; memory: string }) => boolean;
  testParent: (env: Record<string, string>) => string;
}>('test-directory');
const { stateDir } = await load<{ stateDir: (env: Record<string, string>) => string }>('paths');

describe('whether npm ci is needed', () => {
  const locked: Packages = {
    '': { version: '0.1.0' },
    'node_modules/a': { version: '1.0.0', integrity: 'x' },
    'node_modules/other-platform': { version: '1.0.0', integrity: 'y', optional: true },
  };
  const a = { 'node_modules/a': { version: '1.0.0', integrity: 'x' } };

  test('not when what is installed is what is locked, packages for other platforms aside', () => {
    expect(whyStale(locked, a)).toBeUndefined();
  });

  test.each<[string, Packages | undefined]>([
    ['none are installed yet', undefined],
    ['node_modules/a is missing', {}],
    ['node_modules/a is another version', { 'node_modules/a': { version: '1.0.1', integrity: 'z' } }],
    ['node_modules/b is no longer wanted', { ...a, 'node_modules/b': { version: '1.0.0' } }],
  ])('because %s', (why, installed) => {
    expect(whyStale(locked, installed)).toBe(why);
  });
});

describe('where the engine is looked for', () => {
  test('at the usual socket when DOCKER_HOST is absent or names just that', () => {
    for (const env of [{}, { DOCKER_HOST: '' }, { DOCKER_HOST: 'unix:///var/run/docker.sock' }]) {
      expect(engineAddress(env as Record<string, string>)).toMatchObject({
        text: '/var/run/docker.sock',
        explicit: false,
      });
    }
  });

  test('at another socket or a port, named by the person', () => {
    expect(engineAddress({ DOCKER_HOST: 'unix:///run/user/7/docker.sock' })).toMatchObject({
      explicit: true,
      options: { socketPath: '/run/user/7/docker.sock' },
    });
    expect(engineAddress({ DOCKER_HOST: 'tcp://[::1]:2375' })).toMatchObject({
      explicit: true,
      options: { host: '::1', port: 2375 },
    });
    expect(engineAddress({ DOCKER_HOST: 'tcp://example.test' })).toMatchObject({
      options: { host: 'example.test', port: 2375 },
    });
  });

  test('a DOCKER_HOST of another shape is refused with the shapes that it may have', () => {
    expect(() => engineAddress({ DOCKER_HOST: 'banana' })).toThrow(
      'DOCKER_HOST is banana; it must be unix:///path or tcp://host:port',
    );
  });
});

test('the agent finds a base image made here by another template than the official one', () => {
  expect(baseImageTemplate('longshore-python:3.11')).toBe('longshore-python:{version}');
  expect(baseImageTemplate('python:3.11-slim')).toBe('python:{version}-slim');
});

test('everything that is missing is cured by one command', () => {
  const command = installCommand(['dockerd', 'redis', 'python'], ['systemctl start docker']);
  expect(command).toBe(
    "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends docker.io ca-certificates redis-server python3 && systemctl start docker'",
  );
});

test('programs whose package would start a service are taken out of it, by hand too', () => {
  expect(installCommand(['redis', 'promtool'])).toBe(
    "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends redis-server && " +
      'cd "$(mktemp -d)" && apt-get download prometheus && dpkg-deb -x prometheus_*.deb . && ' +
      "install usr/bin/promtool usr/bin/prometheus /usr/local/bin'",
  );
});

test('set-up keeps its logs below the data directory unless it is told another place', () => {
  expect(stateDir({ LONGSHORE_DATA_DIR: '/data' })).toBe('/data/setup');
  expect(stateDir({ LONGSHORE_DATA_DIR: '/data', LS_SETUP_DIR: '/tmp/s' })).toBe('/tmp/s');
});

describe('a step of set-up that takes long', () => {
  const was = { isTTY: process.stderr.isTTY, columns: process.stderr.columns };
  afterEach(() => {
    Object.assign(process.stderr, was);
    vi.useRealTimers();
    vi.restoreAllMocks();
  });

  async function linesOf(terminal: { isTTY: boolean; columns: number }, seconds: number): Promise<string> {
    Object.assign(process.stderr, terminal);
    vi.useFakeTimers();
    let written = '';
    vi.spyOn(process.stderr, 'write').mockImplementation((text) => (written += String(text)) !== '');
    const work = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, seconds * 1000 + 500));
    const step = stepLog().step('installing the Node packages (npm ci: none are installed yet)', work);
    await vi.advanceTimersByTimeAsync(seconds * 1000 + 500);
    await step;
    return written;
  }

  test('says in a log how long it has taken, and not again what it is', async () => {
    expect(await linesOf({ isTTY: false, columns: 80 }, 20)).toBe(
      '- installing the Node packages (npm ci: none are installed yet) ...\n' +
        '  still at it after 10 s\n  still at it after 20 s\n' +
        '- installing the Node packages (npm ci: none are installed yet): done (20.5 s)\n',
    );
  });

  test('stays on one line of a narrow terminal', async () => {
    const written = await linesOf({ isTTY: true, columns: 40 }, 2);
    const lines = written.split('\r').slice(0, -1);
    expect(lines).toEqual([
      '- installing the Node packa… ...',
      '- installing the Node packa… ... 1 s',
      '- installing the Node packa… ... 2 s',
    ]);
  });
});

describe('an engine that LS_TEST_ENGINE names', () => {
  const folder = tempDirectory('engine');
  afterAll(() => folder.remove());
  const programs = ['dockerd', 'docker-proxy', 'containerd', 'containerd-shim-runc-v2', 'runc'];
  const put = (names: readonly string[]): void => {
    for (const name of names) writeFileSync(join(folder.path, name), '#!/bin/sh\n', { mode: 0o755 });
  };

  test('is the one of this machine where none is named', () => {
    expect(namedEngine({})).toBeUndefined();
    expect(namedEngine({ LS_TEST_ENGINE: '' })).toBeUndefined();
  });

  test('is refused with the programs that its folder lacks', () => {
    expect(() => namedEngine({ LS_TEST_ENGINE: join(folder.path, 'nowhere') })).toThrow(/has no dockerd, docker-proxy/);
    put(programs.slice(0, 3));
    expect(() => namedEngine({ LS_TEST_ENGINE: folder.path })).toThrow(/has no containerd-shim-runc-v2, runc\./);
    put(programs.slice(3));
    writeFileSync(join(folder.path, 'runc'), '', { mode: 0o644 });
    chmodSync(join(folder.path, 'runc'), 0o644);
    expect(() => namedEngine({ LS_TEST_ENGINE: folder.path })).toThrow(/has no runc\./);
  });

  test('is used by root, who may make its network namespace', () => {
    put(programs);
    chmodSync(join(folder.path, 'runc'), 0o755);
    const uid = vi.spyOn(process, 'getuid').mockReturnValue(0);
    expect(namedEngine({ LS_TEST_ENGINE: folder.path })).toBe(folder.path);
    uid.mockReturnValue(1000);
    expect(() => namedEngine({ LS_TEST_ENGINE: folder.path })).toThrow(/needs root/);
    uid.mockRestore();
  });
});

describe('the files of a test run', () => {
  const roomy = {
    type: 0x0102_1994,
    freeBytes: 8 * 1024 ** 3,
    mounts: 'proc /proc proc rw 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n',
    memory: 'MemTotal:       24000000 kB\nMemAvailable:   20000000 kB\n',
  };

  test('are in memory where there is room for them and for the programs', () => {
    expect(isRoomy(roomy)).toBe(true);
  });

  test.each([
    ['is on a disk', { type: 0xef53 }],
    ['is small, as in a container', { freeBytes: 64 * 1024 ** 2 }],
    ['runs no programs', { mounts: 'tmpfs /dev/shm tmpfs rw,noexec 0 0\n' }],
    ['is no mount', { mounts: 'proc /proc proc rw 0 0\n' }],
    ['has its memory in use', { memory: 'MemAvailable:   2000000 kB\n' }],
  ])('are not in a directory that %s', (_, said) => {
    expect(isRoomy({ ...roomy, ...said })).toBe(false);
  });

  test('are below TMPDIR where somebody has set it', () => {
    expect(testParent({ TMPDIR: '/somewhere' })).toBe('/somewhere');
  });
});
