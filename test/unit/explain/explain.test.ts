import { describe, expect, test } from 'vitest';
import { Value } from 'typebox/value';
import { ExplainedScaling, Explanation } from '#shared/api/explain.ts';
import type { ContainerId, MachineId, QueueName } from '#shared/domain/ids.ts';
import { CONTAINER_STATES, TASK_STATUSES } from '#shared/domain/status.ts';
import { CLOSED_BREAKER } from '#scheduler/control/autoscaler/breaker.ts';
import type { ScaleContainer, ScaleInput } from '#scheduler/control/autoscaler/decide.ts';
import { decideScale } from '#scheduler/control/autoscaler/decide.ts';
import { scaleFacts } from '#scheduler/control/autoscaler/scale-input-reader.ts';
import type { QueueScaling } from '#scheduler/control/autoscaler/loop.ts';
import type { QueueHistory } from '#scheduler/control/autoscaler/history.ts';
import { recordDecision } from '#scheduler/control/autoscaler/history.ts';
import type { ContainerFacts } from '#scheduler/api/explain/container.ts';
import { explainContainer } from '#scheduler/api/explain/container.ts';
import type { ContainerGpuUse } from '#scheduler/fleet/usage.ts';
import { explainDeployment } from '#scheduler/api/explain/deployment.ts';
import type { ContainerPlace } from '#scheduler/api/explain/scaling.ts';
import { explainScaling } from '#scheduler/api/explain/scaling.ts';
import { lastStart } from '#scheduler/api/explain/starts.ts';
import type { TaskFacts } from '#scheduler/api/explain/task.ts';
import { explainTask } from '#scheduler/api/explain/task.ts';
import { quotaTexts } from '#scheduler/api/explain/quota.ts';
import { decisionText, rejectionStep, rejectionTexts } from '#scheduler/api/explain/texts.ts';
import { REJECTION_REASONS } from '#scheduler/control/placement/filter.ts';
import type { PoolMachine } from '#scheduler/domain/named-pool.ts';
import { NO_POOL, lackOf, warningOf } from '#scheduler/domain/named-pool.ts';
import { placementWait } from '#scheduler/control/placement/waiting.ts';
import type { EventRow } from '#scheduler/stores/store/queries/events.ts';
import type { ContainerRow } from '#scheduler/stores/store/queries/containers.ts';

const NOW = Date.parse('2026-01-02T00:00:00Z');
const at = (ms: number): string => new Date(NOW + ms).toISOString();
const ROW = { id: 'd', workspaceId: 'w', name: 'hello', version: 3, stubType: 'endpoint/deployment', active: true };
const deploymentOf = (scaling: ExplainedScaling | null, refusal = '', pool = NO_POOL): Explanation =>
  explainDeployment(ROW as Parameters<typeof explainDeployment>[0], 10, scaling, { refusal, pool, quota: [] });

test('a deployment whose containers serve with one worker says so, and names the choice', () => {
  const found = explainDeployment(ROW as Parameters<typeof explainDeployment>[0], 10, scalingOf({}), {
    refusal: '',
    pool: NO_POOL,
    quota: [],
    oneWorkerInsteadOf: 3,
  });
  expect(found.details.join()).toContain('each container serves with one worker instead of 3');
  expect(found.next_steps.join()).toContain('set worker_mode to "spawn"');
  expect(deploymentOf(scalingOf({})).details.join()).not.toContain('worker');
});

test('a schedule says when its next time is, and waits for nothing else', () => {
  const [when, timezone] = ['0 3 * * *', 'Europe/Berlin'];
  const said = (active: boolean, nextAt: string | null, scaling = scalingOf({ active })): Explanation =>
    explainDeployment(
      { ...ROW, active } as Parameters<typeof explainDeployment>[0],
      0,
      scaling,
      { refusal: '', pool: NO_POOL, quota: [] },
      { when, timezone, nextAt },
    );
  const quiet = said(true, at(7_200_000));
  expect([quiet.waits_for, quiet.until]).toEqual(['its next time', at(7_200_000)]);
  expect(quiet.details[0]).toBe(`its times are "0 3 * * *" in Europe/Berlin; the next is ${at(7_200_000)}`);
  expect(said(true, null).details[0]).toBe('its times are "0 3 * * *" in Europe/Berlin; none comes any more');
  const stopped = said(false, at(7_200_000));
  expect(stopped.waits_for).toBe('');
  expect(stopped.details.join()).not.toContain('its times');
});

function aContainer(changes: Partial<ScaleContainer> = {}): ScaleContainer {
  const times = { idleSinceMs: NOW - 4000, createdAtMs: NOW - 60_000 };
  const id = 'c-1' as ContainerId;
  return { id, state: 'RUNNING', attempts: 0, ...times, keepWarmMs: 0, warmUp: false, returned: false, ...changes };
}

