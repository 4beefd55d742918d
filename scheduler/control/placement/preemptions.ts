// Preemptions: interruptible containers that the planner chose are asked to leave. They get no more tasks. The replica
// with their link gives asynchronous tasks back once the notice is over (tasks/completion/drain-cutoff.ts), and stops
// them when they are idle.
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Loads } from '../../cluster/loads.ts';
import type { ContainerControl } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import { PREEMPTED } from '../../fleet/containers/spec.ts';
import type { FleetMetrics } from '../../fleet/metrics.ts';
import type { SlotTable } from '../../tasks/dispatch/slots.ts';
import { isSyncKind } from '../../workspaces/deployments/kinds.ts';
import type { Interruptible, Preemption } from '../plan/reclaim.ts';

export interface PreemptionsParts {
  readonly containers: Pick<ContainerControl, 'all' | 'transition'>;
  readonly loads: Pick<Loads, 'of'>;
  readonly slots: Pick<SlotTable, 'leave' | 'stay'>;
  readonly metrics: Pick<FleetMetrics, 'preemptions'>;
  readonly clock: Clock;
  readonly log: Log;
}

export class Preemptions {
  readonly #parts: PreemptionsParts;

  constructor(parts: PreemptionsParts) {
    this.#parts = parts;
  }

  /** Containers that may be told to end now. */
  candidates(): readonly Interruptible[] {
    const found: Interruptible[] = [];
    for (const entry of this.#parts.containers.all())
      if (this.#mayEnd(entry)) found.push({ id: entry.row.id, sinceMs: entry.row.startedAtMs ?? 0 });
    return found;
  }

  #mayEnd({ row, spec }: ContainerEntry): boolean {
    if (spec.interruptible !== true || spec.byHand === true || row.state !== 'RUNNING') return false;
    // A synchronous call cannot run again. An unknown load may be such a call.
    return !isSyncKind(spec.kind) || this.#parts.loads.of(row.id)?.inFlight === 0;
  }

  async carryOut(told: readonly Preemption[]): Promise<void> {
    await Promise.all(told.map((one) => this.#ask(one)));
  }

  async #ask({ id, claimant, reason }: Preemption): Promise<void> {
    const { containers, slots, metrics, log } = this.#parts;
    slots.leave(id);
    try {
      const moved = await containers.transition(id, 'drain', { change: { reason: PREEMPTED } });
      if (moved === 'refused') {
        slots.stay(id);
        return;
      }
      metrics.preemptions.inc({ reason });
      log.info({ containerId: id, claimant, reason }, 'an interruptible container leaves for another one');
    } catch (error) {
      slots.stay(id);
      log.warn({ err: error, containerId: id }, 'an interruptible container was not told to leave');
    }
  }
}
