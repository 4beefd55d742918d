// The settings of a pool, by operation and by file, and the capacity that a machine offers with them.
import type { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { POOL_DEFAULTS, POOL_SETTINGS } from '#shared/api/pools.ts';
import type { PoolSettingsChange } from '#shared/api/pools.ts';
import { flagsFor, settingRows, settingsInShort } from '#cli/commands/pool.ts';
import { buildProgram } from '#cli/program.ts';
import { capacityOf } from '#scheduler/fleet/capacity.ts';
import {
  agrees,
  changeRefusal,
  FOR_ADMINISTRATORS,
  isOrderOfToday,
  providerProblem,
  readPoolSettings,
  settled,
  shapeOf,
  takesCpuWork,
} from '#scheduler/fleet/pool-settings.ts';
import { declaredIn, readPoolsFile } from '#scheduler/fleet/pools-file.ts';

describe('settings', () => {
  const all: PoolSettingsChange = {
    cpuOvercommit: 2.5,
    cpuWorkOnGpuMachines: true,
    requiresPoolSelector: true,
    priority: 7,
    reservedCpuCores: 0.5,
    reservedMemoryMib: 0,
    provider: 'cloud-1',
    machineGpuModel: 'H100-MIG-1g.10gb+me',
  };
  test.for([
    ['none', undefined, {}],
    ['null', null, {}],
    ['all of them', all, all],
    ['in the other spelling', { cpu_overcommit: 2 }, { cpuOvercommit: 2 }],
    ['defaults again', { priority: null, cpuOvercommit: null }, { priority: null, cpuOvercommit: null }],
  ] as const)('are read: %s', ([, sent, change]) => {
    expect(readPoolSettings(sent, '')).toEqual({ kind: 'read', change });
  });

  test.for([
    ['settings must be an object', [1]],
    ['settings.cpuOvercommit must be a number from 1 to 64, or null for the default', { cpuOvercommit: 0.5 }],
    ['settings.cpuOvercommit must be a number from 1 to 64, or null for the default', { cpuOvercommit: 65 }],
    ['settings.cpuOvercommit must be a number from 1 to 64, or null for the default', { cpuOvercommit: '2' }],
    ['settings.priority must be a whole number from 0 to 1000, or null for the default', { priority: 1.5 }],
    ['settings.requiresPoolSelector must be true or false, or null for the default', { requiresPoolSelector: 1 }],
    ['settings.reservedCpuCores must be a number from 0 to 1024, or null for the default', { reservedCpuCores: NaN }],
    ['settings.cpu_overcommit says cpuOvercommit a second time', { cpuOvercommit: 2, cpu_overcommit: 8 }],
    [/^settings\.cpuOverCommit is no setting of a pool; there are cpuOvercommit, /, { cpuOverCommit: 2 }],
    [/^settings\.provider must be a name of at most 63 letters, .*, or null for the default$/, { provider: 'a b' }],
    [/^settings\.provider must be a name/, { provider: '' }],
    [/^settings\.provider must be a name/, { provider: 'default' }],
    [/^settings\.provider must be a name/, { provider: 7 }],
    [/^settings\.machineGpuModel must be a name/, { machineGpuModel: 'H'.repeat(64) }],
    [/^settings\.__proto__ is no setting/, JSON.parse('{"__proto__": {"priority": 1}}')],
    [/^settings\.labels must be labels with commas between them, such as zone=a/, { labels: 'zone' }],
    [/^settings\.toString is no setting/, { toString: 1 }],
  ] as const)('are refused by name: %s', ([problem, sent]) => {
    const read = readPoolSettings(sent, 'settings.');
    expect(read.kind === 'wrong' ? read.problems.join() : '').toMatch(problem);
  });

  test('that nobody says have their defaults', () => {
    expect(settled({})).toEqual(POOL_DEFAULTS);
    expect(settled({ priority: 3, cpuOvercommit: null })).toEqual({ ...POOL_DEFAULTS, priority: 3 });
    expect([agrees(settled(all), all), agrees(POOL_DEFAULTS, { priority: null, cpuOvercommit: 1 })]).toEqual([
      true,
      true,
    ]);
    expect(agrees(settled(all), { priority: 8 })).toBe(false);
  });

  const cloud: PoolSettingsChange = { provider: 'cloud', machineCpuCores: 4, machineMemoryMib: 8192 };
  const gpus: PoolSettingsChange = { ...cloud, machineGpuModel: 'H100', machineGpuCount: 8 };
  test.for([
    ['no provider, whatever else', { minMachines: 20, machineGpuCount: 3 }, undefined],
    ['a provider and a size', cloud, undefined],
    ['GPUs too', gpus, undefined],
    ['no size', { provider: 'cloud', machineCpuCores: 4 }, /needs machineCpuCores and machineMemoryMib/],
    ['a number of GPUs without their model', { ...cloud, machineGpuCount: 1 }, /go together/],
    ['a model of GPUs without their number', { ...cloud, machineGpuModel: 'H100' }, /go together/],
    ['memory of GPUs', { ...gpus, machineGpuMemoryMib: 81_559 }, undefined],
    ['memory of no GPU', { ...cloud, machineGpuMemoryMib: 81_559 }, /^machineGpuMemoryMib is the memory of each/],
    ['any model', { ...gpus, machineGpuModel: 'Any' }, /must name one model/],
    ['a floor of GPUs that no machine has', { ...cloud, minFreeGpu: 1 }, /minFreeGpu needs/],
    ['more machines at least than at most', { ...cloud, minMachines: 11 }, /minMachines must be at most maxMachines/],
  ] as const)('that go together: %s', ([, said, problem]) => {
    const found = providerProblem(settled(said));
    if (problem === undefined) expect(found).toBeUndefined();
    else expect(found).toMatch(problem);
  });

  test('say what a machine of the provider offers', () => {
    expect(shapeOf(settled(gpus))).toEqual({ gpuModel: 'H100', gpuCount: 8, cpuCores: 4, memoryMib: 8192 });
    expect(shapeOf(settled(cloud))).toEqual({ gpuModel: '', gpuCount: 0, cpuCores: 4, memoryMib: 8192 });
    expect(shapeOf(settled({ ...cloud, provider: null }))).toBeUndefined();
    expect(shapeOf(settled({ provider: 'cloud' }))).toBeUndefined();
  });

  test.for([
    ['the same', {}, true],
    ['another number of machines', { maxMachines: 3, idleSeconds: 7 }, true],
    ['another provider', { provider: 'other' }, false],
    ['other GPUs', { machineGpuModel: 'H200' }, false],
    ['more GPUs', { machineGpuCount: 4 }, false],
    ['more cores', { machineCpuCores: 4.5 }, false],
    ['less memory', { machineMemoryMib: 8191 }, false],
    ['no provider', { provider: null }, false],
    ['no size', { machineCpuCores: null }, false],
  ] as const)('show whether a machine was ordered as the pool orders today: %s', ([, change, isOfToday]) => {
    const before = { machineGpuModel: 'H100', machineGpuCount: 2, machineCpuCores: 4, machineMemoryMib: 8192 };
    const settings = settled({ ...before, provider: 'cloud' });
    const order = { provider: 'cloud', shape: { gpuModel: 'H100', gpuCount: 2, cpuCores: 4, memoryMib: 8192 } };
    expect(shapeOf(settings)).toEqual(order.shape);
    expect(isOrderOfToday(order, { ...settings, ...change })).toBe(isOfToday);
  });

  test('that cost money are for administrators', () => {
    for (const name of FOR_ADMINISTRATORS)
      expect(changeRefusal({ [name]: null }, POOL_DEFAULTS)).toMatch(`settings.${name} is for an administrator`);
    const own = { priority: 1, minFreeGpu: 2, minMachines: 3, idleSeconds: 60, demandSeconds: 1, hourlyCost: 1 };
    expect(changeRefusal(own, POOL_DEFAULTS)).toBeUndefined();
    expect(changeRefusal({ hourlyCost: 0 }, settled(cloud))).toMatch('settings.hourlyCost is for an administrator');
    expect(changeRefusal({ minFreeGpu: 1 }, settled(cloud))).toBeUndefined();
  });

  test('of the pool win over those of the scheduler', () => {
    const pool = (said: PoolSettingsChange) => ({ poolName: 'gpu', poolSettings: settled(said) });
    const isGpu = (name: string): boolean => name === 'gpu';
    expect(takesCpuWork(pool({}), isGpu)).toBe(true);
    expect(takesCpuWork(pool({}), () => false)).toBe(false);
    expect(takesCpuWork(pool({ cpuWorkOnGpuMachines: false }), isGpu)).toBe(false);
    expect(takesCpuWork(pool({ cpuWorkOnGpuMachines: true }), () => false)).toBe(true);
  });

  test('are shown as they were said, or as what holds instead', () => {
    const shown = (settings: object) =>
      Object.fromEntries(settingRows({ settings, effectiveCpuWorkOnGpuMachines: true }));
    expect(shown({ cpuWorkOnGpuMachines: null, reservedMemoryMib: null, priority: 0 })).toEqual({
      cpuWorkOnGpuMachines: 'yes (the default: by LONGSHORE_CPU_WORK_ON_GPU_POOLS of the scheduler)',
      reservedMemoryMib: '5 % of the memory',
      priority: '0',
    });
    expect(shown({ provider: null, machineGpuModel: 'H100', hourlyBudget: null })).toEqual({
      provider: 'none: machines are admitted by hand',
      machineGpuModel: 'H100',
      hourlyBudget: 'none: maxMachines is the bound',
    });
    expect(shown({ cpuWorkOnGpuMachines: false })).toEqual({ cpuWorkOnGpuMachines: 'no' });
  });

  test('in a list are those that are not as by default', () => {
    const inShort = (said: PoolSettingsChange, declaredIn = '') =>
      settingsInShort({ settings: settled(said), declaredIn });
    expect(inShort({})).toBe('-');
    expect(inShort({}, '/pools.json')).toBe('declared in a file');
    expect(inShort({ cpuOvercommit: 2.5, cpuWorkOnGpuMachines: false }, '/pools.json')).toBe(
      'cpuOvercommit 2.5, cpuWorkOnGpuMachines no, declared in a file',
    );
  });

  const commands = () => {
    const pool = buildProgram(() => {}).commands.find((command) => command.name() === 'pool');
    return ['create', 'set'].map((verb) => pool?.commands.find((one): one is Command => one.name() === verb));
  };
  test('all have a flag of `pool create` and `pool set`, as commands are told to type them', () => {
    const names = Object.keys(POOL_SETTINGS);
    for (const command of commands()) {
      const options = command?.options.filter((option) => option.attributeName() !== 'workspace') ?? [];
      expect(options.map((option) => option.attributeName())).toEqual(names);
      expect(options.map((option) => ` ${option.long} default`).join('')).toBe(
        flagsFor(Object.fromEntries(names.map((name) => [name, null]))),
      );
    }
    expect(flagsFor({ cpuOvercommit: 2.5, requiresPoolSelector: true, provider: 'cloud' })).toBe(
      ' --cpu-overcommit 2.5 --requires-pool-selector yes --provider cloud',
    );
  });

  test.for(Object.entries(POOL_SETTINGS))('have the bounds of the interface: %s', ([name, facts]) => {
    for (const command of commands()) {
      const option = command?.options.find((one) => one.attributeName() === name);
      const read = (text: string): unknown => option?.parseArg?.(text, undefined);
      expect(read('default')).toBe('default');
      if (facts.type === 'boolean') {
        expect([read('yes'), read('no')]).toEqual([true, false]);
        expect(() => read('maybe')).toThrow('must be yes, no or default.');
        continue;
      }
      if (facts.title !== undefined) {
        const [right, wrong, says] =
          name === 'labels'
            ? [
                ['zone=a', 'zone=a,disk=nvme'],
                ['zone', 'zone=', '=a', 'a b=c', 'zone=a,'],
                /^must be labels .*, or default\.$/,
              ]
            : [
                ['docker.io=mirror.example.com', 'ghcr.io=10.0.0.1:5000/cache/ghcr'],
                ['', 'docker.io', '=m', 'docker.io=', 'docker.io=http://m', 'a=b=c', 'a=b c', 'a=b/C'],
                /^must be REGISTRY=HOST.*, or default\.$/,
              ];
        for (const text of right) {
          expect(read(text)).toBe(text);
          expect(text).toMatch(new RegExp(facts.pattern ?? '^$'));
        }
        for (const text of wrong) expect(() => read(text), text).toThrow(says);
        continue;
      }
      if (facts.type === 'string') {
        for (const text of ['cloud', 'RTX6000Ada', 'a'.repeat(63)]) {
          expect(read(text)).toBe(text);
          expect(text).toMatch(new RegExp(facts.pattern ?? '^$'));
        }
        for (const text of ['', 'a b', '-x', 'a'.repeat(64)]) {
          expect(() => read(text), text).toThrow(/^must be a name of at most 63 .*, or default\.$/);
          expect(text).not.toMatch(new RegExp(facts.pattern ?? ''));
        }
        continue;
      }
      const { minimum = 0, maximum = 0 } = facts;
      const kind = facts.type === 'integer' ? 'whole number' : 'number';
      expect([read(String(minimum)), read(String(maximum))]).toEqual([minimum, maximum]);
      const wrong = [String(minimum - 1), String(maximum + 1), 'high', '', '1e1'];
      for (const text of facts.type === 'integer' ? [...wrong, '1.5'] : wrong)
        expect(() => read(text), text).toThrow(`must be a ${kind} from ${minimum} to ${maximum}, or default.`);
    }
  });
});

describe('a machine offers', () => {
  const GIB = 1024 ** 3;
  const offered = (said: PoolSettingsChange, cpuMillicores = 4000, usedCpu = 0) => {
    const inventory = { cpuMillicores, memoryBytes: 100 * GIB, gpus: [] };
    const orphan = { cpuMillicores: usedCpu, memoryBytes: 0, gpuUuids: [] };
    const machine = { row: { poolSettings: settled(said) }, inventory, orphans: new Map([['x', orphan]]) };
    const { totalCpuMillicores, totalMemoryBytes, freeCpuMillicores } = capacityOf(machine as never, []);
    return { cpu: totalCpuMillicores, memory: totalMemoryBytes / GIB, free: freeCpuMillicores };
  };
  test.for([
    ['less a tenth of its cores and 5 % of its memory', {}, 4000, { cpu: 3600, memory: 95 }],
    ['less one core where it has many', {}, 32_000, { cpu: 31_000, memory: 95 }],
    ['its cores several times over', { cpuOvercommit: 2.5 }, 4000, { cpu: 9000, memory: 95 }],
    ['all of it', { reservedCpuCores: 0, reservedMemoryMib: 0 }, 4000, { cpu: 4000, memory: 100 }],
    [
      'what its pool does not reserve, over-commit after that',
      { cpuOvercommit: 2, reservedCpuCores: 1.5, reservedMemoryMib: 10_240 },
      4000,
      { cpu: 5000, memory: 90 },
    ],
    [
      'nothing, where more is reserved than it has',
      { reservedCpuCores: 8, reservedMemoryMib: 1e6 },
      4000,
      { cpu: 0, memory: 0 },
    ],
  ] as const)('%s', ([, said, cores, expected]) => {
    expect(offered(said, cores)).toMatchObject(expected);
  });

  test('less than nothing more, when its pool came to offer less than is in use', () => {
    expect(offered({ cpuOvercommit: 2 }, 4000, 5000).free).toBe(2200);
    expect(offered({}, 4000, 5000).free).toBe(-1400);
  });
});

describe('a pools file', () => {
  test('declares pools, with nothing said too', () => {
    const text = '{"pools": {"gpu": {"cpuOvercommit": 2, "priority": null}, "plain": {}}}';
    expect(declaredIn('/f', text).pools).toEqual([
      { name: 'gpu', settings: { cpuOvercommit: 2, priority: null } },
      { name: 'plain', settings: {} },
    ]);
    expect(declaredIn('/f', '{"pools": {}}')).toEqual({ pools: [], shares: [], sharing: {} });
  });

  test('declares shares of workspaces, whole: a part that it does not say has its default', () => {
    const text = '{"pools": {}, "workspaces": {"research": {"weight": 2, "guaranteed": {"h100": 16}}, "plain": {}}}';
    expect(declaredIn('/f', text).shares).toEqual([
      { workspace: 'research', share: { weight: 2, guaranteed: { H100: 16 } } },
      { workspace: 'plain', share: null },
    ]);
    expect(declaredIn('/f', '{"pools": {}}').sharing).toEqual({});
    const sharing = { order: 'arrival', reserveAfterSeconds: null, reclaimAfterSeconds: 7 };
    for (const said of [sharing, { noticeSeconds: 0, minRunSeconds: 86_400 }, {}])
      expect(declaredIn('/f', JSON.stringify({ pools: {}, sharing: said })).sharing).toEqual(said);
  });

  test.for([
    ['', /^LONGSHORE_POOLS_FILE \/f: is no JSON: it ends too early$/],
    ['{', /^LONGSHORE_POOLS_FILE \/f: is no JSON: look at line 1, column 2$/],
    ['{"pools": {}}\n}', /^LONGSHORE_POOLS_FILE \/f: is no JSON: look at line 2, column 1$/],
    ["{'pools': {}}", /^LONGSHORE_POOLS_FILE \/f: is no JSON: look at line 1, column 2$/],
    ['{"pools": yes}', /^LONGSHORE_POOLS_FILE \/f: is no JSON: 'y' is not expected where it stands$/],
    ['[]', /must be \{"pools"/],
    ['{"pools": []}', /must be \{"pools"/],
    ['{"pools": {}, "pool": {}}', '/f: pool is nothing that it may hold; there are pools, workspaces, sharing'],
    ['{"pools": {}, "sharing": []}', '/f: sharing must be an object'],
    ['{"pools": {}, "sharing": {"order": "size"}}', '/f: sharing.order must be share or arrival'],
    [
      '{"pools": {}, "sharing": {"orders": "share"}}',
      '/f: sharing.orders is no setting of sharing; there are order, reserveAfterSeconds, reclaimAfterSeconds, noticeSeconds, minRunSeconds',
    ],
    [
      '{"pools": {}, "sharing": {"reserveAfterSeconds": -1}}',
      '/f: sharing.reserveAfterSeconds must be a whole number from 0 to 3600, or null',
    ],
    ['{"pools": {}, "sharing": {"reserveAfterSeconds": "60"}}', '/f: sharing.reserveAfterSeconds must be'],
    ['{"pools": {}, "workspaces": []}', '/f: workspaces must be an object'],
    ['{"pools": {}, "workspaces": {"a": 2}}', '/f: workspace a: share must be an object'],
    ['{"pools": {}, "workspaces": {"a": {"weight": 0}}}', '/f: workspace a: weight must be a number from 0.01'],
    [
      '{"pools": {}, "workspaces": {"a": {"guaranteed": {"L4": 2}, "limits": {"L4": 1}}}}',
      '/f: workspace a: limits.L4 is 1, less than guaranteed.L4, which is 2',
    ],
    ['{"pools": {"a b": {}}}', '/f: pool a b: the name must be letters'],
    ['{"pools": {"gpu": 2}}', '/f: pool gpu: must be an object of settings'],
    ['{"pools": {"gpu": null}}', '/f: pool gpu: must be an object of settings'],
    ['{"pools": {"gpu": {"cpuOvercommit": 0}}}', '/f: pool gpu: cpuOvercommit must be a number from 1 to 64'],
    [
      '{"pools": {"gpu": {"cpu_overcommit": 2, "cpuOvercommit": 2}}}',
      '/f: pool gpu: cpuOvercommit says cpuOvercommit a second time',
    ],
    ['{"pools": {"gpu": {"provider": "cloud"}}}', '/f: pool gpu: a pool with a provider needs machineCpuCores and'],
    ['{"pools": {"gpu": {"overcommit": 2}}}', '/f: pool gpu: overcommit is no setting of a pool'],
  ] as const)('%s is refused, by name', ([text, problem]) => {
    expect(() => declaredIn('/f', text)).toThrow(problem);
  });

  test('that cannot be read says why in words', async () => {
    await expect(readPoolsFile('/no/such/pools.json')).rejects.toThrow(
      /^LONGSHORE_POOLS_FILE \/no\/such\/pools\.json: cannot be read: it is not there$/,
    );
    await expect(readPoolsFile('/')).rejects.toThrow(/^LONGSHORE_POOLS_FILE \/: cannot be read: it is a directory$/);
  });

  test('has all its mistakes named together, and ends the start for good', () => {
    const text = '{"pools": {"a": {"priority": -1, "x": 1}, "b": {"cpuOvercommit": "2"}}}';
    const failed = (() => {
      try {
        return declaredIn('/f', text);
      } catch (error) {
        return error;
      }
    })();
    expect(failed).toMatchObject({ code: 'bad_config', exitCode: 78 });
    expect(String(failed)).toMatch(/\/f:\n {2}pool a: priority .*\n {2}pool a: x .*\n {2}pool b: cpuOvercommit /);
  });
});
