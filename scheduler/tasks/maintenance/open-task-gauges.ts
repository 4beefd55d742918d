// Count of the tasks that have not ended: the leader counts their rows now and then,
// and the gauges show its last count. No task waits for this. When the database does
// not answer, the old numbers stay, and the age of the oldest task goes on growing.
import { sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Registry } from '#shared/metrics.ts';
import { Gauge } from '#shared/metrics.ts';
import type { OpenTaskCount } from '../../stores/store/queries/task-counts.ts';

export interface OpenTaskGaugesParts {
  readonly registry: Registry;
  readonly count: () => Promise<readonly OpenTaskCount[]>;
  readonly clock: Clock;
  readonly log: Log;
  readonly isLeader: () => boolean;
}

const EVERY_MS = 15_000;
/** Rest after a count, as a multiple of its duration: at most a twentieth of the time is spent counting. */
const REST = 20;
/** Most deployments with a series of their own: those with the most tasks. A series goes with its tasks. */
const MOST_DEPLOYMENTS = 200;

export class OpenTaskGauges implements Part {
  readonly name = 'open task gauges';
  readonly #parts: OpenTaskGaugesParts;
  readonly #abort = new AbortController();
  #seen: readonly OpenTaskCount[] = [];

  constructor(parts: OpenTaskGaugesParts) {
    this.#parts = parts;
    this.#registerGauges();
  }

  start(): void {
    void this.#loop();
  }

  stop(): void {
    this.#abort.abort();
  }

  /** Counts once, for the loop and for tests. */
  async check(): Promise<void> {
    this.#seen = await this.#parts.count();
  }

  async #loop(): Promise<void> {
    let restMs = EVERY_MS;
    while (await sleep(restMs, this.#abort.signal)) {
      restMs = EVERY_MS;
      if (!this.#parts.isLeader()) continue;
      const startedMs = this.#parts.clock.monotonicMs();
      try {
        await this.check();
      } catch (error) {
        this.#parts.log.info({ err: error }, 'open tasks not counted, trying again later');
      }
      restMs = Math.max(EVERY_MS, (this.#parts.clock.monotonicMs() - startedMs) * REST);
    }
  }

  #counts(): readonly OpenTaskCount[] {
    return this.#parts.isLeader() ? this.#seen : [];
  }

  #registerGauges(): void {
    const registers = [this.#parts.registry];
    const counts = (): readonly OpenTaskCount[] => this.#counts();
    const { clock } = this.#parts;
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
