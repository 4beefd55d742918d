import { describe, expect, test } from 'vitest';
import {
  gpuFit,
  gpuLack,
  gpuMatches,
  gpuTerms,
  gpuTextsOf,
  gpuWords,
  nearestTexts,
  readGpuTerm,
} from '#shared/domain/gpu-terms.ts';
import { computeCapOf, GPU_MODELS } from '#shared/domain/gpus.ts';

const MIB = 1024 ** 2;

describe('a request for GPUs', () => {
  test.each([
    ['H100', 'H100'],
    ['h100', 'H100'],
    ['Z80', 'Z80'],
    ['h100-mig-3G.40GB', 'H100-MIG-3g.40gb'],
    ['A100:>=40GiB', 'A100:>=40GiB'],
    ['a100 : >= 40 gib', 'A100:>=40GiB'],
    ['any:cc>=8.9', 'any:cc>=8.9'],
    ['ANY:CUDA>=12.4:driver>=550.90.7:CC>=9:>=79.5GiB', 'any:>=79.5GiB:cc>=9:driver>=550.90.7:cuda>=12.4'],
  ])('%s is read as %s', (text, spelt) => {
    const term = readGpuTerm(text);
    expect(term).toMatchObject({ text: spelt });
    expect(readGpuTerm(spelt)).toEqual(term);
  });

  test.each([
    ['two words', /^"two words" does not begin with a model/],
    [':>=40GiB', /^":>=40GiB" does not begin with a model/],
    ['A100:', /^"A100:": "" is no condition; there are >=40GiB /],
    ['A100:x', /"x" is no condition/],
    ['A100:2', /"2" is no condition/],
    [
      'A100:40GiB',
      /^"A100:40GiB" asks for a part of a shared device, .*: ask for a whole device with >=40GiB, or for a MIG/,
    ],
    ['12GiB', /asks for a part of a shared device, which is not possible yet: ask for a whole device with >=12GiB,/],
    ['any:512M', /asks for a part/],
    ['any:>=40', /">=40" is no condition/],
    ['any:>=40GB', />=40GB" is no condition/],
    ['any:>40GiB', /is no condition/],
    ['any:cc>=8.9GiB', /is no condition/],
    ['any:cc>=0', /is no condition/],
    ['any:>=0GiB', /is no condition/],
    ['any:memory>=40GiB', /is no condition/],
    ['any:driver>=550.1.2.3', /is no condition/],
    ['any:cc>=8.0:cc>=9.0', /names the compute capability twice/],
    ['any:>=40GiB:>=80GiB', /names the memory twice/],
    [`any:${'x'.repeat(200)}`, /is longer than 128 characters$/],
  ])('%s is refused', (text, says) => {
    expect(readGpuTerm(text)).toMatch(says);
  });

  test('has alternatives with either sign between them', () => {
    expect(gpuTextsOf(' H100|A100:>=40GiB , any,, ')).toEqual(['H100', 'A100:>=40GiB', 'any']);
    expect(gpuTextsOf('')).toEqual([]);
  });

  test('is read once for each list, and a text of a newer version is a model that nobody has', () => {
    const texts = ['H100:>=40GiB', 'H100:speed>=3'];
    expect(gpuTerms(texts)).toBe(gpuTerms(texts));
    expect(gpuMatches({ model: 'H100', memoryBytes: 1 }, '580.1', ['H100:speed>=3'])).toBe(false);
  });
});

describe('a device', () => {
  const h100 = { model: 'H100', memoryBytes: 81_559 * MIB };
  test.each([
    ['H100', h100, '', 'fits'],
    ['any:>=80GiB', h100, '', 'fits'],
    ['any:>=88GiB', h100, '', 'fails'],
    ['any:>=80GiB', { model: 'H100' }, '', 'unknown'],
    ['T4:>=80GiB', { model: 'H100' }, '', 'fails'],
    // The sizes by which devices are sold.
    ['any:>=24GiB', { model: 'L4', memoryBytes: 23_034 * MIB }, '', 'fits'],
    ['any:>=24GiB', { model: 'A10G', memoryBytes: 23_028 * MIB }, '', 'fits'],
    ['any:>=48GiB', { model: 'L40S', memoryBytes: 46_068 * MIB }, '', 'fits'],
    ['any:>=16GiB', { model: 'T4', memoryBytes: 15_360 * MIB }, '', 'fits'],
    ['any:>=40GiB', { model: 'A100-40', memoryBytes: 40_536 * MIB }, '', 'fits'],
    ['any:>=48GiB', { model: 'A100-40', memoryBytes: 40_960 * MIB }, '', 'fails'],
    ['any:cc>=9.0', h100, '', 'fits'],
    ['any:cc>=10', h100, '', 'fails'],
    ['any:cc>=8.9', { model: 'A100-80' }, '', 'fails'],
    ['any:cc>=8.9', { model: 'A100-80', computeCap: '12.0' }, '', 'fits'],
    ['any:cc>=8.9', { model: 'GB10' }, '', 'unknown'],
    ['any:cc>=8.9', { model: 'GB10', computeCap: '12.1' }, '', 'fits'],
    ['any:cc>=8.0', { model: 'A100-80-MIG-3g.40gb' }, '', 'fits'],
    ['any:driver>=550', h100, '550.54.15', 'fits'],
    ['any:driver>=550.90', h100, '550.54.15', 'fails'],
    ['any:driver>=550', h100, '', 'unknown'],
    ['any:driver>=550', h100, null, 'fits'],
    ['any:cuda>=12.4', h100, '550.54.15', 'fits'],
    ['any:cuda>=12.4', h100, '535.1', 'fails'],
    ['any:cuda>=12.4', h100, '', 'unknown'],
    ['any:cuda>=12.4', h100, null, 'fits'],
    // Newer than the table: what its last entry runs, and nobody knows what more.
    ['any:cuda>=12.4', h100, '590.44', 'fits'],
    ['any:cuda>=13.9', h100, '590.44', 'unknown'],
    // A condition that is known to fail says more than a fact that is not known.
    ['any:>=88GiB:driver>=550', h100, '', 'fails'],
  ] as const)('and %s: %j with driver %s %s', (text, gpu, driver, fit) => {
    const [term] = gpuTerms([text]);
    expect(gpuFit(gpu, driver, term!)).toBe(fit);
    expect(gpuMatches(gpu, driver, ['B300', text])).toBe(fit === 'fits');
    if (fit !== 'fits')
      expect(gpuLack([gpu], driver, ['B300', text])).toBe(fit === 'unknown' ? 'gpu_fact_unknown' : 'gpu_model');
  });

  test('of each known model has its compute capability', () => {
    expect(GPU_MODELS.filter((model) => computeCapOf(model) === '')).toEqual(['GAUDI2']);
    expect([computeCapOf('t4'), computeCapOf('B300'), computeCapOf('H100-MIG-1g.10gb')]).toEqual([
      '7.5',
      '10.3',
      '9.0',
    ]);
  });
});

describe('words', () => {
  test.each([
    [['H100'], 'GPU H100'],
    [['H100', 'A100:>=40GiB'], 'GPU H100 or A100 with 40 GiB'],
    [['any'], 'a GPU'],
    [['any:>=40GiB', 'any'], 'a GPU'],
    [['any:>=80GiB:cc>=9.0'], 'a GPU with 80 GiB and compute capability 9.0'],
    [['T4:cc>=7.5:driver>=550:cuda>=12.4'], 'GPU T4 with compute capability 7.5, driver 550 and CUDA 12.4'],
  ])('%j: %s', (wanted, words) => {
    expect(gpuWords(wanted)).toBe(words);
  });

  const devices = [
    { model: 'T4', memoryBytes: 15_360 * MIB, driver: '550.1' },
    { model: 'A100-80', memoryBytes: 81_920 * MIB, driver: '550.1' },
    { model: 'GB10', driver: '' },
  ];
  test.each([
    [['any:>=80GiB:cc>=9.0'], ['no device has 80 GiB and compute capability 9.0; nearest: A100-80 (8.0)']],
    [
      ['T4:>=40GiB', 'A100:>=200GiB'],
      ['no T4 has 40 GiB; nearest: T4 (15 GiB)', 'no A100 has 200 GiB; nearest: A100-80 (80 GiB)'],
    ],
    [
      ['GB10:>=40GiB:driver>=550'],
      ['no GB10 has 40 GiB and driver 550; nearest: GB10 (memory not known, driver not known)'],
    ],
    [
      ['A100:driver>=570:cuda>=12.8'],
      ['no A100 has driver 570 and CUDA 12.8; nearest: A100-80 (driver 550.1, CUDA 12.4)'],
    ],
    [['H100:>=40GiB', 'T4', 'T4:>=12GiB'], []],
  ])('what comes nearest to %j', (wanted, texts) => {
    expect(nearestTexts(wanted, devices)).toEqual(texts);
  });
});
