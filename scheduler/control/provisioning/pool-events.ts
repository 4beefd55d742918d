// Decisions about pools as events (`compute.pool`), written behind the loop: no decision waits for the database. Events
// of shared pools belong to the administrator's workspace. Source: REST §9.2.
import type { Clock } from '#shared/clock.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import { adminWorkspaceId } from '../../stores/store/queries/workspaces.ts';
import type { EventWriter } from '../../workspaces/events/writer.ts';
import { costOf, priceOf } from './choose.ts';
import type { GrowingPool, Step } from './facts.ts';

/** Most events under way; further ones are dropped and logged. */
const MOST_UNDER_WAY = 32;

export interface PoolEventsParts {
  readonly db: Db;
  readonly events: Pick<EventWriter, 'transaction'>;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly log: Log;
}

export class PoolEvents {
  readonly #parts: PoolEventsParts;
  #underWay = 0;
  #admin: WorkspaceId | undefined;

  constructor(parts: PoolEventsParts) {
    this.#parts = parts;
  }

  /** Writes the step behind the caller. Never throws. @param pool - before the step */
  decided(step: Step, pool: GrowingPool): void {
    const { log } = this.#parts;
    if (this.#underWay >= MOST_UNDER_WAY) {
      log.warn({ step }, 'a step of a pool is not told: too many wait for the database');
      return;
    }
    this.#underWay += 1;
    this.#write(step, pool)
      .catch((error: unknown) => log.warn({ err: error, step }, 'a step of a pool is not told'))
      .finally(() => (this.#underWay -= 1));
  }

  async #write(step: Step, pool: GrowingPool): Promise<void> {
    const { db, events, clock } = this.#parts;
    const workspaceId = pool.poolOwner ?? (this.#admin ??= await adminWorkspaceId(db));
    if (workspaceId === undefined) return;
    const { capacity, settings, poolName } = pool;
    const machineId = step.kind === 'shrink' ? step.machineId : '';
    await events.transaction(db, async (_tx, emit) =>
      emit({
        workspaceId,
        ...(step.kind === 'shrink' ? { machineId: step.machineId } : {}),
        type: 'compute.pool',
        atMs: clock.nowMs(),
        data: {
          action: step.kind,
          status: 'decided',
          pool_name: poolName,
          provider: settings.provider ?? '',
          machine_id: machineId,
          reason: step.kind === 'grow' ? step.cause : 'idle',
          attrs: {
            machines: String(capacity.alive),
            pending: String(capacity.pending),
            max_machines: String(settings.maxMachines),
            price: String(priceOf(pool) ?? ''),
            hourly_cost: String(costOf(pool)),
          },
        },
      }),
    );
  }
}
