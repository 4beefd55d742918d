// Bounds on streamed calls under way at this replica: in all, and of each workspace.
import type { WorkspaceId } from '#shared/domain/ids.ts';

/** Most streamed calls at once. */
const MOST_STREAMS = 20_000;

export class StreamRoom {
  readonly #most: number;
  readonly #of = new Map<WorkspaceId, number>();
  #all = 0;

  constructor(most = MOST_STREAMS) {
    this.#most = most;
  }

  /** Takes a place. A workspace may hold at most the room that is left, so the others always find some. */
  take(workspaceId: WorkspaceId): boolean {
    const own = this.#of.get(workspaceId) ?? 0;
    if (own >= this.#most - this.#all) return false;
    this.#of.set(workspaceId, own + 1);
    this.#all += 1;
    return true;
  }

  giveBack(workspaceId: WorkspaceId): void {
    const own = (this.#of.get(workspaceId) ?? 1) - 1;
    this.#all -= 1;
    if (own > 0) this.#of.set(workspaceId, own);
    else this.#of.delete(workspaceId);
  }
}
