// Orders of an operator about a GPU: exclude, return, reset, forget. Other devices and the place in the log stay.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { resetByUnit } from '../../../agent/devices/reset-unit.ts';
import { GpuHost } from '../../helpers/gpu-host.ts';
import type { FakeGpu } from '../../helpers/gpus.ts';
import { aGpu, gpuUuid } from '../../helpers/gpus.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const [G0, G1] = [gpuUuid(0), gpuUuid(1)];
const BOTH = [aGpu(0), aGpu(1)];

async function host(gpus: readonly FakeGpu[] = BOTH): Promise<GpuHost> {
  const made = new GpuHost({ gpus });
  onTestFinished(() => made.close());
  await made.start();
  await vi.waitFor(() => expect(Object.values(made.states()).every((state) => state === 'healthy')).toBe(true));
  return made;
}

describe('a GPU that an operator excludes', () => {
  test('is given to nobody over restarts and boots, until it is returned and a probe has passed', async () => {
    const one = await host();
    await one.gpus.order(G0, 'exclude');
    expect(one.gpus.report()[0]).toMatchObject({ state: 'excluded', unhealthy: true, why: 'an operator keeps it out' });
    expect(await one.runs('c0', G0)).toContain('is excluded');
    expect(await one.runs('c1', G1)).toBeUndefined();
    expect(one.conditions.names).not.toContain('GpuDegraded');
    expect(await one.page()).toContain(`gpu_state{gpu_uuid="${G0}",gpu_model="H100",state="excluded"} 1`);
    await one.start();
    expect(one.states()[G0]).toBe('excluded');
    await one.boot();
    await one.are({ [G0]: 'excluded', [G1]: 'healthy' });
    const probed: string[] = [];
    one.probe = (uuid) => {
      probed.push(uuid);
      return Promise.resolve({ kind: 'passed', text: '' });
    };
    await one.looks();
    expect(probed).toEqual([]);
    await one.gpus.order(G0, 'return');
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    expect(probed).toEqual([G0]);
  });

  test('lets its container run on, and goes out of use when that ends', async () => {
    const one = await host();
    await one.runs('c0', G0);
    await one.gpus.order(G0, 'exclude');
    expect(one.faults).toEqual([]);
    await one.gpus.order(G0, 'return');
    expect(one.states()[G0]).toBe('healthy');
    await one.gpus.order(G0, 'exclude');
    await one.ends('c0');
    await one.looks();
    expect(one.states()).toEqual({ [G0]: 'excluded', [G1]: 'healthy' });
  });

  test('that is broken does not hold its machine back', async () => {
    const one = await host();
    one.nvidia.xid(0, 79);
    one.nvidia.xid(1, 79);
    await one.are({ [G0]: 'unhealthy', [G1]: 'unhealthy' });
    expect(one.conditions.names).toContain('SuspectHost');
    await one.gpus.order(G0, 'exclude');
    expect(one.conditions.names).not.toContain('SuspectHost');
  });
});

describe('after a fatal error on a driver that tells no recovery', () => {
  test('a return brings the device back by a probe, and one that fails it stays out', async () => {
    const one = await host();
    one.nvidia.is({ unknownFields: ['gpu_recovery_action'] });
    await one.start();
    one.nvidia.xid(0, 48);
    await one.are({ [G0]: 'unhealthy', [G1]: 'healthy' });
    one.probe = () => Promise.resolve({ kind: 'failed', text: 'wrong data' });
    await one.gpus.order(G0, 'return');
    await vi.waitFor(() => expect(one.gpus.report()[0]?.why).toBe('probe_failed: wrong data'));
    one.probe = () => Promise.resolve({ kind: 'passed', text: '' });
    await one.gpus.order(G0, 'return');
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
  });

  test('the place in the log stays: an error that was taken in does not come again', async () => {
    const one = await host();
    one.nvidia.xid(0, 48);
    await one.are({ [G0]: 'unhealthy', [G1]: 'healthy' });
    await one.gpus.order(G0, 'return');
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    await one.start();
    await one.looks();
    expect(one.states()).toEqual({ [G0]: 'healthy', [G1]: 'healthy' });
  });
});

