import { describe, expect, test } from 'vitest';
import { Value } from 'typebox/value';
import { Explanation } from '#shared/api/explain.ts';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import { CONTAINER_STATES } from '#shared/domain/status.ts';
import type { ScaleInput } from '#scheduler/control/autoscaler/decide.ts';
import type { ContainerFacts } from '#scheduler/api/explain/container.ts';
import { explainContainer } from '#scheduler/api/explain/container.ts';
import type { ContainerGpuUse } from '#scheduler/fleet/usage.ts';
import { lastStart, startTimes } from '#scheduler/api/explain/starts.ts';
import { NO_POOL, lackOf } from '#scheduler/domain/named-pool.ts';
import type { EventRow } from '#scheduler/stores/store/queries/events.ts';
import type { ContainerRow } from '#scheduler/stores/store/queries/containers.ts';
import { NOW, aContainer, at, scalingOf } from './facts.ts';

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
    progress = '',
  ): Explanation => {
    const facts = {
      pool,
      quota: [],
      rejections,
      conditions,
      conditionWords,
      drivers: { '535.183.01': 3, '550.54.15': 1 },
      devices: [{ model: 'A100-80', memoryBytes: 80 * 1024 ** 3, driver: '535.183.01' }],
      labels: [{ zone: 'b' }],
      gpus,
      progress,
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

  test('that waits for a newer GPU driver says which, which there are, and what to do', () => {
    const found = explained({ spec: { minCuda: '12.8', wire: {} } }, { gpu_driver: 4 });
    expect(found.details.slice(0, 2)).toEqual([
      '4 machines with a GPU driver that is too old for the CUDA version it needs (gpu_driver)',
      'it needs CUDA 12.8 (`min_cuda`), which runs on GPU drivers from 570 on; 3 machines have 535.183.01 (CUDA 12.2); 1 machine has 550.54.15 (CUDA 12.4)',
    ]);
    expect(found.next_steps).toEqual([
      'upgrade the GPU driver of a machine (docs/gpus.md), or deploy with an image of an older CUDA version and a lower `min_cuda`',
    ]);
    const newer = explained({ spec: { minCuda: '14.0', wire: {} } }, { gpu_driver: 1 });
    expect(newer.details[1]).toMatch(/^it needs CUDA 14\.0 \(`min_cuda`\); 3 machines have/);
  });

  test('that no device is fit for says which comes nearest', () => {
    const asked = { gpu: ['any:>=80GiB:cc>=9.0'], wire: {} };
    const nearest = 'no device has 80 GiB and compute capability 9.0; nearest: A100-80 (8.0)';
    for (const reason of ['gpu_model', 'gpu_fact_unknown'])
      expect(explained({ spec: asked }, { [reason]: 2 }).details).toContain(nearest);
    expect(explained({ spec: asked }, { cpu: 2 }).details).not.toContain(nearest);
    expect(explained({ spec: asked }, { gpu_fact_unknown: 1 }).next_steps.join()).toMatch('longshore machine gpu list');
  });

  test('that requires a label which no machine has says which there are', () => {
    const labels = { require: { zone: ['a'] }, forbid: {}, prefer: {}, spread: '' };
    const found = explained({ spec: { labels, wire: {} } }, { label: 2 });
    expect(found.details).toContain('no machine has the label zone=a: there are zone=b');
    expect(found.next_steps.join()).toMatch('longshore machine label ID zone=a');
  });

  test('whose image was refused by the drivers of machines says what to do', () => {
    const message = 'the image needs CUDA 12.8 or newer; the driver of this machine is 535.183.01 (CUDA 12.2)';
    const found = explained({ state: 'FAILED', reason: 'gpu_driver', message, startFailures: 2 });
    expect(found.container?.message).toBe(message);
    expect(found.details).toContain('its start failed 2 times on other machines before');
    const again = explained({ message, startFailures: 1 }, { anti_affinity: 1 });
    expect(again.details).toContain(`its start failed once on other machines before, at last because ${message}`);
    expect(found.next_steps).toEqual([
      'upgrade the GPU driver of the machines (docs/gpus.md), or deploy with an image of an older CUDA version',
      'where some machines have a newer driver, say `min_cuda`: then only those are tried',
    ]);
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
        drivers: {},
        devices: [],
        labels: [],
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

  test('that is ready says how long its start took, and the steps that matter', () => {
    const event = (id: string, durationMs: number, epoch = '2', success = true) =>
      ({ data: { id, duration_ms: durationMs, success, attrs: { epoch } } }) as unknown as EventRow;
    const events = [
      event('scheduler.backlog_wait', 90_000, '1'),
      event('container.startup', 90_000, '1', false),
      event('scheduler.backlog_wait', 250),
      event('image.load', 3_100),
      event('network.setup', 4),
      event('unheard.of', 900),
      event('serve.ready', 800),
      event('worker.start', 3_900),
      event('container.startup', 4_150),
    ];
    const start = lastStart(events, true);
    const text = 'took 4.2 s: 0.3 s until it had a machine, 3.1 s image and code, 0.8 s `on_start`';
    const found = explainContainer({
      row: row({ state: 'RUNNING', startedAtMs: NOW }),
      start,
      pool: NO_POOL,
      quota: [],
      rejections: null,
      conditions: {},
      conditionWords: {},
      gpus: {},
      drivers: {},
      devices: [],
      labels: [],
      progress: '',
      machineHealth: 'READY',
      machineSilentSinceMs: null,
      usage: null,
      deploymentName: '',
      scaling: null,
      leaderAnswered: true,
    });
    expect(found.details).toContain(`its start ${text}`);
    expect(lastStart([event('container.startup', 5, '1', false)], true)).toBeUndefined();
    // An app without an `on_start` is not told to look at it.
    const plain = lastStart(events, false);
    expect(plain && startTimes(plain)).toMatch(/, 0.8 s until the app was loaded$/);
  });

  test.each(['pulling image a:1: 1 of 3 layers, 10 of 30 MB', 'waits for its turn to pull a:1: place 12 of 40'])(
    'that waits for its image says so, and names no time at which its start fails: %s',
    (progress) => {
      const starts = { state: 'STARTING', scheduledAtMs: NOW } as const;
      const found = explained(starts, null, null, {}, NO_POOL, {}, null, {}, progress);
      expect(found).toMatchObject({ waits_for: 'its image', until: null, details: [progress] });
      expect(explained({ state: 'RUNNING' }, null, null, {}, NO_POOL, {}, null, {}, progress).details).toEqual([]);
      // Commands that wait show the first detail.
      const again = explained({ ...starts, startFailures: 1 }, null, null, {}, NO_POOL, {}, null, {}, progress);
      expect([again.details[0], again.details.length]).toEqual([progress, 2]);
    },
  );

  test('whose registry did not serve its machine is no fault of its image', () => {
    const [step, ...more] = explained({ state: 'FAILED', reason: 'registry_busy', endedAtMs: NOW }).next_steps;
    expect([step, more]).toEqual([expect.stringMatching(/registry .*mirror/), []]);
  });

  test('that ends for another one says so', () => {
    for (const state of ['DRAINING', 'STOPPING', 'STOPPED'] as const)
      expect(explained({ state, reason: 'preempted' }).details.join()).toContain(
        'ends for a container of a workspace that holds less (`preempted`)',
      );
    expect(explained({ state: 'DRAINING', reason: 'drained' }).details.join()).not.toContain('interruptible');
  });

  test('that waits for its agent, or starts, says by when', () => {
    expect(explained({ state: 'ASSIGNED', scheduledAtMs: NOW }).until).toBe(at(15_000));
    expect(explained({ state: 'STARTING', scheduledAtMs: NOW }).until).toBe(at(900_000));
  });

  test.each([
    [{ ports: [8000] }, 'its program to take connections on port 8000', 8000],
    [
      { ports: [8000], readinessProbe: { type: 'http', port: 9000, path: '/up', command: [], morePaths: ['/v1'] } },
      'its program to answer `GET /up` or `/v1` on port 9000 with a status from 200 to 399',
      9000,
    ],
    [
      {
        ports: [8000],
        readinessProbe: { type: 'command', port: 0, path: '', command: ['check', '-q'], morePaths: [] },
      },
      'its readiness probe to end with 0: `check -q`',
      undefined,
    ],
    [{ ports: [] }, 'its program to start', undefined],
  ])('that is a pod says what its start waits for: %j', (wire, awaited, port) => {
    const spec = { kind: 'pod', wire: { startTimeoutMs: 900_000, ...wire } };
    const logs = '`longshore logs --container endpoint-s-1` shows what it wrote';
    const listen = `let its program listen on port ${port}, or deploy it with the port that it has (\`ports\`)`;
    const steps = port === undefined ? [logs] : [listen, logs];
    expect(explained({ state: 'STARTING', machineId: 'm' as MachineId, spec })).toMatchObject({
      summary: 'container endpoint-s-1 of hello/v3 starts on machine m: image, code, then its program',
      waits_for: `${awaited}; then it fails`,
      next_steps: steps,
    });
    const failed = explained({ state: 'FAILED', reason: 'start_timeout', spec });
    expect(failed.details).toContain(`it waited in vain for ${awaited}, 900 seconds (\`start_timeout\`)`);
    expect(failed.next_steps).toEqual([...steps, 'where it needs more time, deploy it with a longer `start_timeout`']);
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
      next_steps: [
        expect.stringMatching(/^give its handler more memory than it has, such as `memory='2gi'`/),
        expect.any(String),
      ],
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
