import type { Clock } from '#shared/clock.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { workspaceConcurrency } from '../../stores/store/queries/workspaces.ts';
import type { Quota } from '../plan/ledger.ts';

/** Milliseconds after which a changed limit is seen at the latest. */
const FRESH_MS = 10_000;
const MAX_WORKSPACES = 10_000;

/** Limits on what workspaces may have at once, as in their rows; kept for ten seconds, or until they are changed. */
export class Quotas {
  readonly #db: Queryable;
  readonly #clock: Clock;
  readonly #known = new BoundedMap<WorkspaceId, { readonly quota: Quota; readonly readAtMs: number }>(MAX_WORKSPACES);

  #generation = 0;

  constructor(db: Queryable, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  /** Forgets the limits of a workspace, because they were changed. */
  forget(id: WorkspaceId): void {
    this.#generation++;
    this.#known.delete(id);
  }

  async of(workspaces: ReadonlySet<WorkspaceId>): Promise<ReadonlyMap<WorkspaceId, Quota>> {
    const nowMs = this.#clock.monotonicMs();
    const stale = [...workspaces].filter((id) => nowMs - (this.#known.get(id)?.readAtMs ?? -Infinity) > FRESH_MS);
    if (stale.length > 0) {
      const generation = this.#generation;
      // Limits that were read before a change are good for this round at most.
      const readAtMs = (): number => (generation === this.#generation ? nowMs : -Infinity);
      for (const { id, ...quota } of await workspaceConcurrency(this.#db, stale))
        this.#known.set(id, { quota, readAtMs: readAtMs() });
    }
    const quotas = new Map<WorkspaceId, Quota>();
    for (const id of workspaces) {
      const known = this.#known.get(id);
      if (known !== undefined) quotas.set(id, known.quota);
    }
    return quotas;
  }
}
