/**
 * GPUs on a real engine, without a GPU. The tool and the hook through which the
 * engine passes devices are stand-ins (test/helpers/gpus.ts); everything between them
 * is the real thing. Tests named after rows of the failure table prove those rows.
 */
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished } from 'vitest';
import type { ContainerSpec, Gpu__Output } from '#shared/protocol/generated/messages.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { cdiEngine } from '../helpers/cdi-engine.ts';
import { until } from '../helpers/fake-scheduler.ts';
import type { FakeDriver } from '../helpers/gpus.ts';
import { FakeNvidia, aGpu, cudaDoes, gpuHost, gpuUuid } from '../helpers/gpus.ts';
import { SimulatedNetwork, whyNoHosts } from '../helpers/hosts/network.ts';
import type { SimulatedHost } from '../helpers/hosts/host.ts';
import { docker, runProgram, tempDirectory, test as base } from '../helpers/services.ts';

interface GpuWorld {
  readonly world: AgentWorld;
  readonly nvidia: FakeNvidia;
  /** @param probed - devices that must have passed their probe first; all of them by default */
  readonly start: (
    driver?: Partial<FakeDriver>,
    settings?: Record<string, string>,
    probed?: readonly string[],
  ) => Promise<void>;
  readonly deploy: (
    gpuUuids: readonly string[],
    source?: string,
    spec?: Partial<ContainerSpec>,
  ) => Promise<ReturnType<typeof anAssignment>>;
  /** The agent again, on the same state; its containers have run on, and their runners have dialled it. */
  readonly restart: (meanwhile?: () => Promise<void>) => Promise<void>;
  /** Devices by the scheduler's last report. */
  readonly devices: () => readonly Gpu__Output[];
  readonly deviceIs: (index: number, state: string) => Promise<Gpu__Output>;
  readonly page: () => Promise<string>;
  readonly answerOf: (taskId: string, containerId: string) => Promise<unknown>;
}

const SEEN = `
import os, subprocess
def handler():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout if os.path.exists("/usr/bin/nvidia-smi") else ""
    shm = os.statvfs("/dev/shm")
    names = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES", "NOTIFY_SOCKET")
    return {"env": {name: os.environ.get(name) for name in names}, "listed": listed, "shm": shm.f_blocks * shm.f_frsize}
`;

const hostTest = base.extend('host', { scope: 'file' }, async ({}, { onCleanup }): Promise<SimulatedHost> => {
  const { baseImage } = await docker();
  const network = await SimulatedNetwork.up(1, baseImage, gpuHost);
  onCleanup(() => network.down());
  const [host] = network.hosts;
  if (host === undefined) throw new Error('no host');
  return host;
});

const test = hostTest.extend('gpus', async ({ host }, { onCleanup }): Promise<GpuWorld> => {
  const directory = tempDirectory('gpu');
  const nvidia = new FakeNvidia(directory.path, { gpus: [aGpu(0), aGpu(1)] });
  let world: AgentWorld | undefined;
  onCleanup(async () => {
    nvidia.is({ hang: false, processes: [] });
    cudaDoes(host, {});
    await world?.end();
    directory.remove();
  });
  const started = (): AgentWorld => {
    if (world === undefined) throw new Error('not started');
    return world;
  };
  const devices = (): readonly Gpu__Output[] =>
    started().scheduler.heard.findLast((message) => message.devices)?.devices?.gpus ??
    started().scheduler.hellos.at(-1)?.inventory?.gpus ??
    [];
  return {
    get world() {
      return started();
    },
    nvidia,
    start: async (driver = {}, settings = {}, probed) => {
      nvidia.is(driver);
      world = await agentWorld(
        {},
        {
          DOCKER_HOST: `unix://${host.socket}`,
          LONGSHORE_NVIDIA_SMI: nvidia.tool,
          ...settings,
        },
        {
          gpus: {
            kernelLog: nvidia.kernelLog,
            probeEveryMs: 200,
            probeDeadlineMs: 3000,
            proofMs: 1000,
            cudaProbeDeadlineMs: 3000,
          },
        },
      );
      await world.agent.start();
      await world.agent.connected;
      const isProbed = ({ uuid, state }: Gpu__Output): boolean =>
        probed?.includes(uuid) === false || state === 'healthy';
      await until('probes have passed', () => devices().length > 0 && devices().every(isProbed), 30_000);
    },
    deploy: async (gpuUuids, source = SEEN, spec = {}) => {
      const code = started().scheduler.addArchive(await zip({ 'app.py': source }));
      return anAssignment({ code, gpuUuids: [...gpuUuids], ...spec });
    },
    restart: async (meanwhile = () => Promise.resolve()) => {
      const { scheduler } = started();
      await started().agent.stop();
      await meanwhile();
      const before = scheduler.reports.length;
      await started().restart();
      await until('the new session’s report', () => scheduler.reports.length > before);
    },
    devices,
    deviceIs: (index, state) =>
      until(
        `GPU ${index} to be ${state} (${JSON.stringify(devices().map((one) => one.state))})`,
        () => devices().find((one) => one.uuid === gpuUuid(index) && one.state === state),
        30_000,
      ),
    page: async () => (await fetch(`http://${started().agent.metricsAddress}/metrics`)).text(),
    answerOf: async (taskId, containerId) => {
      const { scheduler } = started();
      scheduler.run(taskId, containerId, '{}');
      return JSON.parse((await scheduler.resultOf(taskId)).whole.toString()) as unknown;
    },
  };
});

