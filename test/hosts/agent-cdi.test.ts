/**
 * GPUs by the Container Device Interface of a real engine, without a GPU. A specification as NVIDIA's toolkit writes it
 * names /dev/fuse as the devices, because a container may not open that device unless its runtime allows it. An engine
 * from before 28.2 has no CDI by itself: there the hook's stand-in passes the same devices.
 */
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { agentWorld, zip } from '../helpers/agent.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { fakeCuda } from '../helpers/fake-cuda.ts';
import { until } from '../helpers/fake-scheduler.ts';
import { FakeNvidia, aGpu, gpuHost, gpuUuid } from '../helpers/gpus.ts';
import { SimulatedNetwork, whyNoHosts } from '../helpers/hosts/network.ts';
import type { SimulatedHost } from '../helpers/hosts/host.ts';
import { docker, findProgram, runProgram, tempDirectory, test as base } from '../helpers/services.ts';

/** Prints the container's view of a device; the device is opened for reading, which the runtime must allow. */
const SEEN = `
import os, stat, subprocess
def look(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
        opened = "opened"
    except OSError as error:
        opened = error.strerror
    return opened if os.path.exists(path) else "absent"
def handler():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout if os.path.exists("/usr/bin/nvidia-smi") else ""
    return {"devices": [look("/dev/nvidia0"), look("/dev/nvidia1")], "visible": os.environ.get("NVIDIA_VISIBLE_DEVICES"), "listed": listed}
`;

const mount = (hostPath: string, containerPath: string): object => ({
  ...{ hostPath, containerPath },
  options: ['ro', 'nosuid', 'nodev', 'bind'],
});

const G = [gpuUuid(0), gpuUuid(1)] as const;

const knowsCdi = async (): Promise<boolean> => {
  const said = await runProgram(findProgram('dockerd') ?? 'dockerd', ['--version']);
  const [major = 0, minor = 0] = (/(\d+)\.(\d+)/.exec(said)?.slice(1) ?? []).map(Number);
  return major > 28 || (major === 28 && minor >= 2);
};

interface CdiHost {
  readonly host: SimulatedHost;
  /** Writes the specification anew, with the devices of these indexes. */
  readonly specify: (devices: readonly number[]) => void;
}

const hostTest = base.extend('cdi', { scope: 'file' }, async ({}, { onCleanup }): Promise<CdiHost> => {
  const { baseImage } = await docker();
  const directory = tempDirectory('cdis');
  const specs = join(directory.path, 'cdi');
  mkdirSync(specs);
  const engine = {
    // `nvidia-ctk runtime configure` makes this entry, by which the agent knows that there is a hook.
    runtimes: { nvidia: { path: 'runc' } },
    ...((await knowsCdi()) ? { 'cdi-spec-dirs': [specs] } : {}),
  };
  const network = await SimulatedNetwork.up(1, baseImage, () => ({ ...gpuHost(), engine }));
  onCleanup(async () => {
    await network.down();
    directory.remove();
  });
  const [host] = network.hosts;
  if (host === undefined) throw new Error('no host');
  const specify = (devices: readonly number[]): void => {
    const tool = (index: number): string => join(directory.path, `nvidia-smi-${index}`);
    for (const index of devices)
      writeFileSync(tool(index), `#!/bin/sh\necho "GPU 0: NVIDIA H100 80GB HBM3 (UUID: ${gpuUuid(index)})"\n`, {
        mode: 0o755,
      });
    const file = join(specs, 'nvidia.json');
    rmSync(file, { force: true });
    writeFileSync(
      file,
      JSON.stringify({
        cdiVersion: '0.5.0',
        kind: 'nvidia.com/gpu',
        devices: devices.map((index) => ({
          name: gpuUuid(index),
          containerEdits: {
            // As for the driver's devices, any user in the container may open them.
            deviceNodes: [{ path: `/dev/nvidia${index}`, hostPath: '/dev/fuse', fileMode: 0o666 }],
            mounts: [
              mount(tool(index), '/usr/bin/nvidia-smi'),
              // The agent's probe needs this library.
              mount(fakeCuda(), '/usr/lib64/libcuda.so.1'),
            ],
          },
        })),
        containerEdits: { env: ['NVIDIA_VISIBLE_DEVICES=void'] },
      }),
    );
  };
  specify([0, 1]);
  return { host, specify };
});

