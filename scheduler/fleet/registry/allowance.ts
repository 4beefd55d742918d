/**
 * The bytes that a workspace may have in the managed registry, as writes take them. Must stay true: bytes are taken in
 * the database before the registry gets them, so that pushes side by side, over any number of schedulers, share one
 * allowance. An upload has one writer at a time, because a removed upload keeps its bytes while another request writes.
 */
import { randomUUID } from 'node:crypto';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Db } from '../../stores/store/db.ts';
import {
  breakRegistryWrite,
  endRegistryWrite,
  forgetRegistryWrite,
  registryBytes,
  renameRegistryBlob,
  takeRegistryBytes,
} from '../../stores/store/queries/registry-blobs.ts';
import type { BlobWriter } from '../../stores/store/queries/registry-blobs.ts';

/** Bytes of a stream that are taken at once: a large layer asks the database a few times a second at most. */
const PORTION_BYTES = 64 * 1024 * 1024;
/** A thing takes files of the registry, also without a byte of its own. */
const LEAST_BYTES = 4096;

/** A write that is refused. The engine shows the message. */
export class WriteRefused extends Error {
  override readonly name = 'WriteRefused';
  readonly status: 404 | 409 | 413;

  constructor(status: 404 | 409 | 413, message: string) {
    super(message);
    this.status = status;
  }
}

export interface AllowanceParts {
  readonly db: Db;
  /** Bytes that a workspace may have in the registry. */
  readonly mostBytes: (workspaceId: WorkspaceId) => Promise<number>;
}

export class Allowance {
  readonly #parts: AllowanceParts;

  constructor(parts: AllowanceParts) {
    this.#parts = parts;
  }

  /** Why the workspace may push nothing more; undefined: it may. */
  async problem(workspaceId: WorkspaceId): Promise<string | undefined> {
    const most = await this.#parts.mostBytes(workspaceId);
    return (await registryBytes(this.#parts.db, workspaceId)) >= most ? overText(most) : undefined;
  }

  /**
   * @param upload - the name of an upload that goes on; absent: something begins
   * @param mayBe - the digest of the blob that the write makes of the upload; the name of the writer says it
   */
  write(workspaceId: WorkspaceId, upload?: string, mayBe: string | null = null): RegistryWrite {
    const id = randomUUID();
    const writer = mayBe === null ? id : `${id} ${mayBe}`;
    const name = upload === undefined ? `begun ${id}` : `upload ${upload}`;
    return new RegistryWrite(this.#parts, { workspaceId, name, writer }, upload === undefined);
  }
}

/** A request that writes into the registry. It begins with `claim`, and ends with `end`, `breakOff` or `forget`. */
export class RegistryWrite {
  readonly #parts: AllowanceParts;
  readonly #by: BlobWriter;
  readonly #isNew: boolean;
  /** Bytes that were taken and not sent. */
  #ahead = 0;

  constructor(parts: AllowanceParts, by: BlobWriter, isNew: boolean) {
    this.#parts = parts;
    this.#by = by;
    this.#isNew = isNew;
  }

  /** Becomes the writer, with bytes that are announced. @throws WriteRefused */
  async claim(bytes: number): Promise<void> {
    const need = this.#isNew ? Math.max(bytes, LEAST_BYTES) : bytes;
    await this.#take(need, need);
    this.#ahead += bytes;
  }

  /** The bytes of a body, each taken before it goes on. @throws WriteRefused */
  async *taken(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      const need = chunk.length - this.#ahead;
      if (need > 0) this.#ahead += await this.#take(need, Math.max(need, PORTION_BYTES));
      this.#ahead -= chunk.length;
      yield chunk;
    }
  }

  /** The registry has what came. @param name - of what it is now; absent: an upload that goes on */
  async end(name?: string): Promise<void> {
    const { db } = this.#parts;
    if (name === undefined) await endRegistryWrite(db, this.#by, this.#ahead);
    else await renameRegistryBlob(db, this.#by, name, this.#ahead);
  }

  /**
   * The write broke off, or nobody knows how it ended. Its bytes count until the registry has discarded the upload.
   * @param mayBe - name of what the registry may have made of it
   */
  async breakOff(mayBe: string | null = null): Promise<void> {
    await breakRegistryWrite(this.#parts.db, this.#by, this.#ahead, mayBe);
  }

  /** The registry has nothing of it. */
  async forget(): Promise<void> {
    await forgetRegistryWrite(this.#parts.db, this.#by);
  }

  async #take(need: number, wish: number): Promise<number> {
    const { db, mostBytes } = this.#parts;
    const most = await mostBytes(this.#by.workspaceId);
    const taken = await takeRegistryBytes(db, this.#by, { isNew: this.#isNew, need, wish, most });
    if (taken === 'over') throw new WriteRefused(413, overText(most));
    if (taken === 'unknown') throw new WriteRefused(404, 'there is no such upload');
    if (taken === 'busy') throw new WriteRefused(409, 'another request writes this upload');
    return taken;
  }
}

const overText = (most: number): string =>
  `the images of this workspace would take more than the ${most} bytes that it may have in the registry: delete some (\`longshore image list\`). Their bytes count until the registry has collected them, within two days`;
