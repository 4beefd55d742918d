// Bounds on messages of WebSockets that this process holds: of each workspace, and in all. A message is held while it
// is incomplete, and while it waits for its application.
// Invariant: a connection's share is set to the bytes that it holds, never added to, so that no path can take bytes
// twice or keep them.
import type { WorkspaceId } from '#shared/domain/ids.ts';

const MIB = 1024 * 1024;
/** Bytes of a connection that do not count, so that ordinary messages find room at all times. */
const FREE_BYTES = 64 * 1024;

export interface MessageBounds {
  readonly workspaceBytes: number;
  readonly processBytes: number;
}

const BOUNDS: MessageBounds = { workspaceBytes: 128 * MIB, processBytes: 512 * MIB };

/** The bound that a connection has reached. */
export type FullBound = 'connection' | 'workspace' | 'process';

export class MessageRoom {
  readonly #bounds: MessageBounds;
  readonly #of = new Map<WorkspaceId, number>();
  #all = 0;

  constructor(bounds = BOUNDS) {
    this.#bounds = bounds;
  }

  /** Bytes that count, in all. */
  get heldBytes(): number {
    return this.#all;
  }

  /** Workspaces that hold any. */
  get workspaces(): number {
    return this.#of.size;
  }

  /** Changes what a workspace holds. @returns the bound that more would pass; undefined: done */
  change(workspaceId: WorkspaceId, delta: number): FullBound | undefined {
    const own = (this.#of.get(workspaceId) ?? 0) + delta;
    const all = this.#all + delta;
    if (delta > 0) {
      if (own > this.#bounds.workspaceBytes) return 'workspace';
      // A workspace leaves at least as much as it holds, so the others always find some.
      if (own > this.#bounds.processBytes - all) return 'process';
    }
    this.#all = all;
    if (own > 0) this.#of.set(workspaceId, own);
    else this.#of.delete(workspaceId);
    return undefined;
  }
}

/** Bytes that one connection holds of its workspace's room. */
export class MessageShare {
  readonly #room: MessageRoom;
  readonly #workspaceId: WorkspaceId;
  #counted = 0;

  constructor(room: MessageRoom, workspaceId: WorkspaceId) {
    this.#room = room;
    this.#workspaceId = workspaceId;
  }

  /** Tells how much the connection holds now. @returns the bound that is reached: the share stays as it was */
  set(bytes: number): FullBound | undefined {
    const counted = bytes > FREE_BYTES ? bytes : 0;
    if (counted === this.#counted) return undefined;
    const full = this.#room.change(this.#workspaceId, counted - this.#counted);
    if (full === undefined) this.#counted = counted;
    return full;
  }
}
