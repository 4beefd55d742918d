// A container as the surfaces show it; the registry behind it is container-registry.ts.
import type { ContainerId, DeploymentId, MachineId, QueueName, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';

export interface ContainerView {
  readonly containerId: ContainerId;
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  readonly state: ContainerState;
  /** Public status: PENDING, RUNNING, STOPPING. */
  readonly status: 'PENDING' | 'RUNNING' | 'STOPPING';
  readonly machineId: MachineId | null;
  readonly scheduledAtMs: number | null;
  readonly startedAtMs: number | null;
  readonly cpuMillicores: number;
  readonly memoryMib: number;
}

export interface ContainerReads {
  /** Live containers of the workspace; null: every workspace's. */
  list(workspaceId: WorkspaceId | null): readonly ContainerView[];
  /** Number of live containers of a stub, for `stats.active_containers`. */
  countOfStub(stubId: StubId): number;
  /** Whether containers of the queue run, or will. */
  hasLive(queue: QueueName): boolean;
}
