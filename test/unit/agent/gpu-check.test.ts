// The judgements of a GPU host's acceptance test that need no host.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { gpusInUse } from '../../../agent/containers/engine/options.ts';
import { viewProblem } from '../../../agent/preflight/check-gpu/container.ts';
import { mountedGpus, reloadRefusal } from '../../../agent/preflight/check-gpu/reload.ts';
import { line, outcomeOf, reportText } from '../../../agent/preflight/check-gpu/report.ts';
import type { GpuReport } from '../../../agent/preflight/check-gpu/report.ts';
import { gpuUuid } from '../../helpers/gpus.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const REPORT: GpuReport = {
  outcome: 'passed',
  exitCode: 0,
  startedAt: '2026-11-23T08:00:00.000Z',
  seconds: 12.34,
  host: { name: 'gpu-7', system: 'Ubuntu 24.04', kernel: '6.8.0', processor: 'EPYC', cores: 192, memoryBytes: 2 ** 41 },
  versions: {
    longshore: '0.1.0',
    driver: '580.126.09',
    docker: '29.7.2',
    containerd: '',
    runc: '1.3.6',
    toolkit: '1.18.0',
  },
  gpus: [],
  checks: [
    line('ok', 'engine', 'Docker 29.7.2'),
    line('warning', 'gpu persistence', 'off', 'turn it on'),
    line('skipped', 'daemon-reload', 'not tried'),
  ],
};

test('a report begins with the host and ends with the verdict, each remedy below its line', () => {
  expect(reportText(REPORT).split('\n')).toEqual([
    'gpu-7: Ubuntu 24.04, Linux 6.8.0, 192 x EPYC, 2048 GiB',
    'longshore 0.1.0, driver 580.126.09, docker 29.7.2, runc 1.3.6, toolkit 1.18.0',
    '2026-11-23T08:00:00.000Z, 12.3 s',
    '',
    'ok       engine           Docker 29.7.2',
    'WARNING  gpu persistence  off',
    '                          -> turn it on',
    'skipped  daemon-reload    not tried',
    '',
    'This host serves its GPUs (1 warning, 1 not tried).',
  ]);
  expect(reportText({ ...REPORT, outcome: 'no_gpu' })).toMatch(/NO GPU HERE: nothing was checked \(exit code 4\)/);
});

test('one failure fails the host, warnings do not, and a host without a GPU has a code of its own', () => {
  const bad = line('failed', 'engine', 'away');
  expect(outcomeOf(REPORT.checks, { hasGpus: true, interrupted: false })).toEqual({ outcome: 'passed', exitCode: 0 });
  expect(outcomeOf([...REPORT.checks, bad], { hasGpus: true, interrupted: false })).toEqual({
    outcome: 'failed',
    exitCode: 1,
  });
  expect(outcomeOf(REPORT.checks, { hasGpus: false, interrupted: false })).toEqual({ outcome: 'no_gpu', exitCode: 4 });
});

describe("a container's view of its device", () => {
  const uuid = gpuUuid(0);
  const seen = { exitCode: 0, output: `GPU 0: NVIDIA H100 (UUID: ${uuid})` };
  const missing = { exitCode: 127, output: 'exec: "nvidia-smi": executable file not found in $PATH' };
  const view = { uuid, driver: 'cdi', passed: uuid, said: seen, elsewhere: undefined } as const;

  test('is right where it sees the device, and no other', () => {
    expect(viewProblem(view)).toBeUndefined();
    const both = { ...seen, output: `${seen.output}\nGPU 1: NVIDIA H100 (UUID: ${gpuUuid(1)})` };
    expect(viewProblem({ ...view, said: both })?.found).toBe(`the container sees ${gpuUuid(1)}, too`);
    expect(viewProblem({ ...view, passed: '' })?.found).toContain('passes nothing');
  });

  test("of a driver below /usr/local/nvidia: the remedy is the image's PATH", () => {
    for (const driver of ['cdi', 'nvidia'] as const) {
      const problem = viewProblem({ ...view, driver, said: missing, elsewhere: seen });
      expect(problem).toMatchObject({ isWithoutHook: false });
      expect(problem?.found).toContain('/usr/local/nvidia/bin');
      expect(problem?.step).toContain('ENV PATH=$PATH:/usr/local/nvidia/bin');
    }
  });

  test('without anything of the driver is the missing hook, where the hook was asked', () => {
    const nothing = { ...view, said: missing, elsewhere: missing };
    expect(viewProblem({ ...nothing, driver: 'nvidia' })).toMatchObject({
      found: expect.stringContaining("NVIDIA's hook is not installed") as string,
      step: expect.stringContaining('nvidia-ctk runtime configure') as string,
      isWithoutHook: true,
    });
    expect(viewProblem(nothing)).toMatchObject({
      found: expect.stringContaining('executable file not found') as string,
      step: expect.stringContaining('nvidia-ctk cdi generate') as string,
      isWithoutHook: false,
    });
  });
});

