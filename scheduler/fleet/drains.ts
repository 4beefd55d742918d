// Drains, which the leader continues until each machine is empty. Changes of the machine's containers wake it, and a
// timer every second. drain-plan.ts decides. The containers that await a replacement are kept in memory only: a new
// leader asks anew, and finds the replacements that exist already. Deadlines are in the machine's row.
import type { ContainerId, MachineId, QueueName } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerControl, ContainerEntryChange, ContainerRegistry } from './containers/container-registry.ts';
import type { ContainerEntry } from './containers/container-entry.ts';
import type { SlotTable } from '../tasks/dispatch/slots.ts';
import type { Loads } from '../cluster/loads.ts';
import type { DrainContainer, DrainStep } from './drain-plan.ts';
import { drainSteps } from './drain-plan.ts';
import { isDraining, isSchedulable } from './machine.ts';
import type { Machine } from './machine.ts';
import type { Machines } from './machines.ts';
import { SteadyDeadlines } from './steady-deadlines.ts';
import type { DrainView } from './worker-service.ts';

export interface DrainsParts {
  readonly machines: Machines;
  readonly containers: ContainerRegistry;
  /** The container registry as the leader writes it. */
  readonly leaderContainers: Pick<ContainerControl, 'transition'>;
  readonly slots: SlotTable;
  readonly loads: Pick<Loads, 'of' | 'isHere'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly isLeader: () => boolean;
  /** Demand of the queue, and the lower bound of its containers. */
  readonly demandOf: (queue: QueueName) => Promise<{ readonly wanted: number; readonly minContainers: number }>;
}

export class Drains {
  readonly #parts: DrainsParts;
  /** Serving containers that are to be replaced, and since when, in monotonic milliseconds. */
  readonly #picked = new Map<ContainerId, number>();
  readonly #looking = new Map<QueueName, Promise<void>>();
  readonly #pickedFrom = new Listeners<[QueueName]>();
  readonly #deadlines: SteadyDeadlines<MachineId>;

  constructor(parts: DrainsParts) {
    this.#parts = parts;
    this.#deadlines = new SteadyDeadlines(parts.clock);
  }

  /** Told when a container of the queue no longer counts: another one may be wanted. */
  onPicked(listener: (queue: QueueName) => void): void {
    this.#pickedFrom.add(listener);
  }

