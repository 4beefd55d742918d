// Preemptions: interruptible containers that the planner chose are asked to leave. They get no more tasks. The replica
// with their link gives asynchronous tasks back once the notice is over (tasks/completion/drain-cutoff.ts), and stops
// them when they are idle. Containers that yield after their task have no notice: their tasks run to their end. One
// that nobody needs to end any more is taken back, and gets tasks again. Containers that warmth alone keeps are no
// preemptions: the scaling loop lets them go.
import type { Clock } from '#shared/clock.ts';
import type { ContainerId, QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Loads } from '../../cluster/loads.ts';
import { AFTER_TASK } from '../../domain/stub-config.ts';
import type { ContainerControl } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import { PREEMPTED, YIELDED } from '../../fleet/containers/spec.ts';
import type { FleetMetrics } from '../../fleet/metrics.ts';
import type { SlotTable } from '../../tasks/dispatch/slots.ts';
import { isSyncKind } from '../../workspaces/deployments/kinds.ts';
import type { PossibleVictim, Preemption, Reclaimed } from '../plan/reclaim.ts';

export interface PreemptionsParts {
  readonly containers: Pick<ContainerControl, 'all' | 'get' | 'transition'>;
  readonly loads: Pick<Loads, 'of'>;
  /** Containers that warmth alone kept when their queues were decided last. */
  readonly spare: () => Iterable<ContainerId>;
  readonly slots: Pick<SlotTable, 'leave' | 'stay'>;
  readonly metrics: Pick<FleetMetrics, 'preemptions'>;
  /** Whether a rollout waits whose older or newer version has that queue: no container of it is interrupted. */
  readonly isRollingOut: (queue: QueueName) => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

export class Preemptions {
  readonly #parts: PreemptionsParts;

  constructor(parts: PreemptionsParts) {
    this.#parts = parts;
  }

  /** Containers that may be told to end now. */
  candidates(): readonly PossibleVictim[] {
    const { containers, spare } = this.#parts;
    const found = new Map<ContainerId, PossibleVictim>();
    for (const entry of containers.all()) if (this.#mayEnd(entry)) found.set(entry.row.id, candidateOf(entry));
    for (const id of spare()) {
      const entry = containers.get(id);
      if (entry !== undefined && this.#isIdle(entry)) found.set(id, { ...candidateOf(entry), isWarm: true });
    }
    return [...found.values()];
  }

  #mayEnd({ row, spec }: ContainerEntry): boolean {
    if (spec.interruptible === undefined || spec.byHand === true || row.state !== 'RUNNING') return false;
    if (this.#parts.isRollingOut(spec.queue)) return false;
    // A synchronous call cannot run again. An unknown load may be such a call.
    return !isSyncKind(spec.kind) || this.#parts.loads.of(row.id)?.inFlight === 0;
  }

  #isIdle({ row, spec }: ContainerEntry): boolean {
    const { loads, isRollingOut } = this.#parts;
    return row.state === 'RUNNING' && !isRollingOut(spec.queue) && loads.of(row.id)?.inFlight === 0;
  }

  async carryOut({ told, spared }: Reclaimed): Promise<void> {
    await Promise.all([
      ...told.map(async (one) => (one.isWarm === true ? undefined : await this.#ask(one))),
      ...spared.map((id) => this.#takeBack(id)),
    ]);
  }

  /** The container stays, unless it has begun to stop. */
  async #takeBack(id: ContainerId): Promise<void> {
    const { containers, log } = this.#parts;
    const row = containers.get(id)?.row;
    if (row?.state !== 'DRAINING' || (row.reason !== PREEMPTED && row.reason !== YIELDED)) return;
    try {
      const moved = await containers.transition(id, 'undrain', { epoch: row.epoch, change: { reason: null } });
      if (moved === 'moved') log.info({ containerId: id }, 'an interruptible container stays after all');
    } catch (error) {
      log.warn({ err: error, containerId: id }, 'an interruptible container was not told to stay');
    }
  }

  async #ask({ id, claimant, reason }: Preemption): Promise<void> {
    const { containers, slots, metrics, log } = this.#parts;
    slots.leave(id);
    try {
      const rowReason = containers.get(id)?.spec.interruptible === AFTER_TASK ? YIELDED : PREEMPTED;
      const moved = await containers.transition(id, 'drain', { change: { reason: rowReason } });
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

const candidateOf = ({ row }: ContainerEntry): PossibleVictim => ({ id: row.id, sinceMs: row.startedAtMs ?? 0 });
