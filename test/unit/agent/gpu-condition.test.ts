// The findings of a GPU host's check: from the tool's words of each
// condition, through the stand-in, to the finding and its remedy.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test as base } from 'vitest';
import { NvidiaSmi, PROBE_DEADLINE_MS } from '../../../agent/devices/nvidia-smi.ts';
import { CONDITION_FIELDS, parseConditions } from '../../../agent/devices/gpu-condition.ts';
import type { Fabric } from '../../../agent/preflight/gpus.ts';
import { conditionFindings, kernelLogFinding, readFabric, toolkitFindings } from '../../../agent/preflight/gpus.ts';
import type { Finding } from '../../../agent/preflight/finding.ts';
import { FakeNvidia, aGpu, gpuUuid } from '../../helpers/gpus.ts';

const test = base.extend('directory', async ({ task: _task }, { onCleanup }): Promise<string> => {
  const directory = await mkdtemp(join(tmpdir(), 'lsg-'));
  onCleanup(() => rm(directory, { recursive: true }));
  return directory;
});

const WELL = {
  persistence_mode: 'Enabled',
  'ecc.mode.current': 'Enabled',
  'ecc.errors.uncorrected.volatile.total': 0,
  'pcie.link.width.current': 16,
  'pcie.link.width.max': 16,
  'clocks_event_reasons.hw_thermal_slowdown': 'Not Active',
  'clocks_event_reasons.hw_power_brake_slowdown': 'Not Active',
  'remapped_rows.pending': 'No',
  'remapped_rows.failure': 'No',
};
const NO_SWITCH: Fabric = { switches: 0, managerRuns: false };
const HGX: Fabric = { switches: 4, managerRuns: true };

/** Findings on a host whose second GPU differs from a healthy one. */
async function found(
  directory: string,
  facts: Readonly<Record<string, unknown>>,
  fabric = NO_SWITCH,
  unknownFields: readonly string[] = [],
): Promise<Finding[]> {
  const nvidia = new FakeNvidia(directory, { gpus: [aGpu(0, WELL), aGpu(1, { ...WELL, ...facts })], unknownFields });
  return conditionFindings(await new NvidiaSmi(nvidia.tool).conditions(), fabric);
}
const notOk = (findings: readonly Finding[]): Finding[] => findings.filter(({ level }) => level !== 'ok');

test('the answers of a real H100 are a host that is well', () => {
  const uuid = 'GPU-7c3a1d52-0f4e-4d0b-9a55-1c6f5a1e9b01';
  const listed = `${uuid}, Enabled, Enabled, 0, [N/A], 16, 16, N/A, Not Active, Not Active, Not Active, Not Active\n`;
  const conditions = parseConditions(CONDITION_FIELDS, listed, `${uuid}, No, No\n`);
  expect(conditions).toEqual([
    {
      uuid,
      persistence: true,
      ecc: true,
      uncorrected: 0,
      remapPending: false,
      remapFailed: false,
      lanes: { now: 16, most: 16 },
      slowedBy: '',
      fabric: '',
    },
  ]);
  expect(notOk(conditionFindings(conditions, NO_SWITCH))).toEqual([]);
});

test('a host that is well passes, also with a driver that knows few of the fields', async ({ directory }) => {
  expect(await found(directory, {})).toMatchObject([
    { check: 'gpu persistence', level: 'ok' },
    { check: 'gpu memory', level: 'ok', found: 'ECC on, no errors' },
    { check: 'gpu clocks', level: 'ok' },
    { check: 'gpu pcie', level: 'ok' },
  ]);
  const old = [
    'fabric.state',
    'clocks_event_reasons.hw_thermal_slowdown',
    'clocks_event_reasons.hw_power_brake_slowdown',
  ];
  expect(notOk(await found(directory, {}, NO_SWITCH, old))).toEqual([]);
});

