// Drains, which the leader continues until each machine is empty. Changes of the machine's containers wake it, and a
// timer every second. drain-plan.ts decides. The containers that await a replacement are kept in memory only: a new
// leader asks anew, and finds the replacements that exist already. Deadlines are in the machine's row.
import type { ContainerId, MachineId, QueueName } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { Listeners } from '#shared/listeners.ts';
import { waitsForTurn } from '#shared/domain/pull-turns.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerControl, ContainerEntryChange, ContainerRegistry } from './containers/container-registry.ts';
import { isRefused } from './containers/container-entry.ts';
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

/** Time without progress that is told. */
const QUIET_MS = 30_000;

export class Drains {
  readonly #parts: DrainsParts;
  /** Serving containers that are to be replaced, and since when, in monotonic milliseconds. */
  readonly #picked = new Map<ContainerId, number>();
  /** Last start that failed in the queue of a machine that drains; forgotten when no container waits any more. */
  readonly #failed = new Map<QueueName, string>();
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

  containerChanged({ entry, from, to }: ContainerEntryChange): void {
    const { row, spec } = entry;
    if (to !== 'RUNNING') this.#picked.delete(row.id);
    if (from === 'STARTING' && to === 'FAILED' && this.#waitsFor(spec.queue))
      this.#failed.set(spec.queue, `replacement ${row.id} failed (${row.reason ?? 'no reason given'})`);
    else if (to === 'RUNNING' || (this.#failed.has(spec.queue) && !this.#waitsFor(spec.queue)))
      this.#failed.delete(spec.queue);
  }

  /** Whether a container of the queue serves on a machine that drains. */
  #waitsFor(queue: QueueName): boolean {
    return this.#ofQueue(queue).leaving.some(([{ row }]) => row.state === 'RUNNING');
  }

  /** Containers of a queue: those on machines that drain, and the others. */
  #ofQueue(queue: QueueName): {
    readonly leaving: readonly (readonly [ContainerEntry, Machine])[];
    readonly others: readonly ContainerEntry[];
  } {
    const { containers, machines } = this.#parts;
    const leaving: (readonly [ContainerEntry, Machine])[] = [];
    const others: ContainerEntry[] = [];
    for (const entry of containers.ofQueue(queue)) {
      const machine = entry.row.machineId === null ? undefined : machines.get(entry.row.machineId);
      if (machine !== undefined && isDraining(machine.row)) leaving.push([entry, machine]);
      else others.push(entry);
    }
    return { leaving, others };
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
    const { clock, machines, demandOf } = this.#parts;
    const demand = await demandOf(queue);
    const nowMs = clock.monotonicMs();
    const { leaving, others } = this.#ofQueue(queue);
    let readyElsewhere = 0;
    let hasRefused = false;
    let isOnItsWay = false;
    let progressedAtMs: number | undefined;
    for (const entry of others) {
      const { row, start } = entry;
      const machine = row.machineId === null ? undefined : machines.get(row.machineId);
      if (row.state === 'RUNNING' && machine !== undefined && isSchedulable(machine)) readyElsewhere += 1;
      else if (row.state === 'PENDING') hasRefused ||= isRefused(entry);
      else if (start !== undefined) {
        isOnItsWay = true;
        // A place in the line for an image is kept by an agent that lives. It may not change for as long as pulls take.
        const isInLine = waitsForTurn(start.text) && machine !== undefined && isSchedulable(machine);
        progressedAtMs = Math.max(progressedAtMs ?? 0, isInLine ? nowMs : start.atMs);
      }
    }
    const hasNoCapacity = hasRefused && !isOnItsWay;
    const containers = leaving.map(([entry, machine]) => this.#container(entry, machine));
    const steps = drainSteps({ ...demand, readyElsewhere, hasNoCapacity, progressedAtMs, containers }, nowMs);
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

  /** State of the replacement of a serving container, in words; empty: it does not wait for one. */
  #detailOf(entry: ContainerEntry): string {
    if (whyItStays(entry) !== 'replacement') return '';
    const nowMs = this.#parts.clock.monotonicMs();
    const onTheirWay = this.#ofQueue(entry.spec.queue).others.filter(
      ({ row }) => row.state === 'PENDING' || row.state === 'ASSIGNED' || row.state === 'STARTING',
    );
    const [best] = onTheirWay.toSorted((a, b) => (b.start?.atMs ?? 0) - (a.start?.atMs ?? 0));
    const failed = this.#failed.get(entry.spec.queue);
    const now = best === undefined ? 'no replacement is on its way' : replacementText(best, nowMs);
    return failed === undefined ? now : `${now}; ${failed}`;
  }

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
        detail: this.#detailOf(entry),
        attempts: this.#parts.loads.of(entry.row.id)?.inFlight ?? 0,
      })),
    };
  }
}

/** State of a replacement that is on its way. */
function replacementText(entry: ContainerEntry, nowMs: number): string {
  const { row, start } = entry;
  const replacement = `replacement ${row.id}`;
  if (row.state === 'PENDING')
    return `${replacement} ${isRefused(entry) ? 'has no machine that takes it' : 'is being placed'}`;
  const doing = start?.text === undefined || start.text === '' ? 'starts' : start.text;
  const quietMs = start === undefined ? 0 : nowMs - start.atMs;
  const quiet = quietMs < QUIET_MS ? '' : `, no progress for ${Math.floor(quietMs / 1000)} s`;
  return `${replacement} on machine ${row.machineId ?? ''}: ${doing}${quiet}`;
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
