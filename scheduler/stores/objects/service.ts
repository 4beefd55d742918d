// Uploaded archives and large bodies: the rows of `objects` and the bytes behind them. The gateway's object operations,
// the signed upload route, the agents' code downloads and the task path call it.
// Invariant: a row says "uploaded" only when all its bytes are stored, and one workspace never sees another's objects.
import type { Readable } from 'node:stream';
import { AppError } from '#shared/errors.ts';
import { sleep } from '#shared/backoff.ts';
import { systemClock } from '#shared/clock.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Clock } from '#shared/clock.ts';
import { isUuid, newId } from '#shared/domain/ids.ts';
import type { ObjectId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Db } from '../store/db.ts';
import {
  countObjectsAmong,
  markObjectUploaded,
  objectById,
  useObject,
  useObjectByHash,
} from '../store/queries/objects.ts';
import type { ObjectRow } from '../store/queries/objects.ts';
import type {
  KeptObject,
  ObjectBackend,
  OpenedBytes,
  Settle,
  StoredBytes,
  UnfinishedUpload,
  UploadedPart,
} from './backend.ts';
import { inProgress, tooLarge } from './files.ts';
import { ObjectRoom } from './room.ts';
import type { ObjectQuotaOf } from './room.ts';
import { SignedAddresses } from './signatures.ts';
import type { SignedQuery } from './signatures.ts';

export const DEFAULT_MAX_OBJECT_BYTES = 4 * 1024 ** 3;
/** Life of a signed upload address. */
export const UPLOAD_LIFE_MS = 86_400_000;
/** Path of uploads; the object id follows, with `expires` and `signature` in the query. */
export const UPLOAD_PATH = '/api/v1/gateway/objects/upload/';
/** Life of a signed download address. */
export const DOWNLOAD_LIFE_MS = 86_400_000;
/** Path of downloads; the object id follows, with `expires` and `signature` in the query. */
export const DOWNLOAD_PATH = '/api/v1/gateway/objects/download/';
/** Most uploads of a workspace that are cut off and kept. */
export const MOST_UNFINISHED = 16;
/** Time after its last byte for which an upload that is cut off is kept. */
export const UNFINISHED_LIFE_MS = 86_400_000;
/** Looks at an object that is being replaced. */
const MOST_LOOKS = 20;
const LOOK_AGAIN_MS = 50;
/** Uploads of one object at once: each has its bytes on the disk, and one of them counts. */
const MOST_AT_ONCE = 4;
/** Bytes that are reserved at once for a body that does not say its length. */
const PORTION_BYTES = 16 * 1024 * 1024;
const MAX_HASH_LENGTH = 256;
const BYTES_KEY = /^[A-Za-z0-9_-]{2,128}$/;

export interface OpenedObject extends StoredBytes {
  readonly stream: Readable;
}