describe('a reload is refused', () => {
  test('while a container of Docker has a GPU, by any way of asking for one', () => {
    const uuid = gpuUuid(0);
    const of = (HostConfig: Parameters<typeof gpusInUse>[0]['HostConfig'], Env: string[] = []) =>
      gpusInUse({ Config: { Env }, HostConfig });
    expect(of({})).toEqual([]);
    expect(of({ DeviceRequests: [{ Driver: 'nvidia', DeviceIDs: [uuid], Capabilities: [['gpu']] }] })).toEqual([uuid]);
    expect(of({ DeviceRequests: [{ Driver: 'cdi', DeviceIDs: [`nvidia.com/gpu=${uuid}`] }] })).toEqual([uuid]);
    expect(of({ DeviceRequests: [{ Driver: 'cdi', DeviceIDs: ['nvidia.com/gpu=all'] }] })).toBe('all');
    expect(of({ DeviceRequests: [{ Driver: '', Count: -1, Capabilities: [['gpu']] }] })).toBe('all');
    expect(of({ DeviceRequests: [{ Driver: 'nvidia', DeviceIDs: ['0'], Capabilities: [['gpu']] }] })).toBe('all');
    expect(of({ DeviceRequests: [{ Driver: 'cdi', DeviceIDs: ['vendor.test/nic=0'] }] })).toEqual([]);
    expect(of({ Devices: [{ PathOnHost: '/dev/nvidia0' }] })).toBe('all');
    expect(of({ Runtime: 'nvidia' }, [`NVIDIA_VISIBLE_DEVICES=${uuid}`])).toEqual([uuid]);
    expect(of({ Runtime: 'nvidia' }, ['NVIDIA_VISIBLE_DEVICES=all'])).toBe('all');
    expect(of({ Runtime: 'nvidia' }, ['NVIDIA_VISIBLE_DEVICES=void'])).toEqual([]);
    expect(of({ Runtime: 'runc' }, ['NVIDIA_VISIBLE_DEVICES=all'])).toEqual([]);
    const refused = reloadRefusal([{ dockerId: 'd1', name: 'theirs', uuids: 'all' }], []);
    expect(refused).toMatchObject({ level: 'failed', found: expect.stringContaining('container theirs') as string });
  });

  test('while a container of another engine has one, which its mounts tell', async () => {
    const root = tempDirectory('mounts');
    const process = (pid: string, mounts: string): void => {
      mkdirSync(join(root.path, 'proc', pid), { recursive: true });
      writeFileSync(join(root.path, 'proc', pid, 'mountinfo'), mounts);
    };
    process('1', '22 1 0:21 / /dev rw - devtmpfs udev rw\n');
    process('300', '901 880 0:5 /nvidia-modeset /dev/nvidia-modeset ro - devtmpfs udev rw\n');
    expect(await mountedGpus(root.path)).toEqual([]);
    process('400', '902 880 0:5 /nvidia0 /dev/nvidia0 ro,nosuid - devtmpfs udev rw\n');
    expect(await mountedGpus(root.path)).toEqual([400]);
    root.remove();
    expect(reloadRefusal([], [400])).toMatchObject({ found: expect.stringContaining('process 400') as string });
    expect(reloadRefusal([], [])).toBeUndefined();
  });
});
