// Machines that cannot go on because calls of their provider keep failing.
import { expect, test } from 'vitest';
import type { Step } from '#scheduler/fleet/provisioning/next-step.ts';
import type { ProvisionedRow } from '#scheduler/fleet/provisioning/states.ts';
import { KEEPS_FAILING, poolTrouble } from '#scheduler/fleet/provisioning/trouble.ts';
import type { TroubleFacts } from '#scheduler/fleet/provisioning/trouble.ts';
import type { MachineId } from '#shared/domain/ids.ts';

const aRow = (over: Partial<ProvisionedRow>): ProvisionedRow =>
  ({
    requestId: 'r1',
    machineId: 'm1' as MachineId,
    provider: 'cloud',
    instanceId: 'i1',
    terminatedAtMs: null,
    failures: 0,
    failure: null,
    endWhy: null,
    joinedAtMs: null,
    ...over,
  }) as ProvisionedRow;

const LOOK: Step = { kind: 'look' };
const facts = (over: Partial<TroubleFacts> = {}): TroubleFacts => ({
  stepOf: () => LOOK,
  listingsOf: () => ({ failures: 0, failure: null }),
  terminateFailureOf: () => null,
  ...over,
});
const listFails = (failures: number, name = 'cloud') => ({
  listingsOf: (provider: string) =>
    provider === name ? { failures, failure: 'no such region' } : { failures: 0, failure: null },
});

test('a listing counts as failing from its third failure in a row', () => {
  expect(poolTrouble([], 'cloud', facts(listFails(KEEPS_FAILING - 1)))).toEqual({
    listFailures: 0,
    listFailure: null,
    stuck: [],
  });
  const failing = { listFailures: 3, listFailure: 'no such region', stuck: [] };
  expect(poolTrouble([], 'cloud', facts(listFails(3)))).toEqual(failing);
});

test('a machine that waits for a listing of its own provider is stuck, and others are not', () => {
  const coming = aRow({ state: 'creating', instanceId: null });
  const ending = aRow({ state: 'terminating', machineId: 'm2' as MachineId, terminatedAtMs: 1 });
  const joined = aRow({ state: 'joined' });
  const { stuck } = poolTrouble([coming, ending, joined], 'cloud', facts(listFails(4)));
  const told = { provider: 'cloud', verb: 'list', failures: 4, failure: 'no such region' };
  expect(stuck).toEqual([
    { ...told, machineId: 'm1', instanceId: null, isComing: true },
    { ...told, machineId: 'm2', instanceId: 'i1', isComing: false },
  ]);
  expect(poolTrouble([coming], 'cloud', facts(listFails(4, 'another'))).stuck).toEqual([]);
  const waits = facts({ ...listFails(4), stepOf: () => ({ kind: 'wait', untilMs: 1 }) });
  expect(poolTrouble([coming, ending], 'cloud', waits).stuck).toEqual([]);
});

test('a machine whose terminate keeps failing is stuck, with the words of that call and not of its pool', () => {
  const idle = aRow({ state: 'terminating', endWhy: 'idle', joinedAtMs: 1, failures: 3, failure: 'not now' });
  expect(poolTrouble([idle], 'cloud', facts()).stuck).toMatchObject([
    { verb: 'terminate', failures: 3, failure: 'not now', isComing: false },
  ]);
  const never = aRow({ state: 'terminating', endWhy: 'never_joined', failures: 3, failure: 'its agent did not join' });
  expect(poolTrouble([never], 'cloud', facts()).stuck).toMatchObject([{ verb: 'terminate', failure: null }]);
  const told = facts({ terminateFailureOf: () => 'not now' });
  expect(poolTrouble([never], 'cloud', told).stuck).toMatchObject([{ failure: 'not now' }]);
  expect(poolTrouble([{ ...never, failures: 2 }], 'cloud', told).stuck).toEqual([]);
});
