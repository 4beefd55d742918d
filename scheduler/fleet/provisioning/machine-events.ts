// Changes of machines that providers make, as events `compute.machine`, written with the rows. Those of shared pools
// belong to the administrator's workspace. Source: REST §9.2.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Db } from '../../stores/store/db.ts';
import { adminWorkspaceId } from '../../stores/store/queries/workspaces.ts';
import type { EventWriter } from '../../workspaces/events/writer.ts';
import type { WriteTold } from './rows.ts';

export function tellProvisioned(db: Db, events: Pick<EventWriter, 'transaction'>, nowMs: () => number): WriteTold {
  let admin: WorkspaceId | undefined;
  return async (row, action, change) => {
    const workspaceId = row.poolWorkspaceId ?? (admin ??= await adminWorkspaceId(db));
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
            failure: failure ?? '',
          },
        },
      });
      return written;
    });
  };
}
