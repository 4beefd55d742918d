import { expect, test } from 'vitest';
import type { ContainerSpec__Output } from '#shared/protocol/generated/messages.ts';
import { snapshotConfig } from '../../../agent/containers/engine/builds.ts';
import { createOptions, mountOptions } from '../../../agent/containers/engine/options.ts';
import type { Assignment__Output } from '#shared/protocol/generated/messages.ts';
import type { CreateContainer, ImageConfig, Mount } from '../../../agent/containers/runtime.ts';
import { checkAssignment, createContainerOf } from '../../../agent/containers/spec.ts';
import { exitMessage, exitReason } from '../../../agent/reconcile/exits.ts';
import { startFailure } from '../../../agent/reconcile/starting.ts';
import { EngineError } from '../../../agent/containers/runtime.ts';
import { anAssignment } from '../../helpers/agent-assignment.ts';

const CODE = { objectId: 'o1', sha256: 'a'.repeat(64), size: 1 };
const CONFIG: ImageConfig = {
  labels: {},
  onBuild: [],
  env: [],
  user: '',
  workingDir: '/srv',
  shell: [],
  program: ['/entry.sh', 'nginx'],
  architecture: 'amd64',
};
const BASE: Mount = {
  kind: 'volume',
  target: '/opt/longshore/base',
  readOnly: true,
  source: '',
  volume: { name: 'ls-base-1', options: undefined, labels: {} },
};

const assignmentOf = (spec: Partial<ContainerSpec__Output>): Assignment__Output =>
  ({
    ...anAssignment({
      stubType: 'pod/run',
      handler: '',
      onStart: '',
      env: {},
      gpuUuids: [],
      allowList: [],
      entrypoint: [],
      ports: [],
      readinessProbe: null,
      concurrentRequests: 256,
      ...spec,
    }),
    stop: false,
    graceMs: 0,
    stopReason: '',
  }) as Assignment__Output;

function createOf(spec: Partial<ContainerSpec__Output>, { config = CONFIG, isBase = false } = {}): CreateContainer {
  const assignment = assignmentOf(spec);
  return createContainerOf(
    assignment,
    assignment.spec as ContainerSpec__Output,
    { id: 'sha256:abc', reference: 'nginx:1', config, isBase },
    { cores: 2, hostname: 'h', machineId: 'm1', runnerDir: '/runner', caBundle: undefined, extraLabels: {} },
    { code: { kind: 'bind', target: '/mnt/code', readOnly: false, source: '/v' }, socketDir: '/s/1', base: BASE },
    undefined,
  );
}

const envOf = ({ env }: CreateContainer): Record<string, string | undefined> =>
  Object.fromEntries(
    env.map((one) => [one.split('=')[0] ?? '', one.includes('=') ? one.slice(one.indexOf('=') + 1) : undefined]),
  );
const settingsOf = (create: CreateContainer): Record<string, unknown> =>
  JSON.parse(envOf(create)['LONGSHORE_SUPERVISOR'] ?? '') as Record<string, unknown>;

