// What the surfaces may do to containers and to what a deployment runs.
import type { QueueName, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Target } from '../deployments/stub-config.ts';

export interface ContainerActions {
  /**
   * TERM now, KILL after 30 s, whatever it is doing. `workspaceId` null: any workspace's (admin).
   * @returns false: unknown, ended, or another workspace's
   */
  stopContainer(workspaceId: WorkspaceId | null, containerId: string): Promise<boolean>;
  /** Warm-up: at least one container, whether or not tasks wait. */
  warmUp(target: Target): Promise<void>;
}

/** What must happen when a deployment's row changed. Each is idempotent, and done when it returns but for containers that are still stopping. */
export interface DeploymentEffects {
  /** Its synchronous callers, waiting or running, are answered at once (CANCELLED, 503 `deployment stopped`); its containers stop; queued asynchronous tasks stay. */
  stopped(queue: QueueName, stubId: StubId): Promise<void>;
  /** The same, and every queued task is CANCELLED. */
  deleted(queue: QueueName, stubId: StubId): Promise<void>;
  /** ScaleDeployment 0: what runs now stops, then the queue decides again. */
  scaledToZero(queue: QueueName, stubId: StubId): Promise<void>;
}
