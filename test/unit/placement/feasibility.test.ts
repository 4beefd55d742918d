import { describe, expect, test } from 'vitest';
import { POOL_DEFAULTS } from '#shared/api/pools.ts';
import type { StubConfig, Target } from '#scheduler/domain/stub-config.ts';
import type { Machines } from '#scheduler/fleet/machines.ts';
import { FeasibilityCheck } from '#scheduler/control/placement/feasibility-check.ts';
import {
  infeasibleReason,
  isMadeFirst,
  noPythonReason,
  tooSmallReason,
} from '#scheduler/control/placement/feasibility.ts';
import type { OfferedMachine } from '#scheduler/control/placement/feasibility.ts';
import { jsonText } from '../../helpers/exact-json.ts';

const GIB = 1024 ** 3;
const of = (...models: readonly string[]) => models.map((model) => ({ model }));
const machine = (changes: Partial<OfferedMachine> = {}): OfferedMachine => ({
  poolName: 'default',
  poolOwner: null,
  requiresPoolSelector: false,
  isExpected: false,
  gpus: of('A10G', 'A10G'),
  size: { cpuMillicores: 4_000, memoryBytes: 8 * GIB },
  basePythons: null,
  basePythonsHere: [],
  ...changes,
});
const HUGE = { cpuMillicores: 1_000_000, memoryBytes: 1_000 * GIB };
const wants = (gpu: readonly string[], gpuCount = 1, poolName = '', minCuda = '') => ({
  workspaceId: 'w-1',
  poolName,
  gpu,
  gpuCount,
  minCuda,
});

describe('a stub that every machine is too small for', () => {
  const small = machine({ size: { cpuMillicores: 16_000, memoryBytes: 2 * GIB } });
  const sized = (cpuMillicores: number, gib: number, poolName = '') => ({
    workspaceId: 'w-1',
    poolName,
    cpuMillicores,
    memoryBytes: gib * GIB,
  });
  test.each([
    ['memory', sized(100, 30), 'no machine that this workspace may use offers 30 GiB of memory: the most is 8 GiB'],
    ['CPU, in its pool', sized(17_000, 1, 'default'), /in pool default offers 17 CPU: the most is 16 CPU$/],
    ['both at once', sized(8_000, 4), /offers 8 CPU together with 4 GiB of memory$/],
    ['another workspace’s is no help', sized(100, 9), /offers 9 GiB/, [machine({ poolOwner: 'w-2', size: HUGE })]],
  ] as const)('for want of %s', (_what, request, text, more: readonly OfferedMachine[] = []) => {
    expect(tooSmallReason(request, [machine(), small, ...more])).toMatch(text);
  });
  test.each([
    ['it fits one', sized(4_000, 8), [machine(), small]],
    ['one is expected', sized(100, 30), [machine(), machine({ isExpected: true })]],
    ['there is none to judge', sized(100, 30), []],
  ] as const)('not: %s', (_what, request, machines: readonly OfferedMachine[]) => {
    expect(tooSmallReason(request, machines)).toBeUndefined();
  });
});

