/** Operations of containers, machines, enrolment tokens and workers. */
import { expect } from 'vitest';
import type { Json, Platform } from '../verbs-fixture.ts';
import { done, refusedWith } from '../verbs-kit.ts';
import type { Kit } from '../verbs-kit.ts';
import { UNAUTHORIZED } from './row.ts';
import type { GatewayVerb } from './row.ts';

/** `usage` is an addition of ours. */
const CONTAINER = 'containerId stubId status scheduledAt startedAt workspaceId workerId machineId deploymentId usage';
/** `labels`, `conditions`, `conditionWords` and `host` are additions of ours. */
const MACHINE =
  'id cpu memory gpu gpuCount status poolName providerName registrationToken tailscaleUrl tailscaleAuth lastKeepalive created agentVersion machineMetrics userData ssh labels conditions conditionWords host';
/** `drain` and `conditions` are additions of ours. */
const WORKER =
  'id status totalCpu totalMemory totalGpuCount freeCpu freeMemory freeGpuCount gpu poolName machineId resourceVersion requiresPoolSelector priority preemptable buildVersion activeContainers runtime poolSelector cordonRequested drain rolloutGeneration rolloutBuildVersion workerImageOverride conditions';
const ENROLMENT_TOKEN =
  'id name poolName state maxMachines machines joined expiresAt revokedAt lastUsedAt createdAt createdBy';

