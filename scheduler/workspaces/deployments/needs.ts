// Needs of deployments that rooms above fill: placement, images, and the effects of a change on tasks and containers.
import type { QueueName } from '#shared/domain/ids.ts';
import type { QueueControl } from '../../domain/flow.ts';

export type Resolution =
  /**
   * `digest` empty: an image of machines alone, or no registry could
   * be asked; then `warning` tells this to the person who deploys.
   */
  | { readonly kind: 'resolved'; readonly digest: string; readonly warning: string }
  | { readonly kind: 'refused'; readonly text: string };

/** Warning that nothing may be able to serve a stub now. */
export interface FeasibilityWarning {
  readonly says: string;
  /** Consequence for calls, as a clause. */
  readonly effect: string;
  /** Step to take; absent: to ask for what a machine has, or to admit one. */
  readonly step?: string;
}

/**
 * Effects of a changed deployment row. Each is idempotent, and complete
 * when it returns, except for containers that are still stopping.
 */
export interface DeploymentEffects {
  /**
   * Answers the deployment's synchronous callers at once, waiting or running (CANCELLED, `deployment_stopped`), and
   * stops its containers; queued asynchronous tasks stay.
   */
  stopped(queue: QueueName): Promise<void>;
  /**
   * Answers the synchronous callers who wait here, before other parts hear that the deployment takes no calls.
   * @returns how many tasks were cancelled
   */
  deleting(queue: QueueName): Promise<number>;
  /**
   * Does the same as `stopped`, and cancels every queued task.
   * @returns how many tasks were cancelled, without synchronous ones that wait at another replica
   */
  deleted(queue: QueueName): Promise<number>;
  /** Pauses or bounds the queue in Redis, or lets it go on. @throws AppError `queues_unavailable` */
  queueControlled(queue: QueueName, control: QueueControl): Promise<void>;
  /** Stops the running containers after ScaleDeployment 0; then the queue decides again. */
  scaledToZero(queue: QueueName): Promise<void>;
}