export interface Objects {
  /** Told when a stub's archive has other bytes than before. */
  onReplaced(listener: (objectId: ObjectId) => void): void;
  /** The complete object of that hash; undefined: unknown, or its bytes are missing. */
  head(owner: ObjectOwner, hash: string): Promise<ObjectRow | undefined>;
  /**
   * Announces an object. `uploadPath`: below this server's own
   * address, or a whole address elsewhere; null: nothing to upload.
   * @throws AppError `invalid_object` (details.field), `body_too_large`, `object_quota_reached`
   */
  create(
    owner: ObjectOwner,
    object: { readonly hash: string; readonly size: number; readonly overwrite: boolean },
  ): Promise<{ readonly objectId: ObjectId; readonly uploadPath: string | null }>;
  /** Whether the signed address lets its bearer upload. */
  verifyUpload(objectId: string, query: SignedQuery): boolean;
  /** Whether the signed address lets its bearer download. */
  verifyDownload(objectId: string, query: SignedQuery): boolean;
  /**
   * Signs the address of an uploaded object. `path`: below this server's own address, or a whole address elsewhere.
   * @param lifeMs - a day when absent
   * @returns undefined: unknown, another workspace's, or not uploaded
   */
  signDownload(owner: ObjectOwner, objectId: string, lifeMs?: number): Promise<SignedDownload | undefined>;
  /** Signs the address of an object that a row names, without a look at it. `path` as in `signDownload`. */
  addressOf(objectId: ObjectId, lifeMs: number): Promise<string>;
  /**
   * Opens an object for a verified download; `sha256` is the hash of exactly these bytes.
   * @returns undefined: unknown, not uploaded, or its bytes are gone
   */
  openDownload(objectId: string): Promise<OpenedDownload | undefined>;
  /**
   * How far a verified upload is, and the hash of the bytes that the object has now.
   * @throws AppError `object_not_found`
   */
  uploadState(objectId: string): Promise<UploadState>;
  /**
   * Takes a part of a verified upload. A part that is cut off keeps what arrived.
   * @returns the stored object after the last part; else the number of bytes that arrived
   * @throws AppError `upload_offset_mismatch`, `upload_in_progress`, `too_many_unfinished_uploads`, and as `receive`
   */
  receivePart(
    objectId: string,
    part: UploadedPart,
    source: AsyncIterable<Uint8Array>,
  ): Promise<StoredBytes | { readonly received: number }>;
  /**
   * Takes the bytes of a verified upload.
   * @param contentLength - as announced; fewer bytes are refused
   * @param isResumable - whether the bytes of an upload that is cut off are kept, as far as there is room
   * @throws AppError `object_not_found`, `body_too_large`, `object_quota_reached`, `upload_incomplete`, `disk_full`,
   * `disk_read_only`, `object_store_failed`; nothing is left behind
   */
  receive(
    objectId: string,
    source: AsyncIterable<Uint8Array>,
    contentLength?: number,
    isResumable?: boolean,
  ): Promise<StoredBytes>;
  /**
   * The row of an object that a stub is about to name, uploaded or not; of any
   * workspace, callers compare it. The object is kept for a whole grace from now.
   */
  use(objectId: string): Promise<ObjectRow | undefined>;
  /**
   * Takes in direct uploads older than that moment that nobody asked for since; uploads without a row are deleted.
   * Uploads through this server that were cut off a day ago are deleted, too.
   * @returns the number of uploads handled, at most `most`
   */
  takeUploads(uploadedBeforeMs: number, most: number): Promise<number>;
  /** The row of the workspace's object, uploaded or not. */
  find(owner: ObjectOwner, objectId: string): Promise<ObjectRow | undefined>;
  /**
   * Opens an object of any workspace, for agents, which have been told
   * the id. undefined: unknown, not uploaded, or its bytes are gone.
   */
  open(objectId: string): Promise<OpenedObject | undefined>;
  /** Stores a task's input or result without a row, under that key or a new id; the task's job or record names it. */
  putBytes(bytes: Uint8Array, key?: ObjectId): Promise<ObjectId>;
  /** @throws AppError `body_too_large` when it has more than `maxBytes` */
  getBytes(objectId: ObjectId, maxBytes: number): Promise<Uint8Array | undefined>;
  removeBytes(objectId: ObjectId): Promise<void>;
  /** All stored bytes, uploads too, with the time they were written. */
  keptBytes(): AsyncIterable<KeptObject>;
}

export interface SignedDownload extends StoredBytes {
  readonly path: string;
  readonly untilMs: number;
}

export interface OpenedDownload extends OpenedBytes {
  readonly sha256: string;
}

export interface UploadState {
  /** Absent: nothing of an upload is there. */
  readonly unfinished?: UnfinishedUpload;
  readonly sha256: string | null;
}

export interface ObjectOwner {
  readonly workspaceId: WorkspaceId;
  /** Set for a container: it has only objects that containers of that stub made, under hashes of their own. */
  readonly container?: { readonly stubId: StubId };
}

/** Prefix of the stored hashes of objects that containers of the stub made. */
export const ownObjectsOf = (stubId: StubId): string => `container:${stubId}:`;

const storedHash = ({ container }: ObjectOwner, hash: string): string =>
  container === undefined ? hash : `${ownObjectsOf(container.stubId)}${hash}`;

export interface ObjectsOptions {
  readonly db: Db;
  readonly backend: ObjectBackend;
  readonly installation: {
    /** Keys for one purpose: the first signs, all verify. */
    deriveKeys(purpose: string): readonly [Uint8Array, ...Uint8Array[]];
  };
  /** LONGSHORE_MAX_OBJECT_BYTES */
  readonly maxObjectBytes?: number;
  /** The workspace's bounds for objects; absent: none. */
  readonly quotaOf?: ObjectQuotaOf;
  readonly clock?: Clock;
}

