import { expect, test } from 'vitest';
import type { Machines } from '#scheduler/fleet/machines.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import { capacityByMarket, warningsOf } from '#scheduler/control/placement/market-capacity.ts';

test('guarantees beyond what machines have are named, by market', () => {
  const guaranteed = new Map([
    ['H100', 24],
    ['L4', 4],
    ['cpu', 65],
    ['A100', 1],
    ['B200', 1],
    ['b100', 0],
  ]);
  const capacity = new Map([
    ['H100', 16],
    ['L4', 4],
    ['cpu', 64.5],
    ['A100', 0],
  ]);
  expect(warningsOf(guaranteed, capacity)).toEqual([
    expect.stringMatching(/^24 H100 are guaranteed to workspaces, and shared machines have 16: /),
    expect.stringMatching(/^65 cores are guaranteed to workspaces, and shared machines have 64: /),
    expect.stringMatching(/^1 A100 are guaranteed to workspaces, and shared machines have 0: /),
    '1 B200 are guaranteed to workspaces, and no shared machine has this model: they have A100, H100, L4',
    'there is a limit on b100, and no shared machine has this model: they have A100, H100, L4',
  ]);
  expect(warningsOf(new Map([['H100', 0]]), new Map([['cpu', 0]]))).toEqual([
    'there is a limit on H100, and no shared machine has this model: they have no GPU',
  ]);
  const many = new Map(Array.from({ length: 50 }, (_none, n) => [`X${n}`, 1]));
  expect(warningsOf(many, capacity)).toHaveLength(21);
  expect(warningsOf(many, capacity).at(-1)).toBe('30 more such markets are not listed');
});

test('a market has what shared machines that are present offer, as placement counts it', () => {
  const made = (id: string, health: string, owner: string | null, models: readonly string[]) =>
    ({
      row: { id, poolName: 'p', poolWorkspaceId: owner, poolSettings: { cpuWorkOnGpuMachines: null } },
      health,
      inventory: {
        gpus: models.map((model, n) => ({
          uuid: `${id}-${n}`,
          model,
          memoryBytes: 0,
          numaNode: 0,
          unhealthy: n === 7,
        })),
      },
    }) as unknown as Machine;
  const eight = Array.from({ length: 8 }, () => 'H100');
  const all = [
    made('a', 'READY', null, eight),
    made('b', 'SUSPECT', null, ['H100']),
    made('c', 'LOST', null, ['L4']),
    made('d', 'READY', 'w', ['A100']),
    made('e', 'READY', null, []),
  ];
  const amounts = { totalCpuMillicores: 8500, totalMemoryBytes: 1 } as ReturnType<Machines['capacity']>;
  const machines = { all: () => all.values(), capacity: () => amounts };
  expect([...capacityByMarket(machines, () => false)]).toEqual([
    ['cpu', 8.5],
    ['H100', 8],
    ['L4', 0],
  ]);
  expect(capacityByMarket(machines, () => true).get('cpu')).toBe(25.5);
});
