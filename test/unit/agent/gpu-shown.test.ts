// How devices are shown: to the scheduler, on the metrics page, and as conditions.
import { expect, test } from 'vitest';
import { degradedWords, isHostSuspect, metricsOf, reportOf } from '../../../agent/devices/shown.ts';
import { aDevice } from '../../helpers/devices.ts';
import { gpuUuid } from '../../helpers/gpus.ts';

const bad = { state: 'unhealthy', why: 'Xid 79' } as const;

test('a device is offered while it is healthy, nobody keeps it out, and no build has it', () => {
  const devices = [
    aDevice(0),
    aDevice(1, {}, bad),
    aDevice(2, { excluded: true }),
    aDevice(3, { excluded: true }, bad),
    aDevice(4),
    aDevice(5, {}, bad),
  ];
  const shown = reportOf(devices, new Set([gpuUuid(4), gpuUuid(5)])).map(({ state, unhealthy, why }) => [
    state,
    unhealthy,
    why,
  ]);
  expect(shown).toEqual([
    ['healthy', false, ''],
    ['unhealthy', true, 'Xid 79'],
    ['excluded', true, expect.not.stringContaining('Xid') as string],
    ['excluded', true, expect.stringMatching(/; unhealthy: Xid 79$/) as string],
    ['in_build', true, 'an image is built with it'],
    ['unhealthy', true, 'Xid 79'],
  ]);
});

test('the condition names bad GPUs once each, whatever the number of their slices, and at most four', () => {
  expect(
    degradedWords([aDevice(0), aDevice(1, {}, { state: 'unprobed' }), aDevice(2, { excluded: true }, bad)], []),
  ).toBe('');
  const slices = [1, 2, 3].map((number) => aDevice(7, { uuid: `MIG-${number}`, parentUuid: gpuUuid(7) }, bad));
  expect(degradedWords(slices, ['a GPU is missing'])).toBe(
    `a GPU is missing; MIG-1 of ${gpuUuid(7)} is unhealthy: Xid 79 (and 2 more of its slices)`,
  );
  const many = [0, 1, 2, 3, 4, 5].map((index) => aDevice(index, {}, { ...bad, why: 'x'.repeat(1000) }));
  expect(degradedWords(many, [])).toMatch(/; and 2 more$/);
  expect(degradedWords(many, []).length).toBeLessThan(700);
});

test('two broken GPUs make their host suspect, two broken slices of one do not', () => {
  const slice = (number: number) => aDevice(7, { uuid: `MIG-${number}`, parentUuid: gpuUuid(7) }, bad);
  expect(isHostSuspect([slice(1), slice(2)])).toBe(false);
  expect(isHostSuspect([aDevice(0, {}, bad), aDevice(1, { excluded: true }, bad)])).toBe(false);
  expect(isHostSuspect([aDevice(0, {}, bad), slice(1)])).toBe(true);
});

test('the metrics page has the deployment of a device, and the whole of a slice', () => {
  const slice = aDevice(7, { uuid: 'MIG-1', parentUuid: gpuUuid(7), instance: 3 });
  const owner = { containerId: 'c', epoch: 1, dockerId: undefined, gpuUuids: ['MIG-1'], deploymentId: 'd' };
  const lost = aDevice(0, {}, { state: 'lost' });
  expect(metricsOf([slice, lost], [owner], () => 5)).toMatchObject([
    { uuid: 'MIG-1', leased: true, deploymentId: 'd', wholeUuid: gpuUuid(7), instance: '3', memoryUnknownBytes: 5 },
    { uuid: gpuUuid(0), healthy: false, leased: false, missing: true, deploymentId: '', wholeUuid: gpuUuid(0) },
  ]);
});
