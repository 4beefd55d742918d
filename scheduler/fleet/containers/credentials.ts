// The credential of a container: a text that the installation's key has signed over its id, placement, stub and
// workspace. The text has no row and no expiry of its own. The credential is valid for as long as the container's row
// says that the container started under that epoch lives. The check runs at every use of such a token, so it answers
// from the container registry where that is reliable, and reads the row elsewhere.
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import type { Invalidation } from '../../workspaces/identity/invalidation.ts';
import type { Tokens } from '../../workspaces/identity/tokens.ts';
import type { Queryable } from '../../stores/store/db.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import { containerById } from '../../stores/store/queries/containers.ts';
import type { ContainerRegistry } from './container-registry.ts';

/** States of a container that its machine acknowledged, and that was not told to stop. */
const LIVING: ReadonlySet<ContainerState> = new Set(['STARTING', 'RUNNING', 'DRAINING']);
/** States of a container that is not there yet: another replica's message that it is may be on its way. */
const COMING: ReadonlySet<ContainerState> = new Set(['PENDING', 'ASSIGNED']);
const MOST_ENDED = 10_000;

/**
 * Whether the container started under that epoch lives. A container whose machine
 * is silent counts as living: losing the scheduler ends no container. Pure.
 */
export function isLiving(row: Pick<ContainerRow, 'state' | 'stateBefore' | 'epoch'>, epoch: number): boolean {
  const state = row.state === 'UNKNOWN' ? row.stateBefore : row.state;
  return row.epoch === epoch && state !== null && LIVING.has(state);
}

/** Issues the container's credential. @param row - as it was placed */
export function issueCredential(tokens: Pick<Tokens, 'issueContainerToken'>, row: ContainerRow): Promise<string> {
  return tokens.issueContainerToken({
    containerId: row.id,
    epoch: row.epoch,
    stubId: row.stubId,
    deploymentId: row.deploymentId,
    workspaceId: row.workspaceId,
    sinceMs: row.scheduledAtMs ?? row.createdAtMs,
  });
}

export interface ContainerCredentialsParts {
  readonly db: Queryable;
  readonly containers: Pick<ContainerRegistry, 'get'>;
  readonly invalidation: Pick<Invalidation, 'publish' | 'on' | 'isLive'>;
  /** Whether no other process writes these rows. */
  readonly isAlone: boolean;
  readonly hasMachine: (id: MachineId) => boolean;
}

export class ContainerCredentials {
  readonly #parts: ContainerCredentialsParts;
  /** Containers told to end, here or elsewhere, perhaps before their rows were read here. None of them lives again. */
  readonly #ended = new Set<ContainerId>();

  constructor(parts: ContainerCredentialsParts) {
    this.#parts = parts;
    parts.invalidation.on('container', (id) => this.#end(id as ContainerId));
  }

  isLive(id: ContainerId, epoch: number): boolean | Promise<boolean> {
    if (this.#ended.has(id)) return false;
    const { containers, invalidation, isAlone, hasMachine } = this.#parts;
    const row = containers.get(id)?.row;
    // While messages do not arrive, another replica may have ended the container.
    if (row === undefined || !(isAlone || invalidation.isLive)) return this.#read(id, epoch);
    if (isLiving(row, epoch)) return row.machineId !== null && hasMachine(row.machineId);
    // The container was placed anew, and the message about that may still be on its way.
    const isBehind = row.epoch < epoch || (row.epoch === epoch && COMING.has(row.state));
    return isBehind ? this.#read(id, epoch) : false;
  }

  /**
   * Records that the containers were told to end. Resolves when
   * their credentials are invalid at every listening replica.
   */
  async ended(ids: readonly ContainerId[]): Promise<void> {
    await Promise.all(ids.map((id) => this.#parts.invalidation.publish('container', id)));
  }

  #end(id: ContainerId): void {
    this.#ended.add(id);
    if (this.#ended.size <= MOST_ENDED) return;
    for (const oldest of this.#ended) {
      this.#ended.delete(oldest);
      return;
    }
  }

  async #read(id: ContainerId, epoch: number): Promise<boolean> {
    const row = await containerById(this.#parts.db, id);
    return row !== undefined && isLiving(row, epoch);
  }
}
