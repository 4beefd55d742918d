import { describe, expect, test } from 'vitest';
import { GPU_MODELS, gpuModelOf, modelMatches, knownSlice } from '#shared/domain/gpus.ts';

describe("a device's model is called as people ask for it", () => {
  test.each([
    ['NVIDIA A10', 23_028, 'A10'],
    ['NVIDIA A10G', 23_028, 'A10G'],
    ['NVIDIA A16', 15_356, 'A16'],
    ['NVIDIA A30', 24_576, 'A30'],
    ['NVIDIA A40', 46_068, 'A40'],
    ['NVIDIA A100-SXM4-40GB', 40_960, 'A100-40'],
    ['A100-SXM4-40GB', 40_536, 'A100-40'],
    ['NVIDIA A100-SXM4-80GB', 81_920, 'A100-80'],
    ['NVIDIA A100 80GB PCIe', 81_920, 'A100-80'],
    ['NVIDIA A100-PG509-200', 40_536, 'A100-40'],
    ['NVIDIA RTX A4000', 16_376, 'A4000'],
    ['NVIDIA RTX A5000', 24_564, 'A5000'],
    ['NVIDIA RTX A6000', 49_140, 'A6000'],
    ['NVIDIA L4', 23_034, 'L4'],
    ['NVIDIA L40', 46_068, 'L40'],
    ['NVIDIA L40S', 46_068, 'L40S'],
    ['Tesla T4', 15_360, 'T4'],
    ['Tesla V100-SXM2-16GB', 16_160, 'V100'],
    ['Tesla V100-SXM2-32GB', 32_510, 'V100-32'],
    ['Tesla V100S-PCIE-32GB', 32_510, 'V100-32'],
    ['NVIDIA H100 80GB HBM3', 81_559, 'H100'],
    ['NVIDIA H100 PCIe', 81_559, 'H100'],
    ['NVIDIA H100 NVL', 95_830, 'H100'],
    ['NVIDIA H200', 143_771, 'H200'],
    ['NVIDIA H200 NVL', 143_771, 'H200'],
    ['NVIDIA GH200 480GB', 97_871, 'GH200'],
    ['NVIDIA B200', 183_359, 'B200'],
    ['NVIDIA B300 SXM6 AC', 275_040, 'B300'],
    ['NVIDIA GeForce RTX 4090', 24_564, 'RTX4090'],
    ['NVIDIA GeForce RTX 5090', 32_607, 'RTX5090'],
    ['Quadro RTX 6000', 24_576, 'RTX6000'],
    ['NVIDIA RTX 6000 Ada Generation', 49_140, 'RTX6000Ada'],
    ['NVIDIA RTX 4000 SFF Ada Generation', 20_475, 'RTX4000Ada'],
    ['NVIDIA RTX PRO 6000 Blackwell Server Edition', 97_887, 'RTXPro6000'],
    // These names begin like a known GPU, and mean another one.
    ['NVIDIA GeForce RTX 4090 Laptop GPU', 16_376, 'RTX-4090-Laptop-GPU'],
    ['NVIDIA A10-24Q', 24_576, 'A10-24Q'],
    ['NVIDIA T4G', 15_360, 'T4G'],
    ['NVIDIA GB10', 0, 'GB10'],
    ['NVIDIA GeForce GTX 1080 Ti', 11_264, 'GTX-1080-Ti'],
  ])('%s (%i MiB) is %s, and stays so', (name, memoryMib, model) => {
    expect(gpuModelOf(name, memoryMib)).toBe(model);
    expect(gpuModelOf(model)).toBe(model);
  });

  test('every name of the interface is one already', () => {
    for (const model of GPU_MODELS) expect(gpuModelOf(model, 40_000)).toBe(model);
  });
});

test.each([
  ['A10G', ['a10g'], true],
  ['A10G', ['A10'], false],
  ['A100-80', ['A100'], true],
  ['A100-80', ['A100-40'], false],
  ['V100-32', ['V100'], true],
  ['L40S', ['L40'], false],
  ['H100-MIG-1g.10gb', ['H100'], false],
  ['H100-MIG-1g.10gb', ['h100-mig-1g.10gb'], true],
  ['A100-80-MIG-3g.40gb', ['A100', 'A100-80'], false],
  ['T4', ['any'], true],
  ['T4', ['L4', 'T4'], true],
  ['T4', [], false],
])('%s serves who asks for %j: %s', (model, wanted, matches) => {
  expect(modelMatches(model, wanted)).toBe(matches);
});

test.each([
  ['h100-mig-3G.40GB', 'H100-MIG-3g.40gb'],
  ['A100-80-MIG-1g.10gb+me', 'A100-80-MIG-1g.10gb+me'],
  ['H100-MIG-1c.3g.40gb', 'H100-MIG-1c.3g.40gb'],
  ['Z80-MIG-3g.40gb', undefined],
  ['any-MIG-3g.40gb', undefined],
  ['H100-MIG-half', undefined],
  ['H100', undefined],
])('the name of a slice, %s, is read as %s', (name, slice) => {
  expect(knownSlice(name)).toBe(slice);
});
