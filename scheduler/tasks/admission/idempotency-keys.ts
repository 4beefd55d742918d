// Idempotency keys in the database, with the bounds of a workspace. Retention removes expired keys.
import type { DeploymentId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import { GroupedWrites } from '../../stores/store/grouped-writes.ts';
import {
  acceptIdempotencyKeys,
  idempotencyKeysIn,
  insertIdempotencyKey,
  insertKeyedTasks,
  moveIdempotencyKey,
  releaseIdempotencyKey,
} from '../../stores/store/queries/idempotency.ts';
import type { KeyBounds, KeyedTask, KeyPlace, KeyRow, NewKey } from '../../stores/store/queries/idempotency.ts';
import { MAX_TASK_BATCH } from '../../stores/store/queries/tasks.ts';
import { COUNT_MARGIN, lockCounts } from '../../stores/store/queries/workspaces.ts';

/** Most keys of a workspace at a time; the next new one is refused. */
export const MOST_KEYS = 10_000;
/** Most keys of callers without a token of the workspace, so that a public deployment does not use up the owner's. */
export const MOST_KEYS_OF_OTHERS = 2_000;
export const KEPT_SECONDS = 24 * 3600;
const MOST_WAITING = 20 * MAX_TASK_BATCH;

type Held = KeyPlace & { readonly taskId: TaskId };

export class IdempotencyKeys {
  readonly #db: Db;
  readonly #log: Log;
  readonly #bounds: KeyBounds;
  readonly #commits: GroupedWrites<KeyedTask, boolean>;
  readonly #accepts: GroupedWrites<Held, boolean>;

  constructor(parts: { readonly db: Db; readonly log: Log; readonly bounds?: KeyBounds }) {
    const { db } = parts;
    this.#db = db;
    this.#log = parts.log;
    this.#bounds = parts.bounds ?? { most: MOST_KEYS, mostOfOthers: MOST_KEYS_OF_OTHERS, keptSeconds: KEPT_SECONDS };
    const bounds = { mostAtOnce: MAX_TASK_BATCH, mostWaiting: MOST_WAITING };
    this.#commits = new GroupedWrites({
      ...bounds,
      what: 'tasks',
      write: async (tasks) => {
        const held = await insertKeyedTasks(db, tasks);
        return tasks.map(({ record }) => held.has(record.taskId));
      },
    });
    this.#accepts = new GroupedWrites({
      ...bounds,
      what: 'idempotency keys',
      write: async (keys) => {
        const held = await acceptIdempotencyKeys(db, keys);
        return keys.map(({ taskId }) => held.has(taskId));
      },
    });
  }

  find(workspaceId: WorkspaceId, scopes: readonly string[], key: string): Promise<readonly KeyRow[]> {
    return idempotencyKeysIn(this.#db, workspaceId, scopes, key);
  }

  /**
   * Inserts a key, by one statement that waits for no other.
   * @returns false: another task has it, or the workspace has nearly as many keys as it may
   */
  insert(key: NewKey): Promise<boolean> {
    const { most, mostOfOthers, keptSeconds } = this.#bounds;
    return insertIdempotencyKey(this.#db, key, {
      most: Math.max(0, most - COUNT_MARGIN),
      mostOfOthers: Math.max(0, mostOfOthers - COUNT_MARGIN),
      keptSeconds,
    });
  }

  /** Inserts a key while no other call of the workspace does. @returns false: another task has it, or no room */
  insertInTurn(key: NewKey): Promise<boolean> {
    return this.#db.transaction(async (tx) => {
      await lockCounts(tx, key.workspaceId);
      return await insertIdempotencyKey(tx, key, this.#bounds);
    });
  }

  /** Gives the key of a task that never ran to another task. @returns false: another call was faster */
  move(
    held: Parameters<typeof moveIdempotencyKey>[1],
    next: { readonly taskId: TaskId; readonly deploymentId: DeploymentId | null },
  ): Promise<boolean> {
    return moveIdempotencyKey(this.#db, held, next, this.#bounds.keptSeconds);
  }

  /**
   * Writes an asynchronous task's row and its key, in one statement.
   * @returns false: the key is another task's now, nothing was written
   */
  commit(task: KeyedTask): Promise<boolean> {
    return this.#commits.write(task);
  }

  /** Marks the key as accepted, without waiting: if that fails, the task's record says the same. */
  acceptSoon({ workspaceId, scope, key, taskId }: Held): void {
    this.#accepts.write({ workspaceId, scope, key, taskId }).catch((error: unknown) => {
      this.#log.info({ err: error, taskId }, 'the key of an accepted task is not marked');
    });
  }

  /**
   * Releases the key of a task whose commit was not answered. From then on the commit writes nothing.
   * @returns false: the commit was made before, so other callers may have been given the task
   * @throws when the database does not answer
   */
  async releaseUncommitted(held: Held): Promise<boolean> {
    return !(await releaseIdempotencyKey(this.#db, held));
  }

  /** Releases a key. A key that stays after a failure is free again when its claim is old. */
  async release(held: Held): Promise<void> {
    try {
      await releaseIdempotencyKey(this.#db, held);
    } catch (error) {
      this.#log.info({ err: error, taskId: held.taskId }, 'the key of a refused call is still there');
    }
  }
}