const [G0, G1] = [gpuUuid(0), gpuUuid(1)];
const runsOn = (host: SimulatedHost, containerId: string) =>
  host.containers([`io.longshore.container=${containerId}`]).then((found) => found.map((one) => one.State));

describe.skipIf(whyNoHosts !== undefined)('GPUs of a machine', () => {
  test('a handler sees exactly its own, two containers different ones, and one without sees none', async ({ gpus }) => {
    await gpus.start();
    expect(gpus.world.scheduler.hellos[0]?.inventory).toMatchObject({
      gpuDriver: '580.126.09',
      gpus: [
        {
          uuid: G0,
          model: 'H100',
          memoryBytes: 81_559 * 1024 ** 2,
          pciBusId: '0000:1b:00.0',
        },
        { uuid: G1, model: 'H100', index: 1 },
      ],
    });
    expect(gpus.devices()[0]).toMatchObject({ state: 'healthy', unhealthy: false, why: '' });
    const env = { NVIDIA_VISIBLE_DEVICES: 'all', CUDA_VISIBLE_DEVICES: '7' };
    const [first, second, none] = await Promise.all([
      gpus.deploy([G0], SEEN, { env, memoryBytes: 512 * 1024 ** 2, workers: 2 }),
      gpus.deploy([G1], SEEN, { env, workers: 2, workerMode: 'spawn' }),
      gpus.deploy([], SEEN, { env }),
    ]);
    const { scheduler } = gpus.world;
    scheduler.desire([first, second, none]);
    // A driver's context does not survive a fork, and the handler is not declared thread-safe.
    expect(await scheduler.phase(first.containerId, 'running')).toMatchObject({
      mode: 'single',
      slots: 1,
      gpuUuids: [G0],
    });
    expect(await scheduler.phase(second.containerId, 'running')).toMatchObject({ mode: 'spawn', slots: 2 });
    await scheduler.phase(none.containerId, 'running');
    const common = {
      NVIDIA_DRIVER_CAPABILITIES: 'compute,utility,video',
      CUDA_VISIBLE_DEVICES: null,
      NOTIFY_SOCKET: null,
    };
    expect(await gpus.answerOf('t1', first.containerId)).toEqual({
      env: { ...common, NVIDIA_VISIBLE_DEVICES: G0 },
      listed: `GPU 0: NVIDIA H100 80GB HBM3 (UUID: ${G0})\n`,
      shm: 128 * 1024 ** 2,
    });
    expect(await gpus.answerOf('t2', second.containerId)).toMatchObject({ env: { NVIDIA_VISIBLE_DEVICES: G1 } });
    expect(await gpus.answerOf('t3', none.containerId)).toMatchObject({
      env: { NVIDIA_VISIBLE_DEVICES: 'void', CUDA_VISIBLE_DEVICES: null },
      listed: '',
      shm: 64 * 1024 ** 2,
    });
    const page = await gpus.page();
    const series = (name: string, uuid: string): string =>
      `longshore_agent_gpu_${name}{gpu_uuid="${uuid}",gpu_model="H100"}`;
    expect(page).toContain(`${series('leased', G0)} 1`);
    expect(page).toContain(`${series('memory_total_bytes', G1)} ${81_559 * 1024 ** 2}`);
    expect(page).toContain(`${series('power_watts', G1)} 68.5`);
    expect(page).toMatch(/build_info\{[^}]*driver_version="580.126.09"/);
  });

  test('Second lease of a GPU: refused by the agent although the scheduler orders it, counted, and what is here is told again; also after a restart', async ({
    gpus,
    host,
  }) => {
    await gpus.start();
    const { scheduler } = gpus.world;
    const holder = await gpus.deploy([G0]);
    const second = await gpus.deploy([G1, G0]);
    scheduler.desire([holder]);
    await scheduler.phase(holder.containerId, 'running');
    const refusalOf = (containerId: string) => () =>
      scheduler.heard.findLast((message) => message.refuse?.containerId === containerId)?.refuse;
    const from = scheduler.heard.length;
    scheduler.desire([holder, second]);
    const refusal = await until('the refusal', refusalOf(second.containerId));
    expect(refusal).toMatchObject({
      reason: 'gpu_leased',
      message: expect.stringContaining(holder.containerId) as string,
    });
    await until('a whole report', () => scheduler.heard.slice(from).some((message) => message.status?.full === true));
    expect(await runsOn(host, second.containerId)).toEqual([]);
    expect(await gpus.page()).toContain('longshore_agent_gpu_lease_refusals_total{reason="gpu_leased"} 1');

    await gpus.restart();
    expect(scheduler.hellos.at(-1)?.observed).toMatchObject([{ containerId: holder.containerId, gpuUuids: [G0] }]);
    const third = await gpus.deploy([G0]);
    scheduler.desire([holder, third]);
    expect(await until('another refusal', refusalOf(third.containerId))).toMatchObject({ reason: 'gpu_leased' });
    expect(await gpus.answerOf('t1', holder.containerId)).toMatchObject({ env: { NVIDIA_VISIBLE_DEVICES: G0 } });
    // A device that is given back can be leased again; one that the host does not have never can.
    const absent = await gpus.deploy([gpuUuid(7)]);
    scheduler.desire([{ ...holder, stop: true, graceMs: 2000, stopReason: 'scaled_in' }, absent]);
    await scheduler.phase(holder.containerId, 'removed');
    expect(await until('the last refusal', refusalOf(absent.containerId))).toMatchObject({ reason: 'gpu_unknown' });
    scheduler.desire([third]);
    await scheduler.phase(third.containerId, 'running');
  });

  test('nvidia-smi hang: killed; suspect; no false "lost", and no child is left', async ({ gpus }) => {
    await gpus.start();
    const { scheduler } = gpus.world;
    const assignment = await gpus.deploy([G0]);
    scheduler.desire([assignment]);
    await scheduler.phase(assignment.containerId, 'running');
    gpus.nvidia.is({ hang: true });
    await gpus.deviceIs(0, 'suspect');
    expect(gpus.devices().map((one) => [one.state, one.unhealthy])).toEqual([
      ['suspect', true],
      ['suspect', true],
    ]);
    await until('the condition', () =>
      scheduler.heard.some((message) => message.heartbeat?.conditions.includes('GpuDegraded')),
    );
    const refused = await gpus.deploy([G1]);
    scheduler.desire([assignment, refused]);
    expect(
      await until('the refusal', () => scheduler.heard.findLast((message) => message.refuse)?.refuse),
    ).toMatchObject({ reason: 'gpu_not_healthy' });
    expect(await gpus.answerOf('t1', assignment.containerId)).toMatchObject({ env: { NVIDIA_VISIBLE_DEVICES: G0 } });
    expect(await gpus.page()).toMatch(/gpu_probe_failures_total\{reason="timeout"\} [2-9]/);
    expect(processesOf(gpus.nvidia.tool).length).toBeLessThanOrEqual(2);
    gpus.nvidia.is({ hang: false });
    await gpus.deviceIs(0, 'healthy');
    await until('no child is left', () => processesOf(gpus.nvidia.tool).length <= 2);
    expect(gpus.devices().some((one) => one.state === 'lost')).toBe(false);
  });

  test('GPU Xid / off the bus: that GPU is out and its container fails; others run', async ({ gpus }) => {
    await gpus.start();
    const { scheduler } = gpus.world;
    const [bad, good] = [await gpus.deploy([G0]), await gpus.deploy([G1])];
    scheduler.desire([bad, good]);
    await scheduler.phase(bad.containerId, 'running');
    await scheduler.phase(good.containerId, 'running');
    // An application's own error is said in its log, and changes nothing.
    gpus.nvidia.xid(1, 31, 'MMU Fault');
    await until('the note', () =>
      scheduler.records.some((one) => one.containerId === good.containerId && one.line.includes('Xid 31')),
    );
    gpus.nvidia.xid(0, 79, 'GPU has fallen off the bus.');
    expect((await gpus.deviceIs(0, 'unhealthy')).why).toContain('Xid 79');
    const gone = await scheduler.phase(bad.containerId, 'removed');
    expect(gone).toMatchObject({
      reason: 'gpu_fault',
      message: expect.stringContaining('fallen off the bus') as string,
    });
    expect(gpus.devices().map((one) => one.state)).toEqual(['unhealthy', 'healthy']);
    expect(await gpus.answerOf('t1', good.containerId)).toMatchObject({ env: { NVIDIA_VISIBLE_DEVICES: G1 } });
    expect(await gpus.page()).toContain(`longshore_agent_gpu_xid_errors_total{gpu_uuid="${G0}",xid="79"} 1`);

    // The device stays unhealthy, through restarts of the agent, until the driver has had its reset.
    await gpus.restart();
    expect(scheduler.hellos.at(-1)?.inventory?.gpus.map((one) => one.state)).toEqual(['unhealthy', 'healthy']);
    scheduler.desire([good]);
    gpus.nvidia.is({ gpus: [aGpu(0, { gpu_recovery_action: 'Reset' }), aGpu(1)] });
    await until('the driver to ask for a reset', () => savedDevices(gpus.world).includes('"resetAsked":true'));
    gpus.nvidia.is({ gpus: [aGpu(0), aGpu(1)] });
    await gpus.deviceIs(0, 'healthy');

    // A device that the driver lists no more fails its container, too, and leaves one series of itself.
    gpus.nvidia.is({ gpus: [aGpu(0)] });
    await gpus.deviceIs(1, 'lost');
    expect(await scheduler.phase(good.containerId, 'removed')).toMatchObject({ reason: 'gpu_fault' });
    const shown = (await gpus.page()).split('\n').filter((line) => line.includes(G1) && !/xid|faults/.test(line));
    expect(shown).toEqual([
      `longshore_agent_gpu_healthy{gpu_uuid="${G1}",gpu_model="H100"} 0`,
      `longshore_agent_gpu_state{gpu_uuid="${G1}",gpu_model="H100",state="lost"} 1`,
    ]);
    gpus.nvidia.is({ gpus: [aGpu(0), aGpu(1)] });
    await gpus.deviceIs(1, 'healthy');
  });

  test('one device that makes the tool fail for all of them is lost alone', async ({ gpus }) => {
    await gpus.start();
    gpus.nvidia.is({ gpus: [aGpu(1)], brokenAll: '0000:1B:00.0' });
    await gpus.deviceIs(0, 'lost');
    expect(gpus.devices().find((one) => one.uuid === G1)?.state).toBe('healthy');
  });

  test('a GPU on which a process of its container is left is quarantined, through a restart, until it is proved free', async ({
    gpus,
  }) => {
    await gpus.start();
    const { scheduler } = gpus.world;
    const assignment = await gpus.deploy([G0]);
    scheduler.desire([assignment]);
    await scheduler.phase(assignment.containerId, 'running');
    // The first process is gone, and the driver has not let go of it.
    // The second belongs to somebody else, not to a container of ours.
    gpus.nvidia.is({
      processes: [
        { gpu_uuid: G0, pid: 4_194_000 },
        { gpu_uuid: G1, pid: process.pid },
      ],
    });
    scheduler.desire([{ ...assignment, stop: true, graceMs: 2000, stopReason: 'scaled_in' }]);
    await scheduler.phase(assignment.containerId, 'removed', 30_000);
    expect(gpus.devices().map((one) => one.state)).toEqual(['quarantined', 'healthy']);
    // The scheduler heard of the quarantine before it heard that the container is gone.
    const told = scheduler.heard.findIndex((message) => message.devices?.gpus[0]?.state === 'quarantined');
    const gone = scheduler.heard.findIndex((message) =>
      message.status?.containers.some((one) => one.phase === 'removed'),
    );
    expect(told).toBeLessThan(gone);
    await gpus.restart();
    expect(scheduler.hellos.at(-1)?.inventory?.gpus[0]?.state).toBe('quarantined');
    gpus.nvidia.is({ processes: [] });
    await gpus.deviceIs(0, 'healthy');
  });

  test('GPU access lost after daemon-reload: detected inside the container, which fails as gpu_fault', async ({
    gpus,
    host,
  }) => {
    await gpus.start();
    const { scheduler } = gpus.world;
    const [first, second] = [await gpus.deploy([G0]), await gpus.deploy([G1])];
    scheduler.desire([first, second]);
    await scheduler.phase(first.containerId, 'running');
    await scheduler.phase(second.containerId, 'running');
    const [found] = await host.containers([`io.longshore.container=${first.containerId}`]);
    const lost =
      'printf "#!/bin/sh\\necho Failed to initialize NVML: Unknown Error\\nexit 255\\n" > /usr/bin/nvidia-smi';
    await runProgram('docker', ['-H', `unix://${host.socket}`, 'exec', found?.Id ?? '', 'sh', '-c', lost]);
    expect(await scheduler.phase(first.containerId, 'removed', 30_000)).toMatchObject({
      reason: 'gpu_fault',
      message: expect.stringContaining('NVML') as string,
    });
    // The device itself is healthy, and free for the next container.
    expect(gpus.devices().every((one) => one.state === 'healthy')).toBe(true);
    const next = await gpus.deploy([G0]);
    scheduler.desire([second, next]);
    await scheduler.phase(next.containerId, 'running');
    expect(await gpus.answerOf('t1', second.containerId)).toMatchObject({ env: { NVIDIA_VISIBLE_DEVICES: G1 } });
  });

  test('two containers that claim one GPU after a crash lose it to everybody else, and run on', async ({
    gpus,
    host,
  }) => {
    await gpus.start();
    const { scheduler } = gpus.world;
    const assignment = await gpus.deploy([G0]);
    scheduler.desire([assignment]);
    await scheduler.phase(assignment.containerId, 'running');
    const [found] = await host.containers([`io.longshore.container=${assignment.containerId}`]);
    // A second container of this machine with the same device, as no agent of ours would start it.
    const twin = await host.docker.createContainer({
      Image: found?.Image ?? '',
      Entrypoint: ['sleep', '600'],
      Labels: { ...found?.Labels, 'io.longshore.container': 'endpoint-twin', 'io.longshore.assignment': 'twin' },
    });
    await gpus.restart(() => twin.start());
    await gpus.deviceIs(0, 'quarantined');
    expect(gpus.devices().find((one) => one.uuid === G1)?.state).toBe('healthy');
    scheduler.desire([assignment]);
    expect(await gpus.answerOf('t1', assignment.containerId)).toMatchObject({ env: { NVIDIA_VISIBLE_DEVICES: G0 } });
    await twin.remove({ force: true });
    scheduler.desire([{ ...assignment, stop: true, graceMs: 2000, stopReason: 'scaled_in' }]);
    await scheduler.phase(assignment.containerId, 'removed', 30_000);
    await gpus.deviceIs(0, 'healthy');
  });

  test('a GPU that the host lists and the toolkit cannot pass is the machine’s fault, by its words; excluded ones are not offered', async ({
    gpus,
    host,
  }) => {
    await gpus.start({ gpus: [aGpu(0), aGpu(1), aGpu(2)] }, { LONGSHORE_EXCLUDED_GPUS: '0000:1c:00.0' });
    expect(gpus.devices().map((one) => one.uuid)).toEqual([G0, gpuUuid(2)]);
    const { scheduler } = gpus.world;
    cudaDoes(host, { [G0]: 'refused' });
    const assignment = await gpus.deploy([G0]);
    scheduler.desire([assignment]);
    expect(await scheduler.phase(assignment.containerId, 'removed')).toMatchObject({
      reason: 'gpu_fault',
      message: expect.stringContaining(`device error: ${G0}: unknown device`) as string,
    });
  });

  test('Container Device Interface: an engine that lists a GPU so is asked for it so; one that it cannot pass is passed by the hook, and without a hook its container fails as gpu_fault', async ({
    gpus,
    host,
  }) => {
    const engine = await cdiEngine(host.socket);
    onTestFinished(() => engine.close());
    [engine.listed, engine.known] = [
      [G0, G1],
      [G0, G1],
    ];
    await gpus.start({}, { DOCKER_HOST: engine.host });
    const { scheduler } = gpus.world;
    // Probes use the same driver.
    expect(engine.drivers.splice(0)).toEqual(['cdi', 'cdi']);
    engine.known = [G0];
    const first = await gpus.deploy([G0]);
    scheduler.desire([first]);
    await scheduler.phase(first.containerId, 'running');
    expect(engine.drivers).toEqual(['cdi']);
    expect(await gpus.answerOf('t1', first.containerId)).toMatchObject({
      listed: `GPU 0: NVIDIA H100 80GB HBM3 (UUID: ${G0})\n`,
    });
    // The next agent knows the device's owner.
    await gpus.restart();
    expect(await gpus.answerOf('t2', first.containerId)).toMatchObject({
      listed: expect.stringContaining(G0) as string,
    });

    const stale = await gpus.deploy([G1]);
    scheduler.desire([first, stale]);
    expect(await scheduler.phase(stale.containerId, 'removed')).toMatchObject({
      reason: 'gpu_fault',
      message: expect.stringContaining(`unresolvable CDI devices nvidia.com/gpu=${G1}`) as string,
    });
    expect(engine.drivers).toEqual(['cdi', 'cdi']);

    engine.hasHook = true;
    const second = await gpus.deploy([G1]);
    scheduler.desire([first, second]);
    await scheduler.phase(second.containerId, 'running');
    expect(engine.drivers).toEqual(['cdi', 'cdi', 'cdi', 'nvidia']);
    expect(await gpus.answerOf('t3', second.containerId)).toMatchObject({
      env: { NVIDIA_VISIBLE_DEVICES: G1 },
      listed: expect.stringContaining(G1) as string,
    });
    expect(await runsOn(host, second.containerId)).toEqual(['running']);
  });
});

