import { expect, test } from 'vitest';
import { gpuSupply, modelsHereText } from '../../../scheduler/workspaces/deployments/gpu-supply.ts';

const shared = (gpuModels: readonly string[], freeGpuCount: number) => ({
  poolName: 'default',
  isOwn: false,
  requiresPoolSelector: false,
  gpus: gpuModels.map((model) => ({ model, memoryBytes: 40 * 1024 ** 3 })),
  gpuDriver: '550.1',
  freeGpuCount,
});

test.each([
  ['free', ['H100'], 1, [shared(['H100'], 1)], 'available', []],
  ['fewer free than asked for', ['H100'], 2, [shared(['H100'], 1)], 'low', []],
  ['all in use', ['H100'], 1, [shared(['H100'], 0)], 'low', []],
  ['others only', ['H100', 'T4'], 1, [shared(['L4'], 4)], 'none', ['H100', 'T4']],
  ['the second choice', ['H100', 'T4'], 1, [shared(['T4'], 1)], 'available', ['H100']],
  ['any', ['any'], 1, [shared(['L4'], 1)], 'available', []],
  ['a size of what was asked for', ['A100'], 1, [shared(['A100-80'], 1)], 'available', []],
  ['a condition that is met', ['any:>=40GiB:driver>=550'], 1, [shared(['L4'], 1)], 'available', []],
  ['conditions that are not', ['L4:>=80GiB', 'any:cc>=9'], 1, [shared(['L4'], 1)], 'none', ['L4:>=80GiB', 'any:cc>=9']],
  ['no machine', ['any'], 1, [], 'none', []],
] as const)('%s', (_name, wanted, count, machines, status, missing) => {
  expect(gpuSupply(wanted, count, machines)).toMatchObject({ status, missing, privatePool: '' });
});

test("a pool of the workspace's own is named", () => {
  const machines = [shared(['T4'], 1), { ...shared(['T4'], 0), poolName: 'mine', isOwn: true }];
  expect(gpuSupply(['T4'], 1, machines)).toMatchObject({ status: 'available', privatePool: 'mine' });
});

test('a pool counts that is named, and one that must be named only then', () => {
  const machines = [{ ...shared(['T4'], 1), poolName: 'gpu', requiresPoolSelector: true }];
  expect(gpuSupply(['T4'], 1, machines)).toMatchObject({ status: 'none', missing: ['T4'] });
  expect(gpuSupply(['T4'], 1, machines, 'gpu')).toMatchObject({ status: 'available', missing: [] });
  expect(gpuSupply(['T4'], 1, [shared(['T4'], 1)], 'gpu')).toMatchObject({ status: 'none' });
});

test('the models that machines have are named in the place of one that nobody knows', () => {
  const machines = [shared(['T4', 'A10'], 0), shared(['T4'], 1)];
  expect(gpuSupply(['H1000'], 1, machines)).toMatchObject({ missing: ['H1000'], models: ['A10', 'T4'] });
  expect(modelsHereText(['A10', 'T4'])).toBe('machines here have A10, T4');
  expect(modelsHereText([])).toBe('no machine here has a GPU');
});
