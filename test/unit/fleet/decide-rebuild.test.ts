import { expect, test } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import { decideRebuild } from '#scheduler/fleet/builds/decide-rebuild.ts';

const ids = (...some: string[]): MachineId[] => some as MachineId[];

test.each([
  ['nobody has it', [], [], false, { kind: 'build', only: undefined }],
  ['a machine in service has it', ['a'], [], false, { kind: 'none', why: 'waits_for_holder' }],
  ['the registry has it', [], [], true, { kind: 'none', why: 'in_registry' }],
  ['the volume is elsewhere', ['a'], ['b'], false, { kind: 'build', only: 'b' }],
  ['the home of the volume has it', ['a', 'b'], ['b'], false, { kind: 'none', why: 'waits_for_holder' }],
  ['the volume is elsewhere, and the registry has it', ['a'], ['b'], true, { kind: 'none', why: 'in_registry' }],
  ['two volumes have different homes', ['a'], ['a', 'b'], false, { kind: 'none', why: 'volumes_apart' }],
] as const)('%s', (_name, holders, homes, isInRegistry, expected) => {
  expect(decideRebuild({ holders: ids(...holders), homes: ids(...homes), isInRegistry })).toEqual(expected);
});
