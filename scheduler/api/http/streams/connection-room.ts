// Bound on connections into the containers of a workspace, beside the room of streamed calls.
import type { WorkspaceId } from '#shared/domain/ids.ts';

/** Most connections into containers of one workspace at this replica. */
const MOST_CONNECTIONS = 256;

/** Bounds connections into containers, for each workspace. */
export class ConnectionRoom {
  readonly #most: number;
  readonly #of = new Map<WorkspaceId, number>();

  constructor(most = MOST_CONNECTIONS) {
    this.#most = most;
  }

  get most(): number {
    return this.#most;
  }

  /** Takes a place. @returns a function that gives it back, once; undefined: there is none */
  take(workspaceId: WorkspaceId): (() => void) | undefined {
    const own = this.#of.get(workspaceId) ?? 0;
    if (own >= this.#most) return undefined;
    this.#of.set(workspaceId, own + 1);
    let isBack = false;
    return () => {
      if (isBack) return;
      isBack = true;
      const left = (this.#of.get(workspaceId) ?? 1) - 1;
      if (left > 0) this.#of.set(workspaceId, left);
      else this.#of.delete(workspaceId);
    };
  }
}
