// Operations of the surfaces on containers.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Target } from '../../domain/stub-config.ts';

export interface ContainerActions {
  /**
   * Stops a container: TERM now, KILL after 30 s, with or without tasks. `workspaceId` null: any workspace's (admin).
   * @returns false: unknown, ended, or another workspace's
   */
  stopContainer(workspaceId: WorkspaceId | null, containerId: string): Promise<boolean>;
  /** Starts a container if there is none, whether or not tasks wait (warm-up). */
  warmUp(target: Target): Promise<void>;
}
