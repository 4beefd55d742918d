import { describe, expect, test } from 'vitest';
import type { Explanation } from '#shared/api/explain.ts';
import type { ContainerId } from '#shared/domain/ids.ts';
import { CLOSED_BREAKER } from '#scheduler/control/autoscaler/breaker.ts';
import type { ScaleContainer } from '#scheduler/control/autoscaler/decide.ts';
import type { QueueHistory } from '#scheduler/control/autoscaler/history.ts';
import { recordDecision } from '#scheduler/control/autoscaler/history.ts';
import { explainDeployment } from '#scheduler/api/explain/deployment.ts';
import { quotaTexts } from '#scheduler/api/explain/quota.ts';
import { decisionText, rejectionStep, rejectionTexts } from '#scheduler/api/explain/texts.ts';
import { REJECTION_REASONS } from '#scheduler/control/plan/filter.ts';
import type { PoolMachine } from '#scheduler/domain/named-pool.ts';
import { NO_POOL, lackOf, warningOf } from '#scheduler/domain/named-pool.ts';
import { placementWait } from '#scheduler/control/placement/waiting.ts';
import { NOW, ROW, aContainer, at, deploymentOf, scalingOf } from './facts.ts';

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

test('a paused queue is what its deployment waits for, and the step is to resume it', () => {
  const said = (queueControl: { readonly paused: boolean; readonly limit: number | null }, row = ROW): Explanation =>
    explainDeployment(row as Parameters<typeof explainDeployment>[0], 10, scalingOf({}), {
      refusal: '',
      pool: NO_POOL,
      quota: [],
      queueControl,
    });
  const paused = said({ paused: true, limit: null });
  expect(paused.waits_for).toBe('its queue to be resumed');
  expect(paused.summary).toContain('its queue is paused');
  expect(paused.summary).not.toContain('no task waits');
  expect(paused.next_steps[0]).toBe('`longshore deployment queue resume hello` lets its queue go on');
  const bounded = said({ paused: false, limit: 5 });
  expect(bounded.details.join()).toContain('at most 5 tasks of its queue run at a time');
  expect(bounded.waits_for).not.toContain('resumed');
  expect(said({ paused: true, limit: null }, { ...ROW, active: false }).waits_for).toBe('');
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
    expect(deploymentOf(scalingOf({ containers: [aContainer({ found: true })], keepWarmMs: 0, hold }))).toMatchObject({
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

  test('says how many of many containers run, wait for a machine, and follow', () => {
    const waiting = Array.from({ length: 16 }, () => aContainer({ state: 'PENDING' }));
    const ready = Array.from({ length: 120 }, () => aContainer());
    const said = (...containers: ScaleContainer[]) =>
      deploymentOf(scalingOf({ containers, inFlight: 200, waiting: 80, maxContainers: 300 })).details;
    expect(said(...waiting)).toContain('wants 200: 0 run, 16 wait, 184 follow');
    expect(said(...ready, ...waiting)).toContain('wants 200: 120 run, 16 wait, 64 follow');
    expect(said(...waiting.slice(1)).join()).not.toContain('follow');
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
    expect(found.summary).toBe(
      'hello v3 is IDLE: calls are refused: no machine that this workspace may use has GPU H100; no task waits, so no container runs',
    );
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
    endedAtMs: [],
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
    expect(decisionText({ kind: 'start', count: 2, unplaced: 2, wanted: 3, probe: false })).toBe(
      '2 containers started, up to 3',
    );
    expect(decisionText({ kind: 'stop', containers: ['c' as ContainerId], wanted: 0 })).toBe(
      '1 container let go, down towards 0',
    );
  });
});

describe('calls that wait while all wanted containers are ready', () => {
  const busy = (changes: Partial<Parameters<typeof scalingOf>[0]>, slots = 1) => {
    const containers = [aContainer({ attempts: 1 })];
    return deploymentOf(
      scalingOf({ inFlight: 5, waiting: 4, containers, maxContainers: 1, ...changes }, { place: { slots } }),
    );
  };

  test('make it BUSY, and the bound and the setting are named', () => {
    expect(busy({})).toMatchObject({
      state: 'BUSY',
      summary:
        'hello v3 is BUSY: 4 calls wait for a free place in 1 container, and there are no more: max_containers is 1',
      scaling: { bound: 'max_containers' },
      next_steps: [
        "raise max_containers, as autoscaler=QueueDepthAutoscaler(max_containers=10), and deploy; the workspace's bound is stub.max_replicas in `longshore workspace limits`",
        'or have each container serve more calls side by side: concurrent_requests (threads, or an `async def`), workers (processes)',
      ],
    });
  });

  test('may wait because one container is said to be enough for them', () => {
    expect(busy({ tasksPerContainer: 10, maxContainers: 3 })).toMatchObject({
      state: 'BUSY',
      summary:
        'hello v3 is BUSY: 4 calls wait for a free place in 1 container, and one is enough for 10 calls: tasks_per_container is 10',
      scaling: { bound: 'tasks_per_container' },
      next_steps: [
        'lower tasks_per_container to what a container serves side by side (workers × concurrent_requests), or raise those',
      ],
    });
  });

  test('are about to be served where a slot is free, and then nothing is to be done', () => {
    const free = busy({ tasksPerContainer: 10, maxContainers: 3 }, 4);
    expect(free).toMatchObject({ state: 'BUSY', scaling: { bound: '' }, next_steps: [] });
  });

  test('wait for containers that start, and it is not BUSY', () => {
    const starting = [aContainer({ attempts: 1 }), aContainer({ state: 'STARTING' })];
    expect(busy({ containers: starting, maxContainers: 2 })).toMatchObject({
      state: 'SCALING',
      scaling: { bound: '' },
    });
  });
});