function scalingOf(
  changes: Partial<ScaleInput>,
  more: { readonly history?: Partial<QueueHistory>; readonly place?: Partial<ContainerPlace>; windowMs?: number } = {},
): ExplainedScaling {
  const input: ScaleInput = {
    active: true,
    inFlight: 0,
    waiting: 0,
    tasksPerContainer: 1,
    minContainers: 0,
    maxContainers: 3,
    keepWarmMs: 10_000,
    containers: [],
    breaker: CLOSED_BREAKER,
    wantedInWindow: 0,
    ...changes,
  };
  const history: QueueHistory = {
    window: [],
    samples: 3,
    badSinceMs: null,
    decisions: [],
    state: null,
    stateSinceMs: 0,
    ...more.history,
  };
  const queueScaling: QueueScaling = {
    target: undefined,
    depth: input.inFlight === undefined ? undefined : { waiting: input.waiting, active: 0, delayed: 0, prioritized: 0 },
    input,
    decision: decideScale(input, NOW),
    windowMs: more.windowMs ?? 0,
    history,
  };
  const place: ContainerPlace = { machineId: '', slots: 1, isKnown: true, wait: undefined, ...more.place };
  const scaling = explainScaling(queueScaling, scaleFacts(input, 0, NOW), () => place, NOW);
  expect([...Value.Errors(ExplainedScaling, scaling)]).toEqual([]);
  return scaling;
}

