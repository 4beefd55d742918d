/** Operations of pools. */
import { expect } from 'vitest';
import type { Json, Platform } from '../verbs-fixture.ts';
import { done, refusedWith } from '../verbs-kit.ts';
import type { Kit } from '../verbs-kit.ts';
import { UNAUTHORIZED } from './row.ts';
import type { GatewayVerb } from './row.ts';

const POOL_SETTINGS = {
  cpuOvercommit: 2,
  cpuWorkOnGpuMachines: null,
  requiresPoolSelector: false,
  priority: 0,
  reservedCpuCores: null,
  reservedMemoryMib: null,
  labels: null,
  hourlyCost: null,
  expectedGpus: null,
  registryMirror: null,
  registryMirrorAuth: false,
  provider: null,
  minFreeGpu: 0,
  minFreeCpuCores: 0,
  minFreeMemoryMib: 0,
  minMachines: 0,
  maxMachines: 10,
  hourlyBudget: null,
  machineGpuModel: null,
  machineGpuCount: 0,
  machineGpuMemoryMib: null,
  machineCpuCores: null,
  machineMemoryMib: null,
  idleSeconds: 600,
  demandSeconds: 5,
};
/** Text for a workspace that would spend the installation's money. */
const NOT_FOR_WORKSPACES = /^settings\.\w+ is for an administrator to change: /;
/** The last four fields are additions of ours. */
const POOL =
  'name active gpu minFreeGpu minFreeCpu minFreeMemory defaultWorkerCpu defaultWorkerMemory defaultWorkerGpuCount state settings effectiveCpuWorkOnGpuMachines declaredIn growth';

export function poolVerbs(platform: () => Platform, kit: Kit): readonly GatewayVerb[] {
  const { unique } = kit;
  const aPool = async (): Promise<string> => {
    const name = unique('pool');
    await platform().gateway('POST /pools', { name, settings: { cpuOvercommit: 2 } });
    return name;
  };
  const settingsOf = async (name: string): Promise<Json> =>
    ((await kit.list('/pools', 'pools')).find((pool) => pool['name'] === name)?.['settings'] ?? {}) as Json;
  return [
    {
      name: 'ListPools',
      line: () => 'GET /pools?filters=name=mine&limit=5',
      make: kit.aMachine,
      fields: 'ok errMsg pools',
      records: { pools: POOL },
      restricted: refusedWith('This action is not permitted'),
      ok: { ok: true, pools: [expect.objectContaining({ name: 'mine', active: true })] },
      malformed: { line: 'GET /pools?limit=x' },
      failures: { 'a limit below zero': { line: () => 'GET /pools?limit=-1', answer: { code: 3, details: [] } } },
    },
    {
      name: 'CreatePool',
      ours: true,
      line: () => 'POST /pools',
      body: () => ({ name: unique('pool'), settings: { cpuOvercommit: 2 } }),
      fields: 'ok errMsg pool',
      restricted: UNAUTHORIZED,
      ok: { ...done, pool: expect.objectContaining({ settings: POOL_SETTINGS, declaredIn: '' }) },
      malformed: { body: '{"name": 1}' },
      failures: {
        'other settings than it has': {
          make: aPool,
          body: (name) => ({ name, settings: { priority: 1 } }),
          answer: refusedWith(expect.stringMatching(/^the pool is there already with other settings/)),
        },
        'a name that is none': {
          body: () => ({ name: 'a b' }),
          answer: refusedWith(expect.stringMatching(/^name must be/)),
        },
        'a setting out of bounds': {
          body: () => ({ name: unique('pool'), settings: { cpuOvercommit: 65 } }),
          answer: refusedWith('settings.cpuOvercommit must be a number from 1 to 64, or null for the default'),
        },
        'a provider, by a workspace': {
          body: () => ({ name: unique('pool'), settings: { provider: 'cloud' } }),
          answer: refusedWith(expect.stringMatching(NOT_FOR_WORKSPACES)),
        },
      },
    },
    {
      name: 'GetPool',
      ours: true,
      line: (name) => `GET /pools/${name}`,
      make: aPool,
      fields: 'ok errMsg pool',
      restricted: UNAUTHORIZED,
      ok: {
        ...done,
        pool: expect.objectContaining({ active: true, settings: POOL_SETTINGS, effectiveCpuWorkOnGpuMachines: false }),
      },
      malformed: null,
      unknown: refusedWith(expect.stringMatching(/^this workspace has no pool of its own named /)),
    },
    {
      name: 'ChangePool',
      ours: true,
      line: (name) => `PATCH /pools/${name}`,
      body: () => ({ settings: { priority: 7, cpuOvercommit: null } }),
      make: aPool,
      fields: 'ok errMsg pool',
      restricted: UNAUTHORIZED,
      ok: { ...done, pool: { settings: { ...POOL_SETTINGS, priority: 7, cpuOvercommit: 1 } } },
      unknown: refusedWith(expect.stringMatching(/^this workspace has no pool of its own named /)),
      done: async (name) => (await settingsOf(name))['priority'] === 7,
      failures: {
        'nothing said': { body: () => ({}), answer: refusedWith('settings must name at least one setting') },
        'a list': { body: () => ({ settings: [] }), answer: refusedWith('settings must be an object') },
        'a name that is no setting': {
          body: () => ({ settings: { cpuOverCommit: 2 } }),
          answer: refusedWith(expect.stringMatching(/^settings\.cpuOverCommit is no setting of a pool; there are /)),
        },
        'a value of another kind': {
          body: () => ({ settings: { priority: 3, requiresPoolSelector: 'yes' } }),
          answer: refusedWith('settings.requiresPoolSelector must be true or false, or null for the default'),
        },
        'a bound on what machines cost, by a workspace': {
          body: () => ({ settings: { max_machines: 1000 } }),
          answer: refusedWith(expect.stringMatching(NOT_FOR_WORKSPACES)),
        },
        'a pool of another workspace': {
          body: () => ({ workspaceId: '00000000-0000-4000-8000-000000000000', settings: { priority: 3 } }),
          answer: refusedWith(expect.stringMatching(/^workspaceId is for an administrator/)),
        },
      },
    },
    {
      name: 'DeletePool',
      ours: true,
      line: (name) => `DELETE /pools/${name}`,
      make: aPool,
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: refusedWith(expect.stringMatching(/^this workspace has no pool of its own named /)),
      done: async (name) => !(await kit.list('/pools', 'pools')).some((pool) => pool['name'] === name),
    },
  ];
}
