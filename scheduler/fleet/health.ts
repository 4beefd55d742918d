// Assignments that no agent acknowledges go back after 15 s. SUSPECT machines become LOST after 90 s without a session: their containers UNKNOWN (replacements may start elsewhere), their attempts ended. Within the grace after a scheduler start nobody is lost.
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Book } from '../containers/book.ts';
import type { SlotTable } from '../dispatch/slots.ts';
import type { Tasks } from '../tasks/service.ts';
import type { Machine, Machines } from './machines.ts';

const ACK_WITHIN_MS = 15_000;
const LOST_AFTER_MS = 90_000;
/** After this nobody waits for what a lost machine may still run. */
const UNKNOWN_FOR_MS = 24 * 3600_000;
const START_GRACE_MS = 120_000;
const EVERY_MS = 1_000;

export interface MachineHealthParts {
  readonly machines: Machines;
  readonly book: Book;
  readonly slots: SlotTable;
  readonly tasks: Tasks;
  readonly clock: Clock;
  readonly isLeader: () => boolean;
  readonly log: Log;
}

export class MachineHealth {
  readonly name = 'machine health';
  readonly #parts: MachineHealthParts;
  #timer: NodeJS.Timeout | undefined;
  #startedAtMs = 0;
  #looking = false;

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
      await this.look();
    } catch (error) {
      this.#parts.log.warn({ err: error }, 'health of machines not looked at, trying again');
    } finally {
      this.#looking = false;
    }
  }

  /** One round; the timer's, and the tests'. */
  async look(): Promise<void> {
    const { machines, clock, isLeader } = this.#parts;
    const upMs = clock.monotonicMs() - this.#startedAtMs;
    if (!isLeader() || upMs < ACK_WITHIN_MS) return;
    const nowMs = clock.nowMs();
    await this.#takeBackUnacknowledged(nowMs);
    if (upMs < START_GRACE_MS) return;
    for (const machine of machines.all()) {
      const overdue = machine.suspectSinceMs !== null && nowMs - machine.suspectSinceMs >= LOST_AFTER_MS;
      if (machine.health === 'SUSPECT' && overdue) await this.#lose(machine);
      // Also what an earlier round could not write.
      if (machine.health === 'LOST') await this.#moveOff(machine, nowMs);
    }
  }

  /** Not taken in time: another machine may have it. A later acknowledgement of that epoch is refused. */
  async #takeBackUnacknowledged(nowMs: number): Promise<void> {
    const { book, log } = this.#parts;
    for (const { row } of [...book.all()]) {
      if (row.state !== 'ASSIGNED' || nowMs - (row.scheduledAtMs ?? nowMs) < ACK_WITHIN_MS) continue;
      log.warn({ containerId: row.id, machineId: row.machineId }, 'assignment not acknowledged, taking it back');
      await book.transition(row.id, 'revoke', { epoch: row.epoch, change: { machineId: null, assignmentId: null } });
    }
  }

  async #lose(machine: Machine): Promise<void> {
    const { machines, tasks } = this.#parts;
    machines.lost(machine);
    await tasks.machineLost(machine.row.id);
  }

  async #moveOff(machine: Machine, nowMs: number): Promise<void> {
    const { book, slots } = this.#parts;
    const forgotten = nowMs - (machine.suspectSinceMs ?? nowMs) >= UNKNOWN_FOR_MS;
    for (const { row } of [...book.ofMachine(machine.row.id)]) {
      // Back meanwhile: its agent's own report counts.
      if (machine.health !== 'LOST') return;
      slots.remove(row.id);
      if (row.state === 'UNKNOWN') {
        if (forgotten) await book.transition(row.id, 'expire', { epoch: row.epoch, change: { reason: 'lost' } });
        continue;
      }
      const back = row.state === 'ASSIGNED';
      const change = back ? { machineId: null, assignmentId: null } : {};
      await book.transition(row.id, back ? 'revoke' : 'machine_lost', { epoch: row.epoch, change });
    }
  }
}
