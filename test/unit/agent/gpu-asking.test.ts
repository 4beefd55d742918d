import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { createLog } from '#shared/log.ts';
import { Gpus } from '../../../agent/devices/gpus.ts';
import { NvidiaSmi } from '../../../agent/devices/nvidia-smi.ts';
import { AgentMetrics } from '../../../agent/telemetry/metrics.ts';

test('a container where the GPU tool hangs is asked ever more seldom: each question leaves a process in it', async () => {
  const stateDir = await mkdtemp(join(tmpdir(), 'lsg-'));
  let rounds = 0;
  let asked = 0;
  const gpus = new Gpus({
    smi: new NvidiaSmi(join(stateDir, 'no-such-tool')),
    stateDir,
    bootId: 'boot',
    excluded: [],
    kernelLog: join(stateDir, 'no-such-log'),
    probeEveryMs: 2,
    metrics: new AgentMetrics(),
    log: createLog({ name: 'test', level: 'silent' }),
    holders: () => [],
    running: () => {
      rounds += 1;
      return [{ containerId: 'c1', dockerId: 'd1' }];
    },
    askInside: () => {
      asked += 1;
      return Promise.reject(new Error('no answer'));
    },
    conditions: { set: () => undefined },
    onChange: () => undefined,
    onFault: () => undefined,
    onNote: () => undefined,
  });
  await gpus.open();
  gpus.start();
  await vi.waitFor(() => expect(rounds).toBeGreaterThan(40), { timeout: 20_000 });
  await gpus.stop();
  expect(asked).toBeGreaterThan(2);
  expect(asked).toBeLessThan(10);
  await rm(stateDir, { recursive: true });
});