describe('a return is refused', () => {
  test('while the driver asks for a recovery', async () => {
    const one = await host();
    one.nvidia.is({ gpus: [aGpu(0, { gpu_recovery_action: 'Reset' }), aGpu(1)] });
    await one.are({ [G0]: 'unhealthy', [G1]: 'healthy' });
    await expect(one.gpus.order(G0, 'return')).rejects.toThrow('needs its recovery first');
  });

  test('of a lost device, of an unknown one, and of one that a process is left on', async () => {
    const one = await host();
    await expect(one.gpus.order(gpuUuid(7), 'return')).rejects.toThrow(`this machine knows no GPU ${gpuUuid(7)}`);
    await one.runs('c0', G0);
    one.nvidia.is({ processes: [{ gpu_uuid: G0, pid: 4_194_000 }] });
    await one.ends('c0');
    await expect(one.gpus.order(G0, 'return')).rejects.toThrow('it returns when no process is left on it');
    one.nvidia.is({ gpus: [aGpu(1)] });
    await one.are({ [G0]: 'lost', [G1]: 'healthy' });
    await expect(one.gpus.order(G0, 'return')).rejects.toThrow('is lost');
  });
});

describe('a reset', () => {
  test('happens while nothing uses the device, stops the looks meanwhile, and a probe follows', async () => {
    const one = await host();
    one.nvidia.xid(0, 48);
    await one.are({ [G0]: 'unhealthy', [G1]: 'healthy' });
    await one.runs('c1', G1);
    const resets: string[] = [];
    let done = (): void => undefined;
    one.reset = ({ uuid, busId }) =>
      new Promise((resolve) => {
        resets.push(`${uuid} ${busId}`);
        done = resolve;
      });
    const told: unknown[] = [];
    one.gpus.onChange(() => told.push(one.gpus.report()[0]?.why));
    const ordered = one.gpus.order(G0, 'reset');
    await vi.waitFor(() => expect(resets).toEqual([`${G0} 0000:1b:00.0`]));
    expect(told).toContain('an operator resets it');
    await expect(one.gpus.order(G0, 'reset')).rejects.toThrow('is being reset');
    const asked = one.asked.length;
    for (let turns = 0; turns < 50; turns += 1) await new Promise((resolve) => setImmediate(resolve));
    expect(one.asked.length - asked).toBeLessThan(10);
    done();
    await ordered;
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    expect(one.faults).toEqual([]);
  });

  test('that fails leaves a broken device as it was, and has a sound one probed', async () => {
    const one = await host();
    one.reset = () => Promise.reject(new Error('in use by another client'));
    one.nvidia.xid(0, 48, 'DBE');
    await one.are({ [G0]: 'unhealthy', [G1]: 'healthy' });
    await expect(one.gpus.order(G0, 'reset')).rejects.toThrow(`GPU ${G0} was not reset: in use by another client`);
    await expect(one.gpus.order(G1, 'reset')).rejects.toThrow('was not reset');
    await one.are({ [G0]: 'unhealthy', [G1]: 'healthy' });
    expect(one.gpus.report()[0]?.why).toBe('Xid 48: DBE');
  });

  test('is refused while a container has the device, a slice of it, or a GPU of its NVLink fabric', async () => {
    const one = await host([aGpu(0, { 'fabric.state': 'Completed' }), aGpu(1, { 'fabric.state': 'Completed' })]);
    await one.runs('c1', G1);
    await expect(one.gpus.order(G1, 'reset')).rejects.toThrow(`uses GPU ${G1}`);
    await expect(one.gpus.order(G0, 'reset')).rejects.toThrow(/uses GPU \S+1 \(GPUs on one NVLink fabric/);
    await one.ends('c1');
    await one.gpus.order(G0, 'reset');
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
  });
});

test('a lost device is forgotten with its condition and its series; one that is there is not', async () => {
  const one = await host();
  await expect(one.gpus.order(G0, 'forget')).rejects.toThrow('is healthy: only a lost one');
  one.nvidia.is({ gpus: [aGpu(0)] });
  await one.are({ [G0]: 'healthy', [G1]: 'lost' });
  expect(one.conditions.names).toContain('GpuDegraded');
  await one.gpus.order(G1, 'forget');
  expect(one.states()).toEqual({ [G0]: 'healthy' });
  expect(one.conditions.names).not.toContain('GpuDegraded');
  expect((await one.page()).includes(`gpu_state{gpu_uuid="${G1}"`)).toBe(false);
  await one.boot();
  await one.are({ [G0]: 'healthy' });
});

describe('the unit that resets', () => {
  const uuid = gpuUuid(3);
  const request = (folder: string): string => join(folder, 'gpu-reset', 'request');

  test.each([
    ['0\n', undefined],
    ['4 In use by another client\n', 'In use by another client'],
  ])('answers %j', async (said, failure) => {
    const folder = tempDirectory('reset');
    onTestFinished(() => folder.remove());
    const reset = resetByUnit(folder.path, { uuid, busId: '0000:1e:00.0' });
    const ended = expect(reset)[failure === undefined ? 'resolves' : 'rejects'];
    const checked = failure === undefined ? ended.toBeUndefined() : ended.toThrow(failure);
    await vi.waitFor(() => expect(existsSync(request(folder.path))).toBe(true));
    expect(readFileSync(request(folder.path), 'utf8')).toBe(`${uuid} 0000:1e:00.0\n`);
    rmSync(request(folder.path));
    writeFileSync(join(folder.path, 'gpu-reset', 'answer'), said);
    await checked;
  });

  test.each([
    ['resets by the tool', 'exit 0', '', '0', ['--gpu-reset', '-i', uuid]],
    ['tries again, and passes on the words', 'echo In use; exit 19', '', '19 In use', ['--gpu-reset', '-i', uuid]],
    ['has a program of the operator do it', 'exit 0', 'own', '0', [uuid, '0000:1e:00.0']],
  ])('%s', (_case, does, own, answer, args) => {
    const unit = readFileSync(join(import.meta.dirname, '../../../systemd/longshore-gpu-reset.service'), 'utf8');
    // Only systemd doubles the sign.
    const script = (/^ExecStart=\/bin\/sh -c '(.*)'$/m.exec(unit)?.[1] ?? '')
      .replaceAll('$$', () => '$')
      .replace('sleep 3', ':');
    const folder = tempDirectory('reset');
    onTestFinished(() => folder.remove());
    const program = join(folder.path, own === '' ? 'nvidia-smi' : own);
    const text = `#!/bin/sh\necho "$@" >'${join(folder.path, 'args')}'\n${does}\n`;
    writeFileSync(program, text, { mode: 0o755 });
    writeFileSync(join(folder.path, 'request'), `${uuid} 0000:1e:00.0\n`);
    const env = { PATH: `${folder.path}:/usr/bin:/bin`, ...(own === '' ? {} : { LONGSHORE_GPU_RESET: program }) };
    execFileSync('/bin/sh', ['-c', script], { cwd: folder.path, env });
    expect(readFileSync(join(folder.path, 'answer'), 'utf8')).toBe(`${answer}\n`);
    expect(readFileSync(join(folder.path, 'args'), 'utf8').trim().split(' ')).toEqual(args);
    expect(existsSync(join(folder.path, 'request'))).toBe(false);
  });

  test('that is not installed is named, with the command', async () => {
    const folder = tempDirectory('reset');
    onTestFinished(() => folder.remove());
    const times = { takenMs: 1, resetMs: 1000 };
    await expect(resetByUnit(folder.path, { uuid, busId: '' }, times)).rejects.toThrow(
      'enable longshore-gpu-reset.path',
    );
    expect(existsSync(request(folder.path))).toBe(false);
  });
});
