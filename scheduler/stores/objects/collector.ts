// Deletes objects that nothing refers to. First go rows that no stub names and that were not uploaded, asked for or
// named for the grace. Then go bytes that neither a row nor a task knows. The leader runs it.
// Invariant: the row goes first, by a statement that sees a use at that moment. The grace is longer than an upload
// address lives. Bytes younger than the grace are never looked at. A round is bounded.
import type { Clock } from '#shared/clock.ts';
import type { ObjectId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Registry } from '#shared/metrics.ts';
import { Counter } from '#shared/metrics.ts';
import type { Db } from '../store/db.ts';
import { sqlStateOf } from '../store/db.ts';
import { deleteUnusedObjects, unknownObjectKeys } from '../store/queries/objects.ts';
import type { KeptObject } from './backend.ts';

export interface ObjectCollectorParts {
  readonly db: Db;
  readonly kept: () => AsyncIterable<KeptObject>;
  readonly remove: (key: ObjectId) => Promise<void>;
  /** Takes in direct uploads that no call asked for since. */
  readonly takeUploads: (uploadedBeforeMs: number, most: number) => Promise<number>;
  /** Whether another part owns the key: inputs of tasks. */
  readonly isOthers: (key: string) => boolean;
  readonly metrics: ObjectMetrics;
  readonly clock: Clock;
  readonly log: Log;
  /** Age below which nothing is collected; longer than an upload address lives. */
  readonly graceMs: number;
  /** Bounds of one round: rows and bytes that are deleted, and bytes that are looked at. */
  readonly mostRemoved?: number;
  readonly mostLookedAt?: number;
}

const MOST_REMOVED = 1_000;
/** A client asks for its object soon after the upload; an older upload was forgotten. */
const UPLOADED_MS = 600_000;
const MOST_LOOKED_AT = 20_000;
const ASKED_AT_ONCE = 500;

export class ObjectMetrics {
  readonly collected: Counter<'kind'>;

  constructor(registry: Registry) {
    this.collected = new Counter({
      name: 'longshore_scheduler_objects_collected_total',
      help: 'Objects deleted because nothing referred to them: object (with its row), or bytes (nobody knew them).',
      labelNames: ['kind'],
      registers: [registry],
    });
  }
}

export class ObjectCollector {
  readonly #parts: ObjectCollectorParts;
  /** Position at which the last round stopped looking. */
  #looking: AsyncIterator<KeptObject> | undefined;

  constructor(parts: ObjectCollectorParts) {
    this.#parts = parts;
  }

  /** @throws when a store does not answer */
  async round(signal?: AbortSignal): Promise<{ readonly objects: number; readonly bytes: number }> {
    const nowMs = this.#parts.clock.nowMs();
    const beforeMs = nowMs - this.#parts.graceMs;
    await this.#parts.takeUploads(nowMs - UPLOADED_MS, MOST_REMOVED);
    const objects = await this.#objects(beforeMs);
    const bytes = await this.#bytes(beforeMs, signal);
    if (objects + bytes > 0) this.#parts.log.info({ objects, bytes }, 'objects that nothing refers to were deleted');
    return { objects, bytes };
  }

  async #objects(beforeMs: number): Promise<number> {
    const { db, remove, metrics, mostRemoved = MOST_REMOVED } = this.#parts;
    let ids: ObjectId[];
    try {
      ids = await deleteUnusedObjects(db, beforeMs, mostRemoved);
    } catch (error) {
      // A stub took one of these objects between the look and the deletion.
      if (sqlStateOf(error) === '23503') return 0;
      throw error;
    }
    metrics.collected.inc({ kind: 'object' }, ids.length);
    // Bytes whose removal fails here are found later as bytes without a row.
    for (const id of ids) await remove(id);
    return ids.length;
  }

  async #bytes(beforeMs: number, signal?: AbortSignal): Promise<number> {
    const { isOthers, mostRemoved = MOST_REMOVED, mostLookedAt = MOST_LOOKED_AT } = this.#parts;
    let removed = 0;
    let keys: ObjectId[] = [];
    for (let looked = 0; looked < mostLookedAt && removed < mostRemoved && signal?.aborted !== true; looked += 1) {
      const kept = await this.#next();
      if (kept === undefined) break;
      if (kept.writtenAtMs >= beforeMs || isOthers(kept.key)) continue;
      keys.push(kept.key as ObjectId);
      if (keys.length < ASKED_AT_ONCE) continue;
      removed += await this.#removeUnknown(keys);
      keys = [];
    }
    return removed + (await this.#removeUnknown(keys));
  }

  async #removeUnknown(keys: readonly ObjectId[]): Promise<number> {
    if (keys.length === 0) return 0;
    const { db, remove, metrics } = this.#parts;
    const unknown = await unknownObjectKeys(db, keys);
    for (const key of unknown) {
      await remove(key as ObjectId);
      metrics.collected.inc({ kind: 'bytes' });
    }
    return unknown.length;
  }

  /** The next object; undefined: all were seen, and the next call begins anew. */
  async #next(): Promise<KeptObject | undefined> {
    this.#looking ??= this.#parts.kept()[Symbol.asyncIterator]();
    try {
      const next = await this.#looking.next();
      if (next.done !== true) return next.value;
    } catch (error) {
      this.#looking = undefined;
      throw error;
    }
    this.#looking = undefined;
    return undefined;
  }
}
