/**
 * `longshore agent check-gpu`, the acceptance test of a GPU host, on a real engine. The driver's tool, the hook and
 * systemd are stand-ins (test/helpers/gpus.ts); everything between them is the real thing. Each line of the report has
 * a test here or in test/unit/agent/gpu-check.test.ts.
 */
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import Docker from 'dockerode';
import { execa } from 'execa';
import { describe, expect, onTestFinished } from 'vitest';
import type { GpuReport, Line } from '../../agent/preflight/check-gpu/report.ts';
import { cdiEngine } from '../helpers/cdi-engine.ts';
import { FakeNvidia, aGpu, cudaDoes, gpuHost, gpuUuid } from '../helpers/gpus.ts';
import { SimulatedNetwork, whyNoHosts } from '../helpers/hosts/network.ts';
import type { SimulatedHost } from '../helpers/hosts/host.ts';
import { FakeRegistry } from '../helpers/registry.ts';
import { docker, tempDirectory, test as base, waitFor } from '../helpers/services.ts';

const [G0, G1] = [gpuUuid(0), gpuUuid(1)] as const;
const CLI = join(import.meta.dirname, '..', '..', 'cli', 'main.ts');

interface GpuHost {
  readonly host: SimulatedHost;
  readonly image: string;
}

interface Checked {
  readonly code: number;
  readonly said: string;
  readonly report: GpuReport;
  /** Lines of that check. */
  readonly of: (check: string) => readonly Line[];
}

/** A check that runs. */
interface Running {
  readonly kill: (signal: NodeJS.Signals) => void;
  /** Waits until it has that many containers. */
  readonly has: (count: number) => Promise<void>;
  /** @returns its exit code, and its report where it has written one */
  readonly ended: () => Promise<{
    readonly code: number;
    readonly said: string;
    readonly told: string;
    readonly report: GpuReport | undefined;
  }>;
}

interface World extends GpuHost {
  readonly nvidia: FakeNvidia;
  /** Begins a check; programs are found in the world's folder first. */
  readonly begin: (args?: readonly string[], env?: Readonly<Record<string, string>>, named?: string) => Running;
  /** Runs a check to its end; no container may remain. */
  readonly check: (args?: readonly string[], env?: Readonly<Record<string, string>>) => Promise<Checked>;
  /** Names of the containers of checks. */
  readonly left: () => Promise<string[]>;
  /** Puts a program into the folder. */
  readonly put: (name: string, script: string) => void;
}

const hostTest = base.extend('machine', { scope: 'file' }, async ({}, { onCleanup }): Promise<GpuHost> => {
  const { baseImage: image } = await docker();
  const network = await SimulatedNetwork.up(1, image, gpuHost);
  onCleanup(() => network.down());
  const [host] = network.hosts;
  if (host === undefined) throw new Error('no host');
  return { host, image };
});