interface World {
  readonly agent: AgentWorld;
  readonly deploy: (gpuUuids: readonly string[]) => Promise<ReturnType<typeof anAssignment>>;
  readonly answerOf: (taskId: string, containerId: string) => Promise<unknown>;
}

const test = hostTest.extend('world', async ({ cdi }, { onCleanup }): Promise<World> => {
  const directory = tempDirectory('cdiw');
  const nvidia = new FakeNvidia(directory.path, { gpus: [aGpu(0), aGpu(1)] });
  const agent = await agentWorld(
    {},
    { DOCKER_HOST: `unix://${cdi.host.socket}`, LONGSHORE_NVIDIA_SMI: nvidia.tool },
    { gpus: { kernelLog: nvidia.kernelLog } },
  );
  onCleanup(async () => {
    await agent.end();
    directory.remove();
  });
  await agent.agent.start();
  await agent.agent.connected;
  const { scheduler } = agent;
  await until(
    'the probes to have passed',
    () => {
      const told = scheduler.heard.findLast(({ devices }) => devices)?.devices ?? scheduler.hellos.at(-1)?.inventory;
      return told?.gpus.length === 2 && told.gpus.every(({ state }) => state === 'healthy');
    },
    30_000,
  );
  return {
    agent,
    deploy: async (gpuUuids) => {
      const code = agent.scheduler.addArchive(await zip({ 'app.py': SEEN }));
      return anAssignment({ code, gpuUuids: [...gpuUuids] });
    },
    answerOf: async (taskId, containerId) => {
      agent.scheduler.run(taskId, containerId, '{}');
      return JSON.parse((await agent.scheduler.resultOf(taskId)).whole.toString()) as unknown;
    },
  };
});

describe.skipIf(whyNoHosts !== undefined)('an engine that passes GPUs by itself', () => {
  test('gives each container its own device by CDI, which its runtime allows also after a change of limits; one that the specification lacks comes another way or fails as gpu_fault', async ({
    cdi: { host, specify },
    world: { agent, deploy, answerOf },
  }) => {
    const byCdi = await knowsCdi();
    const { scheduler } = agent;
    const [first, second, none] = await Promise.all([deploy([G[0]]), deploy([G[1]]), deploy([])]);
    scheduler.desire([first, second, none]);
    for (const one of [first, second, none]) await scheduler.phase(one.containerId, 'running');
    const [made] = await host.containers([`io.longshore.container=${first.containerId}`]);
    const facts = await host.docker.getContainer(made?.Id ?? '').inspect();
    expect(facts.HostConfig.DeviceRequests).toMatchObject([
      byCdi ? { Driver: 'cdi', DeviceIDs: [`nvidia.com/gpu=${G[0]}`] } : { Driver: 'nvidia', DeviceIDs: [G[0]] },
    ]);
    const listed = (uuid: string): string => `GPU 0: NVIDIA H100 80GB HBM3 (UUID: ${uuid})\n`;
    const devices = (...seen: string[]): string[] => (byCdi ? seen : ['absent', 'absent']);
    expect(await answerOf('t1', first.containerId)).toEqual({
      devices: devices('opened', 'absent'),
      visible: byCdi ? 'void' : G[0],
      listed: listed(G[0]),
    });
    expect(await answerOf('t2', second.containerId)).toMatchObject({
      devices: devices('absent', 'opened'),
      listed: listed(G[1]),
    });
    expect(await answerOf('t3', none.containerId)).toEqual({
      devices: ['absent', 'absent'],
      visible: 'void',
      listed: '',
    });
    // The runtime writes the device rules of a container anew when its limits change, as for a reload of systemd.
    await host.docker.getContainer(made?.Id ?? '').update({ PidsLimit: 2000 });
    expect(await answerOf('t4', first.containerId)).toMatchObject({ devices: devices('opened', 'absent') });

    // A driver upgrade, and a specification that was not written anew.
    scheduler.desire([{ ...second, stop: true, graceMs: 2000, stopReason: 'scaled_in' }, first, none]);
    await scheduler.phase(second.containerId, 'removed');
    specify([0]);
    const third = await deploy([G[1]]);
    scheduler.desire([first, none, third]);
    await scheduler.phase(third.containerId, 'running');
    expect(await answerOf('t5', third.containerId)).toMatchObject({ visible: G[1], listed: listed(G[1]) });
  });
});
