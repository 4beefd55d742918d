// Quota of a workspace's queued inputs. Asynchronous jobs are rows until they end, so the database knows
// their bytes for all replicas, also after a restart or a loss of Redis. This file keeps the last answer,
// and the bytes added since. Inputs of synchronous calls are counted where their callers wait. Invariants:
// the database is never asked once per call; for a workspace far below its quota it is never asked.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';

const MAX_WORKSPACES = 10_000;
/** Fraction of the quota after whose addition the database is asked again. */
const ASK_AFTER = 1 / 16;
/**
 * Shortest pause between two questions, also as a multiple of the last
 * one's duration, so that they take a small share of the database.
 */
const LEAST_PAUSE_MS = 250;
const PAUSE_FACTOR = 10;
/** Smallest input of a synchronous call that is counted: smaller ones are bounded by their callers' connections. */
const LEAST_SYNC_BYTES = 1_024;

interface Known {
  /** Bytes in the database's last answer. */
  bytes: number;
  /** Bytes let in here since. */
  added: number;
  /** Bytes of calls that found room and are not let in yet. */
  pending: number;
  /** Bytes of synchronous calls that wait or run for callers here. */
  waiting: number;
  asking: Promise<void> | undefined;
  /** Time before which the database is not asked again. */
  askAtMs: number;
}

export interface QueueQuotaParts {
  /** Bytes of the workspace's asynchronous jobs that have not ended. */
  readonly ask: (workspaceId: WorkspaceId) => Promise<number>;
  readonly log: Log;
}

export class QueueQuota {
  readonly #parts: QueueQuotaParts;
  readonly #known = new BoundedMap<WorkspaceId, Known>(MAX_WORKSPACES);

  constructor(parts: QueueQuotaParts) {
    this.#parts = parts;
  }

  /** Whether an input of so many bytes is counted at all. */
  counts(bytes: number, isSync: boolean): boolean {
    return !isSync || bytes >= LEAST_SYNC_BYTES;
  }

  /**
   * Whether there is room for an input of so many bytes. The
   * answer is immediate unless the known numbers leave no room.
   */
  hasRoom(workspaceId: WorkspaceId, bytes: number, limit: number): boolean | Promise<boolean> {
    const known = this.#of(workspaceId);
    const fits = (): boolean => known.bytes + known.added + known.pending + known.waiting + bytes <= limit;
    const mayAsk = performance.now() >= known.askAtMs;
    if (fits()) {
      // No call waits for this answer: other replicas may have filled the queue, and the next calls will know.
      if (known.added + bytes > limit * ASK_AFTER && mayAsk) void this.#ask(workspaceId, known);
      return true;
    }
    // A flood of calls to a full queue is refused by the last answer.
    return mayAsk ? this.#ask(workspaceId, known).then(fits) : false;
  }

  /**
   * Reserves bytes from the check until the call is let in or
   * refused, so that simultaneous calls do not all see the same room.
   * @returns function that ends the reservation
   */
  reserve(workspaceId: WorkspaceId, bytes: number): () => void {
    const known = this.#of(workspaceId);
    known.pending += bytes;
    return () => void (known.pending -= bytes);
  }

  /** Counts an asynchronous task that was let in. */
  added(workspaceId: WorkspaceId, bytes: number): void {
    this.#of(workspaceId).added += bytes;
  }

  /** Counts a synchronous call until it ends. */
  waits(workspaceId: WorkspaceId, bytes: number, until: Promise<unknown>): void {
    if (!this.counts(bytes, true)) return;
    const known = this.#of(workspaceId);
    known.waiting += bytes;
    const over = (): void => void (known.waiting -= bytes);
    until.then(over, over);
  }

  #of(workspaceId: WorkspaceId): Known {
    const found = this.#known.get(workspaceId);
    if (found !== undefined) return found;
    const fresh: Known = { bytes: 0, added: 0, pending: 0, waiting: 0, asking: undefined, askAtMs: 0 };
    this.#known.set(workspaceId, fresh);
    return fresh;
  }

  /** Asks the database. While it does not answer, no call is refused because of it. */
  #ask(workspaceId: WorkspaceId, known: Known): Promise<void> {
    known.asking ??= this.#read(workspaceId, known).finally(() => (known.asking = undefined));
    return known.asking;
  }

  async #read(workspaceId: WorkspaceId, known: Known): Promise<void> {
    const before = known.added;
    const startedMs = performance.now();
    try {
      known.bytes = await this.#parts.ask(workspaceId);
      known.added -= before;
    } catch (error) {
      this.#parts.log.info({ err: error }, 'bytes of queued inputs not read');
    }
    const nowMs = performance.now();
    known.askAtMs = nowMs + Math.max(LEAST_PAUSE_MS, PAUSE_FACTOR * (nowMs - startedMs));
  }
}
