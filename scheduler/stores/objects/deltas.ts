// Objects that are made of an uploaded one and what changed since: a client uploads an archive of the changed files,
// and names those that are gone.
import { randomBytes } from 'node:crypto';
import { AppError } from '#shared/errors.ts';
import type { ObjectId, WorkspaceId } from '#shared/domain/ids.ts';
import { Places } from '#shared/places.ts';
import { mergedArchive } from './merge-archives.ts';
import type { Objects } from './service.ts';
import { isElsewhere } from './signatures.ts';

/** Archives of a workspace that are joined at once. */
const MOST_AT_ONCE = 2;
const MOST_HASH = 128;
/** Hash of an uploaded change: `delta:BASE:RANDOM:HASH`, with the hash of the object that it makes. */
const DELTA = /^delta:([0-9a-f-]{36}):[0-9a-f]{16}:(.+)$/s;

type Owner = { readonly workspaceId: WorkspaceId };

export type CreatedDelta =
  | { readonly kind: 'upload'; readonly objectId: ObjectId; readonly uploadPath: string }
  | { readonly kind: 'base_missing' }
  /** Uploads go past the scheduler, which cannot read them at once. */
  | { readonly kind: 'direct' };

export class ObjectDeltas {
  readonly #objects: Pick<Objects, 'find' | 'create' | 'open' | 'receive'>;
  readonly #places = new Places<WorkspaceId>(MOST_AT_ONCE);

  constructor(objects: Pick<Objects, 'find' | 'create' | 'open' | 'receive'>) {
    this.#objects = objects;
  }

  /** Announces a change. @throws AppError `invalid_object`, `body_too_large`, `object_quota_reached` */
  async create(
    owner: Owner,
    asked: { readonly hash: string; readonly baseObjectId: string; readonly bytes: number },
  ): Promise<CreatedDelta> {
    const { hash, baseObjectId, bytes } = asked;
    if (hash === '' || hash.length > MOST_HASH)
      throw new AppError('invalid_object', `hash must be a text of 1 to ${MOST_HASH} characters`);
    const base = await this.#objects.find(owner, baseObjectId);
    if (base?.sha256 === null || base === undefined) return { kind: 'base_missing' };
    const name = `delta:${base.id}:${randomBytes(8).toString('hex')}:${hash}`;
    const { objectId, uploadPath } = await this.#objects.create(owner, { hash: name, size: bytes, overwrite: true });
    return uploadPath === null || isElsewhere(uploadPath)
      ? { kind: 'direct' }
      : { kind: 'upload', objectId, uploadPath };
  }

  /**
   * Makes the object of its base and an uploaded change.
   * @throws AppError `object_not_found`, `bad_request`, and those of an upload
   */
  async commit(
    owner: Owner,
    asked: { readonly objectId: string; readonly baseObjectId: string; readonly removed: readonly string[] },
  ): Promise<{ readonly objectId: ObjectId; readonly size: number }> {
    const delta = await this.#objects.find(owner, asked.objectId);
    const base = await this.#objects.find(owner, asked.baseObjectId);
    const [, baseId, hash] = DELTA.exec(delta?.hash ?? '') ?? [];
    if (delta === undefined || base === undefined || hash === undefined || baseId !== base.id)
      throw new AppError('object_not_found', 'object_id names no change of that base');
    if (delta.sha256 === null) throw new AppError('bad_request', 'the changed files have not been uploaded yet');
    const leave = this.#places.take(owner.workspaceId);
    if (leave === undefined)
      throw new AppError('bad_request', `this workspace joins ${MOST_AT_ONCE} objects already: call again`);
    try {
      return await this.#join(owner, { hash, delta, base, removed: new Set(asked.removed) });
    } finally {
      leave();
    }
  }

  async #join(
    owner: Owner,
    of: {
      readonly hash: string;
      readonly delta: { readonly id: ObjectId; readonly size: number };
      readonly base: { readonly id: ObjectId; readonly size: number };
      readonly removed: ReadonlySet<string>;
    },
  ): Promise<{ readonly objectId: ObjectId; readonly size: number }> {
    const { hash, delta, base, removed } = of;
    const size = delta.size + base.size;
    const { objectId } = await this.#objects.create(owner, { hash, size, overwrite: true });
    const [changed, before] = await Promise.all([this.#objects.open(delta.id), this.#objects.open(base.id)]);
    if (changed === undefined || before === undefined) {
      changed?.stream.destroy();
      before?.stream.destroy();
      throw new AppError('object_not_found', 'the bytes of the object are gone: upload the whole object');
    }
    try {
      const stored = await this.#objects.receive(objectId, mergedArchive(before.stream, changed.stream, removed));
      return { objectId, size: stored.size };
    } finally {
      changed.stream.destroy();
      before.stream.destroy();
    }
  }
}
