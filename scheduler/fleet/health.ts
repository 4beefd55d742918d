// Assignments that no agent acknowledges go back after 15 s. SUSPECT machines become LOST after 90 s without a session,
// 180 s when the agent said that it only restarts (settings change both). Then their containers are UNKNOWN
// (replacements may start elsewhere), and their attempts end.
// All of this counts in monotonic time. No machine is lost within the grace after
// a scheduler start, nor while the mass-disconnect guard is on for its pool.
import type { Clock } from '#shared/clock.ts';
import type { MachineId, QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Gauge } from '#shared/metrics.ts';
import type { ContainerRow } from '../stores/store/queries/containers.ts';
import { endOnDeleted } from './containers/deleted-machine.ts';
import type { ContainerControl } from './containers/container-registry.ts';
import type { SlotTable } from '../tasks/dispatch/slots.ts';
import type { Reports } from '../tasks/completion/reports.ts';
import { guardsAfter } from './guard.ts';
import type { GuardMachine, Guards } from './guard.ts';
import { isInService } from './machine.ts';
import type { Machine } from './machine.ts';
import type { Joining } from './joining.ts';
import type { Machines } from './machines.ts';
import type { StallDetector } from './stall.ts';
import { lostAfterMs } from './state.ts';

const ACK_WITHIN_MS = 15_000;
/** Time after which containers on a lost machine count as ended, even if the machine may still run them. */
const UNKNOWN_FOR_MS = 24 * 3600_000;
const AFTER_STALL_MS = 60_000;
const EVERY_MS = 1_000;

export interface MachineHealthParts {
  readonly machines: Machines;
  readonly joining: Pick<Joining, 'expireJoins'>;
  readonly containers: ContainerControl;
  readonly slots: SlotTable;
  readonly reports: Pick<Reports, 'machineLost'>;
  readonly clock: Clock;
  readonly isLeader: () => boolean;
  /** The leader's number; undefined while this replica does not lead. */
  readonly fence: () => number | undefined;
  readonly log: Log;
  readonly guardMetric: Gauge<'pool'>;
  readonly stall: Pick<StallDetector, 'stalledAtMs' | 'sinceStallMs' | 'calmMs'>;
  /** Milliseconds of silence after which a machine is lost. */
  readonly lostAfterMs: number;
  /** Milliseconds after a start in which no machine is lost. */
  readonly startGraceMs: number;
}

export class MachineHealth {
  readonly name = 'machine health';
  readonly #parts: MachineHealthParts;
  #timer: NodeJS.Timeout | undefined;
  #startedAtMs = 0;
  #looking = false;
  #guards: Guards = new Map();
  /** Assignments that wait for their acknowledgement, and since when this process knows them; monotonic. */
  #assigned = new Map<string, number>();

