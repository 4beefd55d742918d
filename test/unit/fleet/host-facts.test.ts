import { expect, test } from 'vitest';
import type { HostFacts__Output, Inventory__Output } from '#shared/protocol/generated/messages.ts';
import { boundedHost, hostOf } from '../../../scheduler/fleet/host-facts.ts';

const aHost = (more: Partial<HostFacts__Output> = {}): HostFacts__Output => ({
  vendor: 'A',
  product: 'B',
  virtualization: 'none',
  cpuModel: 'C',
  nics: [],
  disks: [],
  numaNodes: [],
  fileSystems: [],
  warnings: [],
  ...more,
});

test('what an agent sends is cut to what is kept, and its texts are safe on a terminal', () => {
  const disks = Array.from({ length: 500 }, () => ({
    name: 'x'.repeat(5000),
    kind: 'ssd',
    bytes: 1,
    model: 'a\x1b[2Jb',
  }));
  const kept = boundedHost(aHost({ vendor: 'y'.repeat(5000), disks }));
  expect(kept?.disks).toHaveLength(64);
  expect(kept?.disks[0]).toMatchObject({ bytes: 1, model: 'a [2Jb' });
  expect(kept?.disks[0]?.name).toHaveLength(100);
  expect(kept?.vendor).toHaveLength(100);
  const warnings = Array.from({ length: 100 }, () => ({ check: 'c\nd', found: 'f'.repeat(5000), remedy: 'r' }));
  const warned = boundedHost(aHost({ warnings }))?.warnings;
  expect(warned).toHaveLength(32);
  expect(warned?.[0]).toEqual({ check: 'c d', found: 'f'.repeat(500), remedy: 'r' });
  expect(boundedHost(null)).toBeNull();
});

test('a machine shows what its agent said, and one that never came nothing', () => {
  expect(hostOf(null)).toBeNull();
  expect(hostOf({} as Inventory__Output)).toBeNull();
  const told = { hostname: 'h', os: 'o', kernel: 'k', arch: 'x86_64', gpuDriver: '', host: aHost() };
  expect(hostOf(told as Inventory__Output)).toMatchObject({ hostname: 'h', vendor: 'A', virtualization: 'none' });
});
