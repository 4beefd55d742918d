// Detection of silent and lost machines, and of stalls of this process itself, during which silence proves nothing.
import { MachineHealth } from '../fleet/health.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { TaskParts } from './tasks.ts';

export function openHealth(
  { clock, log, settings, stall }: Infrastructure,
  { machines, joining, leaderContainers, slots, isLeader, fence, fleetMetrics }: ClusterState,
  { reports }: TaskParts,
): MachineHealth {
  return new MachineHealth({
    machines,
    joining,
    containers: leaderContainers,
    slots,
    reports,
    clock,
    isLeader,
    fence,
    log,
    guardMetric: fleetMetrics.guard,
    stall,
    lostAfterMs: settings.LONGSHORE_MACHINE_LOST_SECONDS * 1000,
    startGraceMs: settings.LONGSHORE_RESTART_GRACE_SECONDS * 1000,
  });
}
