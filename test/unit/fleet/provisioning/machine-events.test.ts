// Events of machines that providers make: who gets them, and who may read what a provider's program said.
import { expect, test } from 'vitest';
import { tellProvisioned } from '#scheduler/fleet/provisioning/machine-events.ts';
import type { ProvisionedRow } from '#scheduler/fleet/provisioning/states.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import type { EventGiven, EventWriter } from '#scheduler/workspaces/events/writer.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';

const db = { query: () => Promise.resolve({ rows: [{ id: 'admin' }] }) } as unknown as Db;

async function toldOf(poolWorkspaceId: string | null, failure: string | null): Promise<readonly EventGiven[]> {
  const told: EventGiven[] = [];
  const events = {
    transaction: (_db: Db, work: (tx: Db, emit: (event: EventGiven) => void) => unknown) =>
      Promise.resolve(work(db, (event) => told.push(event))),
  } as unknown as Pick<EventWriter, 'transaction'>;
  const row = {
    machineId: 'm-1',
    poolName: 'gpu',
    provider: 'cloud',
    state: 'failed',
    poolWorkspaceId: poolWorkspaceId as WorkspaceId | null,
    endWhy: 'not_created',
    failure,
  } as ProvisionedRow;
  await tellProvisioned(db, events, () => 7)(row, 'failed', () => Promise.resolve(row));
  return told;
}

test('an administrator reads what the program said, and the owner of a pool that it failed', async () => {
  const secret = '+ curl -H Authorization: Bearer k3y';
  const event = (workspaceId: string, failure: string) => [{ workspaceId, data: { attrs: { failure } } }];
  expect(await toldOf(null, secret)).toMatchObject(event('admin', secret));
  expect(await toldOf('admin', secret)).toMatchObject(event('admin', secret));
  const text = 'the provider of the pool failed, and an administrator sees why';
  expect(await toldOf('w-2', secret)).toMatchObject(event('w-2', text));
  expect(await toldOf('w-2', null)).toMatchObject(event('w-2', ''));
});
