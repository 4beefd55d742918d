// Carries deletions of workspaces out: the leader ends what runs, then removes files, images, bytes and rows.
// Invariants: no state is kept in memory that a new leader needs, because what is left is read anew in each round. A
// round has an end, and a batch never holds the database longer than a moment. What cannot go now is told in the
// workspace's row, and keeps nothing else from going.
import type { Clock } from '#shared/clock.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { messageOf } from '#shared/errors.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import { holdDeletion } from '../../stores/store/queries/workspace-deletion.ts';
import { endDeletion } from '../../stores/store/queries/workspace-rows.ts';
import { closedWorkspaces } from '../../stores/store/queries/workspaces.ts';
import type { Invalidation } from '../identity/invalidation.ts';
import type { DeletionNeeds } from './needs.ts';
import { endWork, removeData } from './steps.ts';

/** Time between two rounds while a workspace is being deleted. It doubles after a round that changes nothing. */
const ROUND_MS = 1_000;
const MOST_ROUND_MS = 15_000;
/** Time between two looks for a deletion. */
const SWEEP_MS = 30_000;
/** Most time that a round spends on the rows of one workspace. */
const TURN_MS = 2_000;
/** Time without anything to remove before a workspace ends: late records of its last tasks and containers. */
const SETTLED_MS = 2_000;
const MOST_HOLD = 500;

export interface DeletionRoundsParts {
  readonly db: Db;
  readonly needs: DeletionNeeds;
  readonly invalidation: Pick<Invalidation, 'on'>;
  readonly isLeader: () => boolean;
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  readonly log: Log;
  readonly roundMs?: number;
  readonly settledMs?: number;
}

export class DeletionRounds implements Part {
  readonly name = 'deletion of workspaces';
  readonly #parts: DeletionRoundsParts;
  readonly #abort = new AbortController();
  /** Since when a workspace had nothing left, as this process saw it. */
  readonly #emptySince = new Map<WorkspaceId, number>();
  /** The last round changed something. */
  #hasMoved = false;
  #isAwake = false;
  #wakeUp: (() => void) | undefined;
  #running: Promise<void> | undefined;

  constructor(parts: DeletionRoundsParts) {
    this.#parts = parts;
    parts.invalidation.on('workspace_deleted', () => this.wake());
  }

  start(): void {
    this.#running = this.#run();
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    this.#wakeUp?.();
    await this.#running;
  }

  /** A deletion began, or this replica leads. */
  wake(): void {
    this.#isAwake = true;
    this.#wakeUp?.();
  }

  /** Runs a round over all deletions. @returns whether any is left */
  async round(): Promise<boolean> {
    const { db, log } = this.#parts;
    const ids = await closedWorkspaces(db);
    for (const id of this.#emptySince.keys()) if (!ids.includes(id)) this.#emptySince.delete(id);
    this.#hasMoved = false;
    let left = 0;
    for (const id of ids) {
      if (this.#abort.signal.aborted || !this.#parts.isLeader()) return true;
      try {
        if (!(await this.#isGone(id))) left += 1;
      } catch (error) {
        left += 1;
        log.warn({ err: error, workspaceId: id }, 'the deletion of a workspace goes on later');
        await this.#hold(id, [messageOf(error)]);
      }
    }
    return left > 0;
  }

  /** Removes what can go now. @returns whether the workspace is gone */
  async #isGone(id: WorkspaceId): Promise<boolean> {
    const { db, needs, clock, log, settledMs = SETTLED_MS } = this.#parts;
    const { signal } = this.#abort;
    const until = clock.monotonicMs() + TURN_MS;
    const mayGoOn = (): boolean => !signal.aborted && this.#parts.isLeader() && clock.monotonicMs() < until;
    const work = await endWork(db, needs, id, mayGoOn);
    // Data that a task or container still uses goes after it.
    const data =
      work.holds.length > 0
        ? { holds: [], isEmpty: false, removed: 0, isMoving: false }
        : await removeData(db, needs, id, { clock, mayGoOn, signal });
    if (signal.aborted) return false;
    const holds = [...work.holds, ...data.holds];
    if (work.isMoving || data.isMoving || holds.length === 0) this.#hasMoved = true;
    await this.#hold(id, holds);
    if (data.removed > 0) log.info({ workspaceId: id, rows: data.removed }, 'rows of a deleted workspace were removed');
    if (holds.length > 0 || !data.isEmpty || data.removed > 0) {
      this.#emptySince.delete(id);
      return false;
    }
    const since = this.#emptySince.get(id) ?? clock.monotonicMs();
    this.#emptySince.set(id, since);
    if (clock.monotonicMs() - since < settledMs) return false;
    // Records that are on their way come before the last look: they would bring rows back.
    if (!(await needs.recordsCaughtUp())) return false;
    if (!(await db.transaction((tx) => endDeletion(tx, id)))) return false;
    this.#emptySince.delete(id);
    log.info({ workspaceId: id }, 'a workspace is deleted');
    return true;
  }

  /** Tells people what the deletion waits for. */
  async #hold(id: WorkspaceId, holds: readonly string[]): Promise<void> {
    if (await holdDeletion(this.#parts.db, id, holds.join('; ').slice(0, MOST_HOLD))) this.#hasMoved = true;
  }

  async #run(): Promise<void> {
    const { isLeader, log, roundMs = ROUND_MS } = this.#parts;
    // A deletion may have begun before this process.
    await this.#rest(roundMs);
    let restMs = roundMs;
    while (!this.#abort.signal.aborted) {
      this.#isAwake = false;
      let isLeft = false;
      if (isLeader()) {
        try {
          isLeft = await this.round();
        } catch (error) {
          isLeft = true;
          log.warn({ err: error }, 'deletions of workspaces go on later');
        }
      }
      restMs = this.#hasMoved || !isLeft ? roundMs : Math.min(restMs * 2, MOST_ROUND_MS);
      await this.#rest(isLeft ? restMs : SWEEP_MS);
    }
  }

  async #rest(ms: number): Promise<void> {
    if (this.#abort.signal.aborted || this.#isAwake) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wakeUp = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wakeUp = undefined;
  }
}
