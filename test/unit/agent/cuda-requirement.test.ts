// Needs of images for the GPU driver, and what a machine's driver has.
import { expect, test } from 'vitest';
import { cudaOf, driverOf, mayRunCuda, runsCuda } from '#shared/domain/cuda.ts';
import { requirementProblem } from '../../../agent/devices/cuda-requirement.ts';
import { checkGpuDriver } from '../../../agent/reconcile/starting.ts';

test('a driver runs the CUDA versions of its branch, and a driver newer than the table is not judged', () => {
  expect(cudaOf('535.183.01')).toBe('12.2');
  expect(cudaOf('550.54.14')).toBe('12.4');
  expect(cudaOf('580.126.09')).toBe('13.0');
  for (const unknown of ['', 'N/A', '12', '585.10', '610.1']) expect(cudaOf(unknown), unknown).toBeUndefined();
});

const NVIDIA =
  'cuda>=12.8 brand=unknown,driver>=470,driver<471 brand=grid,driver>=470,driver<471 brand=tesla,driver>=550,driver<551';

test('an image is refused where no alternative of its requirement fits the driver', () => {
  expect(requirementProblem(NVIDIA, '535.183.01')).toBe(
    'the image needs CUDA 12.8 or newer; the driver of this machine is 535.183.01 (CUDA 12.2)',
  );
  // A driver of a branch that the image names, and new enough ones.
  for (const driver of ['470.1', '550.54.14', '570.86.10', '580.1', '610.1', ''])
    expect(requirementProblem(NVIDIA, driver), driver).toBeUndefined();
  expect(requirementProblem('driver>=600', '580.1')).toContain('a driver with driver>=600');
  // Conditions that are not known here keep no image away.
  for (const text of ['', ' ', 'arch>=9.0', 'cuda>=', 'cuda>12.x', 'nonsense', 'cuda>=12.2,arch>=7'])
    expect(requirementProblem(text, '535.1'), text).toBeUndefined();
  expect(requirementProblem('cuda>=12.2', '535.1')).toBeUndefined();
  expect(requirementProblem('cuda>=12.10', '535.1')).toBeDefined();
});

test('an image says what it needs in its variables, and may say that it does not insist', () => {
  const need = ['PATH=/bin', 'NVIDIA_REQUIRE_CUDA=cuda>=12.8'];
  expect(() => checkGpuDriver(need, '535.1')).toThrow(expect.objectContaining({ code: 'gpu_driver' }) as Error);
  for (const env of [[], [...need, 'NVIDIA_DISABLE_REQUIRE=true'], [...need, 'NVIDIA_DISABLE_REQUIRE=1']])
    expect(() => checkGpuDriver(env, '535.1')).not.toThrow();
  expect(() => checkGpuDriver([...need, 'NVIDIA_DISABLE_REQUIRE=0'], '535.1')).toThrow();
});

test.each([
  ['535.183.01', '12.2', true],
  ['535.183.01', '12.4', false],
  ['550.54.15', '12.4', true],
  ['570.86.15', '11.8', true],
  ['580.65.06', '13.1', false],
  ['418.40.04', '12.8', false],
  // A driver that is newer than the table runs what its last entry runs.
  ['590.44.01', '13.0', true],
  // Nobody knows of these; the agent or the program says it then.
  ['590.44.01', '13.1', undefined],
  ['', '12.8', undefined],
  ['6.8.5', '12.8', undefined],
  ['535.183.01', '', true],
])('driver %s and CUDA %s: %s', (driver, cuda, runs) => {
  expect(runsCuda(driver, cuda)).toBe(runs);
  expect(mayRunCuda(driver, cuda)).toBe(runs !== false);
});

test('the least driver of a CUDA version is a branch; of one that is newer than the table nothing is known', () => {
  expect([driverOf('12.8'), driverOf('12.4'), driverOf('11.0'), driverOf('10.2'), driverOf('13.9')]).toEqual([
    '570',
    '550',
    '450',
    '440',
    undefined,
  ]);
});
