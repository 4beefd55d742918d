// Decisions of the scaling loop as events. No row changes with a decision, so it is written by itself, behind the loop:
// a decision never waits for the database. At most 32 are under way; further ones are dropped and logged.
import { timestampOf } from '#shared/api/fields.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { Db } from '../../stores/store/db.ts';
import type { EventWriter } from '../../workspaces/events/writer.ts';

export interface ScaleTold {
  readonly current: number;
  readonly desired: number;
  /** Reason of the decision: `queue_depth`, `token_pressure`, `probe`, `idle`. */
  readonly reason: string;
}

const MOST_UNDER_WAY = 32;

export class ScaleEvents {
  readonly #parts: {
    readonly db: Db;
    readonly events: Pick<EventWriter, 'transaction'>;
    readonly clock: Pick<Clock, 'nowMs'>;
    readonly log: Log;
  };
  #underWay = 0;

  constructor(parts: {
    readonly db: Db;
    readonly events: Pick<EventWriter, 'transaction'>;
    readonly clock: Pick<Clock, 'nowMs'>;
    readonly log: Log;
  }) {
    this.#parts = parts;
  }

  /** Writes the decision behind the caller. Never throws. */
  decided(target: Target, told: ScaleTold): void {
    const { log } = this.#parts;
    if (this.#underWay >= MOST_UNDER_WAY) {
      log.warn({ queue: target.queue }, 'a scaling decision is not told: too many wait for the database');
      return;
    }
    this.#underWay += 1;
    this.#write(target, told)
      .catch((error: unknown) => log.warn({ err: error, queue: target.queue }, 'a scaling decision is not told'))
      .finally(() => (this.#underWay -= 1));
  }

  async #write(target: Target, { current, desired, reason }: ScaleTold): Promise<void> {
    const { db, events, clock } = this.#parts;
    const atMs = clock.nowMs();
    const { workspaceId, appId, stubId, deploymentId, config } = target;
    await events.transaction(db, async (_tx, emit) =>
      emit({
        workspaceId,
        appId,
        stubId,
        stubType: config.stubType,
        ...(deploymentId === null ? {} : { deploymentId }),
        type: 'container.event',
        atMs,
        data: {
          id: 'autoscaler.scale_decision',
          domain: 'autoscaler',
          timestamp: timestampOf(atMs),
          container_id: '',
          stub_id: stubId,
          deployment_id: deploymentId ?? '',
          workspace_id: workspaceId,
          worker_id: '',
          machine_id: '',
          cpu: config.cpuMillicores,
          gpu_count: config.gpuCount,
          reason,
          source: 'scheduler',
          message: '',
          attrs: { current_containers: String(current), desired_containers: String(desired), reason },
        },
      }),
    );
  }
}