test("a pod's first program is the supervisor, by its own loader, and the image's own program is its entrypoint", () => {
  const create = createOf({ ports: [80], env: { MODE: 'x', LONGSHORE_SUPERVISOR: '{}', HANDLER: 'mine' } });
  expect(create.entrypoint.slice(0, 6)).toEqual([
    '/opt/longshore/base/ld.so',
    '--library-path',
    '/opt/longshore/base/lib',
    '/opt/longshore/base/python/bin/python3',
    '-I',
    '-S',
  ]);
  expect(settingsOf(create)).toEqual({
    entrypoint: ['/entry.sh', 'nginx'],
    cwd: '',
    ports: [80],
    probe: null,
    slots: 256,
    containerId: expect.stringMatching(/^endpoint-/),
    env: {},
  });
  expect(create.workingDir).toBe('');
  expect(create.mounts.map(({ target }) => target)).toEqual([
    '/run/longshore',
    '/opt/longshore/python',
    '/opt/longshore/base',
  ]);
  const env = envOf(create);
  expect(env).toMatchObject({ MODE: 'x', HANDLER: 'mine', LONGSHORE_TOKEN: 'container-token' });
  expect(Object.keys(env).filter((name) => /^PYTHON|^WORKERS$|_WORKER_MODE$/.test(name))).toEqual(['PYTHONUNBUFFERED']);
  expect(createOptions(create).HostConfig).toMatchObject({
    CapDrop: ['ALL'],
    CapAdd: ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'NET_BIND_SERVICE', 'SETGID', 'SETUID'],
    SecurityOpt: ['no-new-privileges'],
  });
  expect(createOptions(create)).not.toHaveProperty('User');
  expect(mountOptions(BASE)).toMatchObject({ Type: 'volume', Source: 'ls-base-1', ReadOnly: true });
});

test('prints of a Python program wait for nothing, where neither the stub nor the image says otherwise', () => {
  const value = (env: Record<string, string>, ofImage: readonly string[] = []): string | undefined =>
    envOf(createOf({ env }, { config: { ...CONFIG, env: ofImage } }))['PYTHONUNBUFFERED'];
  expect(value({})).toBe('1');
  expect(value({}, ['PYTHONUNBUFFERED_NOT=x'])).toBe('1');
  for (const own of ['', '0']) {
    expect(value({ PYTHONUNBUFFERED: own })).toBe(own);
    expect(value({ PYTHONUNBUFFERED: own }, ['PYTHONUNBUFFERED=x'])).toBe(own);
    // A variable that the container does not name is the image's.
    expect(createOf({}, { config: { ...CONFIG, env: [`PYTHONUNBUFFERED=${own}`] } }).env.join()).not.toContain(
      'PYTHONUNBUFFERED',
    );
  }
});

test('libraries that every program is to load are not loaded into the supervisor', () => {
  const config = { ...CONFIG, env: ['PATH=/bin', 'LD_PRELOAD=/a.so', 'LD_AUDIT=/b.so'] };
  for (const [env, preload] of [
    [{}, '/a.so'],
    [{ LD_PRELOAD: '/own.so' }, '/own.so'],
  ] as const) {
    const create = createOf({ env }, { config });
    expect(settingsOf(create)['env']).toEqual({ LD_PRELOAD: preload, LD_AUDIT: '/b.so' });
    // A name without a value takes the image's own away.
    expect(create.env.filter((one) => one.startsWith('LD_'))).toEqual(['LD_PRELOAD', 'LD_AUDIT']);
  }
});

test("code is mounted where there is some, and an image's program then starts where the image says", () => {
  const own = createOf({ code: CODE, entrypoint: ['server'] });
  expect([own.workingDir, settingsOf(own)['cwd'], settingsOf(own)['entrypoint']]).toEqual([
    '/mnt/code',
    '/srv',
    ['server'],
  ]);
  expect(own.mounts[0]?.target).toBe('/mnt/code');
  const bare = createOf({ code: CODE }, { config: { ...CONFIG, workingDir: '' } });
  expect(settingsOf(bare)['cwd']).toBe('/');
  expect(settingsOf(createOf({ code: CODE }, { isBase: true }))['cwd']).toBe('');
});

test.each(['', '/'])('a program that a person names starts beside the code where the image says %o', (workingDir) => {
  const create = createOf({ code: CODE, entrypoint: ['server'] }, { config: { ...CONFIG, workingDir } });
  expect([create.workingDir, settingsOf(create)['cwd']]).toEqual(['/mnt/code', '']);
});

