// Count of the tasks that have not ended: a loop of the leader counts their rows now and then,
// and the gauges show its last count. No task waits for this. When the database does
// not answer, the old numbers stay, and the age of the oldest task goes on growing.
import type { Clock } from '#shared/clock.ts';
import type { Registry } from '#shared/metrics.ts';
import { Gauge } from '#shared/metrics.ts';
import type { DeadCount } from '../../stores/store/queries/dead-letters.ts';
import type { OpenTaskCount } from '../../stores/store/queries/task-counts.ts';

export interface OpenTaskGaugesParts {
  readonly registry: Registry;
  readonly count: () => Promise<readonly OpenTaskCount[]>;
  readonly countDead: () => Promise<readonly DeadCount[]>;
  readonly clock: Clock;
  readonly isLeader: () => boolean;
}

/** Least rest between two counts. */
export const COUNTED_EVERY_MS = 15_000;
/** Rest after a count, as a multiple of its duration: at most a twentieth of the time is spent counting. */
const REST = 20;
/** Most deployments with a series of their own: those with the most tasks. A series goes with its tasks. */
const MOST_DEPLOYMENTS = 200;

export class OpenTaskGauges {
  readonly #parts: OpenTaskGaugesParts;
  #seen: readonly OpenTaskCount[] = [];
  #dead: readonly DeadCount[] = [];

  constructor(parts: OpenTaskGaugesParts) {
    this.#parts = parts;
    this.#registerGauges();
  }

  /** Counts once. @returns milliseconds until the next count */
  async check(): Promise<number> {
    const { clock, count, countDead } = this.#parts;
    const startedMs = clock.monotonicMs();
    this.#seen = await count();
    this.#dead = await countDead();
    return Math.max(COUNTED_EVERY_MS, (clock.monotonicMs() - startedMs) * REST);
  }

  #counts(): readonly OpenTaskCount[] {
    return this.#parts.isLeader() ? this.#seen : [];
  }

  #registerGauges(): void {
    const registers = [this.#parts.registry];
    const counts = (): readonly OpenTaskCount[] => this.#counts();
    const dead = (): readonly DeadCount[] => (this.#parts.isLeader() ? this.#dead : []);
    const { clock } = this.#parts;
    new Gauge({
      name: 'longshore_task_dead',
      help: 'Asynchronous tasks that failed for good, with a kept input, not redriven or dropped; shown by the leader.',
      labelNames: ['stub_type'],
      registers,
      collect() {
        this.reset();
        for (const { kind, count } of dead()) this.set({ stub_type: kind }, count);
      },
    });
    new Gauge({
      name: 'longshore_task_in_state',
      help: 'Tasks that have not ended, by status, as the database had them a moment ago; shown by the leader.',
      labelNames: ['stub_type', 'state'],
      registers,
      collect() {
        this.reset();
        for (const { kind, status, count } of counts()) this.inc({ stub_type: kind, state: status }, count);
      },
    });
    new Gauge({
      name: 'longshore_task_oldest_pending_seconds',
      help: 'Age of the oldest task that waits; shown by the leader.',
      labelNames: ['stub_type'],
      registers,
      collect() {
        this.reset();
        const oldest = new Map<string, number>();
        for (const { kind, status, oldestAtMs } of counts())
          if (status === 'PENDING') oldest.set(kind, Math.min(oldest.get(kind) ?? oldestAtMs, oldestAtMs));
        for (const [kind, atMs] of oldest) this.set({ stub_type: kind }, Math.max(0, clock.nowMs() - atMs) / 1000);
      },
    });
    new Gauge({
      name: 'longshore_autoscaler_deployment_queue_depth',
      help: `Tasks of a deployment that have not ended, of the ${MOST_DEPLOYMENTS} fullest; shown by the leader.`,
      labelNames: ['deployment_id'],
      registers,
      collect() {
        this.reset();
        for (const [id, count] of fullest(counts())) this.set({ deployment_id: id }, count);
      },
    });
  }
}

function fullest(counts: readonly OpenTaskCount[]): readonly (readonly [string, number])[] {
  const byDeployment = new Map<string, number>();
  for (const { deploymentId, count } of counts)
    if (deploymentId !== null) byDeployment.set(deploymentId, (byDeployment.get(deploymentId) ?? 0) + count);
  return [...byDeployment].toSorted(([, a], [, b]) => b - a).slice(0, MOST_DEPLOYMENTS);
}