export function fleetVerbs(platform: () => Platform, kit: Kit): readonly GatewayVerb[] {
  const { unique } = kit;
  const groupPool = async (): Promise<string> => {
    await platform().gateway('POST /pools', { name: 'groups' });
    return 'groups';
  };
  const anEnrolmentToken = async (): Promise<string> => {
    const poolName = await groupPool();
    const made = await platform().gateway('POST /enrolment-tokens', { name: unique('group'), poolName });
    return String((made.json['token'] as Json)['id']);
  };
  let kept: Promise<string> | undefined;
  // Calls about GPUs change nothing of a machine that has none. A workspace has few machines that have not joined.
  const aKeptMachine = (): Promise<string> => (kept ??= kit.aMachine());
  return [
    {
      name: 'ListContainers',
      line: () => 'GET /containers',
      make: kit.aContainer,
      fields: 'containers ok errorMsg',
      records: { containers: CONTAINER },
      ok: { ok: true, errorMsg: '' },
      malformed: null,
    },
    {
      name: 'StopContainer',
      line: (id) => `POST /containers/${id}/stop`,
      make: kit.aContainer,
      fields: 'ok errorMsg',
      ok: { ok: true, errorMsg: '' },
      unknown: { ok: false, errorMsg: expect.stringMatching(/^Container not found: /) },
      done: async (id) => (await kit.containerIs(id)) === undefined,
      failures: { 'by the administrator': { token: () => platform().admin.token, answer: { ok: true } } },
    },
    {
      name: 'CheckpointContainer',
      ours: true,
      line: (id) => `POST /containers/${id}/checkpoint`,
      fields: 'ok checkpointId errorMsg',
      ok: { ok: false, checkpointId: '', errorMsg: 'checkpoints are not available in this version' },
    },
    {
      name: 'ListMachines',
      line: () => 'GET /machines?limit=2',
      make: kit.aMachine,
      fields: 'ok errMsg machines gpus supportedGpus maxCpuMillicores maxMemoryMb',
      records: { machines: MACHINE },
      restricted: UNAUTHORIZED,
      ok: { ...done, maxCpuMillicores: 128_000, maxMemoryMb: 32_768, gpus: expect.objectContaining({ H100: false }) },
      malformed: { line: 'GET /machines?limit=x' },
      failures: {
        'a limit below zero': { line: () => 'GET /machines?limit=-1', answer: { code: 3, details: [] } },
        'a pool that is none': { line: () => 'GET /machines?poolName=none', answer: refusedWith('pool not found') },
      },
    },
    {
      name: 'CreateMachine',
      line: () => 'POST /machines',
      body: () => ({ poolName: 'mine' }),
      fields: 'ok errMsg machine agentUpstreamUrl agentUpstreamBranch agentUpstreamToken',
      records: { machine: MACHINE },
      restricted: UNAUTHORIZED,
      ok: {
        ok: true,
        agentUpstreamUrl: expect.stringMatching(/^grpcs:\/\//),
        agentUpstreamBranch: 'stable',
        agentUpstreamToken: expect.stringMatching(/^lsj1\./),
        machine: expect.objectContaining({ status: 'pending', providerName: 'agent', machineMetrics: null }),
      },
      malformed: { body: '{"poolName": 1}' },
      failures: {
        'a name that is none': {
          body: () => ({ poolName: 'a b' }),
          answer: refusedWith(expect.stringMatching(/^poolName must be/)),
        },
      },
    },
    {
      name: 'DeleteMachine',
      line: (id) => `DELETE /machines/${id}?poolName=mine`,
      make: kit.aMachine,
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: refusedWith('machine not found'),
      done: async (id) => (await kit.machineIs(id)) === undefined,
      failures: {
        "a pool that is not the machine's": {
          line: (id) => `DELETE /machines/${id}?poolName=other`,
          answer: refusedWith('machine not found'),
        },
      },
    },
    {
      name: 'LabelMachine',
      ours: true,
      line: (id) => `POST /machines/${id}/labels`,
      make: aKeptMachine,
      body: () => ({ set: { zone: 'a', disk: 'nvme' }, remove: ['rack'] }),
      fields: 'ok errMsg labels',
      restricted: UNAUTHORIZED,
      ok: { ...done, labels: { disk: 'nvme', zone: 'a' } },
      unknown: refusedWith('machine not found'),
      malformed: { body: '{"remove": 1}' },
      failures: {
        'a label without a value': {
          body: () => ({ set: { zone: '' } }),
          answer: refusedWith(expect.stringMatching(/^set: zone= is no label: /)),
        },
        'labels that are no object': {
          body: () => ({ set: ['zone'] }),
          answer: { code: 3, details: [] },
        },
        'a key that is none': {
          body: () => ({ remove: ['a b'] }),
          answer: refusedWith(expect.stringMatching(/^remove: "a b" is no key of a label/)),
        },
        'a label that is set and removed': {
          body: () => ({ set: { zone: 'a' }, remove: ['zone'] }),
          answer: refusedWith('set and remove both name the label zone'),
        },
        'nothing to do': { body: () => ({}), answer: refusedWith('set or remove must name a label') },
        'more than a machine may have': {
          body: () => ({ set: Object.fromEntries(Array.from({ length: 33 }, (_none, at) => [`k${at}`, 'v'])) }),
          answer: refusedWith('set: a machine has at most 32 labels'),
        },
      },
    },
    {
      name: 'ListMachineGpus',
      ours: true,
      line: (id) => `GET /machines/${id}/gpus`,
      make: aKeptMachine,
      fields: 'ok errMsg gpus',
      restricted: UNAUTHORIZED,
      ok: { ...done, gpus: [] },
      unknown: refusedWith('machine not found'),
      malformed: null,
    },
    {
      name: 'ChangeMachineGpu',
      ours: true,
      line: (id) => `POST /machines/${id}/gpus`,
      make: aKeptMachine,
      body: () => ({ uuid: 'GPU-1', action: 'exclude' }),
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      // The machine of this walk has not joined, so it has no GPU yet.
      ok: refusedWith('machine has no GPU with that uuid'),
      unknown: refusedWith('machine not found'),
      malformed: { body: '{"uuid": 1}' },
      failures: {
        'an action that is none': {
          body: () => ({ uuid: 'GPU-1', action: 'polish' }),
          answer: refusedWith('action must be one of exclude, return, reset, forget'),
        },
      },
    },
    {
      name: 'CreateEnrolmentToken',
      ours: true,
      line: () => 'POST /enrolment-tokens',
      make: groupPool,
      body: () => ({ name: unique('group'), poolName: 'groups', maxMachines: 3, expiresInSeconds: 3600 }),
      fields: 'ok errMsg token secret agentUpstreamUrl agentUpstreamBranch',
      records: { token: ENROLMENT_TOKEN },
      restricted: UNAUTHORIZED,
      ok: {
        ...done,
        secret: expect.stringMatching(/^lse1\.[0-9a-f]{64}\.[\w-]{43}$/),
        agentUpstreamUrl: expect.stringMatching(/^grpcs:\/\//),
        token: expect.objectContaining({ poolName: 'groups', state: 'active', maxMachines: 3, machines: 0, joined: 0 }),
      },
      malformed: { body: '{"name": 1}' },
      failures: {
        'a name that is none': {
          body: () => ({ name: 'a b', poolName: 'groups' }),
          answer: refusedWith(expect.stringMatching(/^name must be/)),
        },
        'a pool of somebody else': {
          body: () => ({ name: unique('group'), poolName: 'default' }),
          answer: refusedWith('poolName: there is no pool default of yours: `longshore pool create default` makes it'),
        },
        'too many machines': {
          body: () => ({ name: unique('group'), poolName: 'groups', maxMachines: 10_001 }),
          answer: refusedWith('maxMachines must be from 1 to 10000'),
        },
        'too long a life': {
          body: () => ({ name: unique('group'), poolName: 'groups', expiresInSeconds: 366 * 86_400 }),
          answer: refusedWith('expiresInSeconds must be from 60 to 31536000 (365 days)'),
        },
      },
    },
    {
      name: 'ListEnrolmentTokens',
      ours: true,
      line: () => 'GET /enrolment-tokens',
      make: anEnrolmentToken,
      fields: 'ok errMsg tokens',
      records: { tokens: ENROLMENT_TOKEN },
      restricted: UNAUTHORIZED,
      ok: done,
      malformed: null,
    },
    {
      name: 'RevokeEnrolmentToken',
      ours: true,
      line: (id) => `DELETE /enrolment-tokens/${id}`,
      make: anEnrolmentToken,
      fields: 'ok errMsg token',
      records: { token: ENROLMENT_TOKEN },
      restricted: UNAUTHORIZED,
      ok: { ...done, token: expect.objectContaining({ state: 'revoked' }) },
      unknown: refusedWith('enrolment token not found'),
      done: async (id) =>
        (await kit.list('/enrolment-tokens', 'tokens')).some((one) => one['id'] === id && one['state'] === 'revoked'),
    },
    {
      name: 'ListWorkers',
      line: () => 'GET /workers',
      fields: 'ok errMsg workers',
      records: { workers: WORKER },
      restricted: UNAUTHORIZED,
      ok: done,
      malformed: null,
    },
    ...['cordon', 'uncordon', 'drain'].map((verb): GatewayVerb => ({
      name: `${verb[0]?.toUpperCase()}${verb.slice(1)}Worker`,
      line: (id) => `POST /workers/${id}/${verb}`,
      make: kit.aMachine,
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      unknown: { ok: false, errMsg: expect.stringMatching(/^worker not found/) },
    })),
  ];
}
