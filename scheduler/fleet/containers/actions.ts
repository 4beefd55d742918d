// Starts and stops of containers that a person or program asked for, not lack of work.
import type { ContainerId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { isLiveContainer } from '#shared/domain/status.ts';
import { AppError } from '#shared/errors.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { SlotTable } from '../../tasks/dispatch/slots.ts';
import type { ContainerEntry } from './container-entry.ts';
import type { ContainerRegistry, Moved } from './container-registry.ts';
import { ADMIN_PREEMPTED, ADMIN_PREEMPTED_WITH_CALLS } from './spec.ts';

export class ContainerActions {
  readonly #containers: ContainerRegistry;
  readonly #slots: SlotTable;
  readonly #tellEnded: (id: ContainerId) => Promise<void>;
  readonly #warming = new Map<QueueName, Promise<unknown>>();

  /**
   * Operations on containers.
   * @param tellEnded - has every replica refuse the credential of a container that is told to end
   */
  constructor(
    containers: ContainerRegistry,
    slots: SlotTable,
    tellEnded: (id: ContainerId) => Promise<void> = async () => {},
  ) {
    this.#containers = containers;
    this.#slots = slots;
    this.#tellEnded = tellEnded;
  }

  /**
   * Stops a container: TERM now, KILL after 30 s, with or without tasks. The administrator may stop those of every
   * workspace.
   * @returns false: unknown, ended, or another workspace's
   */
  async stopContainer(
    by: { readonly workspaceId: WorkspaceId; readonly isAdmin: boolean },
    containerId: string,
  ): Promise<boolean> {
    const entry = this.#containers.get(containerId as ContainerId);
    const isOwn = entry?.row.workspaceId === by.workspaceId;
    if (entry === undefined || (!isOwn && !by.isAdmin)) return false;
    await this.#stop(entry, isOwn ? 'user_stop' : 'admin_stop');
    return true;
  }

  /**
   * Has a container leave as for another one: it takes no more tasks, and those of queues are given back after the
   * notice, at no cost. Calls end by themselves.
   * @param endsCalls - whether the container is stopped after the notice, with its calls
   * @throws AppError `container_not_found`, `container_not_running`, `container_made_by_hand`
   */
  async preempt(containerId: string, endsCalls: boolean): Promise<ContainerEntry> {
    const id = containerId as ContainerId;
    const entry = this.#containers.get(id);
    if (entry === undefined) throw new AppError('container_not_found', `there is no container ${containerId}`);
    if (entry.spec.byHand === true)
      throw new AppError(
        'container_made_by_hand',
        `nothing replaces container ${id}, which was made by itself: stop it`,
      );
    this.#slots.leave(id);
    let moved: Moved = 'refused';
    try {
      const reason = endsCalls ? ADMIN_PREEMPTED_WITH_CALLS : ADMIN_PREEMPTED;
      if (entry.row.state === 'RUNNING') moved = await this.#containers.transition(id, 'drain', { change: { reason } });
    } finally {
      if (moved === 'refused' && entry.row.state === 'RUNNING') this.#slots.stay(id);
    }
    if (moved === 'refused')
      throw new AppError('container_not_running', `container ${id} is not ready, or ends already`);
    return entry;
  }

  /** Stops a container for that reason: TERM now, KILL after 30 s. One that has ended is left alone. */
  async stopFor(containerId: ContainerId, reason: string): Promise<void> {
    const entry = this.#containers.get(containerId);
    if (entry !== undefined) await this.#stop(entry, reason);
  }

  /** Stops all containers of a queue at once. */
  async stopAll(queue: QueueName, reason: string): Promise<void> {
    await Promise.all([...this.#containers.ofQueue(queue)].map((entry) => this.#stop(entry, reason)));
  }

  /** Starts a container if there is none, whether or not tasks wait (warm-up). */
  async warmUp(target: Target): Promise<void> {
    const { queue } = target;
    for (const entry of this.#containers.ofQueue(queue)) if (isLiveContainer(entry.row.state)) return;
    // Many callers at once start a single container.
    let warming = this.#warming.get(queue);
    if (warming === undefined) {
      warming = this.#containers.create(target, { warmUp: true }).finally(() => this.#warming.delete(queue));
      this.#warming.set(queue, warming);
    }
    await warming;
  }

  /** Stops a container: TERM now, KILL after 30 s (the agent does both); no new attempts from this moment. */
  async #stop(entry: ContainerEntry, reason: string): Promise<void> {
    const { id, state } = entry.row;
    this.#slots.leave(id);
    const event = state === 'PENDING' || state === 'ASSIGNED' ? 'abandon' : 'stop';
    try {
      const moved = await this.#containers.transition(id, event, { change: { reason } });
      // The container moved on meanwhile (an acknowledgement came), so the other event ends it.
      if (moved === 'refused')
        await this.#containers.transition(id, event === 'stop' ? 'abandon' : 'stop', { change: { reason } });
      await this.#tellEnded(id);
    } catch (error) {
      // The end was not written: the container runs on, and the caller gets the error.
      this.#slots.stay(id);
      throw error;
    }
  }
}