test.for([
  [
    { persistence_mode: 'Disabled' },
    'gpu persistence',
    /off for GPU-\S+1: /,
    /nvidia-smi -pm 1; .* nvidia-persistenced without --no-persistence-mode/,
  ],
  [{ 'remapped_rows.failure': 'Yes' }, 'gpu memory', /cannot be remapped any more/, /replaced/],
  [{ 'remapped_rows.pending': 'Yes' }, 'gpu memory', /waits for a reset/, /gpu-reset/],
  [{ 'retired_pages.pending': 'Yes' }, 'gpu memory', /waits for a reset/, /drain/],
  [{ 'ecc.errors.uncorrected.volatile.total': 3 }, 'gpu memory', /3 memory errors/, /reset/],
  [{ 'ecc.mode.current': 'Disabled' }, 'gpu memory', /ECC is off/, /ecc-config/],
  [{ 'clocks_event_reasons.hw_thermal_slowdown': 'Active' }, 'gpu clocks', /held down by heat/, /cooling/],
  [{ 'clocks_throttle_reasons.hw_power_brake_slowdown': 'Active' }, 'gpu clocks', /the power supply/, /power/],
  [{ 'pcie.link.width.current': 8 }, 'gpu pcie', /8 of 16 lanes/, /seating/],
  [{ 'fabric.state': 'In Progress' }, 'fabric manager', /error 802/, /nvidia-fabricmanager/],
] as const)('%j is the warning of %s', async ([facts, check, text, remedy], { directory }) => {
  expect(notOk(await found(directory, facts))).toMatchObject([
    {
      check,
      level: 'warning',
      found: expect.stringMatching(text) as string,
      remedy: expect.stringMatching(remedy) as string,
    },
  ]);
});

describe('switches', () => {
  test('need their manager', async ({ directory }) => {
    const facts = { 'fabric.state': 'Completed' };
    expect((await found(directory, facts, HGX)).at(-1)).toMatchObject({ check: 'fabric manager', level: 'ok' });
    expect((await found(directory, facts, { ...HGX, managerRuns: false })).at(-1)).toMatchObject({
      level: 'warning',
      found: expect.stringContaining('4 NVSwitches, and no nv-fabricmanager') as string,
    });
  });

  test('and their manager are read off the host', async ({ directory }) => {
    expect(await readFabric(directory)).toEqual(NO_SWITCH);
    await mkdir(join(directory, 'proc/driver/nvidia-nvswitch/devices/0000:05:00.0'), { recursive: true });
    expect(await readFabric(directory)).toEqual({ switches: 1, managerRuns: false });
    await mkdir(join(directory, 'proc/4711'));
    await writeFile(join(directory, 'proc/4711/comm'), 'nv-fabricmanage\n');
    expect(await readFabric(directory)).toEqual({ switches: 1, managerRuns: true });
  });
});

test('the tool has time to start eight idle GPUs, each of which may take over a second without persistence mode', () => {
  expect(PROBE_DEADLINE_MS).toBeGreaterThanOrEqual(30_000);
});

test('a tool that does not answer is a finding, and odd rows are none', async ({ directory }) => {
  expect(await new NvidiaSmi(join(directory, 'none')).conditions()).toBeUndefined();
  expect(conditionFindings(undefined, NO_SWITCH)).toMatchObject([{ level: 'warning' }]);
  expect(parseConditions(['uuid', 'persistence_mode'], `${gpuUuid(0)}\n\nWARNING: a, b\n`, 'x')).toEqual([]);
});

test.each([
  [
    'NVIDIA Container Toolkit CLI version 1.16.1',
    'failed',
    'CVE-2024-0132, CVE-2025-23359, CVE-2025-23266, CVE-2026-24260',
  ],
  ['NVIDIA Container Toolkit CLI version 1.17.7\ncommit: x', 'failed', '(CVE-2025-23266, CVE-2026-24260)'],
  ['NVIDIA Container Toolkit CLI version 1.17.8', 'warning', '(CVE-2026-24260)'],
  ['NVIDIA Container Toolkit CLI version 1.19.0', 'warning', '(CVE-2026-24260)'],
])('the toolkit %j is %s with its faults, and names the version without any', async (words, level, faults) => {
  const [finding] = await toolkitFindings(() => Promise.resolve(words));
  expect(finding).toMatchObject({ level, remedy: 'install 1.19.1 or newer' });
  expect(JSON.stringify(finding)).toContain(faults);
});

test.each([
  ['NVIDIA Container Toolkit CLI version 1.19.1', 'ok'],
  ['NVIDIA Container Toolkit CLI version 2.0.0', 'ok'],
  ['', undefined],
])('the toolkit %j is %s', async (words, level) => {
  expect((await toolkitFindings(() => Promise.resolve(words)))[0]?.level).toBe(level);
});

test('a kernel log that nobody here can read is a warning, by the file and by the journal', async () => {
  const seen = async (path: string, newest: string) =>
    (await kernelLogFinding(path, () => Promise.resolve(newest))).level;
  expect(await seen(import.meta.filename, '')).toBe('ok');
  expect(await seen('/not/there', 'a line')).toBe('ok');
  expect(await seen('/not/there', '')).toBe('warning');
});
