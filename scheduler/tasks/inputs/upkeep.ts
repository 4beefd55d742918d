// Deletion of kept inputs beyond the bound of a workspace, and of those of deleted deployments. By their age
// retention/ deletes them. A loop of the leader does it: each minute, and at once for a workspace that got much.
// Invariant: a row goes before its object; an object that stays is found by the sweep of inputs.
import type { Clock } from '#shared/clock.ts';
import type { TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Queryable } from '../../stores/store/db.ts';
import type { GoneInputs } from '../../stores/store/queries/task-inputs.ts';
import { deleteInputsOfDeleted, trimInputs, workspacesAbove } from '../../stores/store/queries/task-inputs.ts';

export interface InputUpkeepParts {
  readonly db: Queryable;
  /** Drops the object of an input, if it has one. */
  readonly removeObject: (taskId: TaskId) => Promise<unknown>;
  readonly workspaceBytes: number;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly log: Log;
}

const ROWS = 500;
/** Share of its bound that a workspace may get before it is looked at. */
const SHARE = 1 / 16;
/** Time by which clocks of replicas may differ. */
const SKEW_MS = 10 * 60_000;

export class InputUpkeep {
  readonly #parts: InputUpkeepParts;
  readonly #abort = new AbortController();
  /** Bytes that workspaces got since they were looked at. */
  readonly #added = new Map<WorkspaceId, number>();
  /** Leadership of the last round. */
  #leading: AbortSignal | undefined;
  /** Deployments that were deleted before were looked at in this leadership. */
  #lookedMs = 0;
  #trimming: Promise<void> = Promise.resolve();

  constructor(parts: InputUpkeepParts) {
    this.#parts = parts;
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#trimming;
  }

  /** Notes what workspaces got; one that got much is looked at now. */
  added(bytes: ReadonlyMap<WorkspaceId, number>): void {
    const { workspaceBytes, log } = this.#parts;
    for (const [id, more] of bytes) {
      const sum = (this.#added.get(id) ?? 0) + more;
      this.#added.set(id, sum);
      if (sum < workspaceBytes * SHARE) continue;
      this.#added.delete(id);
      this.#trimming = this.#trimming
        .then(() => this.#trim(id, this.#abort.signal))
        .catch((error: unknown) => log.warn({ err: error }, 'kept inputs beyond a bound stay for a minute'));
    }
  }

  /** Runs one round. @param signal - of this leadership; its first round looks at everything */
  async round(signal: AbortSignal): Promise<void> {
    const { db, clock, workspaceBytes } = this.#parts;
    const nowMs = clock.nowMs();
    const isFirst = this.#leading !== signal;
    if (isFirst) this.#lookedMs = 0;
    const got = [...this.#added.keys()];
    this.#added.clear();
    for (const id of isFirst ? await workspacesAbove(db, workspaceBytes) : got) await this.#trim(id, signal);
    await this.#deleteBy((limit) => deleteInputsOfDeleted(db, this.#lookedMs, limit), signal);
    signal.throwIfAborted();
    this.#leading = signal;
    this.#lookedMs = nowMs - SKEW_MS;
  }

  #trim(id: WorkspaceId, signal: AbortSignal): Promise<void> {
    const { db, workspaceBytes } = this.#parts;
    return this.#deleteBy((limit) => trimInputs(db, id, workspaceBytes, limit), signal);
  }

  async #deleteBy(remove: (limit: number) => Promise<GoneInputs>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const { gone, large } = await remove(ROWS);
      await Promise.allSettled(large.map((taskId) => this.#parts.removeObject(taskId)));
      if (gone < ROWS) return;
    }
  }
}
