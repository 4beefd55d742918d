import { expect, test } from 'vitest';
import type { EngineInfo } from '../../../agent/containers/runtime.ts';
import type { Listing } from '../../../agent/devices/parse.ts';
import { engineFailure, engineFindings } from '../../../agent/preflight/engine.ts';
import { failed, findingsText, ok, warning } from '../../../agent/preflight/finding.ts';
import { gpuFinding, imageFinding, madeImageFinding } from '../../../agent/preflight/host.ts';
import { aGpu, gpuUuid } from '../../helpers/gpus.ts';
import { clockJudged } from '../../../agent/preflight/scheduler.ts';

const INFO: EngineInfo = {
  version: '20.10.24+dfsg1',
  cores: 2,
  memoryBytes: 8e9,
  rootDir: '/var/lib/docker',
  storageDriver: 'overlay2',
  containerd: { hasImages: false, address: '' },
  cgroup: 'v2 systemd',
  limits: { memory: true, swap: true, cpu: true, pids: true },
  userNamespaces: false,
  rootless: false,
  selinux: false,
  liveRestore: true,
  nvidia: false,
  cdi: { dirs: [], devices: undefined },
};
const levels = (changes: Partial<EngineInfo>): Record<string, string> =>
  Object.fromEntries(engineFindings({ ...INFO, ...changes }).map(({ check, level }) => [check, level]));

test('an engine that can do what containers need passes, each lack is found and has its remedy', () => {
  expect(levels({})).toEqual({ engine: 'ok', cgroup: 'ok', 'user namespaces': 'ok', 'live restore': 'ok' });
  expect(levels({ version: '20.9.1' })['engine']).toBe('failed');
  expect(levels({ version: '19.03.8' })['engine']).toBe('failed');
  expect(levels({ version: '28.0.1' })['engine']).toBe('ok');
  for (const lack of ['memory', 'cpu', 'pids'])
    expect(levels({ limits: { ...INFO.limits, [lack]: false } })['cgroup'], lack).toBe('failed');
  expect(levels({ limits: { ...INFO.limits, swap: false } })['cgroup']).toBe('warning');
  expect(levels({ userNamespaces: true })['user namespaces']).toBe('failed');
  expect(levels({ rootless: true })['user namespaces']).toBe('failed');
  expect(levels({ selinux: true })['SELinux']).toBe('ok');
  expect(engineFindings({ ...INFO, selinux: true }).find(({ check }) => check === 'SELinux')?.remedy).toMatch(
    /a pool of/,
  );
  expect(levels({ liveRestore: false })['live restore']).toBe('warning');
  const bad = engineFindings({ ...INFO, version: '1.0', rootless: true, limits: { ...INFO.limits, memory: false } });
  expect(bad.every(({ level, remedy }) => level === 'ok' || (level === 'failed' && remedy !== ''))).toBe(true);
  expect(bad.filter(({ level }) => level === 'failed')).toHaveLength(3);
});

test('an engine that cannot be asked is told apart from one that may not be asked', () => {
  const denied = Object.assign(new Error('connect EACCES'), { code: 'EACCES' });
  expect(engineFailure(new Error('it', { cause: denied }), undefined).remedy).toMatch(/group docker/);
  expect(engineFailure(new Error('connect ENOENT'), 'unix:///x').found).toMatch(/no Docker Engine answers at unix/);
});

test('a clock off by more than 5 s is warned of, by more than 30 s it fails', () => {
  expect(clockJudged(-4_000).level).toBe('ok');
  expect(clockJudged(6_000)).toMatchObject({ level: 'warning', found: "6 s ahead of the scheduler's" });
  expect(clockJudged(-31_000)).toMatchObject({ level: 'failed', found: "31 s behind the scheduler's" });
});

test('a base image that its registry does not give is answered with the setting that names another one', () => {
  expect(imageFinding('base:1', true, '').level).toBe('ok');
  expect(imageFinding('base:1', false, '').remedy).toMatch(/docker pull base:1/);
  expect(imageFinding('reg.test/base:1', false, 'no such host')).toMatchObject({
    level: 'warning',
    found: expect.stringMatching(/registry reg\.test .*no such host/) as string,
    remedy: expect.stringContaining('LONGSHORE_BASE_IMAGE') as string,
  });
  expect(madeImageFinding('longshore-python:3.13', ['3.11', '3.13'])).toMatchObject({
    level: 'ok',
    remedy: expect.stringContaining('made from packages of Debian') as string,
  });
  expect(madeImageFinding('longshore-python:3.12', ['3.11', '3.13'])).toMatchObject({
    level: 'warning',
    found: expect.stringContaining('makes those of Python 3.11, 3.13 alone') as string,
  });
  expect(madeImageFinding('longshore-python:3.12', []).found).toContain('makes none');
});

test('the table has a line for each check, each remedy below its own, and a verdict', () => {
  const text = findingsText([
    ok('engine', 'fine'),
    warning('clock', 'slow', 'set it'),
    failed('state', 'gone', 'make it'),
  ]);
  expect(text).toBe(
    [
      'ok       engine  fine',
      'WARNING  clock   slow',
      '                 -> set it',
      'FAILED   state   gone',
      '                 -> make it',
      '',
      '1 of 3 checks failed: this machine does not take work.',
    ].join('\n'),
  );
  expect(findingsText([ok('a', 'b')])).toMatch(/can take work\.$/);
});

test('GPUs that the engine knows by CDI need no hook, and names by index do not count', async () => {
  const { uuid, name } = aGpu(0);
  const listing = { kind: 'listed', rows: [{ uuid, name }], broken: [], unreadable: 0 } as unknown as Listing;
  const by = (...names: readonly string[]) => gpuFinding(listing, { ...INFO, cdi: { dirs: [], devices: names } });
  expect(await by('nvidia.com/gpu=0', `nvidia.com/gpu=${gpuUuid(0)}`)).toMatchObject({
    level: 'ok',
    found: '1 x NVIDIA H100 80GB HBM3, by CDI',
  });
  expect((await by('nvidia.com/gpu=0', 'nvidia.com/gpu=all')).found).not.toMatch(/, by CDI$/);
});