export function createObjects(options: ObjectsOptions): Objects {
  return new ObjectService(options);
}

class ObjectService implements Objects {
  readonly #db: Db;
  readonly #backend: ObjectBackend;
  readonly #uploadAddresses: SignedAddresses;
  readonly #downloadAddresses: SignedAddresses;
  /** Objects whose bytes and row this process is exchanging, one exchange after another. */
  readonly #settling = new Map<ObjectId, Promise<void>>();
  /** Number of uploads that write bytes of an object here. */
  readonly #underWay = new Map<ObjectId, number>();
  readonly #maxBytes: number;
  readonly #replaced = new Listeners<[ObjectId]>();
  readonly #clock: Clock;
  readonly #room: ObjectRoom;

  constructor(options: ObjectsOptions) {
    this.#db = options.db;
    this.#room = new ObjectRoom(options.db, options.quotaOf);
    this.#backend = options.backend;
    const { installation } = options;
    this.#uploadAddresses = new SignedAddresses(UPLOAD_PATH, 'put', () => installation.deriveKeys('object-upload'));
    const downloadKeys = () => installation.deriveKeys('object-download');
    this.#downloadAddresses = new SignedAddresses(DOWNLOAD_PATH, 'get', downloadKeys);
    this.#maxBytes = options.maxObjectBytes ?? DEFAULT_MAX_OBJECT_BYTES;
    this.#clock = options.clock ?? systemClock;
  }

  onReplaced(listener: (objectId: ObjectId) => void): void {
    this.#replaced.add(listener);
  }

