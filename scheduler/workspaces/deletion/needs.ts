// Needs of a deletion that rooms above fill: ends of tasks and containers, files of volumes, images, pools.
import type {
  ContainerId,
  DeploymentId,
  MachineId,
  ObjectId,
  QueueName,
  TaskId,
  WorkspaceId,
} from '#shared/domain/ids.ts';
import type { VolumeRow } from '../../stores/store/queries/volumes.ts';

/** Each is idempotent: a round that was cut off runs again. */
export interface DeletionNeeds {
  /** Answers the queue's callers, stops its containers, cancels its tasks and forgets the queue. */
  endQueue(queue: QueueName): Promise<void>;
  /** Has every replica read the deployment again. */
  deploymentChanged(id: DeploymentId): Promise<void>;
  /** Cancels a task wherever it is. */
  cancelTask(id: TaskId): Promise<void>;
  /** Cancels a call of a model that is answered later. */
  cancelDeferredCall(id: TaskId): Promise<void>;
  /** Containers that were not told to stop, as the leader knows them. */
  runningContainers(id: WorkspaceId): readonly ContainerId[];
  stopContainer(id: ContainerId): Promise<void>;
  /** Deletes a machine of the workspace's own, or drains it to be deleted. @returns whether it is gone */
  deleteMachine(id: WorkspaceId, machineId: MachineId): Promise<boolean>;
  /** Deletes a pool of the workspace unless it has machines. @returns whether it is gone */
  deletePool(id: WorkspaceId, name: string): Promise<boolean>;
  /**
   * Removes the files of a volume, as many as there is time for.
   * @returns whether none are left @throws AppError where they cannot be reached now
   */
  emptyVolume(volume: VolumeRow): Promise<boolean>;
  /** Deletes the row of a volume, and has machines remove the directories of a cache. */
  forgetVolume(volume: VolumeRow): Promise<void>;
  deleteImage(id: WorkspaceId, imageId: string): Promise<unknown>;
  removeBytes(id: ObjectId): Promise<void>;
  /** Removes the object of a task's input, if it has one. */
  removeInput(taskId: TaskId): Promise<void>;
  /** Has replicas write the records of tasks that they hold. @returns whether the database has them all */
  recordsCaughtUp(): Promise<boolean>;
}
