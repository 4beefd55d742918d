// Containers that CreatePod makes, one at a time: of pods and sandboxes. Scaling leaves them alone. They end with their
// entrypoint, by a stop, after their time to live, or with their machine, and nothing takes their place.
import type { ContainerId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { ContainerNetwork } from '../../stores/store/queries/containers.ts';
import type { ContainerRegistry } from './container-registry.ts';

export interface HandMadeParts {
  readonly containers: Pick<ContainerRegistry, 'createByHand' | 'all' | 'amend'>;
  /** Most of them that a workspace may have: `counts.sandboxes`. */
  readonly mostOf: (workspaceId: WorkspaceId) => Promise<number>;
}

export type Made =
  | { readonly kind: 'made'; readonly containerId: ContainerId }
  | { readonly kind: 'full'; readonly most: number };

export class HandMadeContainers {
  readonly #parts: HandMadeParts;

  constructor(parts: HandMadeParts) {
    this.#parts = parts;
  }

  /** Makes a container of the target, PENDING. */
  async create(target: Target): Promise<Made> {
    const most = await this.#parts.mostOf(target.workspaceId);
    const made = await this.#parts.containers.createByHand(target, most);
    return made === undefined ? { kind: 'full', most } : { kind: 'made', containerId: made.row.id };
  }

  /** Containers of the workspace that were made by hand, and have not ended. */
  countOf(workspaceId: WorkspaceId): number {
    let count = 0;
    for (const { row, spec } of this.#parts.containers.all())
      if (row.workspaceId === workspaceId && spec.byHand === true) count += 1;
    return count;
  }

  /**
   * Lets callers reach a port of a sandbox by its URL.
   * @returns false: the container has ended, or has as many exposed ports as it may
   */
  async exposePort(containerId: string, port: number): Promise<boolean> {
    return await this.#parts.containers.amend(containerId as ContainerId, { exposedPort: port });
  }

  /**
   * Keeps what a sandbox may reach: its agent sets these rules, also after an absence.
   * @returns false: the container has ended, or is no sandbox
   */
  async keepNetwork(containerId: string, network: ContainerNetwork): Promise<boolean> {
    return await this.#parts.containers.amend(containerId as ContainerId, { network });
  }
}