describe('a Python version without a base image', () => {
  const setUp = (...basePythons: string[]) => machine({ basePythons });
  const asked = { workspaceId: 'w-1', poolName: '', gpu: [], gpuCount: 0 };
  test('is refused with the versions that there are, and the ways to others', () => {
    const machines = [setUp('3.11', '3.9'), setUp('3.10'), machine({ poolOwner: 'w-2' })];
    expect(noPythonReason(asked, '3.12', machines)).toBe(
      'no machine that this workspace may use has Python 3.12: their base images have Python 3.9, 3.10, 3.11. ' +
        'Name one of these versions (python_version), or an image that has the Python you need (base_image). ' +
        'An operator adds 3.12 with an image longshore-python:3.12 on a machine, ' +
        'or with LONGSHORE_BASE_IMAGE=python:{version}-slim of agents that reach a registry.',
    );
    expect(noPythonReason({ ...asked, poolName: 'default' }, '3.12', machines)).toContain('in pool default');
  });
  test('is refused with the machines that can make none, and where no machine can', () => {
    const none = (count: number) => Array.from({ length: count }, () => setUp());
    const refusal = (machines: readonly OfferedMachine[]) => noPythonReason(asked, '3.12', machines);
    expect(refusal([setUp('3.11'), ...none(1)])).toContain(
      "3.11. 1 machine has no base image, and can make none now: the agent's log says why. Name one",
    );
    expect(refusal([setUp('3.11'), ...none(2)])).toContain('. 2 machines have no base image, and can make none now');
    expect(refusal([setUp('3.12'), ...none(2)])).toBeUndefined();
    for (const version of ['3.12', '3']) {
      const all = noPythonReason({ ...asked, poolName: 'default' }, version, none(2));
      expect(all).toMatch(
        /^no machine that this workspace may use in pool default has a base image, or can make one now\./,
      );
      expect(all).toContain(`an image longshore-python:${version === '3' ? '{version}' : version} on a machine`);
      expect(noPythonReason(asked, version, [...none(2), machine()])).toBeUndefined();
    }
  });
  test('is refused where only a machine without the GPU has it', () => {
    const machines = [machine({ basePythons: ['3.12'], gpus: of() }), setUp('3.11')];
    expect(noPythonReason({ ...asked, gpu: ['A10G'], gpuCount: 1 }, '3.12', machines)).toContain('have Python 3.11');
    expect(noPythonReason(asked, '3.12', machines)).toBeUndefined();
  });
  test.each([
    ['one has it', [setUp('3.11'), setUp('3.12')]],
    ['one may pull it', [setUp('3.11'), machine()]],
    ['one is expected', [setUp('3.11'), machine({ isExpected: true, basePythons: ['3.9'] })]],
    ['there is none to judge', []],
    ['none that it may use is there to judge', [machine({ poolOwner: 'w-2', basePythons: ['3.9'] })]],
  ])('is taken where %s', (_what, machines) => {
    expect(noPythonReason(asked, '3.12', machines)).toBeUndefined();
  });
  test.each([
    ['a machine can make it, and none has it', true, [setUp('3.11', '3.13'), setUp()]],
    ['one has it', false, [setUp('3.13'), machine({ basePythons: ['3.13'], basePythonsHere: ['3.13'] })]],
    ['one pulls it', false, [setUp('3.13'), machine()]],
    ['one is expected', false, [setUp('3.13'), machine({ isExpected: true })]],
    ['none can have it', false, [setUp('3.11')]],
    ['only one of another workspace has it', true, [setUp('3.13'), machine({ poolOwner: 'w-2' })]],
  ])('is made first where %s: %s', (_what, isFirst, machines) => {
    expect(isMadeFirst(asked, '3.13', machines)).toBe(isFirst);
  });
  test('is no question where none is named, or another image brings it', () => {
    const row = { poolName: 'default', poolWorkspaceId: null, labels: {}, poolSettings: POOL_DEFAULTS };
    const inventory = {
      gpus: [],
      cpuMillicores: 4_000,
      memoryBytes: 8 * GIB,
      basePythons: ['3.11'],
      basePythonsKnown: true,
    };
    const played = { all: () => [{ row, health: 'READY', inventory, orphans: new Map() }] };
    const feasibility = new FeasibilityCheck(played as unknown as Machines, { nowMs: () => 1_000 });
    const problem = (version: string) => feasibility.pythonProblem({ ...asked, workspaceId: 'w-1' }, version);
    expect(problem('python3.9')).toContain('has Python 3.9: their base images have Python 3.11.');
    for (const version of ['python3', 'python3.11', 'micromamba3.9']) expect(problem(version)).toBeUndefined();
  });
});

