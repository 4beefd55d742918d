// Room of a workspace for objects: the number and the bytes that it may have. service.ts asks it.
// Invariant: what is announced or under way is counted before it comes, behind the lock of the workspace's counts. So
// calls at once exceed no bound, whichever replicas take them.
import { AppError } from '#shared/errors.ts';
import type { ObjectId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Db, Queryable } from '../store/db.ts';
import {
  getOrCreateObject,
  releaseObjectBytes,
  reserveCountedBytes,
  reserveObjectBytes,
} from '../store/queries/objects.ts';
import type { NewObject, ObjectRow } from '../store/queries/objects.ts';
import { objectUse } from '../store/queries/quotas.ts';
import { lockCounts } from '../store/queries/workspaces.ts';

export interface ObjectQuota {
  readonly objects: number;
  readonly bytes: number;
}

export type ObjectQuotaOf = (workspaceId: WorkspaceId) => ObjectQuota | Promise<ObjectQuota>;

export class ObjectRoom {
  readonly #db: Db;
  readonly #quotaOf: ObjectQuotaOf | undefined;

  /** @param quotaOf - absent: no bounds */
  constructor(db: Db, quotaOf: ObjectQuotaOf | undefined) {
    this.#db = db;
    this.#quotaOf = quotaOf;
  }

  /** Finds or makes the row of an object. @throws AppError `object_quota_reached` */
  async announce(object: NewObject): Promise<ObjectRow> {
    const quota = await this.#quotaOf?.(object.workspaceId);
    if (quota === undefined) return await getOrCreateObject(this.#db, object);
    return await this.#counted(object, async (tx, others) => {
      if (others.objects >= quota.objects) throw tooMany(others.objects, quota.objects);
      if (others.bytes + object.size > quota.bytes) throw tooLarge(others.bytes, object.size, quota.bytes);
      return await getOrCreateObject(tx, object);
    });
  }

  /**
   * Reserves room for uploads of an object, until they are released. They count also where another upload lowers the
   * object's size meanwhile.
   * @throws AppError `object_quota_reached`: the workspace has no room for so many bytes
   */
  async reserve(row: ObjectRow, bytes: number): Promise<void> {
    const quota = await this.#quotaOf?.(row.workspaceId);
    if (quota === undefined || (await reserveCountedBytes(this.#db, row.id, bytes))) return;
    await this.#counted(row, async (tx, others) => {
      if (others.bytes + bytes > quota.bytes) throw tooLarge(others.bytes, bytes, quota.bytes);
      await reserveObjectBytes(tx, row.id, bytes);
    });
  }

  /** Gives the room of uploads back that have ended; the object counts with the size that it has. */
  async release(id: ObjectId): Promise<void> {
    if (this.#quotaOf !== undefined) await releaseObjectBytes(this.#db, id);
  }

  /** Most bytes that the object may have at this moment. Nothing is reserved. */
  async mostOf(row: ObjectRow): Promise<number> {
    const quota = await this.#quotaOf?.(row.workspaceId);
    if (quota === undefined) return Infinity;
    const others = await objectUse(this.#db, row.workspaceId, row.hash);
    return Math.max(row.size, quota.bytes - others.bytes);
  }

  /** Runs a change while the workspace's other objects stay as many as they are. */
  async #counted<T>(
    { workspaceId, hash }: Pick<ObjectRow, 'workspaceId' | 'hash'>,
    change: (tx: Queryable, others: { readonly objects: number; readonly bytes: number }) => Promise<T>,
  ): Promise<T> {
    return await this.#db.transaction(async (tx) => {
      await lockCounts(tx, workspaceId);
      return await change(tx, await objectUse(tx, workspaceId, hash));
    });
  }
}

const CURE =
  'Delete deployments that nobody needs and wait for the archives of no stub to go, or have an administrator raise it (`longshore workspace limits`).';

function tooMany(objects: number, most: number): AppError {
  const text = `this workspace has ${objects} objects; its limit counts.objects is ${most}. ${CURE}`;
  return new AppError('object_quota_reached', text, { details: { limit: 'counts.objects' } });
}

function tooLarge(others: number, size: number, most: number): AppError {
  const text = `this workspace has ${others} bytes of other objects; with ${size} more they exceed its limit bytes.objects, ${most}. ${CURE}`;
  return new AppError('object_quota_reached', text, { details: { limit: 'bytes.objects' } });
}
