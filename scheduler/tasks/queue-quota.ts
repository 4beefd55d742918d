// The quota of queued inputs of a workspace. Asynchronous jobs are rows until they end, so the database knows their bytes for all replicas, also after a restart or a lost Redis. This file keeps the last answer
// and what came since. Inputs of synchronous calls are counted where their callers wait. Must stay true: nothing is asked for one call; a workspace far below its quota is never asked for.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { BoundedMap } from '../deployments/bounded-map.ts';

const MAX_WORKSPACES = 10_000;
/** The database is asked again when this part of the quota has come since. */
const ASK_AFTER = 1 / 16;
/** Between two questions, also in parts of what the last one took: they take a small share of the database. */
const LEAST_PAUSE_MS = 250;
const PAUSE_FACTOR = 10;
/** Smaller inputs of synchronous calls are not counted: their callers' connections bound them. */
const LEAST_SYNC_BYTES = 1_024;

interface Known {
  /** As the database last said. */
  bytes: number;
  /** Let in here since. */
  added: number;
  /** Bytes of calls that found room and are not let in yet. */
  pending: number;
  /** Bytes of synchronous calls that wait or run for callers here. */
  waiting: number;
  asking: Promise<void> | undefined;
  /** Not asked again before. */
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

  /** Whether there is room for an input of so many bytes; at once unless there is none as far as is known. */
  hasRoom(workspaceId: WorkspaceId, bytes: number, limit: number): boolean | Promise<boolean> {
    const known = this.#of(workspaceId);
    const fits = (): boolean => known.bytes + known.added + known.pending + known.waiting + bytes <= limit;
    const mayAsk = performance.now() >= known.askAtMs;
    if (fits()) {
      // No call waits for that: other replicas may have filled the queue, and the next calls know.
      if (known.added + bytes > limit * ASK_AFTER && mayAsk) void this.#ask(workspaceId, known);
      return true;
    }
    // A flood of calls to a full queue is refused by the last answer.
    return mayAsk ? this.#ask(workspaceId, known).then(fits) : false;
  }

  /** From when there is room until the call is let in or refused: calls of one moment do not all see the same room. @returns how to end it */
  reserve(workspaceId: WorkspaceId, bytes: number): () => void {
    const known = this.#of(workspaceId);
    known.pending += bytes;
    return () => void (known.pending -= bytes);
  }

  /** An asynchronous task was let in. */
  added(workspaceId: WorkspaceId, bytes: number): void {
    this.#of(workspaceId).added += bytes;
  }

  /** A synchronous call waits until then. */
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

  /** While the database does not answer nobody is refused for what it would say. */
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