describe('a stub that no machine can ever serve', () => {
  test.each([
    ['a model nobody has', wants(['H100']), 'no machine that this workspace may use has GPU H100'],
    ['any, where nobody has one', wants(['any']), 'no machine that this workspace may use has a GPU', []],
    ['more than any machine has', wants(['A10G', 'T4'], 3), /has 3 of GPU A10G or T4: the most is 2/],
    ['a pool without machines', wants([], 0, 'gpu'), 'no machine that this workspace may use is in pool gpu'],
    [
      'a pool that must be named, and is not',
      wants(['A10G']),
      /has GPU A10G; machines of default take only work that names their pool$/,
      [machine({ requiresPoolSelector: true })],
    ],
    [
      'fewer than machines have whose pool must be named',
      wants(['A10G'], 2),
      /the most is 1; machines of a, b take only work that names their pool$/,
      [
        machine({ gpus: of('A10G') }),
        ...['b', 'a', 'b'].map((poolName) => machine({ poolName, requiresPoolSelector: true })),
      ],
    ],
    [
      'pools that must be named, and would not do either',
      wants(['A10G'], 3),
      /has 3 of GPU A10G: the most is 2$/,
      [
        machine(),
        machine({ requiresPoolSelector: true }),
        machine({ requiresPoolSelector: true, poolOwner: 'w-2', gpus: of('A10G', 'A10G', 'A10G') }),
      ],
    ],
    [
      'a CUDA version that the drivers do not run',
      wants(['A10G'], 1, '', '12.8'),
      /^no machine that this workspace may use has GPU A10G with a driver for CUDA 12.8 \(min_cuda\), which is 570 or newer: the newest driver there is 550.54.15 \(CUDA 12.4\)$/,
      [machine({ gpuDriver: '535.183.01' }), machine({ gpuDriver: '550.54.15' }), machine({ gpus: of('T4') })],
    ],
    [
      'a CUDA version that the drivers of machines with enough GPUs do not run',
      wants(['A10G'], 2, '', '12.8'),
      /has 2 of GPU A10G with a driver for CUDA 12.8/,
      [machine({ gpuDriver: '535.183.01' }), machine({ gpuDriver: '580.65', gpus: of('A10G') })],
    ],
    [
      'a condition that no device meets, with the nearest one',
      wants(['any:>=80GiB:cc>=9.0']),
      /^no machine that this workspace may use has a GPU with 80 GiB and compute capability 9.0: no device has 80 GiB and compute capability 9.0; nearest: A100-80 \(8.0\)$/,
      [machine(), machine({ gpus: [{ model: 'A100-80', memoryBytes: 80 * GIB }] })],
    ],
    [
      'GPUs that are linked, where those of machines are not',
      { ...wants(['A10G'], 2), gpuLink: 'island' as const },
      /^no machine that this workspace may use has 2 of GPU A10G that are linked by NVLink \(gpu_link\)$/,
    ],
    [
      'a label that no machine has',
      { ...wants([], 0), labels: { require: { zone: ['a'] }, forbid: {}, prefer: {}, spread: '' } },
      /^no machine that this workspace may use has the labels it asks for \(placement\): no machine has the label zone=a: there are zone=b$/,
      [machine({ labels: { zone: 'b' } }), machine()],
    ],
    [
      'a condition on a model that nobody has',
      wants(['H100:>=80GiB']),
      /^no machine that this workspace may use has GPU H100 with 80 GiB$/,
    ],
    ['another workspace’s machine', wants(['T4']), /has GPU T4/, [machine({ poolOwner: 'w-2', gpus: of('T4') })]],
  ] as const)('%s', (_what, request, text, machines: readonly OfferedMachine[] = [machine()]) => {
    expect(infeasibleReason(request, machines)).toMatch(text);
  });

  test.each([
    ['a model somebody has', wants(['H100', 'A10G'])],
    ['work without a GPU, also with no machine at all', wants([], 0), []],
    ['a machine that is expected may bring it', wants(['H100']), [machine({ isExpected: true, gpus: of() })]],
    ['the pool that must be named', wants(['A10G'], 1, 'default'), [machine({ requiresPoolSelector: true })]],
    ['a condition that a device meets', wants(['T4', 'any:cc>=8.6'])],
    ['a driver that no machine of a provider has told', wants(['any:driver>=570']), [machine({ gpuDriver: null })]],
    ['a driver that is new enough', wants(['A10G'], 1, '', '12.8'), [machine({ gpuDriver: '570.1' })]],
    ['a driver that is not known', wants(['A10G'], 1, '', '12.8'), [machine({ gpuDriver: '535.1' }), machine()]],
    ['its own pool', wants(['A10G'], 1, 'gpu'), [machine({ poolName: 'gpu', poolOwner: 'w-1' })]],
  ] as const)('not: %s', (_what, request, machines: readonly OfferedMachine[] = [machine()]) => {
    expect(infeasibleReason(request, machines)).toBeUndefined();
  });

  test('is asked once, and again when a machine changed', () => {
    let walks = 0;
    const models: string[] = [];
    const played: Pick<Machines, 'all'> = {
      *all() {
        walks += 1;
        const row = { poolName: 'late', poolWorkspaceId: null, labels: {}, poolSettings: POOL_DEFAULTS };
        yield { row, health: 'EXPIRED', inventory: null, orphans: new Map() } as never;
        const gpus = models.map((model) => ({ model }));
        yield {
          row: { poolName: 'default', poolWorkspaceId: null, labels: {}, poolSettings: POOL_DEFAULTS },
          health: 'SUSPECT',
          inventory: { gpus, cpuMillicores: 4_000, memoryBytes: 8 * GIB },
          orphans: new Map(),
        } as never;
      },
    };
    const feasibility = new FeasibilityCheck(played as Machines, { nowMs: () => 1_000 });
    const config = { gpu: ['T4'], gpuCount: 1, extra: {} } as unknown as StubConfig;
    const target = { workspaceId: 'w-1', config } as unknown as Target;
    expect(feasibility.refusal(target)).toMatch('GPU T4');
    expect(feasibility.refusal(target)).toMatch('GPU T4');
    expect(walks).toBe(1);
    models.push('T4');
    feasibility.machineChanged();
    expect(feasibility.refusal(target)).toBeUndefined();
    expect(walks).toBe(2);
    const late = { gpu: [], gpuCount: 0, extra: { pool: jsonText({ name: 'late' }) } } as unknown as StubConfig;
    expect(feasibility.refusal({ ...target, config: late })).toMatch('is in pool late');
    const asked = (memoryMib: number, gpuCount = 0) =>
      feasibility.warning(target.workspaceId, { ...config, gpu: ['H100'], gpuCount, cpuMillicores: 100, memoryMib });
    expect(asked(8 * 1024)).toEqual({
      says: expect.stringContaining('offers 8 GiB of memory: the most is 7.5 GiB') as string,
      effect: 'calls wait for one that does',
    });
    expect(asked(7 * 1024)).toBeUndefined();
    expect(asked(64, 1)?.effect).toBe('calls are refused until one does');
  });

  test('a machine that was created and never joins holds the refusal back for five minutes', () => {
    const nowAt = { ms: 1_000_000 };
    const created = (createdAtMs: number) => ({
      row: { poolName: 'default', poolWorkspaceId: null, labels: {}, poolSettings: POOL_DEFAULTS, createdAtMs },
      health: 'PENDING',
      inventory: null,
      orphans: new Map(),
    });
    const machines = [created(nowAt.ms), created(nowAt.ms - 200_000)];
    const played = { all: () => machines };
    const feasibility = new FeasibilityCheck(played as unknown as Machines, { nowMs: () => nowAt.ms });
    const config = { gpu: ['T4'], gpuCount: 1, extra: {} } as unknown as StubConfig;
    const inPool = { gpu: [], gpuCount: 0, extra: { pool: jsonText({ name: 'default' }) } } as unknown as StubConfig;
    const refusals = (): readonly (string | undefined)[] =>
      [config, inPool].map((asked) => feasibility.refusal({ workspaceId: 'w-1', config: asked } as unknown as Target));
    for (const ms of [0, 99_000, 150_000, 49_999]) {
      nowAt.ms += ms;
      expect(refusals()).toEqual([undefined, undefined]);
    }
    nowAt.ms += 2_000;
    expect(refusals()).toEqual([expect.stringMatching('has GPU T4'), expect.stringMatching('is in pool default')]);
  });
});