describe('a deployment', () => {
  test('whose starts fail says so, until when it cools, and how to end that', () => {
    const last = {
      containerId: 'c-9' as ContainerId,
      createdAtMs: 0,
      atMs: NOW,
      reason: 'user_error',
      message: "Traceback\nModuleNotFoundError: No module named 'nothing'\n",
    };
    const breaker = { ...CLOSED_BREAKER, failures: 3, opened: 1, coolsUntilMs: NOW + 60_000, last };
    const found = deploymentOf(scalingOf({ inFlight: 2, waiting: 2, breaker }));
    expect(found).toMatchObject({
      state: 'DEGRADED',
      summary: 'hello v3 is DEGRADED: 3 starts in a row failed (user_error), so nothing is started for now',
      waits_for: 'the end of the cooldown; then one container probes',
      until: at(60_000),
    });
    expect(found.details).toContain(
      "the last start that failed: c-9, user_error: ModuleNotFoundError: No module named 'nothing'",
    );
    expect(found.next_steps).toContain(
      'correct it and deploy again, or `longshore deployment start hello` tries at once',
    );
    const probing = deploymentOf(scalingOf({ inFlight: 2, waiting: 2, breaker: { ...breaker, coolsUntilMs: NOW } }));
    expect(probing).toMatchObject({ state: 'SCALING', waits_for: expect.stringContaining('the probe') as string });
  });

  test('with more than it wants says what keeps them and until when', () => {
    const found = deploymentOf(scalingOf({ containers: [aContainer()] }));
    expect(found).toMatchObject({
      state: 'IDLE',
      summary: 'hello v3 is IDLE: no task waits; 1 container ready, kept warm',
      waits_for: 'work; what is kept warm may go after that time',
      until: at(6000),
      scaling: { containers: [{ keep_warm_until: at(6000), kept_forever: false }] },
    });
    expect(found.details).toContain(
      `1 idle container kept warm, the first until ${at(6000)} (\`keep_warm_seconds\`: 10 s without work)`,
    );
    const forever = deploymentOf(scalingOf({ containers: [aContainer()], keepWarmMs: Number.POSITIVE_INFINITY }));
    expect(forever).toMatchObject({
      until: null,
      scaling: { containers: [{ keep_warm_until: null, kept_forever: true }] },
    });
    expect(forever.details).toContain('1 idle container kept without end (`keep_warm_seconds` is negative)');
    const inWindow = { containers: [aContainer()], keepWarmMs: 0, wantedInWindow: 1, windowEndsMs: NOW + 9000 };
    expect(deploymentOf(scalingOf(inWindow, { windowMs: 30_000 }))).toMatchObject({
      summary: 'hello v3 is IDLE: no task waits; 1 container ready, the window before asked for them',
      waits_for: 'the end of the window in which more were wanted',
      until: at(9000),
    });
    const two = [aContainer(), aContainer({ id: 'c-2' as ContainerId })];
    expect(deploymentOf(scalingOf({ inFlight: 1, containers: two }))).toMatchObject({
      state: 'SCALING',
      summary: 'hello v3 is SCALING: 2 containers live, 1 wanted: each of them works or is kept warm',
      waits_for: 'containers beyond those wanted to end their work and their keep-warm time',
    });
    const hold = { why: 'after_restart', leftMs: 70_000 } as const;
    expect(deploymentOf(scalingOf({ containers: [aContainer()], keepWarmMs: 0, hold }))).toMatchObject({
      waits_for: 'the quiet time after the start of the scheduler to end',
      until: at(70_000),
    });
  });

  test('counts no container as live that has no machine', () => {
    const pending = aContainer({ state: 'PENDING' });
    const hold = { why: 'after_restart', leftMs: 70_000 } as const;
    const said = (...all: ScaleContainer[]) => deploymentOf(scalingOf({ containers: all, hold })).summary;
    expect(said(pending)).toMatch(/^hello v3 is SCALING: 1 container waits for a machine, 0 wanted: /);
    const ready = aContainer({ id: 'c-2' as ContainerId });
    expect(said(pending, ready)).toMatch(/: 1 container live, 1 container waits for a machine, 0 wanted: /);
  });

  test('whose queue could not be read for a minute has a condition', () => {
    const bad = (sinceMs: number) => scalingOf({ inFlight: undefined }, { history: { badSinceMs: NOW - sinceMs } });
    expect(bad(59_000).conditions).toEqual([]);
    expect(bad(60_000)).toMatchObject({ conditions: ['MetricsUnavailable'], wanted: null, in_flight: null });
    expect(deploymentOf(bad(60_000)).waits_for).toBe('the queue to be readable again');
  });

  test('says which machines said no, and what would help', () => {
    const rejections = { cpu: 2, cordoned: 1 };
    const wait = placementWait({ rejections, timesReturned: 0, notBeforeMs: null, createdAtMs: NOW - 1000 });
    const pending = aContainer({ state: 'PENDING' });
    const found = deploymentOf(scalingOf({ inFlight: 1, waiting: 1, containers: [pending] }, { place: { wait } }));
    expect(found).toMatchObject({ waits_for: 'a machine for 1 container', until: at(20 * 60_000 - 1000) });
    expect(found.details).toContain(
      '1 container without a place: 2 machines without enough free CPU (cpu), 1 machine cordoned or drained (cordoned)',
    );
    expect(found.next_steps).toEqual(['stop something, ask for less `cpu`, or admit a machine']);
  });

  test('whose calls are refused says why, although nothing waits', () => {
    const found = deploymentOf(scalingOf({}), 'no machine that this workspace may use has GPU H100');
    expect(found.state).toBe('IDLE');
    expect(found.details[0]).toBe('calls are refused: no machine that this workspace may use has GPU H100');
    expect(found.summary).toBe('hello v3 is IDLE: calls are refused; no task waits, so no container runs');
    expect(found.next_steps).toEqual([
      expect.stringMatching(/^ask for what a machine has.*`longshore machine create`$/),
    ]);
    const ofPool = deploymentOf(scalingOf({}), 'none has GPU H100', { name: 'gpu', lack: undefined });
    expect(ofPool.details[0]).toBe('calls are refused: none has GPU H100');
    expect(ofPool.next_steps).toEqual([expect.stringMatching(/`longshore machine create --pool gpu`$/)]);
  });

  const machine = (id: string, health: PoolMachine['health']): PoolMachine => ({ id, health });
  const pending = ['m1', 'm2', 'm3', 'm4'].map((id) => machine(id, 'PENDING'));
  test.for([
    ['there is no pool gpu that this workspace may use', /^correct its name, .*--pool gpu`$/, 'gpu', false, []],
    ['there is no pool "gpu less", nor can one be called that', /^correct the name/, 'gpu less', false, []],
    ['pool gpu has no machine', /^admit one to it: `longshore machine create --pool gpu`$/, 'gpu', true, []],
    [
      'pool gpu has no machine that joined: m1 was admitted, and did not come in time',
      /^admit one to it: `longshore machine create --pool gpu`$/,
      'gpu',
      true,
      [machine('m1', 'EXPIRED')],
    ],
    [
      'no machine of pool gpu has joined yet, though m2 was admitted',
      /^run on its host the line .*--pool gpu`$/,
      'gpu',
      true,
      [machine('m1', 'EXPIRED'), machine('m2', 'PENDING')],
    ],
    [
      'no machine of pool gpu has joined yet, though m1, m2, m3 and 1 more were admitted',
      /^run /,
      'gpu',
      true,
      pending,
    ],
  ] as const)('says of its pool: %s', ([says, step, name, isThere, machines]) => {
    const lack = lackOf(name, isThere, machines);
    const refused = deploymentOf(scalingOf({}), 'no machine that this workspace may use is in it', { name, lack });
    expect(refused.details[0]).toBe(`calls are refused: ${says}`);
    expect(refused.next_steps).toEqual([expect.stringMatching(step)]);
    const waiting = deploymentOf(scalingOf({}), '', { name, lack });
    expect([waiting.details[0], waiting.next_steps]).toEqual([says, refused.next_steps]);
    expect(lack === undefined ? '' : warningOf(lack)).toMatch(/^[A-Z].*; .*\.$/);
  });

  test.for([
    [
      0,
      'pool gpu has no machine, and provider cloud makes none for it: maxMachines is 0',
      /`longshore pool set gpu --max-machines N`$/,
    ],
    [
      3,
      'pool gpu has no machine, and provider cloud makes none for it',
      /`longshore pool show gpu`, `longshore provider list`/,
    ],
  ] as const)('says of its pool with a provider, of at most %i machines: %s', ([maxMachines, says, step]) => {
    const lack = lackOf('gpu', true, [], { provider: 'cloud', maxMachines });
    expect(lack).toEqual({ says, step: expect.stringMatching(step) });
    expect(lackOf('gpu', true, pending, { provider: 'cloud', maxMachines })?.says).toMatch(/^no machine of pool gpu/);
  });

  test('says nothing of a pool of which a machine has joined, wherever that is now', () => {
    expect(lackOf('gpu', true, [...pending, machine('m9', 'LOST')])).toBeUndefined();
  });

  test('whose call waits for a pool says once what that pool lacks, and what would help there', () => {
    const rejections = { no_matching_pool: 1 };
    const wait = placementWait({ rejections, timesReturned: 0, notBeforeMs: null, createdAtMs: NOW });
    const one = aContainer({ state: 'PENDING' });
    const scaling = scalingOf({ inFlight: 1, waiting: 1, containers: [one] }, { place: { wait } });
    const expected = deploymentOf(scaling, '', { name: 'gpu', lack: lackOf('gpu', true, [machine('m1', 'PENDING')]) });
    expect(expected.details).toContain(
      '1 container without a place: 1 machine not of pool gpu, or kept for work with a GPU (no_matching_pool)',
    );
    expect(expected.next_steps).toEqual([expect.stringMatching(/^run on its host/)]);
    const kept = deploymentOf(scaling, '', { name: 'gpu', lack: undefined });
    expect(kept.next_steps).toEqual([
      'let work without a GPU onto the machines of pool gpu (`longshore pool set gpu --cpu-work-on-gpu-machines yes`), or admit a machine to it: `longshore machine create --pool gpu`',
    ]);
  });

  test('one of whose starts failed, but not often enough to wait, says where its log is', () => {
    const last = { containerId: 'c-9' as ContainerId, createdAtMs: 0, atMs: NOW, reason: 'user_error', message: 'no' };
    const found = deploymentOf(scalingOf({ breaker: { ...CLOSED_BREAKER, failures: 1, last } }));
    expect(found.next_steps).toEqual(['`longshore logs hello` shows what its containers wrote']);
  });

  test('of which the leader says nothing shows what its row has', () => {
    expect(deploymentOf(null)).toMatchObject({ state: 'ACTIVE', leader_answered: false, scaling: null });
  });
});

