import { expect, test } from 'vitest';
import { isUnusable, outcomeOf, stepOf } from '../../../agent/devices/probe-outcome.ts';
import type { ProbeResult } from '../../../agent/devices/probe-outcome.ts';

const result = (step: string, code: number, name = '', text = ''): string =>
  JSON.stringify({ step, code, name, text, ms: 3 });

test.for<readonly [string, number, readonly string[], ProbeResult, RegExp]>([
  ['that ran to its end', 0, ['load', 'done', result('done', 0)], 'passed', /^$/],
  [
    '802: the fabric',
    1,
    [result('init', 802, 'CUDA_ERROR_SYSTEM_NOT_READY')],
    'host',
    /802 \(CUDA_.*\) at init.*fabric/,
  ],
  ['803: two versions of the driver', 1, [result('init', 803)], 'host', /reboot/],
  ['ECC', 1, [result('copy', 214, 'CUDA_ERROR_ECC_UNCORRECTABLE')], 'failed', /214 \(CUDA_ERROR_ECC_U.*\) at copy/],
  ['no device', 1, [result('init', 100, 'CUDA_ERROR_NO_DEVICE')], 'failed', /100/],
  ['no memory', 1, [result('allocate', 2, 'CUDA_ERROR_OUT_OF_MEMORY')], 'failed', /at allocate/],
  ['an error of a newer driver', 1, [result('fill', 977)], 'failed', /CUDA error 977 at fill/],
  ['other data', 2, [result('copy', 0, '', 'word 7 is 0')], 'failed', /word 7/],
  ['no library', 3, [result('load', 0, '', 'libcuda.so.1: cannot open')], 'host', /libcuda\.so\.1/],
  ['a crash in the driver', 139, ['load', 'init', 'context'], 'failed', /exit code 139 at context/],
  ['ended by an engine that stops', 143, ['load', 'context'], 'unable', /ended at context/],
  ['killed by the kernel', 137, ['load', 'context'], 'unable', /memory/],
  [
    'an image without the program',
    127,
    ['sh: exec: line 0: /usr/bin/longshore-gpu-probe: not found'],
    'absent',
    /image/,
  ],
  ['exit code 0 and no result', 0, ['load'], 'failed', /exit code 0/],
  ['a result of another form', 1, ['{"step":1}', '{', 'init'], 'failed', /at init/],
  ['success that is not the end', 0, [result('copy', 0)], 'failed', /CUDA error 0 at copy/],
])('a probe with %s', ([, exitCode, lines, kind, text]) => {
  expect(outcomeOf({ exitCode, lines })).toEqual({ kind, text: expect.stringMatching(text) as string });
});

test('the machine says that its GPUs are out of reach at once for a reason of the host, and after three tries that taught nothing', () => {
  const after = (kind: Exclude<ProbeResult, 'passed'>): boolean[] =>
    [1, 2, 3, 4].map((tries) => isUnusable({ kind, text: '' }, tries));
  expect(after('host')).toEqual([true, true, true, true]);
  expect(after('unable')).toEqual([false, false, true, true]);
  expect(after('failed').concat(after('stuck'), after('absent')).some(Boolean)).toBe(false);
});

test('the step of a probe that says nothing is its start', () => {
  expect(stepOf([])).toBe('its start');
  expect(stepOf(['load', 'init', '{"step":"x"}'])).toBe('init');
});
