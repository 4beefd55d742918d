import { describe, expect, test } from 'vitest';
import type { ContainerId, DeploymentId, MachineId, StubId, TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { ContainerView } from '../../../scheduler/fleet/containers/container-view.ts';
import type { PoolView } from '../../../scheduler/fleet/worker-service.ts';
import type { MachineView } from '../../../scheduler/fleet/machine-service.ts';
import { isLoopback } from '../../../scheduler/api/http/auth.ts';
import type { Caller } from '../../../scheduler/workspaces/identity/caller.ts';
import type { FirstWorkspace } from '../../../scheduler/workspaces/identity/bootstrap.ts';
import { signatureOf } from '../../../scheduler/workspaces/identity/signatures.ts';
import { authorize, signPayload } from '../../../scheduler/api/operations/auth.ts';
import { listContainers } from '../../../scheduler/api/operations/containers.ts';
import { allOperations } from '../../../scheduler/api/operations/index.ts';
import type { OperationParts } from '../../../scheduler/api/operations/index.ts';
import { booleanFilter, limitOf, numberFilter } from '../../../scheduler/api/operations/list-rules.ts';
import { hostAddress } from '../../../scheduler/api/ops/host-address.ts';
import { createMachine, listMachines, upstreamUrl } from '../../../scheduler/api/operations/machines.ts';
import { refusalOf } from '../../../scheduler/api/operations/operation.ts';
import type { Origin } from '../../../scheduler/api/operations/operation.ts';

const aCaller = (said: Partial<Caller> = {}): Caller => ({
  workspaceId: 'w' as WorkspaceId,
  workspaceDbId: 1,
  tokenId: 't' as TokenId,
  type: 'workspace',
  isAdmin: false,
  ...said,
});
const anOrigin = (said: Partial<Origin> = {}): Origin => ({
  from: { remoteAddress: '127.0.0.1', userAgent: 'test', requestId: 'r' },
  baseUrl: 'http://host.example:1994',
  loopback: false,
  bearer: null,
  ...said,
});

describe('Authorize', () => {
  const first: FirstWorkspace = { kind: 'created', workspaceId: 'w1' as WorkspaceId, token: 'secret' };
  const run = (caller: Caller | null, origin: Partial<Origin>, token: string | null, state: FirstWorkspace = first) =>
    authorize({ token, ensureFirstWorkspace: async () => state }).handle(caller, {}, anOrigin(origin));
  const refused = { ok: false, workspaceId: '', newToken: '', errorMsg: 'Invalid token' };

  test('tells a good token its workspace and gives nothing new', async () => {
    expect(await run(aCaller(), { loopback: true }, null)).toEqual({
      ok: true,
      workspaceId: 'w',
      newToken: '',
      errorMsg: '',
    });
  });

  test('makes the first workspace for this host', async () => {
    expect(await run(null, { loopback: true }, null)).toEqual({
      ok: true,
      workspaceId: 'w1',
      newToken: 'secret',
      errorMsg: '',
    });
  });

  test('makes it for whoever has the bootstrap token, and for nobody else from elsewhere', async () => {
    expect(await run(null, { bearer: 'boot' }, 'boot')).toMatchObject({ ok: true, newToken: 'secret' });
    expect(await run(null, { bearer: 'other' }, 'boot')).toEqual(refused);
    expect(await run(null, { bearer: null }, 'boot')).toEqual(refused);
    expect(await run(null, { bearer: '' }, '')).toEqual(refused);
    expect(await run(null, { bearer: 'x' }, null)).toEqual(refused);
  });

  test('makes no second one', async () => {
    expect(await run(null, { loopback: true }, null, { kind: 'exists' })).toEqual(refused);
  });
});

describe('this host', () => {
  const from = (remoteAddress: string | undefined, headers: Record<string, string> = {}): boolean =>
    isLoopback({ socket: { remoteAddress }, headers } as unknown as Parameters<typeof isLoopback>[0]);

  test.each(['127.0.0.1', '127.8.8.8', '::1', '::ffff:127.0.0.1'])('%s is', (address) => {
    expect(from(address)).toBe(true);
  });

  test.each(['10.0.0.1', '::ffff:10.0.0.1', '2001:db8::1', '1127.0.0.1', undefined])('%s is not', (address) => {
    expect(from(address)).toBe(false);
  });

  test.each(['x-forwarded-for', 'forwarded', 'via', 'x-real-ip', 'origin'])(
    'a %s header says somebody is in between',
    (name) => {
      expect(from('127.0.0.1', { [name]: '1.2.3.4' })).toBe(false);
    },
  );

  test('a request that a web page sent is not, one that a person typed is', () => {
    expect(from('127.0.0.1', { 'sec-fetch-site': 'cross-site' })).toBe(false);
    expect(from('127.0.0.1', { 'sec-fetch-site': 'none' })).toBe(true);
  });
});

describe('lists', () => {
  test('limits: none is the most, more is clamped', () => {
    expect([limitOf(0), limitOf(5), limitOf(5000)]).toEqual([1000, 5, 1000]);
  });

  test('a value that cannot be read is no filter', () => {
    expect([booleanFilter('Yes'), booleanFilter('F'), booleanFilter('perhaps'), booleanFilter(undefined)]).toEqual([
      true,
      false,
      undefined,
      undefined,
    ]);
    expect([numberFilter('3'), numberFilter('v3'), numberFilter('-1')]).toEqual([3, undefined, undefined]);
  });
});

describe('ListContainers', () => {
  const aContainer = (id: string, scheduledAtMs: number | null): ContainerView => ({
    containerId: id as ContainerId,
    workspaceId: 'w' as WorkspaceId,
    stubId: 's' as StubId,
    deploymentId: 'd' as DeploymentId,
    state: 'RUNNING',
    status: 'RUNNING',
    machineId: scheduledAtMs === null ? null : ('abcdef01' as MachineId),
    scheduledAtMs,
    startedAtMs: null,
    cpuMillicores: 1000,
    memoryMib: 128,
  });
  const run = (caller: Caller) => {
    const asked: (string | null)[] = [];
    const list = (workspaceId: WorkspaceId | null) => {
      asked.push(workspaceId);
      return [aContainer('old', 1_000), aContainer('new', 2_000), aContainer('unplaced', null)];
    };
    const used = {
      cpuMillicores: 250,
      memoryBytes: 3e7,
      processes: 4,
      receivedBytes: 10,
      sentBytes: 20,
      diskBytes: 5e6,
      diskLimitBytes: 1e9,
      gpu: { devices: 2, utilizationPct: 50, memoryUsedBytes: 4e9, memoryTotalBytes: 16e10, powerWatts: null },
    };
    const usage = {
      of: (machineIds: Iterable<MachineId>) => {
        expect(new Set(machineIds)).toEqual(new Set(['abcdef01']));
        return Promise.resolve(new Map([['new' as ContainerId, { ...used, sampledAtMs: 3_000 }]]));
      },
    };
    return {
      asked,
      answer: listContainers({ list }, usage, { stubs: () => Promise.resolve(new Map()) }).handle(
        caller,
        {},
        anOrigin(),
      ),
    };
  };

  test('shows a workspace its own and the administrator all, newest first', async () => {
    const own = run(aCaller());
    expect(await own.answer).toMatchObject({
      ok: true,
      containers: [
        { containerId: 'unplaced', workerId: '', machineId: '', scheduledAt: null },
        {
          containerId: 'new',
          workerId: 'abcdef01',
          scheduledAt: '1970-01-01T00:00:02.000Z',
          usage: { sampledAt: '1970-01-01T00:00:03.000Z', gpu: { utilizationPct: 50, powerWatts: null } },
        },
        { containerId: 'old', usage: null },
      ],
    });
    const admin = run(aCaller({ type: 'admin', isAdmin: true }));
    await admin.answer;
    expect([...own.asked, ...admin.asked]).toEqual(['w', null]);
  });
});

describe('machines', () => {
  const aHost = {
    hostname: 'h',
    disks: [{ name: 'nvme0n1' }],
    nics: [],
    numaNodes: [],
    fileSystems: [],
    warnings: [],
  } as unknown as MachineView['host'];
  const aMachine = (machineId: string, poolName: string, gpu = ''): MachineView => ({
    machineId: machineId as MachineId,
    poolName,
    requiresPoolSelector: false,
    status: 'available',
    hostname: 'h',
    cpuMillicores: 4000,
    memoryMib: 1024,
    gpuModels: gpu === '' ? [] : [gpu],
    gpus: gpu === '' ? [] : [{ model: gpu }],
    labels: { zone: 'a' },
    ownLabels: {},
    gpuCount: gpu === '' ? 0 : 1,
    freeGpuCount: 0,
    agentVersion: '1',
    createdAtMs: 0,
    lastSeenAtMs: 1_000,
    freeCpuMillicores: 3000,
    offeredCpuMillicores: 3600,
    offeredMemoryMib: 972,
    freeMemoryMib: 512,
    containerCount: 1,
    conditions: [],
    conditionWords: {},
    host: aHost,
  });
  const list = listMachines(
    { list: async () => [aMachine('b', 'gpu', 'T4'), aMachine('c', 'default'), aMachine('a', 'gpu')] },
    { poolNamed: async (_owner, name) => (name === 'emptied' ? ({ name } as PoolView) : undefined) },
  );

  test('are listed by pool and id, with what GPUs are offered', async () => {
    const answer = (await list.handle(aCaller(), { poolName: '', limit: 0, machineId: '' }, anOrigin())) as Record<
      string,
      unknown
    >;
    expect(answer['machines']).toMatchObject([
      { id: 'c' },
      { id: 'a', memory: 1024, registrationToken: '' },
      { id: 'b', gpu: 'T4' },
    ]);
    expect(answer['gpus']).toMatchObject({ T4: true, H100: false });
    expect(answer['gpus']).not.toHaveProperty('any');
  });

  test('one is asked for with what its host is made of, which lists leave out', async () => {
    const one = await list.handle(aCaller(), { poolName: '', limit: 0, machineId: 'a' }, anOrigin());
    expect(one).toMatchObject({ machines: [{ id: 'a', host: { disks: [{ name: 'nvme0n1' }] } }] });
    const all = await list.handle(aCaller(), { poolName: '', limit: 0, machineId: '' }, anOrigin());
    expect(all).toMatchObject({ machines: [{ host: null }, { host: null }, { host: null }] });
    const none = await list.handle(aCaller(), { poolName: '', limit: 0, machineId: 'x' }, anOrigin());
    expect(none).toMatchObject({ ok: true, machines: [] });
  });

  test('of one pool, limited; an unknown pool is refused', async () => {
    expect(await list.handle(aCaller(), { poolName: 'gpu', limit: 1, machineId: '' }, anOrigin())).toMatchObject({
      machines: [{ id: 'a' }],
    });
    expect(await list.handle(aCaller(), { poolName: 'emptied', limit: 0, machineId: '' }, anOrigin())).toMatchObject({
      ok: true,
      machines: [],
    });
    expect(await list.handle(aCaller(), { poolName: 'x', limit: 0, machineId: '' }, anOrigin())).toMatchObject({
      ok: false,
      errMsg: 'pool not found',
      machines: [],
    });
  });

  test('are made in a pool whose name can stand anywhere, with the token to join', async () => {
    const owners: unknown[] = [];
    const create = createMachine(
      {
        create: async (owner, poolName) => {
          if (poolName === 'one-more') throw new AppError('too_many_pools', 'this workspace has 20 pools');
          owners.push(owner);
          return {
            machineId: 'abcdef01' as MachineId,
            poolName,
            joinToken: 'lsj1.a.b',
            expiresAtMs: 0,
            createdAtMs: 0,
          };
        },
      },
      { url: () => 'grpcs://0.0.0.0:1995', hostAddress: () => '192.168.1.20', branch: 'stable' },
    );
    expect(await create.handle(aCaller(), { poolName: '' }, anOrigin())).toMatchObject({
      ok: true,
      machine: { id: 'abcdef01', poolName: 'default', registrationToken: 'lsj1.a.b' },
      agentUpstreamUrl: 'grpcs://host.example:1995',
      agentUpstreamBranch: 'stable',
      agentUpstreamToken: 'lsj1.a.b',
    });
    await create.handle(aCaller({ type: 'admin', isAdmin: true }), { poolName: 'gpu' }, anOrigin());
    expect(owners).toEqual([{ workspaceId: 'w' }, { workspaceId: null }]);
    for (const [poolName, errMsg] of [
      ['../x', /^poolName must be/],
      ['one-more', /^this workspace has 20 pools/],
    ] as const)
      expect(await create.handle(aCaller(), { poolName }, anOrigin())).toMatchObject({
        ok: false,
        errMsg: expect.stringMatching(errMsg),
        machine: null,
      });
    expect(owners).toHaveLength(2);
  });

  test('an address of every interface becomes the name the caller used', () => {
    expect(upstreamUrl('grpcs://[::]:1995', anOrigin())).toBe('grpcs://host.example:1995');
    expect(upstreamUrl('grpcs://10.0.0.5:1995', anOrigin())).toBe('grpcs://10.0.0.5:1995');
  });

  test('a caller on this host is told the address that other machines dial, where one is known', () => {
    for (const baseUrl of ['http://127.0.0.1:1994', 'http://localhost:1994', 'http://[::1]:1994']) {
      const origin = anOrigin({ baseUrl });
      expect(upstreamUrl('grpcs://0.0.0.0:1995', origin, '192.168.1.20')).toBe('grpcs://192.168.1.20:1995');
      expect(upstreamUrl('grpcs://127.0.0.1:1995', origin, '192.168.1.20')).toBe('grpcs://127.0.0.1:1995');
    }
    expect(upstreamUrl('grpcs://0.0.0.0:1995', anOrigin({ baseUrl: 'http://127.0.0.1:1994' }))).toBe(
      'grpcs://127.0.0.1:1995',
    );
    expect(upstreamUrl('grpcs://0.0.0.0:1995', anOrigin(), '192.168.1.20')).toBe('grpcs://host.example:1995');
  });

  test('the address of a host is none of its bridges', () => {
    const on = (address: string, family: 'IPv4' | 'IPv6' = 'IPv4') =>
      ({
        address,
        family,
        internal: address.startsWith('127.'),
        netmask: '',
        mac: '',
        cidr: null,
        scopeid: 0,
      }) as const;
    expect(hostAddress({ lo: [on('127.0.0.1')], docker0: [on('172.17.0.1')] })).toBeUndefined();
    expect(
      hostAddress({
        lo: [on('127.0.0.1')],
        docker0: [on('172.17.0.1')],
        eth0: [on('fe80::1', 'IPv6'), on('2001:db8::5', 'IPv6'), on('192.168.1.20')],
      }),
    ).toBe('192.168.1.20');
    expect(hostAddress({ eth0: [on('fe80::1', 'IPv6'), on('2001:db8::5', 'IPv6')] })).toBe('[2001:db8::5]');
  });
});

test('no two operations have one name or one place', () => {
  const operations = allOperations({} as OperationParts);
  expect(new Set(operations.map((one) => one.name)).size).toBe(operations.length);
  expect(new Set(operations.map((one) => `${one.method} ${one.path.replace(/\{\w+\}/g, '{}')}`)).size).toBe(
    operations.length,
  );
});

describe('SignPayload', () => {
  const payload = new TextEncoder().encode('hello');
  // HMAC-SHA256 of `aGVsbG8=:1700000000` under `sk_test`, computed elsewhere.
  const signature = 'ed16b4a1fa63e688fca0fe3c713bcc1ed8c38eabfe88a5d5c64dff1298c07590';

  test('signs the payload and the second', async () => {
    expect(signatureOf('sk_test', payload, 1_700_000_000)).toBe(signature);
    const sign = signPayload(async () => 'sk_test', { nowMs: () => 1_700_000_000_999 });
    expect(await sign.handle(aCaller(), { payload }, anOrigin())).toEqual({
      ok: true,
      signature,
      timestamp: 1_700_000_000,
      errorMsg: '',
    });
  });

  test('says so when the workspace is gone', async () => {
    const sign = signPayload(async () => undefined, { nowMs: () => 0 });
    expect(await sign.handle(aCaller(), { payload }, anOrigin())).toMatchObject({
      ok: false,
      errorMsg: 'Invalid signing key',
    });
  });
});

describe('who may call what', () => {
  const RESTRICTED_MAY = [
    'VerifyImageBuild',
    'Authorize',
    'SignPayload',
    'ListDeployments',
    'HeadObject',
    'GetOrCreateVolume',
    'GetOrCreateStub',
    'CheckStub',
    'GetURL',
    'ListTasks',
    'StopTasks',
    'ListContainers',
    'StopContainer',
    'CheckpointContainer',
  ];
  const CONTAINERS_MAY = [
    'Authorize',
    'SignPayload',
    'CreateObject',
    'HeadObject',
    'ListTasks',
    'StartTask',
    'EndTask',
    'GetOrCreateStub',
    'GetOrCreateVolume',
  ];
  const operations = allOperations({} as OperationParts);
  const mayCall = (type: Caller['type']): string[] =>
    operations.filter((one) => refusalOf(one, { type, isAdmin: type === 'admin' }) === null).map((one) => one.name);

  test('a restricted token runs and inspects', () => {
    expect(mayCall('workspace_restricted').toSorted(byText)).toEqual(RESTRICTED_MAY.toSorted(byText));
  });

  test('a container’s token does what its own tasks need', () => {
    expect(mayCall('container').toSorted(byText)).toEqual(CONTAINERS_MAY.toSorted(byText));
  });

  test.each(['admin', 'workspace_primary', 'workspace'] as const)('a token of type %s may call all', (type) => {
    expect(mayCall(type)).toHaveLength(operations.length);
  });

  test('every answer that can refuse has a field for it, but for those without any', () => {
    const silent = operations
      .filter((one) => !['errMsg', 'errorMsg', 'error'].some((field) => field in one.response.properties))
      .map((one) => one.name);
    expect(silent.toSorted(byText)).toEqual(['BuildImage', 'EndTask', 'ExportWorkspaceConfig', 'StartTask']);
  });
});

const byText = (a: string, b: string): number => (a < b ? -1 : 1);
