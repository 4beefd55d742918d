// Rollouts as a person begins and ends them: a deploy, a start, a roll back. The leader's loop in `control/rollouts/`
// ends those that wait. Source: decisions 0230 to 0232.
import type { QueueName } from '#shared/domain/ids.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import { kindOf } from '#shared/domain/status.ts';
import { ROLLED_OUT_KINDS, isServing } from '../../domain/rollouts.ts';
import type { Db, Queryable } from '../../stores/store/db.ts';
import { isServedBefore } from '../../stores/store/queries/deployments.ts';
import type { DeploymentRow } from '../../stores/store/queries/deployments.ts';
import {
  heirOf,
  servingDeployment,
  setRollout,
  supersedeRollouts,
  withdrawAbove,
} from '../../stores/store/queries/rollouts.ts';
import type { VersionsOf } from '../../stores/store/queries/rollouts.ts';
import type { Actor } from '../events/audit.ts';
import type { EventGiven, EventWriter } from '../events/writer.ts';
import { rolledBack, rolledOut } from './deployment-events.ts';
import type { Targets } from './targets.ts';

export interface RolloutsParts {
  readonly db: Db;
  readonly targets: Pick<Targets, 'changed'>;
  readonly events: Pick<EventWriter, 'transaction'>;
  readonly nowMs: () => number;
  /** Whether a container of the queue serves calls. */
  readonly isServed: (queue: QueueName) => boolean;
}

export class Rollouts {
  readonly #parts: RolloutsParts;

  constructor(parts: RolloutsParts) {
    this.#parts = parts;
  }

  /** Whether a new version of the name waits for a ready container before calls of the name reach it. */
  async waits(db: Queryable, versions: VersionsOf): Promise<boolean> {
    if (!ROLLED_OUT_KINDS.has(kindOf(versions.stubType))) return false;
    const older = await servingDeployment(db, versions);
    return older !== undefined && isServing(older.rollout) && older.active && this.#parts.isServed(queueOf(older));
  }

  /**
   * Ends rollouts that the new version takes the place of, within its transaction.
   * @returns their versions, which the caller announces after the commit
   */
  async begun(tx: Queryable, row: DeploymentRow, emit: (event: EventGiven) => void): Promise<readonly DeploymentRow[]> {
    const nowMs = this.#parts.nowMs();
    const superseded = await supersedeRollouts(tx, row);
    for (const one of superseded) emit(rolledOut(one, nowMs));
    if (row.rollout === 'waiting') emit(rolledOut(row, nowMs));
    return superseded;
  }

  /** Tries the rollout of a version again that failed or was stopped, if no newer version serves. */
  async again(tx: Queryable, row: DeploymentRow, emit: (event: EventGiven) => void): Promise<DeploymentRow> {
    if (row.rollout !== 'failed' && row.rollout !== 'stopped') return row;
    const older = await servingDeployment(tx, row);
    if (older !== undefined && older.version >= row.version) return row;
    const state = (await this.waits(tx, row)) ? 'waiting' : 'done';
    const written = (await setRollout(tx, row.id, { state, why: '' })) ?? row;
    emit(rolledOut(written, this.#parts.nowMs()));
    return written;
  }

  /**
   * Calls of the name reach this version from here on, also when none of its containers is ready. Newer versions stay
   * active, and are reached by their number.
   */
  async rollBack(row: DeploymentRow, by: Actor): Promise<DeploymentRow | undefined> {
    const { db, events, targets, nowMs } = this.#parts;
    const done = await events.transaction(db, async (tx, emit) => {
      const why = `the name was rolled back to v${row.version}`;
      const withdrawn = await withdrawAbove(tx, row, { why, waiting: true });
      const written = await setRollout(tx, row.id, { state: 'done', why: 'the name was rolled back to it' });
      if (written === undefined) return undefined;
      for (const one of withdrawn) emit(rolledOut(one, nowMs()));
      rolledBack(written, by, nowMs()).forEach(emit);
      return { written, withdrawn };
    });
    if (done === undefined) return undefined;
    for (const { id } of [done.written, ...done.withdrawn]) await targets.changed(id);
    return done.written;
  }

  /**
   * Gives the calls of a name to another version when the one that they reach is deleted. Without a word, the highest
   * would serve, also one that never started. Source: decision 0363.
   * @param row - as it was deleted, in this transaction
   * @returns the versions that changed, which the caller announces after the commit
   */
  async inherit(
    tx: Queryable,
    row: DeploymentRow,
    emit: (event: EventGiven) => void,
  ): Promise<readonly DeploymentRow[]> {
    if (!ROLLED_OUT_KINDS.has(kindOf(row.stubType)) || row.rollout === 'failed') return [];
    const next = await servingDeployment(tx, row);
    if (next === undefined || !isServedBefore(row, next)) return [];
    const heir = await heirOf(tx, row);
    if (heir === undefined || (heir.id === next.id && isServing(heir.rollout))) return [];
    const why = `v${row.version}, which served, was deleted`;
    const withdrawn = await withdrawAbove(tx, heir, { why, waiting: false });
    const written = await setRollout(tx, heir.id, { state: 'done', why });
    const changed = [...withdrawn, ...(written === undefined ? [] : [written])];
    for (const one of changed) emit(rolledOut(one, this.#parts.nowMs()));
    return changed;
  }
}

const queueOf = ({ id, stubId }: Pick<DeploymentRow, 'id' | 'stubId'>): QueueName => queueNameOf(id, stubId);