  machineChanged({ row }: Machine): void {
    if (this.#parts.machines.get(row.id) === undefined) this.#deadlines.forget(row.id);
  }

  containerChanged({ entry, to }: ContainerEntryChange): void {
    if (to !== 'RUNNING') this.#picked.delete(entry.row.id);
  }

  /**
   * Whether the container awaits its replacement: it still serves
   * but does not count, so the scaling loop asks for another one.
   */
  isReplaced(id: ContainerId): boolean {
    return this.#picked.has(id);
  }

  /**
   * Takes one step for everything on a machine. Resolves when all containers that must stop at once have been told so.
   */
  async check(machine: Machine): Promise<void> {
    const { containers, isLeader } = this.#parts;
    if (!isLeader()) return;
    const entries = [...containers.ofMachine(machine.row.id)];
    if (!isDraining(machine.row)) {
      this.#deadlines.forget(machine.row.id);
      // Uncordoned: containers that were picked and have not begun to leave stay.
      for (const { row } of entries) this.#picked.delete(row.id);
      return;
    }
    await Promise.all([...new Set(entries.map(({ spec }) => spec.queue))].map((queue) => this.#lookAt(queue)));
  }

  /** Looks at a queue, one look at a time: two at once would pick twice as many containers. */
  #lookAt(queue: QueueName): Promise<void> {
    const running = this.#looking.get(queue);
    if (running !== undefined) return running;
    const look = this.#step(queue)
      .catch((error: unknown) => this.#parts.log.warn({ err: error, queue }, 'a drain could not go on, trying again'))
      .finally(() => this.#looking.delete(queue));
    this.#looking.set(queue, look);
    return look;
  }

  async #step(queue: QueueName): Promise<void> {
    const { containers, clock, machines, demandOf } = this.#parts;
    const demand = await demandOf(queue);
    const nowMs = clock.monotonicMs();
    const draining: DrainContainer[] = [];
    let readyElsewhere = 0;
    let hasNoCapacity = false;
    for (const entry of containers.ofQueue(queue)) {
      const machine = entry.row.machineId === null ? undefined : machines.get(entry.row.machineId);
      if (machine !== undefined && isDraining(machine.row)) draining.push(this.#container(entry, machine));
      else if (entry.row.state === 'RUNNING' && machine !== undefined && isSchedulable(machine)) readyElsewhere += 1;
      else if (entry.row.state === 'PENDING' && entry.rejections !== null) hasNoCapacity = true;
    }
    const steps = drainSteps({ ...demand, readyElsewhere, hasNoCapacity, containers: draining }, nowMs);
    await Promise.all(steps.map((step) => this.#carryOut(queue, step, nowMs)));
  }

  #container({ row, spec }: ContainerEntry, machine: Machine): DrainContainer {
    return {
      id: row.id,
      state: row.state,
      attempts: this.#parts.loads.of(row.id)?.inFlight,
      pickedAtMs: this.#picked.get(row.id),
      isLate: this.#deadlines.isOver(machine.row.id, deadlineOf(machine)),
      createdAtMs: row.createdAtMs,
      byHand: spec.byHand === true,
    };
  }

  async #carryOut(queue: QueueName, { kind, id }: DrainStep, nowMs: number): Promise<void> {
    const { leaderContainers, slots, loads, log } = this.#parts;
    if (kind === 'pick') {
      this.#picked.set(id, nowMs);
      this.#pickedFrom.tell(queue);
      return;
    }
    slots.leave(id);
    // The container may have got a task at this moment. If its machine is
    // linked to another replica, that replica stops it once it is idle.
    const isIdle = loads.isHere(id) && slots.get(id)?.inFlight === 0;
    const event = kind === 'end' || (kind === 'stop' && isIdle) ? 'stop' : 'drain';
    const moved = await leaderContainers.transition(id, event, { change: { reason: 'drained' } });
    if (moved === 'refused') slots.stay(id);
    else log.info({ containerId: id, queue, event }, 'a container leaves its machine, which drains');
  }

  // ---- what is shown ------------------------------------------------------------------------------------------------

  /** Progress of a machine's drain; null: the machine does not drain, and has not. */
  progressOf(machine: Machine): DrainView | null {
    const { row } = machine;
    if (!isDraining(row) && row.intent !== 'drained') return null;
    const entries = [...this.#parts.containers.ofMachine(row.id)];
    const remaining = entries.length + machine.orphans.size;
    return {
      total: Math.max(row.drainTotal ?? 0, remaining),
      remaining,
      deadlineAtMs: isDraining(row) && Number.isFinite(deadlineOf(machine)) ? deadlineOf(machine) : null,
      blockedBy: entries.map((entry) => ({
        containerId: entry.row.id,
        why: whyItStays(entry),
        attempts: this.#parts.loads.of(entry.row.id)?.inFlight ?? 0,
      })),
    };
  }
}

/** The operator's deadline or its host's, the earlier one. */
function deadlineOf({ row }: Machine): number {
  return Math.min(row.drainDeadlineAtMs ?? Infinity, row.hostDrainUntilMs ?? Infinity);
}

function whyItStays({ row, spec }: ContainerEntry): DrainView['blockedBy'][number]['why'] {
  if (row.state === 'DRAINING') return 'tasks';
  if (row.state === 'RUNNING') return spec.byHand === true ? 'made_by_hand' : 'replacement';
  return row.state === 'UNKNOWN' ? 'machine_away' : 'stopping';
}
