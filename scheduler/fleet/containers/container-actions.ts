// Operations of the surfaces on containers, and on the containers and tasks of a deployment.
import type { QueueName, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Target } from '../../workspaces/deployments/stub-config.ts';

export interface ContainerActions {
  /**
   * Stops a container: TERM now, KILL after 30 s, with or without tasks. `workspaceId` null: any workspace's (admin).
   * @returns false: unknown, ended, or another workspace's
   */
  stopContainer(workspaceId: WorkspaceId | null, containerId: string): Promise<boolean>;
  /** Starts a container if there is none, whether or not tasks wait (warm-up). */
  warmUp(target: Target): Promise<void>;
}

/**
 * Effects of a changed deployment row. Each is idempotent, and complete
 * when it returns, except for containers that are still stopping.
 */
export interface DeploymentEffects {
  /**
   * Answers the deployment's synchronous callers at once, waiting or running (CANCELLED, 503 `deployment stopped`), and
   * stops its containers; queued asynchronous tasks stay.
   */
  stopped(queue: QueueName, stubId: StubId): Promise<void>;
  /** Does the same as `stopped`, and cancels every queued task. */
  deleted(queue: QueueName, stubId: StubId): Promise<void>;
  /** Stops the running containers after ScaleDeployment 0; then the queue decides again. */
  scaledToZero(queue: QueueName, stubId: StubId): Promise<void>;
}
