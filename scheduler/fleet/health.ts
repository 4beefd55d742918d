// SUSPECT machines become LOST after 90 s without a session: their containers UNKNOWN (replacements may start elsewhere), their attempts ended. Within the grace after a scheduler start nobody is lost.
import type { Clock } from '#shared/clock.ts';
import type { ContainerBook } from '../containers/book.ts';
import type { SlotTable } from '../dispatch/slots.ts';
import type { Tasks } from '../tasks/service.ts';
import type { Machines } from './machines.ts';

const LOST_AFTER_MS = 90_000;
const START_GRACE_MS = 120_000;
const EVERY_MS = 1_000;

export interface MachineHealthParts {
  readonly machines: Machines;
  readonly book: ContainerBook;
  readonly slots: SlotTable;
  readonly tasks: Tasks;
  readonly clock: Clock;
  readonly isLeader: () => boolean;
}

export class MachineHealth {
  readonly name = 'machine health';
  readonly #parts: MachineHealthParts;
  #timer: NodeJS.Timeout | undefined;
  #startedAtMs = 0;

  constructor(parts: MachineHealthParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#startedAtMs = this.#parts.clock.monotonicMs();
    this.#timer = setInterval(() => void this.#look(), EVERY_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  async #look(): Promise<void> {
    const { machines, book, slots, tasks, clock, isLeader } = this.#parts;
    if (!isLeader() || clock.monotonicMs() - this.#startedAtMs < START_GRACE_MS) return;
    const nowMs = clock.nowMs();
    for (const machine of machines.all()) {
      if (machine.health !== 'SUSPECT' || machine.suspectSinceMs === null) continue;
      if (nowMs - machine.suspectSinceMs < LOST_AFTER_MS) continue;
      machines.lost(machine);
      await tasks.machineLost(machine.row.id);
      for (const entry of [...book.ofMachine(machine.row.id)]) {
        slots.remove(entry.row.id);
        const event = entry.row.state === 'ASSIGNED' ? 'revoke' : 'machine_lost';
        const change = entry.row.state === 'ASSIGNED' ? { machineId: null, assignmentId: null } : {};
        await book.transition(entry.row.id, event, { epoch: entry.row.epoch, change });
      }
    }
  }
}
