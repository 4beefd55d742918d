// Changes of machines that providers make, as events `compute.machine`, written with the rows. Those of shared pools
// belong to the administrator's workspace. Source: REST §9.2.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Db } from '../../stores/store/db.ts';
import { adminWorkspaceId } from '../../stores/store/queries/workspaces.ts';
import type { EventWriter } from '../../workspaces/events/writer.ts';
import type { WriteTold } from './rows.ts';

/** An administrator's program may print secrets of the installation, so a workspace learns only that it failed. */
const FAILURE_OF_OTHERS = 'the provider of the pool failed, and an administrator sees why';

export function tellProvisioned(db: Db, events: Pick<EventWriter, 'transaction'>, nowMs: () => number): WriteTold {
  let admin: WorkspaceId | undefined;
  return async (row, action, change) => {
    admin ??= await adminWorkspaceId(db);
    const workspaceId = row.poolWorkspaceId ?? admin;
    if (workspaceId === undefined) return await change(db);
    return await events.transaction(db, async (tx, emit) => {
      const written = await change(tx);
      if (written === undefined) return undefined;
      const { machineId, poolName, provider, instanceId, address, hourlyCost, reason, endWhy, failure } = written;
      emit({
        workspaceId,
        machineId,
        type: 'compute.machine',
        atMs: nowMs(),
        data: {
          action,
          status: written.state,
          machine_id: machineId,
          pool_name: poolName,
          provider,
          instance_id: instanceId ?? '',
          attrs: {
            request_id: written.requestId,
            address: address ?? '',
            hourly_cost: hourlyCost,
            reason: endWhy ?? reason,
            failure: failure === null ? '' : workspaceId === admin ? failure : FAILURE_OF_OTHERS,
          },
        },
      });
      return written;
    });
  };
}
