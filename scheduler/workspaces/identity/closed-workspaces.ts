// Workspaces that are being deleted, in memory: no token of theirs counts, also none of their containers. Tokens with a
// row are refused by their statement as well. A container's token has no row, and must not need the database.
// Invariant: a workspace is in this set at every listening replica when its deletion is answered.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { closedWorkspaces } from '../../stores/store/queries/workspaces.ts';
import type { Invalidation } from './invalidation.ts';

/** Most ids that are kept. The containers of older ones have ended. */
const MOST = 10_000;

export class ClosedWorkspaces {
  readonly name = 'closed workspaces';
  readonly #db: Queryable;
  readonly #log: Log;
  readonly #ids = new Set<WorkspaceId>();

  constructor(db: Queryable, invalidation: Pick<Invalidation, 'on' | 'onReset'>, log: Log) {
    this.#db = db;
    this.#log = log;
    invalidation.on('workspace_deleted', (id) => this.#add(id as WorkspaceId));
    invalidation.onReset(() => {
      // The ones known so far stay: no workspace opens again.
      this.#read().catch((error: unknown) => {
        this.#log.warn({ err: error }, 'workspaces that are being deleted were not read again');
      });
    });
  }

  async start(): Promise<void> {
    await this.#read();
  }

  has(id: WorkspaceId): boolean {
    return this.#ids.has(id);
  }

  async #read(): Promise<void> {
    for (const id of await closedWorkspaces(this.#db)) this.#add(id);
  }

  #add(id: WorkspaceId): void {
    this.#ids.add(id);
    if (this.#ids.size <= MOST) return;
    for (const oldest of this.#ids) {
      this.#ids.delete(oldest);
      return;
    }
  }
}