test('a sandbox has no program of its image, no credential, and no way to the platform', () => {
  const create = createOf({ stubType: 'sandbox', ports: [3000], concurrentRequests: 2000 });
  expect(settingsOf(create)).toMatchObject({ entrypoint: [], ports: [], slots: 1024 });
  const env = envOf(create);
  expect([env['LONGSHORE_TOKEN'], env['LONGSHORE_GATEWAY_SOCKET']]).toEqual([undefined, undefined]);
  expect(create.env).toContain('LONGSHORE_TOKEN');
  expect(JSON.stringify(create.env)).not.toContain('container-token');
});

test('a pod without any program does not start, and says so', () => {
  expect(() => createOf({}, { config: { ...CONFIG, program: [] } })).toThrow(/nginx:1 names no program/);
});

test('a probe that names nothing waits as long as is usual', () => {
  const more = ['/v1/models', '/health'];
  const probe = { type: 'http', port: 80, path: '/up', command: [], intervalMs: 0, timeoutMs: 0, morePaths: more };
  expect(settingsOf(createOf({ readinessProbe: probe }))['probe']).toMatchObject({
    type: 'http',
    path: '/up',
    morePaths: more,
    intervalMs: 500,
    timeoutMs: 2000,
  });
});

test('fields of pods are checked, and a handler need not be named', () => {
  const probe = { type: 'http', port: 80, path: '/', command: [], intervalMs: 0, timeoutMs: 0, morePaths: [] };
  const problem = (spec: object): string | undefined => checkAssignment(assignmentOf(spec));
  expect(problem({})).toBeUndefined();
  expect(problem({ stubType: 'endpoint/deployment' })).toMatch(/spec.handler/);
  expect(problem({ entrypoint: ['a\0'] })).toMatch(/spec.entrypoint has a zero byte/);
  expect(problem({ entrypoint: ['a'.repeat(70_000)] })).toMatch(/spec.entrypoint has more than/);
  expect(problem({ ports: [0] })).toBe('spec.ports: 0 is not a port');
  expect(problem({ ports: Array.from({ length: 65 }, () => 80) })).toMatch(/spec.ports has more than/);
  expect(problem({ readinessProbe: { ...probe, type: 'x' } })).toMatch(/spec.readiness_probe.type/);
  expect(problem({ readinessProbe: { ...probe, port: 70_000 } })).toMatch(/spec.readiness_probe.port/);
  expect(problem({ readinessProbe: { ...probe, morePaths: ['\0'] } })).toMatch(/more_paths has a zero byte/);
  expect(problem({ readinessProbe: { ...probe, type: 'command' } })).toMatch(/spec.readiness_probe.command is empty/);
});

test("a pod's program may end well before it was ready; every other end is told as for handlers", () => {
  const exit = {
    seen: { exitCode: 0, oomKilled: false, error: '' },
    ready: false,
    isSupervised: true,
    note: undefined,
    ending: undefined,
    rebooted: false,
  };
  expect([exitReason(exit), exitMessage(exit)]).toEqual(['completed', '']);
  const failed = { ...exit, seen: { ...exit.seen, exitCode: 3 } };
  expect([exitReason(failed), exitMessage(failed)]).toEqual(['user_error', 'process exited (code 3)']);
  const user = new EngineError('refused', 'cannot start the container: unable to find user web: no matching entries');
  expect(startFailure(user).reason).toBe('image_error');
});

test('a snapshot is configured as its image, and whatever the container had of its own is taken out by name', () => {
  const own = {
    Env: ['PATH=/other', 'KEY=secret', 'LONGSHORE_TOKEN'],
    Labels: { 'io.longshore.container': 'c1', a: 'c' },
  };
  const config = snapshotConfig({ Env: ['PATH=/bin'], Labels: { a: 'b' }, Cmd: ['run'] }, own, { built: '1' });
  expect(config).toMatchObject({
    Env: ['PATH=/bin', 'KEY', 'LONGSHORE_TOKEN'],
    Labels: { 'io.longshore.container': '', a: 'b', built: '1' },
    Entrypoint: [],
    Cmd: ['run'],
    WorkingDir: '/',
  });
});