  async head(owner: ObjectOwner, hash: string): Promise<ObjectRow | undefined> {
    if (hash === '' || hash.length > MAX_HASH_LENGTH) return undefined;
    const row = await this.#taken(await useObjectByHash(this.#db, owner.workspaceId, storedHash(owner, hash)));
    if (row === undefined || row.sha256 === null) return undefined;
    // No call confirms the end of an upload, and a directory can be lost, so the store itself is asked.
    return (await this.#backend.exists(row.id)) ? { ...row, hash } : undefined;
  }

  async create(
    owner: ObjectOwner,
    object: { readonly hash: string; readonly size: number; readonly overwrite: boolean },
  ): Promise<{ readonly objectId: ObjectId; readonly uploadPath: string | null }> {
    if (object.hash === '' || object.hash.length > MAX_HASH_LENGTH || object.hash.includes('\0')) {
      throw invalid('hash', `hash must be a text of 1 to ${MAX_HASH_LENGTH} characters`);
    }
    if (!Number.isSafeInteger(object.size) || object.size < 0) {
      throw invalid('size', 'size must be a whole number of bytes, 0 or more');
    }
    if (object.size > this.#maxBytes) throw tooLarge(this.#maxBytes);
    const made = await this.#room.announce({
      newId: newId<ObjectId>(),
      workspaceId: owner.workspaceId,
      hash: storedHash(owner, object.hash),
      size: object.size,
    });
    const row = (await this.#taken(made)) ?? made;
    // A known hash whose bytes never arrived is uploaded again, even if the client did not ask to overwrite.
    const isComplete = row.sha256 !== null && (object.overwrite || (await this.#backend.exists(row.id)));
    const uploadPath = isComplete && !object.overwrite ? null : await this.#signUpload(row.id);
    return { objectId: row.id, uploadPath };
  }

  verifyUpload(objectId: string, query: SignedQuery): boolean {
    return this.#uploadAddresses.isValid(objectId, query, this.#clock.nowMs());
  }

  verifyDownload(objectId: string, query: SignedQuery): boolean {
    return this.#downloadAddresses.isValid(objectId, query, this.#clock.nowMs());
  }

  async signDownload(
    owner: ObjectOwner,
    objectId: string,
    lifeMs = DOWNLOAD_LIFE_MS,
  ): Promise<SignedDownload | undefined> {
    if (!isUuid(objectId) || this.#backend.downloads === undefined) return undefined;
    const known = await this.find(owner, objectId);
    // The address lives for a day, and the object is kept for a whole grace from now.
    const row = known === undefined ? undefined : await this.use(objectId);
    if (row === undefined || row.sha256 === null || !(await this.#backend.exists(row.id))) return undefined;
    const untilMs = this.#clock.nowMs() + lifeMs;
    const path = await this.addressOf(row.id, lifeMs);
    return { path, untilMs, size: row.size, sha256: row.sha256 };
  }

  async addressOf(objectId: ObjectId, lifeMs: number): Promise<string> {
    const { downloads } = this.#backend;
    return downloads?.kind === 'direct'
      ? downloads.sign(objectId, Math.floor(lifeMs / 1000))
      : this.#downloadAddresses.sign(objectId, this.#clock.nowMs() + lifeMs);
  }

  async openDownload(objectId: string): Promise<OpenedDownload | undefined> {
    const { downloads } = this.#backend;
    if (downloads?.kind !== 'here') return undefined;
    for (let looks = 0; looks < MOST_LOOKS; looks += 1) {
      const row = await useObject(this.#db, objectId);
      if (row === undefined || row.sha256 === null) return undefined;
      const opened = await downloads.open(row.id);
      if (opened === undefined) return undefined;
      // The row was the same before and after, so these bytes have this hash.
      const isSettled = !this.#settling.has(row.id);
      const after = await objectById(this.#db, row.id);
      const isSame = after?.sha256 === row.sha256 && after.uploadedAtMs === row.uploadedAtMs;
      if (isSettled && isSame && opened.size === row.size) return { ...opened, sha256: row.sha256 };
      await opened.close();
      await sleep(LOOK_AGAIN_MS);
    }
    throw new AppError('object_store_failed', 'the object changes faster than it can be read');
  }

  async uploadState(objectId: string): Promise<UploadState> {
    const row = await useObject(this.#db, objectId);
    if (row === undefined || this.#backend.uploads !== undefined) throw notFound();
    const unfinished = await this.#backend.resumable?.find(row.id);
    return { sha256: row.sha256, ...(unfinished === undefined ? {} : { unfinished }) };
  }

  async receive(
    objectId: string,
    source: AsyncIterable<Uint8Array>,
    contentLength?: number,
    isResumable = false,
  ): Promise<StoredBytes> {
    const row = await this.#receiver(objectId, contentLength ?? 0);
    const whole = contentLength === undefined ? this.#growing(row, source) : exactly(source, contentLength);
    const keep =
      isResumable && contentLength !== undefined
        ? { keep: { total: contentLength, mayKeep: () => this.#mayKeep(row) } }
        : {};
    return await this.#reserving(row, contentLength ?? 0, () =>
      this.#backend.put(row.id, whole, this.#maxBytes, { ...keep, settle: this.#settle(row.id) }),
    );
  }

  async receivePart(
    objectId: string,
    part: UploadedPart,
    source: AsyncIterable<Uint8Array>,
  ): Promise<StoredBytes | { readonly received: number }> {
    const { resumable } = this.#backend;
    if (resumable === undefined) throw notFound();
    const row = await this.#receiver(objectId, part.total);
    if (part.first === 0 && part.end < part.total && !(await this.#mayKeep(row))) {
      const text = `this workspace has ${MOST_UNFINISHED} unfinished uploads: finish them, or wait a day`;
      throw new AppError('too_many_unfinished_uploads', text);
    }
    return await this.#reserving(row, part.total, () =>
      resumable.append(row.id, part, exactly(source, part.end - part.first), this.#settle(row.id)),
    );
  }

  /**
   * Runs an upload of so many bytes in room of its own. The room is free again when the last upload of the object has
   * ended, unless bytes are kept for a next part.
   * @throws AppError `upload_in_progress`: as many uploads as there may be write bytes of the object
   */
  async #reserving<T>(row: ObjectRow, bytes: number, upload: () => Promise<T>): Promise<T> {
    const { id } = row;
    const others = this.#underWay.get(id) ?? 0;
    if (others >= MOST_AT_ONCE) throw inProgress();
    this.#underWay.set(id, others + 1);
    try {
      await this.#room.reserve(row, bytes);
      return await upload();
    } finally {
      const left = (this.#underWay.get(id) ?? 1) - 1;
      if (left > 0) this.#underWay.set(id, left);
      else {
        this.#underWay.delete(id);
        await this.#giveBack(id).catch(() => undefined);
      }
    }
  }

  async #giveBack(id: ObjectId): Promise<void> {
    if ((await this.#backend.resumable?.find(id)) === undefined) await this.#room.release(id);
  }

  /** A body that does not say its length: its room is reserved as it comes. */
  async *#growing(row: ObjectRow, source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    let bytes = 0;
    let room = 0;
    for await (const chunk of source) {
      bytes += chunk.length;
      if (bytes > this.#maxBytes) throw tooLarge(this.#maxBytes);
      if (bytes > room) {
        room = await this.#room.reserve(row, bytes + PORTION_BYTES).then(
          () => bytes + PORTION_BYTES,
          () => bytes,
        );
        // Little is left, or nothing.
        if (room === bytes) await this.#room.reserve(row, bytes);
      }
      yield chunk;
    }
  }

  /** The row that may receive so many bytes. @throws AppError as `receive` */
  async #receiver(objectId: string, bytes: number): Promise<ObjectRow> {
    if (bytes > this.#maxBytes) throw tooLarge(this.#maxBytes);
    // A store with direct uploads takes none here.
    if (this.#backend.uploads !== undefined) throw notFound();
    const row = await useObject(this.#db, objectId);
    if (row === undefined) throw notFound();
    return row;
  }

  /** Writes the row together with the bytes' move, so that downloads never mistake the one for the other. */
  #settle(id: ObjectId): Settle {
    return async (stored, place) => {
      for (let other = this.#settling.get(id); other !== undefined; other = this.#settling.get(id)) await other;
      const done = Promise.withResolvers<void>();
      this.#settling.set(id, done.promise);
      try {
        // Another scheduler may have given the room back, at the end of an upload of its own.
        const row = await objectById(this.#db, id);
        if (row !== undefined) await this.#room.reserve(row, stored.size);
        await place();
        if ((await markObjectUploaded(this.#db, id, stored)) !== undefined) return;
        // The workspace was deleted while the bytes came.
        await this.#backend.remove(id);
        throw notFound();
      } finally {
        this.#settling.delete(id);
        done.resolve();
      }
    };
  }

  /** Whether the workspace may have this unfinished upload, too. */
  async #mayKeep(row: ObjectRow): Promise<boolean> {
    const keys = new Set<string>();
    for await (const { key } of this.#backend.resumable?.list() ?? []) if (key !== row.id) keys.add(key);
    if (keys.size < MOST_UNFINISHED) return true;
    return (await countObjectsAmong(this.#db, row.workspaceId, [...keys])) < MOST_UNFINISHED;
  }

  async use(objectId: string): Promise<ObjectRow | undefined> {
    return await this.#taken(await useObject(this.#db, objectId));
  }

  async takeUploads(uploadedBeforeMs: number, most: number): Promise<number> {
    const { uploads } = this.#backend;
    if (uploads === undefined) return await this.#dropUnfinished(most);
    let dealtWith = 0;
    for await (const { key, writtenAtMs } of uploads.list()) {
      if (dealtWith >= most) break;
      if (writtenAtMs >= uploadedBeforeMs) continue;
      dealtWith += 1;
      const row = await objectById(this.#db, key);
      if (row === undefined) await uploads.drop(key);
      else await this.#taken(row).catch(ignoreTooLarge);
    }
    return dealtWith;
  }

  async #dropUnfinished(most: number): Promise<number> {
    const { resumable } = this.#backend;
    const beforeMs = this.#clock.nowMs() - UNFINISHED_LIFE_MS;
    let dropped = 0;
    for await (const { key, writtenAtMs } of resumable?.list() ?? []) {
      if (dropped >= most) break;
      if (writtenAtMs >= beforeMs) continue;
      await resumable?.drop(key);
      await this.#room.release(key as ObjectId);
      dropped += 1;
    }
    return dropped;
  }

  /**
   * Takes in a direct upload before the object is shown to anybody. An
   * upload that cannot be taken is deleted, and the object stays as it was.
   */
  async #taken(row: ObjectRow | undefined): Promise<ObjectRow | undefined> {
    const { uploads } = this.#backend;
    if (row === undefined || uploads === undefined) return row;
    let stored = await uploads.take(row.id, (size) => this.#mostOfTaken(row, size));
    let known: ObjectRow | undefined = row;
    const isTaken = stored !== undefined;
    while (stored !== undefined && known !== undefined) {
      // A row that was deleted meanwhile leaves bytes without a row, which the collector finds.
      known = await markObjectUploaded(this.#db, row.id, stored);
      // Another replica may have taken in a later upload before this
      // write: in the end the row must match the bytes that are there.
      stored = (await uploads.versionOf(row.id)) === stored.version ? undefined : await uploads.measure(row.id);
    }
    if (isTaken) await this.#room.release(row.id);
    if (known !== undefined && row.sha256 !== null && known.sha256 !== row.sha256) this.#replaced.tell(row.id);
    return known;
  }

  /** Most bytes of a direct upload of that size; that size itself only when there is room for it. */
  async #mostOfTaken(row: ObjectRow, size: number): Promise<number> {
    if (size > this.#maxBytes) return this.#maxBytes;
    try {
      await this.#room.reserve(row, size);
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'object_quota_reached') throw error;
      return Math.min(size - 1, await this.#mostOf(row));
    }
    return this.#maxBytes;
  }

  async #mostOf(row: ObjectRow): Promise<number> {
    return Math.min(this.#maxBytes, await this.#room.mostOf(row));
  }

  async find(owner: ObjectOwner, objectId: string): Promise<ObjectRow | undefined> {
    const row = await objectById(this.#db, objectId);
    return row?.workspaceId === owner.workspaceId ? row : undefined;
  }

  async open(objectId: string): Promise<OpenedObject | undefined> {
    const row = await objectById(this.#db, objectId);
    if (row === undefined || row.sha256 === null) return undefined;
    const opened = await this.#backend.open(row.id);
    if (opened === undefined) return undefined;
    return { stream: opened.stream, size: opened.size, sha256: row.sha256 };
  }

  async putBytes(bytes: Uint8Array, key?: ObjectId): Promise<ObjectId> {
    const id = key ?? newId<ObjectId>();
    await this.#backend.put(id, once(bytes), bytes.length);
    return id;
  }

  async getBytes(objectId: ObjectId, maxBytes: number): Promise<Uint8Array | undefined> {
    if (!BYTES_KEY.test(objectId)) return undefined;
    const opened = await this.#backend.open(objectId);
    if (opened === undefined) return undefined;
    if (opened.size > maxBytes) {
      opened.stream.destroy();
      throw tooLarge(maxBytes);
    }
    const chunks: Uint8Array[] = [];
    for await (const chunk of opened.stream) chunks.push(chunk as Uint8Array);
    return Buffer.concat(chunks);
  }

  removeBytes(objectId: ObjectId): Promise<void> {
    return this.#backend.remove(objectId);
  }

  keptBytes(): AsyncIterable<KeptObject> {
    return this.#backend.list();
  }

  async #signUpload(objectId: ObjectId): Promise<string> {
    const { uploads } = this.#backend;
    if (uploads !== undefined) return await uploads.sign(objectId, UPLOAD_LIFE_MS / 1000);
    return this.#uploadAddresses.sign(objectId, this.#clock.nowMs() + UPLOAD_LIFE_MS);
  }
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** Passes the bytes on, and fails at the end when their number differs from the announced one. */
async function* exactly(source: AsyncIterable<Uint8Array>, expected: number): AsyncGenerator<Uint8Array> {
  let size = 0;
  for await (const chunk of source) {
    size += chunk.length;
    if (size > expected) break;
    yield chunk;
  }
  if (size === expected) return;
  throw new AppError('upload_incomplete', `the upload ended after ${size} of ${expected} bytes`);
}

const invalid = (field: string, text: string): AppError => new AppError('invalid_object', text, { details: { field } });

function ignoreTooLarge(error: unknown): void {
  if (!(error instanceof AppError) || error.code !== 'body_too_large') throw error;
}

const notFound = (): AppError => new AppError('object_not_found', 'object not found');
