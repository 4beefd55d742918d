import { expect, test } from 'vitest';
import type { Machine } from '#scheduler/fleet/machine.ts';
import { machineFactsOf } from '#scheduler/fleet/provisioning/machine-facts.ts';
import type { ContainerId } from '#shared/domain/ids.ts';

type Known = Parameters<typeof machineFactsOf>[0];
const aMachine = (said: Partial<Omit<Known, 'row'>> = {}, row: Partial<Machine['row']> = {}): Known => ({
  row: { joinedAtMs: 1, intent: 'active', ...row } as Machine['row'],
  health: 'READY',
  conditions: [],
  silentFromMs: null,
  orphans: new Map(),
  ...said,
});

test('a machine is ready when its agent is reconciled and nothing keeps containers away', () => {
  const ready = { isJoined: true, isReady: true, blockedBy: [], isConnected: true, isLost: false, silentMs: 0 };
  expect(machineFactsOf(aMachine(), false, 9)).toEqual({ ...ready, intent: 'active', isOccupied: false });
  expect(machineFactsOf(aMachine({ conditions: ['LaterReleaseSaysThis'] }), false, 9)).toMatchObject(ready);
});

test('the answer to Join makes no machine ready, nor does a connection with a condition', () => {
  const answered = machineFactsOf(aMachine({ health: 'PENDING' }), false, 9);
  expect(answered).toMatchObject({ isJoined: true, isReady: false, isConnected: false });
  const reconciling = machineFactsOf(aMachine({ health: 'RECONCILING' }), false, 9);
  expect(reconciling).toMatchObject({ isReady: false, isConnected: true });
  for (const name of ['DiskPressure', 'Preflight', 'ClockSkew'])
    expect(machineFactsOf(aMachine({ conditions: [name] }), false, 9)).toMatchObject({
      isReady: false,
      blockedBy: [name],
    });
});

test('rows and the agent tell of containers, and silence is counted', () => {
  const orphan = { orphans: new Map([['c' as ContainerId, {}]]) } as unknown as Partial<Known>;
  expect([machineFactsOf(aMachine(), true, 9), machineFactsOf(aMachine(orphan), false, 9)]).toMatchObject([
    { isOccupied: true },
    { isOccupied: true },
  ]);
  const lost = machineFactsOf(aMachine({ health: 'LOST', silentFromMs: 4 }), false, 9);
  expect(lost).toMatchObject({ isLost: true, isReady: false, silentMs: 5 });
});