describe.skipIf(whyNoHosts !== undefined)('a probe', () => {
  const probes = (host: SimulatedHost): Promise<readonly string[]> =>
    host.containers().then((found) => found.flatMap(({ Names }) => Names).filter((name) => name.includes('c-probe-')));

  test('that finds the fabric not set up (802): nothing is leased, the machine says why, and all returns by itself', async ({
    gpus,
    host,
  }) => {
    cudaDoes(host, { [G0]: 'init 802', [G1]: 'init 802' });
    await gpus.start({}, {}, []);
    const { scheduler } = gpus.world;
    // Both are probed at once, and either may be told first.
    const waiting = await until('the words', () =>
      gpus.devices().find(({ uuid, state, why }) => uuid === G0 && state === 'unprobed' && why.includes('802')),
    );
    expect(waiting).toMatchObject({ unhealthy: true, why: expect.stringContaining('fabric') as string });
    await until('the condition', () =>
      scheduler.heard.some((message) => message.heartbeat?.conditions.includes('GpusUnusable')),
    );
    const assignment = await gpus.deploy([G0]);
    scheduler.desire([assignment]);
    const refused = await until('the refusal', () => scheduler.heard.findLast((message) => message.refuse)?.refuse);
    expect(refused).toMatchObject({ reason: 'gpu_not_healthy', message: expect.stringContaining('802') as string });
    cudaDoes(host, {});
    await gpus.deviceIs(0, 'healthy');
    await gpus.deviceIs(1, 'healthy');
    scheduler.desire([await gpus.deploy([G0]).then((again) => ({ ...again, containerId: 'endpoint-again' }))]);
    await scheduler.phase('endpoint-again', 'running');
    expect(await gpus.page()).toMatch(/condition\{condition="GpusUnusable"\} 0/);
    expect(await probes(host)).toEqual([]);
  });

  test('that fails takes one device out with its reason; the other serves; a restart of the agent probes neither the good one nor one that a container has', async ({
    gpus,
    host,
  }) => {
    cudaDoes(host, { [G0]: 'corrupt' });
    await gpus.start({}, {}, [G1]);
    expect((await gpus.deviceIs(0, 'unhealthy')).why).toMatch(/^probe_failed: data came back wrong/);
    const { scheduler } = gpus.world;
    const serves = await gpus.deploy([G1]);
    scheduler.desire([serves]);
    await scheduler.phase(serves.containerId, 'running');
    expect(await gpus.page()).toContain('longshore_agent_gpu_cuda_probes_total{result="failed"} 1');
    // A program that hangs is the device's fault, too, and none is left.
    cudaDoes(host, { [G0]: 'hang context', [G1]: 'corrupt' });
    await gpus.restart();
    await until('another reason', () => gpus.devices()[0]?.why.includes('at context'), 30_000);
    expect(gpus.devices().map(({ state }) => state)).toEqual(['unhealthy', 'healthy']);
    expect(await probes(host)).toEqual([]);
    expect(await gpus.answerOf('t1', serves.containerId)).toMatchObject({ env: { NVIDIA_VISIBLE_DEVICES: G1 } });
    cudaDoes(host, {});
    await gpus.restart();
    await gpus.deviceIs(0, 'healthy');
  });

  test('that not even a kill ends quarantines its device, and no second one starts there', async ({ gpus, host }) => {
    cudaDoes(host, { [G0]: 'hang init' });
    const started = gpus.start({}, {}, [G1]);
    let dockerId = '';
    const running = async (): Promise<string> => {
      const found = await host.containers();
      dockerId =
        found.find(({ Names, State }) => State === 'running' && Names.join().includes(`c-probe-${G0}`))?.Id ?? '';
      return dockerId;
    };
    await expect.poll(running, { timeout: 20_000, interval: 20 }).not.toBe('');
    const thaw = host.freezeProcesses(dockerId);
    onTestFinished(thaw);
    await started;
    const isQuarantined = (): unknown => gpus.devices()[0];
    // The engine waits for a process that it has killed.
    await expect.poll(isQuarantined, { timeout: 120_000 }).toMatchObject({
      state: 'quarantined',
      why: expect.stringMatching(/^probe_failed: no answer.*a kill does not end it/) as string,
    });
    await gpus.restart();
    await expect.poll(isQuarantined, { timeout: 120_000 }).toMatchObject({
      state: 'quarantined',
      why: expect.stringContaining('an earlier probe does not end') as string,
    });
    expect(await probes(host)).toHaveLength(1);
    cudaDoes(host, {});
    thaw();
    await gpus.restart();
    await gpus.deviceIs(0, 'healthy');
    expect(await probes(host)).toEqual([]);
  }, 300_000);
});

/** Processes (zombies apart) of the stand-in tool: the shell's exec leaves one for each call. */
function processesOf(tool: string): readonly string[] {
  const directory = join(tool, '..');
  return readdirSync('/proc').filter((entry) => {
    if (!/^\d+$/.test(entry)) return false;
    try {
      return readFileSync(`/proc/${entry}/cmdline`, 'utf8').includes(directory);
    } catch {
      return false;
    }
  });
}

const savedDevices = (world: AgentWorld): string => readFileSync(join(world.dataDir, 'agent', 'gpus.json'), 'utf8');