const test = hostTest.extend('world', async ({ machine }, { onCleanup }): Promise<World> => {
  const directory = tempDirectory('check');
  const { host, image } = machine;
  onCleanup(() => {
    cudaDoes(host, {});
    directory.remove();
  });
  const nvidia = new FakeNvidia(directory.path, { gpus: [aGpu(0), aGpu(1)] });
  const put = (name: string, script: string): void =>
    writeFileSync(join(directory.path, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  put('journalctl', 'case "$*" in *grep*) exit 1 ;; *) echo line ;; esac');
  put('nvidia-ctk', 'echo "NVIDIA Container Toolkit CLI version 1.18.0"');
  const left = async (): Promise<string[]> => {
    const all = await host.docker.listContainers({ all: true });
    return all.flatMap(({ Names }) => Names.filter((name) => /check-gpu|c-probe/.test(name))).toSorted();
  };
  let count = 0;
  const begin: World['begin'] = (args = [], env = {}, named = image) => {
    const file = join(directory.path, `report-${(count += 1)}.json`);
    const child = execa(process.execPath, [CLI, 'agent', 'check-gpu', named, '--report', file, ...args], {
      env: {
        PATH: `${directory.path}${delimiter}${process.env['PATH'] ?? ''}`,
        LONGSHORE_NVIDIA_SMI: nvidia.tool,
        DOCKER_HOST: `unix://${host.socket}`,
        ...env,
      },
      reject: false,
    });
    return {
      kill: (signal) => void child.kill(signal),
      has: async (wanted) => {
        await waitFor(async () => (await left()).length === wanted, `there are ${wanted} containers of checks`, 30_000);
      },
      ended: async () => {
        const { exitCode, stdout, stderr } = await child;
        const report = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as GpuReport) : undefined;
        return { code: exitCode ?? -1, said: stdout, told: stderr, report };
      },
    };
  };
  return {
    host,
    image,
    nvidia,
    put,
    left,
    begin,
    check: async (args = [], env = {}) => {
      const { code, said, report } = await begin(args, env).ended();
      expect(await left()).toEqual([]);
      if (report === undefined) throw new Error(`no report: ${said}`);
      return { code, said, report, of: (check) => report.checks.filter((one) => one.check === check) };
    },
  };
});

/** The stand-in for systemctl: takes the device from every container that has one, as a reload does with the hook's. */
const takesDevices = (host: SimulatedHost): string =>
  `[ "$1" = daemon-reload ] || exit 0
for id in $(docker -H unix://${host.socket} ps -q); do
  docker -H unix://${host.socket} exec "$id" sh -c 'printf "#!/bin/sh\\necho Failed to initialize NVML: Unknown Error\\nexit 255\\n" > /usr/bin/nvidia-smi'
done`;

describe.skipIf(whyNoHosts !== undefined)('the acceptance test of a GPU host', () => {
  test('passes a host whose GPUs work, by the hook, and keeps a report', async ({ world: { check } }) => {
    const { code, said, report, of } = await check();
    expect(code, said).toBe(0);
    expect(report).toMatchObject({
      outcome: 'passed',
      versions: { driver: '580.126.09', toolkit: '1.18.0', docker: expect.stringMatching(/^\d/) as string },
      gpus: [{ uuid: G0, memoryMib: 81_559 }, { uuid: G1 }],
      host: { cores: expect.any(Number) as number },
    });
    expect(of('device').map(({ found }) => found)).toContainEqual(
      `GPU 1 ${G1}, NVIDIA H100 80GB HBM3 = H100, 81559 MiB, 0000:1c:00.0, driver 580.126.09`,
    );
    expect(of('gpu by hook')).toMatchObject([
      { level: 'ok', found: `a container was given ${G0} by NVIDIA's hook and sees it alone` },
      { level: 'ok', found: expect.stringContaining(G1) as string },
    ]);
    expect(of('cuda')).toMatchObject([
      { level: 'ok', found: expect.stringContaining(`worked on ${G0}, by NVIDIA's hook`) as string },
      { level: 'ok', found: expect.stringContaining(G1) as string },
    ]);
    expect(of('gpu by cdi')).toMatchObject([{ level: 'skipped' }]);
    expect(of('mig')).toMatchObject([{ found: 'off' }]);
    expect(of('daemon-reload')).toMatchObject([
      { level: 'skipped', found: expect.stringContaining('--reload') as string },
    ]);
    expect(said).toMatch(/This host serves its GPUs \(.*2 not tried\)\.$/);
  });

  test('tries both ways where the host has both, and says which one does not work', async ({
    world: { check, host },
  }) => {
    const engine = await cdiEngine(host.socket);
    onTestFinished(() => engine.close());
    [engine.listed, engine.known, engine.hasHook] = [[G0, G1], [G0, G1], true];
    const both = await check([], { DOCKER_HOST: engine.host });
    expect(both.code, both.said).toBe(0);
    expect(both.of('gpu by cdi').map(({ level }) => level)).toEqual(['ok', 'ok']);
    expect(both.of('gpu by hook').map(({ level }) => level)).toEqual(['ok']);
    expect(both.of('cuda').map(({ level }) => level)).toEqual(['ok', 'ok', 'ok']);
    expect(engine.drivers).toEqual(['cdi', 'cdi', 'nvidia', 'nvidia', 'cdi', 'cdi']);

    engine.known = [G1];
    const stale = await check([], { DOCKER_HOST: engine.host });
    expect(stale.code).toBe(1);
    expect(stale.of('gpu by cdi')[0]).toMatchObject({
      level: 'failed',
      found: expect.stringContaining('unresolvable CDI devices') as string,
      remedy: expect.stringContaining('nvidia-ctk cdi generate') as string,
    });
    expect(stale.said).toContain('FAILED: this host does not serve GPUs as it is.');
  });

  test('fails an engine without the toolkit, a driver that hangs or was upgraded, and has a code of its own for no GPU', async ({
    world: { check, nvidia },
  }) => {
    const bare = await check([], { DOCKER_HOST: process.env['DOCKER_HOST'] ?? '' });
    expect(bare.code).toBe(1);
    expect(bare.of('gpu by hook')[0]).toMatchObject({
      found: expect.stringContaining('could not select device driver') as string,
      remedy: expect.stringContaining('nvidia-ctk runtime configure') as string,
    });
    const away = await check([], { DOCKER_HOST: 'unix:///nowhere/docker.sock' });
    expect(away).toMatchObject({ code: 1 });
    expect(away.of('engine')[0]).toMatchObject({
      level: 'failed',
      remedy: expect.stringContaining('start Docker') as string,
    });
    nvidia.is({ fail: { exitCode: 18, stdout: 'Failed to initialize NVML: Driver/library version mismatch\n' } });
    const upgraded = await check();
    expect(upgraded.code).toBe(1);
    expect(upgraded.of('driver')[0]).toMatchObject({
      level: 'failed',
      remedy: expect.stringContaining('reboot') as string,
    });
    const none = await check([], { LONGSHORE_NVIDIA_SMI: '/nowhere/nvidia-smi' });
    expect(none.code).toBe(4);
    expect(none.said).toContain('NO GPU HERE');
    expect(none.report).toMatchObject({ outcome: 'no_gpu', gpus: [] });
  });

  test('fails a host on which CUDA programs fail, by whose fault it is', async ({ world: { check, host } }) => {
    cudaDoes(host, { [G0]: 'init 802', [G1]: 'corrupt' });
    const { code, of } = await check();
    expect(code).toBe(1);
    expect(of('gpu by hook').map(({ level }) => level)).toEqual(['ok', 'ok']);
    expect(of('cuda')).toMatchObject([
      {
        level: 'failed',
        found: expect.stringMatching(/802.*nvidia-fabricmanager/) as string,
        remedy: expect.stringContaining('no device is at fault') as string,
      },
      {
        level: 'failed',
        found: expect.stringContaining('data came back wrong') as string,
        remedy: expect.stringContaining('--gpu-reset') as string,
      },
    ]);
  });

  test('looks at MIG, at what the driver asks for, at the kernel log and at the condition', async ({
    world: { check, nvidia, put },
  }) => {
    const slice = 'MIG-a686709d-6dc2-542a-8851-0d2508448c10';
    nvidia.is({
      gpus: [
        aGpu(0, { 'mig.mode.current': 'Enabled', slices: [{ profile: '1g.10gb', uuid: slice }] }),
        aGpu(1, { gpu_recovery_action: 'Reset', persistence_mode: 'Disabled' }),
      ],
    });
    put(
      'journalctl',
      'case "$*" in *grep*) echo "NVRM: Xid (PCI:0000:1c:00): 79, pid=1, GPU has fallen off the bus." ;; *) echo line ;; esac',
    );
    const { code, of } = await check();
    expect(code).toBe(1);
    expect(of('device')[1]).toMatchObject({ level: 'failed', found: expect.stringContaining('(Reset)') as string });
    expect(of('xid')).toMatchObject([
      { level: 'warning', found: expect.stringContaining('Xid 79 of 0000:1c:00.0') as string },
    ]);
    expect(of('gpu persistence')).toMatchObject([{ level: 'warning' }]);
    expect(of('mig')[0]).toMatchObject({ level: 'ok', found: '1 slices (1g.10gb) of 1 devices' });
    expect(of('gpu by hook')[0]).toMatchObject({ level: 'ok', found: expect.stringContaining(slice) as string });
    nvidia.is({ gpus: [aGpu(0, { 'mig.mode.current': 'Enabled' })] });
    const empty = await check();
    expect(empty.of('mig')[0]).toMatchObject({
      level: 'warning',
      remedy: expect.stringContaining('mig -cgi') as string,
    });
  });

  test('leaves GPUs alone that somebody uses, and refuses to reload systemd then', async ({
    world: { check, host, image, put, nvidia },
  }) => {
    put('systemctl', takesDevices(host));
    nvidia.is({ processes: [{ gpu_uuid: G1, pid: 4242 }] });
    const theirs = await host.docker.createContainer({
      Image: image,
      name: 'somebodys',
      Cmd: ['sleep', '600'],
      HostConfig: { DeviceRequests: [{ Driver: 'nvidia', DeviceIDs: [G0], Capabilities: [['gpu']] }] },
    });
    onTestFinished(() => theirs.remove({ force: true }));
    await theirs.start();
    const { code, of } = await check(['--reload']);
    expect(code).toBe(1);
    expect(of('gpu in use').map(({ found }) => found)).toEqual([
      `${G0} is not tried: container somebodys has it`,
      `${G1} is not tried: a process uses it`,
      'no GPU was free to be tried',
    ]);
    expect(of('daemon-reload')).toMatchObject([
      { level: 'failed', found: expect.stringMatching(/^refused: container somebodys/) as string },
    ]);
    // systemd was not reloaded.
    const exec = await theirs.exec({ Cmd: ['nvidia-smi', '-L'], AttachStdout: true });
    await exec.start({});
    const state = await waitFor(async () => {
      const now = await exec.inspect();
      return !now.Running && now;
    }, 'nvidia-smi has ended in it');
    expect(state.ExitCode).toBe(0);
  });

  test('says by which way containers keep their GPUs when systemd reads its units anew', async ({
    world: { check, host, put },
  }) => {
    put('systemctl', 'exit 0');
    const kept = await check(['--reload'], { LONGSHORE_EXCLUDED_GPUS: G0 });
    expect(kept.of('gpu by hook').map(({ found }) => found)).toEqual([expect.stringContaining(G1)]);
    expect(kept.code, kept.said).toBe(0);
    expect(kept.of('daemon-reload')).toMatchObject([
      { level: 'ok', found: expect.stringContaining('keeps it') as string },
    ]);
    put('systemctl', takesDevices(host));
    const lost = await check(['--reload']);
    expect(lost.code).toBe(1);
    expect(lost.of('daemon-reload')).toMatchObject([
      {
        level: 'failed',
        found: expect.stringContaining('NVML: Unknown Error') as string,
        remedy: expect.stringContaining('CDI') as string,
      },
    ]);
    put('systemctl', 'echo "Failed to connect to bus" >&2; exit 1');
    expect((await check(['--reload'])).of('daemon-reload')).toMatchObject([
      { level: 'failed', found: 'systemctl daemon-reload: Failed to connect to bus' },
    ]);
  });

  test('keeps its report when a reload ends the containers that it looks at, and when the engine fails', async ({
    world: { check, host, put },
  }) => {
    const engine = `docker -H unix://${host.socket}`;
    put('systemctl', `[ "$1" = daemon-reload ] || exit 0\n${engine} kill $(${engine} ps -q)`);
    const ended = await check(['--reload']);
    expect(ended.code).toBe(1);
    expect(ended.of('cuda').map(({ level }) => level)).toEqual(['ok', 'ok']);
    expect(ended.of('daemon-reload')).toMatchObject([
      { level: 'failed', found: expect.stringMatching(/by NVIDIA's hook loses it: .*not running/) as string },
    ]);

    const behind = await cdiEngine(host.socket);
    onTestFinished(() => behind.close());
    behind.hasHook = true;
    behind.refuses = /^\/containers\/json/;
    const refused = await check([], { DOCKER_HOST: behind.host });
    expect(refused.code).toBe(1);
    expect(refused.of('driver')).toEqual([]);
    expect(refused.of('device').map(({ level }) => level)).toEqual(['ok', 'ok']);
    expect(refused.of('containers')[0]).toMatchObject({
      level: 'failed',
      found: expect.stringContaining('the engine is not well') as string,
      remedy: expect.stringContaining('systemctl status docker') as string,
    });
  });

  test.for(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)(
    'removes its containers at %s, and tells what it had seen',
    async (signal, { world: { begin, left, host } }) => {
      cudaDoes(host, { [G0]: 'hang init' });
      const running = begin();
      await running.has(2);
      running.kill(signal);
      const { code, said, report } = await running.ended();
      expect(await left()).toEqual([]);
      expect(code).toBe(130);
      expect(said).toMatch(/INTERRUPTED: .*/);
      expect(report).toMatchObject({ outcome: 'interrupted', exitCode: 130, gpus: [{ uuid: G0 }, { uuid: G1 }] });
      expect(report?.checks.at(-1)).toMatchObject({ level: 'ok', check: 'gpu by hook' });
    },
  );

  test('pulls the image that its containers run, and says once that it cannot', async ({ world: { begin } }) => {
    const registry = new FakeRegistry();
    await registry.start('127.0.0.1');
    onTestFinished(() => registry.stop());
    const engine = process.env['DOCKER_HOST'] ?? '';
    const { reference } = registry.add('checked');
    const pulled = await begin([], { DOCKER_HOST: engine }, reference).ended();
    await new Docker().getImage(reference).remove();
    const of = (report: GpuReport | undefined, check: string) => report?.checks.filter((one) => one.check === check);
    expect(of(pulled.report, 'image')).toMatchObject([
      { level: 'ok', found: expect.stringContaining(reference) as string },
    ]);
    expect(of(pulled.report, 'gpu by hook')).not.toEqual([]);

    const missing = await begin([], { DOCKER_HOST: engine }, `${registry.host}/nobody-has:1`).ended();
    expect(missing.code).toBe(1);
    expect(of(missing.report, 'image')).toMatchObject([
      {
        level: 'failed',
        found: expect.stringMatching(
          /nobody-has:1 is not here, and cannot be pulled: .*(?:manifest|not found)/,
        ) as string,
      },
    ]);
    expect(of(missing.report, 'gpu by hook')).toEqual([]);
  });

  test('says before it starts that the report cannot be written', async ({ world: { begin, nvidia } }) => {
    const { code, told } = await begin(['--report', '/nowhere/report.json']).ended();
    expect(code).toBe(1);
    expect(told).toMatch(
      /^longshore: the report cannot be written: ENOENT.*'\/nowhere\/report.json'; name another file.*$/,
    );
    expect(readFileSync(nvidia.calls, 'utf8')).toBe('');
  });

  test('prints a report that it cannot write', async ({ world: { begin } }) => {
    const { code, said, told } = await begin(['--report', '/dev/full'], { LONGSHORE_NVIDIA_SMI: '/nowhere' }).ended();
    expect(said).toContain('NO GPU HERE');
    expect(told).toMatch(/^longshore: the report could not be written: ENOSPC[^\n]*$/);
    expect(code).toBe(1);
  });

  test('ends at an interrupt while the driver does not answer', async ({ world: { begin, nvidia } }) => {
    nvidia.is({ hang: true });
    const running = begin();
    await waitFor(() => readFileSync(nvidia.calls, 'utf8') !== '', 'the tool is asked', 30_000);
    running.kill('SIGTERM');
    const { code, report } = await running.ended();
    expect(code).toBe(130);
    expect(report).toMatchObject({ outcome: 'interrupted', checks: [] });
    expect(report?.seconds).toBeLessThan(20);
  });

  test('removes what a check that was killed has left, and nothing of one that runs', async ({
    world: { begin, left, host },
  }) => {
    cudaDoes(host, { [G0]: 'hang init', [G1]: 'hang init' });
    const runs = begin();
    await runs.has(2);
    const own = await left();
    const killed = begin();
    await killed.has(4);
    killed.kill('SIGKILL');
    await killed.ended();
    expect(await left()).toHaveLength(4);

    const next = await begin([], { LONGSHORE_EXCLUDED_GPUS: G1 }).ended();
    expect(next.report?.checks.filter(({ check }) => check === 'containers')).toMatchObject([
      { level: 'ok', found: '2 of an earlier check, which was killed, are removed' },
    ]);
    expect(next.report?.checks.filter(({ check }) => check === 'gpu in use')[0]).toMatchObject({
      found: expect.stringMatching(
        new RegExp(`^${G0} is not tried: container (longshore-check-gpu|c-probe)-`),
      ) as string,
    });
    expect(await left()).toEqual(own);
    runs.kill('SIGINT');
    await runs.ended();
    expect(await left()).toEqual([]);
  });
});