test('decisions that repeat are one entry, newest first, at most twenty', () => {
  const history: QueueHistory = {
    window: [],
    samples: 0,
    badSinceMs: null,
    decisions: [],
    state: null,
    stateSinceMs: 0,
  };
  const hold = (inFlight: number) => ({ kind: 'hold', why: 'at_target', wanted: inFlight }) as const;
  for (let round = 0; round < 30; round += 1) {
    for (let times = 0; times < 3; times += 1) {
      recordDecision(history, { atMs: NOW + round * 10 + times, decision: hold(round), inFlight: round, live: 1 });
    }
  }
  const { decisions } = scalingOf({}, { history });
  expect(decisions).toHaveLength(20);
  expect(decisions[0]).toMatchObject({ times: 3, wanted: 29, at: at(290), until: at(292) });
});

test('a limit of the workspace that leaves too little is named, with what is used of it', () => {
  const none = { gpu_limit: null, cpu_millicore_limit: null, memory_mib_limit: null, container_limit: null };
  const used = { gpu: 2, cpu_millicores: 900, memory_mib: 512, containers: 2 };
  const said = (limits: Partial<Record<keyof typeof none, number>>, gpuCount = 0) =>
    quotaTexts({ limits: { ...none, ...limits }, used, idle: 1 }, { gpuCount, cpuMillicores: 200, memoryMib: 64 });
  expect(said({ container_limit: 1, cpu_millicore_limit: 1000 })).toEqual([
    'limit of the workspace: container_limit 1, used 2 (1 of them idle)',
    'limit of the workspace: cpu_millicore_limit 1000, used 900 (it asks for 200)',
  ]);
  expect(said({ gpu_limit: 2, memory_mib_limit: 575 }, 1)).toEqual([
    'limit of the workspace: gpu_limit 2, used 2 (it asks for 1)',
    'limit of the workspace: memory_mib_limit 575, used 512 (it asks for 64)',
  ]);
  expect(said({ gpu_limit: 2, container_limit: 3, cpu_millicore_limit: 1100, memory_mib_limit: 576 })).toEqual([]);
});

describe('words', () => {
  test.each([...REJECTION_REASONS, 'no_machine'])('say what %s means and what to do', (reason) => {
    expect(rejectionTexts({ [reason]: 1 })[0]).toMatch(new RegExp(`^1 machine .+ \\(${reason}\\)$`));
    expect(rejectionTexts({ [reason]: 1 })[0]).not.toBe(`1 machine ${reason} (${reason})`);
    expect(rejectionStep(reason)).not.toBe('');
  });

  test('say what was decided', () => {
    expect(decisionText({ kind: 'start', count: 2, wanted: 3, probe: false })).toBe('2 containers started, up to 3');
    expect(decisionText({ kind: 'stop', containers: ['c' as ContainerId], wanted: 0 })).toBe(
      '1 container let go, down towards 0',
    );
  });
});

