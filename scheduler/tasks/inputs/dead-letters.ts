// Dead tasks: asynchronous ones that failed for good, while their inputs are kept. There is no second queue: the kept
// input carries the mark. A task is dead until it is dropped, or another task is committed that stands for it.
import type { TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { deadAmong, dropDead, redrivenAs } from '../../stores/store/queries/dead-letters.ts';

export interface DeadLettersParts {
  readonly db: Queryable;
  /** Resolves when the database has the records that replicas held by now. */
  readonly caughtUp: () => Promise<unknown>;
}

/** Whether a task is dead, or the task that stands for it. */
export type Standing =
  | { readonly kind: 'dead' }
  | { readonly kind: 'redriven'; readonly as: TaskId }
  | { readonly kind: 'not_dead' };

export class DeadLetters {
  readonly #parts: DeadLettersParts;

  constructor(parts: DeadLettersParts) {
    this.#parts = parts;
  }

  /** Standings of tasks of a workspace. */
  async standings(workspaceId: WorkspaceId, taskIds: readonly TaskId[]): Promise<ReadonlyMap<TaskId, Standing>> {
    const { db, caughtUp } = this.#parts;
    await caughtUp();
    const dead = await deadAmong(db, workspaceId, taskIds);
    const others = taskIds.filter((taskId) => !dead.has(taskId));
    const redriven = others.length === 0 ? new Map<TaskId, TaskId>() : await redrivenAs(db, others);
    return new Map(
      taskIds.map((taskId): [TaskId, Standing] => {
        const as = redriven.get(taskId);
        if (dead.has(taskId)) return [taskId, { kind: 'dead' }];
        return [taskId, as === undefined ? { kind: 'not_dead' } : { kind: 'redriven', as }];
      }),
    );
  }

  /** Takes tasks of a workspace off the dead ones. @returns those that were dead */
  async drop(workspaceId: WorkspaceId, taskIds: readonly TaskId[]): Promise<readonly TaskId[]> {
    await this.#parts.caughtUp();
    return await dropDead(this.#parts.db, workspaceId, taskIds);
  }
}