  constructor(parts: MachineHealthParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#startedAtMs = this.#parts.clock.monotonicMs();
    this.#timer = setInterval(() => void this.#round(), EVERY_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  async #round(): Promise<void> {
    if (this.#looking) return;
    this.#looking = true;
    try {
      await this.check();
    } catch (error) {
      this.#parts.log.warn({ err: error }, 'health of machines not looked at, trying again');
    } finally {
      this.#looking = false;
    }
  }

  /** Runs a round; the timer and the tests call this. */
  async check(): Promise<void> {
    const { machines, joining, clock, isLeader, stall } = this.#parts;
    const upMs = clock.monotonicMs() - this.#startedAtMs;
    const nowMs = clock.monotonicMs();
    this.#guard(nowMs);
    if (!isLeader() || upMs < ACK_WITHIN_MS) return;
    await joining.expireJoins();
    // After a stall or a step of the clock the age of an assignment proves nothing.
    if (stall.calmMs() >= ACK_WITHIN_MS) await this.#takeBackUnacknowledged();
    await this.#moveOffDeleted();
    if (upMs < this.#parts.startGraceMs) return;
    for (const machine of machines.all()) {
      if (machine.health === 'SUSPECT' && this.#isOverdue(machine, nowMs)) await this.#lose(machine);
      // This includes moves that an earlier round could not write.
      if (machine.health === 'LOST') await this.#moveOff(machine, nowMs);
    }
  }

  /**
   * Whether a machine has been silent for too long. Within a minute of a stall of this process none is overdue: a
   * machine that was silent before the stall may have dialled since.
   */
  #isOverdue({ row, silentFromMs }: Machine, nowMs: number): boolean {
    if (silentFromMs === null || nowMs - silentFromMs < lostAfterMs(row.goodbye, this.#parts.lostAfterMs)) return false;
    if (this.#parts.stall.sinceStallMs() < AFTER_STALL_MS) return false;
    return !(isInService(row) && this.#guards.has(row.poolId));
  }

  /**
   * Whether a container of the queue is in a pool whose guard is on. The queue's containers are then not stopped for
   * lack of work. Containers in other pools, perhaps of other workspaces, stop as usual.
   */
  isGuarded(queue: QueueName): boolean {
    if (this.#guards.size === 0) return false;
    const { containers, machines } = this.#parts;
    for (const { row } of containers.ofQueue(queue)) {
      const machine = row.machineId === null ? undefined : machines.get(row.machineId);
      if (machine !== undefined && this.#guards.has(machine.row.poolId)) return true;
    }
    return false;
  }

  /** Whether the guard of any pool is on. */
  get hasGuard(): boolean {
    return this.#guards.size > 0;
  }

  #guard(nowMs: number): void {
    const { machines, stall, guardMetric, isLeader, log } = this.#parts;
    const before = this.#guards;
    const names = new Map<number, string>();
    const counted: GuardMachine[] = [];
    for (const { row, health, silentFromMs } of machines.all()) {
      if (health === 'PENDING' || health === 'EXPIRED' || health === 'LOST' || !isInService(row)) continue;
      names.set(row.poolId, row.poolName);
      counted.push({ poolId: row.poolId, silentSinceMs: health === 'SUSPECT' ? (silentFromMs ?? nowMs) : null });
    }
    this.#guards = guardsAfter(before, counted, nowMs, stall.stalledAtMs());
    guardMetric.reset();
    if (isLeader()) {
      for (const pool of names.values()) guardMetric.set({ pool }, 0);
      // Pools of two owners may have one name.
      for (const id of this.#guards.keys()) guardMetric.set({ pool: names.get(id) ?? '' }, 1);
    }
    for (const [id, cause] of this.#guards)
      if (!before.has(id))
        log.error({ pool: names.get(id), cause }, 'mass-disconnect guard on: none of its machines is given up');
    for (const id of before.keys())
      if (!this.#guards.has(id)) log.warn({ pool: names.get(id) }, 'mass-disconnect guard off');
  }

  /**
   * Takes back assignments that were not acknowledged in time, so that another
   * machine may have them. A later acknowledgement of that epoch is refused. Their age is counted from the moment when
   * this process first saw them: the wall clock of the leader that made them may differ.
   */
  async #takeBackUnacknowledged(): Promise<void> {
    const { containers, log, clock } = this.#parts;
    const nowMs = clock.monotonicMs();
    const before = this.#assigned;
    this.#assigned = new Map();
    const late: ContainerRow[] = [];
    for (const { row } of containers.all()) {
      if (row.state !== 'ASSIGNED') continue;
      const sinceMs = before.get(keyOf(row)) ?? nowMs;
      this.#assigned.set(keyOf(row), sinceMs);
      if (nowMs - sinceMs >= ACK_WITHIN_MS) late.push(row);
    }
    for (const row of late) {
      log.warn({ containerId: row.id, machineId: row.machineId }, 'assignment not acknowledged, taking it back');
      await containers.transition(row.id, 'revoke', {
        epoch: row.epoch,
        change: { machineId: null, assignmentId: null },
      });
    }
  }

  /**
   * Ends containers of deleted machines. The process that deleted the
   * machine may have died before it ended them, and nothing else would.
   */
  async #moveOffDeleted(): Promise<void> {
    const { containers, machines, log } = this.#parts;
    const isDeleted = new Map<MachineId, boolean>();
    for (const { row } of [...containers.all()]) {
      const { machineId } = row;
      if (machineId === null || machines.get(machineId) !== undefined) continue;
      // The machine may have been made at another replica a moment ago.
      if (!isDeleted.has(machineId)) isDeleted.set(machineId, (await machines.byId(machineId)) === undefined);
      if (isDeleted.get(machineId) !== true) continue;
      log.warn({ containerId: row.id, machineId }, 'its machine is deleted');
      await endOnDeleted(containers, row);
    }
  }

  async #lose(machine: Machine): Promise<void> {
    const { machines, reports } = this.#parts;
    const fence = this.#parts.fence();
    if (fence === undefined || !(await machines.lost(machine, fence))) return;
    const { id } = machine.row;
    await reports.machineLost(id, () => machines.get(id)?.health === 'LOST');
  }

  async #moveOff(machine: Machine, nowMs: number): Promise<void> {
    const { containers, slots } = this.#parts;
    const forgotten = nowMs - (machine.silentFromMs ?? nowMs) >= UNKNOWN_FOR_MS;
    for (const { row } of [...containers.ofMachine(machine.row.id)]) {
      // The machine is back meanwhile: its agent's own report counts.
      if (machine.health !== 'LOST') return;
      slots.remove(row.id);
      if (row.state === 'UNKNOWN') {
        if (forgotten) await containers.transition(row.id, 'expire', { epoch: row.epoch, change: { reason: 'lost' } });
        continue;
      }
      const back = row.state === 'ASSIGNED';
      const change = back ? { machineId: null, assignmentId: null } : {};
      await containers.transition(row.id, back ? 'revoke' : 'machine_lost', { epoch: row.epoch, change });
    }
  }
}

const keyOf = ({ id, epoch }: ContainerRow): string => `${id}:${epoch}`;