describe('a container', () => {
  const row = (changes: Partial<ContainerRow>): ContainerRow =>
    ({
      id: 'endpoint-s-1',
      workspaceId: 'w',
      stubId: 's',
      deploymentId: 'd',
      state: 'PENDING',
      machineId: null,
      assignmentId: null,
      epoch: 0,
      spec: { wire: { startTimeoutMs: 900_000 } },
      slots: 1,
      frozen: false,
      startFailures: 0,
      reason: null,
      exitCode: null,
      message: null,
      rejections: null,
      gpuUuids: [],
      stateBefore: null,
      createdAtMs: NOW - 1000,
      scheduledAtMs: null,
      startedAtMs: null,
      endedAtMs: null,
      revision: 1,
      ...changes,
    }) as unknown as ContainerRow;
  const explained = (
    changes: Partial<ContainerRow>,
    rejections: Record<string, number> | null = null,
    machineSilentSinceMs: number | null = null,
    conditions: Record<string, number> = {},
    pool = NO_POOL,
    conditionWords: Record<string, string> = {},
    usage: ContainerFacts['usage'] = null,
    gpus: Record<string, number> = {},
  ): Explanation => {
    const facts = {
      pool,
      quota: [],
      rejections,
      conditions,
      conditionWords,
      gpus,
      progress: 'pulling image a:1: 1 of 3 layers, 10 of 30 MB',
      machineHealth: 'READY',
      machineSilentSinceMs,
      usage,
      deploymentName: 'hello/v3',
      scaling: null,
      leaderAnswered: true,
    };
    const found = explainContainer({ row: row(changes), ...facts });
    expect([...Value.Errors(Explanation, found)]).toEqual([]);
    return found;
  };

  test.each(CONTAINER_STATES)('that is %s is explained', (state) => {
    const found = explained({ state, scheduledAtMs: NOW - 500 });
    expect(found.state).toBe(state);
    expect(found.summary).toMatch(/^container endpoint-s-1 of hello\/v3 ./);
  });

  test('without a place says until when it waits, from what the row has when nobody knows better', () => {
    const found = explained({}, { memory: 3 });
    expect(found).toMatchObject({ until: at(20 * 60_000 - 1000), container: { rejections: { memory: 3 } } });
    expect(found.details[0]).toBe('3 machines without enough free memory (memory)');
    expect(found.next_steps).toEqual(['stop something, ask for less `memory`, or admit a machine']);
  });

  test('that waits for a GPU says how those are that nobody may have', () => {
    const gpus = { 'unhealthy: Xid 79': 1, 'unprobed: CUDA error 802 at init: the fabric': 8 };
    const found = explained({}, { gpu_count: 2 }, null, {}, NO_POOL, {}, null, gpus);
    expect(found.details.slice(0, 3)).toEqual([
      '2 machines without enough free GPUs (gpu_count)',
      '8 GPUs are unprobed: CUDA error 802 at init: the fabric',
      '1 GPU is unhealthy: Xid 79',
    ]);
    expect(explained({}, { memory: 2 }, null, {}, NO_POOL, {}, null, gpus).details.join()).not.toContain('unprobed');
  });

  test('that waits for a pool without machines says so, and how to admit one', () => {
    const pool = { name: 'gpu', lack: lackOf('gpu', true, []) };
    const found = explained({}, { no_matching_pool: 1 }, null, {}, pool);
    expect(found.details.slice(0, 2)).toEqual([
      'pool gpu has no machine',
      '1 machine not of pool gpu, or kept for work with a GPU (no_matching_pool)',
    ]);
    expect(found.next_steps).toEqual(['admit one to it: `longshore machine create --pool gpu`']);
  });

  test.each([
    [{ workers: 4, concurrentRequests: 2 }, 2, true],
    [{ workers: 4, concurrentRequests: 0, workerMode: 'fork' }, 1, true],
    [{ workers: 4, concurrentRequests: 2 }, 8, false],
    [{ workers: 1, concurrentRequests: 2 }, 2, false],
    [{ workers: 4, concurrentRequests: 2, workerMode: 'spawn' }, 8, false],
  ])('of a stub with %j that has %i slots says whether it serves with one worker: %s', (wire, slots, isSo) => {
    const told = (state: ContainerRow['state']): Explanation =>
      explained({ state, slots, spec: { wire: { startTimeoutMs: 900_000, ...wire } } });
    const says =
      'it serves with one worker instead of 4: a process with a GPU, or with threads that run after on_start, cannot be forked';
    const step =
      'set worker_mode to "spawn" (a process per worker, each runs on_start) or "thread" (handlers side by side in one process), and deploy again';
    expect(told('RUNNING').details.includes(says)).toBe(isSo);
    expect(told('RUNNING').next_steps.includes(step)).toBe(isSo);
    expect(told('STARTING').details).not.toContain(says);
  });

  test('that is idle says which parameter keeps it, and for how long', () => {
    const idle = (more: Partial<ScaleInput>): Explanation => {
      const scaling = scalingOf({ containers: [aContainer({ id: 'endpoint-s-1' as ContainerId })], ...more });
      return explainContainer({
        row: row({ id: 'endpoint-s-1' as ContainerId, state: 'RUNNING' }),
        pool: NO_POOL,
        quota: [],
        rejections: null,
        conditions: {},
        conditionWords: {},
        gpus: {},
        progress: '',
        machineHealth: 'READY',
        machineSilentSinceMs: null,
        usage: null,
        deploymentName: 'hello/v3',
        scaling,
        leaderAnswered: true,
      });
    };
    expect(idle({}).details).toContain('it is idle, and kept warm (`keep_warm_seconds`: 10 s without work)');
    expect(idle({ keepWarmMs: Number.POSITIVE_INFINITY }).details).toContain(
      'it is never let go for want of work (`keep_warm_seconds` is negative)',
    );
  });

  const runningWith = (usage: ContainerFacts['usage']): Explanation =>
    explained({ state: 'RUNNING' }, null, null, {}, NO_POOL, {}, usage);

  test('that runs says how its GPUs are used, as far as the driver tells', () => {
    const gib = 1024 ** 3;
    const all = { utilizationPct: 62.5, memoryUsedBytes: 4 * gib, memoryTotalBytes: 160 * gib, powerWatts: 400.4 };
    const none = { utilizationPct: null, memoryUsedBytes: null, memoryTotalBytes: 40 * gib, powerWatts: null };
    const told = (gpu: ContainerGpuUse | null): readonly string[] =>
      runningWith({ diskBytes: 0, diskLimitBytes: 0, gpu }).details;
    expect(told({ devices: 2, ...all })).toContain('its 2 GPUs: 63 % busy, 4 of 160 GiB of memory used, 400 W');
    expect(told({ devices: 1, ...all, utilizationPct: 0, powerWatts: null })).toContain(
      'its GPU: 0 % busy, 4 of 160 GiB of memory used',
    );
    expect(told({ devices: 1, ...none })).toContain('the driver does not tell the use of its GPU');
    expect(told(null).join()).not.toContain('GPU');
  });

  test('that runs says what it wrote to its disk, of how much, and by which setting', () => {
    const mib = 1024 ** 2;
    const told = (diskLimitBytes: number): readonly string[] =>
      runningWith({ diskBytes: 48 * mib, diskLimitBytes, gpu: null }).details;
    expect(told(64 * mib)).toContain(
      'it wrote 48 MiB to its disk, and may write 64 MiB (LONGSHORE_AGENT_CONTAINER_DISK_MIB of its machine)',
    );
    expect(told(0)).toContain('it wrote 48 MiB to its disk, which has no limit');
  });

  test('that an engine keeps away which starts nothing is told so in the words of the engine', () => {
    const words = { EngineCannotStart: 'OCI runtime create failed: namespace {"time" ""} does not exist' };
    const found = explained({}, { condition: 1 }, null, { EngineCannotStart: 1 }, NO_POOL, words);
    expect(found.details).toContain(
      `EngineCannotStart on 1 machine: the container engine starts no container, not even one of ours (${words.EngineCannotStart})`,
    );
    expect(found.next_steps.join()).toMatch(/mend the Docker Engine of that machine/);
  });

  test('that machines with a condition refused names the conditions, and what ends them', () => {
    const found = explained({}, { condition: 2, memory: 1 }, null, { DiskPressure: 2 });
    expect(found.details.slice(0, 3)).toEqual([
      '2 machines with a condition that keeps new containers away (condition)',
      '1 machine without enough free memory (memory)',
      'DiskPressure on 2 machines: too little free disk or too few inodes',
    ]);
    expect(found.next_steps[1]).toMatch(/^make room on the disk/);
    expect(explained({}, { memory: 1 }, null, { DiskPressure: 2 }).details.join()).not.toContain('DiskPressure');
  });

  test('that starts says how the pull of its image goes', () => {
    expect(explained({ state: 'STARTING' }).details).toContain('pulling image a:1: 1 of 3 layers, 10 of 30 MB');
    expect(explained({ state: 'RUNNING' }).details.join()).not.toContain('pulling');
  });

  test('that is ready says how long its start took, and the steps that matter', () => {
    const event = (id: string, durationMs: number, epoch = '2', success = true) =>
      ({ data: { id, duration_ms: durationMs, success, attrs: { epoch } } }) as unknown as EventRow;
    const start = lastStart([
      event('scheduler.backlog_wait', 90_000, '1'),
      event('container.startup', 90_000, '1', false),
      event('scheduler.backlog_wait', 250),
      event('image.load', 3_100),
      event('network.setup', 4),
      event('unheard.of', 900),
      event('serve.ready', 800),
      event('worker.start', 3_900),
      event('container.startup', 4_150),
    ]);
    const text = 'took 4.2 s: 250 ms until it had a machine, 3.1 s image and code, 800 ms `on_start`';
    const found = explainContainer({
      row: row({ state: 'RUNNING', startedAtMs: NOW }),
      start,
      pool: NO_POOL,
      quota: [],
      rejections: null,
      conditions: {},
      conditionWords: {},
      gpus: {},
      progress: '',
      machineHealth: 'READY',
      machineSilentSinceMs: null,
      usage: null,
      deploymentName: '',
      scaling: null,
      leaderAnswered: true,
    });
    expect(found.details).toContain(`its start ${text}`);
    expect(lastStart([event('container.startup', 5, '1', false)])).toBeUndefined();
  });

  test('that waits for its agent, or starts, says by when', () => {
    expect(explained({ state: 'ASSIGNED', scheduledAtMs: NOW }).until).toBe(at(15_000));
    expect(explained({ state: 'STARTING', scheduledAtMs: NOW }).until).toBe(at(900_000));
  });

  test('on a lost machine is given up a day after that one went silent, however old it is', () => {
    const old = { state: 'UNKNOWN', scheduledAtMs: NOW - 7 * 86_400_000 } as const;
    expect(explained(old, null, NOW - 3600_000).until).toBe(at(23 * 3600_000));
    expect(explained(old).until).toBeNull();
  });

  test('that failed says why, with its last lines', () => {
    const failed = { state: 'FAILED', reason: 'oom', exitCode: 137, message: 'Killed', endedAtMs: NOW } as const;
    expect(explained(failed)).toMatchObject({
      summary: 'container endpoint-s-1 of hello/v3 failed (oom, exit code 137)',
      since: at(0),
      waits_for: '',
      container: { status: '', message: 'Killed' },
    });
  });

  describe('that could not get its image', () => {
    const failed = { state: 'FAILED', reason: 'image_error', endedAtMs: NOW, machineId: 'm1' as MachineId } as const;
    const explain = (message: string, image: string) =>
      explained({ ...failed, message, spec: { wire: { image } } }).next_steps.join('\n');

    test('names the machine and the registry', () => {
      const steps = explain('cannot pull image ghcr.io/a/b:1: denied', 'ghcr.io/a/b:1');
      expect(steps).toMatch(/machine m1 .*registry ghcr\.io.*docker pull ghcr\.io\/a\/b:1/);
      expect(steps).not.toMatch(/BASE_IMAGE/);
    });

    test('names the setting where the machine chose the image', () => {
      const steps = explain('cannot pull image python:3.11-slim: i/o timeout (busy)', '');
      expect(steps).toMatch(/machine m1 .*registry docker\.io.*docker pull python:3\.11-slim/);
      expect(steps).toMatch(/LONGSHORE_BASE_IMAGE/);
      expect(explain('image x has no python3', 'x')).toMatch(/python3 \(3\.8/);
    });
  });
});

describe('a task', () => {
  const record = {
    taskId: 't',
    workspaceId: 'w',
    stubId: 's',
    deploymentId: 'd',
    queue: 'tq-d' as QueueName,
    kind: 'taskqueue',
    sync: false,
    status: 'PENDING',
    attempt: 0,
    rank: 0,
    containerId: null,
    failureReason: '',
    createdAtMs: NOW - 1000,
    startedAtMs: null,
    endedAtMs: null,
    durationMs: null,
    deadlineMs: NOW + 7200_000,
  } as unknown as TaskFacts['record'];
  const explained = (changes: Partial<TaskFacts>, said: Partial<TaskFacts['record']> = {}): Explanation => {
    const found = explainTask({
      record: { ...record, ...said },
      job: undefined,
      place: { kind: 'gone' },
      queueDepth: null,
      retries: 3,
      timeoutMs: 60_000,
      container: { id: 'c', machineId: 'm' } as unknown as ContainerRow,
      deploymentName: 'hello/v3',
      servers: [],
      scaling: null,
      leaderAnswered: true,
      callbacks: [],
      pool: NO_POOL,
      quota: [],
      ...changes,
    });
    expect([...Value.Errors(Explanation, found)]).toEqual([]);
    return found;
  };

  test.each(TASK_STATUSES)('that is %s is explained', (status) => {
    expect(explained({}, { status }).summary).toMatch(/^task t of hello\/v3 ./);
  });

  test('that waits for a pool without machines says so, and one that has ended does not', () => {
    const pool = { name: 'gpu', lack: lackOf('gpu', true, []) };
    const found = explained({ pool, scaling: scalingOf({ inFlight: 1, waiting: 1 }) });
    expect(found.details).toContain('pool gpu has no machine');
    expect(found.next_steps).toEqual(['admit one to it: `longshore machine create --pool gpu`']);
    expect(explained({ pool }, { status: 'ERROR' }).details).not.toContain('pool gpu has no machine');
  });

  test('that waits says its place, and until when', () => {
    const server = { container_id: 'c', state: 'RUNNING', machine_id: 'm', takes: false };
    const full = { ...server, why_not: 'all of its 2 slots are taken' };
    const found = explained({ place: { kind: 'waiting', position: 4 }, queueDepth: 9, servers: [full] });
    expect(found).toMatchObject({
      summary: 'task t of hello/v3 is number 4 in its queue; no container can take it now',
      waits_for: 'a free slot in a container',
      until: at(7200_000),
    });
    expect(found.details).toEqual([
      '9 tasks in its queue, this one included',
      '1 container cannot take it: all of its 2 slots are taken',
    ]);
  });

  test('of a model server shows which number asked for the containers', () => {
    const tokens = { reserved: 150_000, perContainer: 60_000 };
    const scaling = scalingOf({ inFlight: 3, waiting: 1, tasksPerContainer: 16, maxContainers: 4, tokens });
    expect(scaling.formula).toBe(
      '3 tasks / 16 per container = 1, 150000 reserved tokens / 60000 per container = 3, between 0 and 4: 3 wanted',
    );
  });

  test('whose containers have no place says what the machines said', () => {
    const wait = placementWait({
      rejections: { too_small: 1 },
      timesReturned: 0,
      notBeforeMs: null,
      createdAtMs: NOW - 1000,
    });
    const pending = aContainer({ state: 'PENDING' });
    const scaling = scalingOf({ inFlight: 1, waiting: 1, containers: [pending] }, { place: { wait } });
    const found = explained({ place: { kind: 'waiting', position: 1 }, scaling });
    expect(found.details).toEqual([
      scaling.formula,
      '1 container without a place: 1 machine too small for it, even when empty (too_small)',
    ]);
    expect(found.next_steps[0]).toMatch(/^ask for less `cpu` or `memory`/);
  });

  test('whose container could not start says why, and where its lines are', () => {
    const failed = { status: 'ERROR', failureReason: 'start_failed', endedAtMs: NOW } as const;
    const result = JSON.stringify({ error: 'Traceback\nRuntimeError: the model is not there\n' });
    const container = {
      id: 'endpoint-s-1',
      state: 'FAILED',
      reason: 'user_error',
      exitCode: 1,
      message: 'RuntimeError',
    } as unknown as ContainerRow;
    const found = explained({ container }, { ...failed, containerId: container.id, result });
    expect(found).toMatchObject({
      summary: 'task t of hello/v3 is ERROR (start_failed): no container could start for it',
      details: ['container endpoint-s-1 did not start (user_error, exit code 1): RuntimeError: the model is not there'],
      next_steps: [
        '`longshore logs --container endpoint-s-1` shows what it wrote',
        'correct what failed, and deploy again',
      ],
      task: { attempts: [] },
    });
    const lacking = JSON.stringify({ error: "Traceback\nModuleNotFoundError: No module named 'numpy'\n" });
    const steps = explained({ container }, { ...failed, containerId: container.id, result: lacking }).next_steps;
    expect(steps[1]).toMatch(/lacks numpy: .*python_packages/);
    // Older records do not name their container.
    const unnamed = explained({ container: undefined }, { ...failed, result });
    expect(unnamed.details).toEqual(['its container did not start: RuntimeError: the model is not there']);
    expect(unnamed.next_steps[0]).toBe('`longshore logs hello` shows what its containers wrote');
  });

  test('whose process ended under it points at the lines of its container, others at their own', () => {
    const steps = (failureReason: string) =>
      explained({}, { status: 'ERROR', attempt: 1, containerId: 'c' as ContainerId, failureReason }).next_steps[0];
    expect(steps('process_exited')).toBe('`longshore logs --container c` shows what its container wrote');
    expect(steps('handler_error')).toBe('`longshore logs --task t` shows what it wrote');
  });

  test('that failed says its error, and asks for memory where that was short', () => {
    const failed = (error: string, failureReason = 'handler_error') =>
      explained(
        {},
        {
          ...({ status: 'ERROR', attempt: 1, containerId: 'c' as ContainerId } as const),
          failureReason,
          result: JSON.stringify({ error }),
        },
      );
    expect(failed('ValueError: no luck\n\nTraceback …').details).toEqual(['its error: ValueError: no luck']);
    expect(failed('x'.repeat(1000)).details[0]).toHaveLength(313);
    expect(explained({}, { status: 'COMPLETE', result: '{"error":"not one"}' }).details).toEqual([]);
    const short = failed('process ran out of memory', 'process_exited');
    expect(short.details).toEqual(['its error: process ran out of memory']);
    expect(short.next_steps).toEqual([
      "give its handler more memory than it has, such as `memory='2gi'`, and deploy again",
      '`longshore logs --container c` shows what its container wrote',
      '`longshore task get t` shows its error',
    ]);
    expect(failed("ModuleNotFoundError: No module named 'numpy.linalg'").next_steps[0]).toMatch(/lacks numpy: .*Image/);
    expect(failed('RuntimeError: said "No module named \'numpy\'"').next_steps[0]).toMatch(/^`longshore logs/);
  });

  test('that waited for a container to start says how long that took', () => {
    const start = { durationMs: 900, steps: [{ id: 'image.load', durationMs: 600 }] };
    expect(explained({ start }, { status: 'COMPLETE', containerId: 'c' as ContainerId }).details).toContain(
      'the start of container c, for which it waited, took 900 ms: 600 ms image and code',
    );
  });

  test('that runs says until when it may', () => {
    const running = { status: 'RUNNING', containerId: 'c', attempt: 1, startedAtMs: NOW - 5000 } as const;
    const server = { container_id: 'c', state: 'RUNNING', machine_id: 'm', takes: false };
    const servers = [{ ...server, why_not: 'its only slot is taken' }];
    expect(explained({ place: { kind: 'active' }, servers }, running as never)).toMatchObject({
      summary: 'task t of hello/v3 runs, attempt 1',
      details: [],
      until: at(55_000),
      task: { attempts: [{ attempt: 1, container_id: 'c', machine_id: 'm', outcome: 'running' }] },
    });
  });

  test('that is tried again says when, and what became of its attempts', () => {
    const past = [
      {
        attempt: 1,
        containerId: 'a',
        machineId: 'm',
        startedAtMs: NOW - 900,
        endedAtMs: NOW - 800,
        outcome: 'handler_error',
      },
      {
        attempt: 2,
        containerId: 'b',
        machineId: 'm',
        startedAtMs: NOW - 500,
        endedAtMs: NOW - 400,
        outcome: 'handler_error',
      },
    ];
    const job = { retriesUsed: 2, retries: 3, past, timeoutMs: 0 } as unknown as TaskFacts['job'];
    const retry = { status: 'RETRY', attempt: 2, containerId: 'b', failureReason: 'handler_error' } as const;
    const found = explained({ job, place: { kind: 'delayed', dueMs: NOW + 3000 } }, retry as never);
    expect(found).toMatchObject({
      summary: 'task t of hello/v3 failed (handler_error) and is tried again',
      until: at(3000),
      task: { next_retry_at: at(3000), retries_used: 2, retries: 3 },
    });
    expect(found.task?.attempts.map((one) => [one.attempt, one.container_id, one.outcome])).toEqual([
      [1, 'a', 'handler_error'],
      [2, 'b', 'handler_error'],
    ]);
    const done = { status: 'COMPLETE', attempt: 3, containerId: 'c', endedAtMs: NOW, past } as const;
    expect(explained({}, done as never).task?.attempts.map((one) => one.outcome)).toEqual([
      'handler_error',
      'handler_error',
      'complete',
    ]);
  });
});
