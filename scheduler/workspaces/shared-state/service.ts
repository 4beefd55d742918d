// Values that a workspace's handlers and programs share: maps, queues and signals. The REST routes call it.
// Invariant: a value is passed on as the module wrote it, and never parsed. A container gets a pickled value, which is
// code, only from callers that could have run that code in it anyway.
import { AppError } from '#shared/errors.ts';
import type { StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { MAX_LIFE_SECONDS } from '#shared/domain/shared-life.ts';
import type { Db, Queryable } from '../../stores/store/db.ts';
import {
  clearShared,
  deleteSharedEntry,
  deleteSharedItem,
  firstSharedItem,
  lockFirstSharedItem,
  pushSharedItem,
  putSharedEntry,
  sharedCount,
  sharedEntry,
  sharedKeys,
  sharedNames,
} from '../../stores/store/queries/shared-entries.ts';
import type {
  SharedEncoding,
  SharedEntry,
  SharedName,
  SharedPlace,
  SharedRoom,
} from '../../stores/store/queries/shared-entries.ts';
import type { CodeTrust } from '../deployments/code-trust.ts';

export const SIGNAL_SECONDS = 600;

export interface SharedStateParts {
  readonly db: Db;
  readonly mayTakeCode: CodeTrust;
  /** The workspace's bounds for all entries together. */
  readonly roomOf: (workspaceId: WorkspaceId) => Promise<SharedRoom>;
}

/** Entries that one request deletes at most. */
const MOST_CLEARED = 5_000;

/** Who reads or writes: the stub of the calling container; undefined: a token of the workspace. */
export type SharedBy = StubId | undefined;

export interface NewValue {
  readonly encoding: SharedEncoding;
  readonly value: string;
  /** Seconds; undefined: as long as it may. */
  readonly livesSeconds?: number | undefined;
}

export class SharedState {
  readonly #parts: SharedStateParts;

  constructor(parts: SharedStateParts) {
    this.#parts = parts;
  }

  keys(workspaceId: WorkspaceId, name: string, after: string, limit: number): Promise<readonly string[]> {
    return sharedKeys(this.#parts.db, { workspaceId, kind: 'map', name }, after, limit);
  }

  count(workspaceId: WorkspaceId, kind: 'map' | 'queue', name: string): Promise<number> {
    return sharedCount(this.#parts.db, { workspaceId, kind, name });
  }

  /** Maps or queues that have something, by name. */
  names(workspaceId: WorkspaceId, kind: 'map' | 'queue', after: string, limit: number): Promise<readonly SharedName[]> {
    return sharedNames(this.#parts.db, { workspaceId, kind }, after, limit);
  }

  /** Deletes what a map or a queue has. @returns `isComplete` false: more is left */
  async clear(
    workspaceId: WorkspaceId,
    kind: 'map' | 'queue',
    name: string,
  ): Promise<{ readonly removed: number; readonly isComplete: boolean }> {
    const removed = await clearShared(this.#parts.db, { workspaceId, kind, name }, MOST_CLEARED);
    return { removed, isComplete: removed < MOST_CLEARED };
  }

  /** @throws AppError `entry_not_found`, `value_not_trusted` */
  async entry(workspaceId: WorkspaceId, name: string, key: string, reader: SharedBy): Promise<SharedEntry> {
    const found = await sharedEntry(this.#parts.db, { workspaceId, kind: 'map', name, key });
    if (found === undefined) throw new AppError('entry_not_found', 'the map has no such key');
    await this.#mayRead(found, reader);
    return found;
  }

  /** @throws AppError `shared_state_full` */
  async putEntry(
    workspaceId: WorkspaceId,
    name: string,
    key: string,
    value: NewValue,
    writer: SharedBy,
  ): Promise<void> {
    await this.#put({ workspaceId, kind: 'map', name, key }, value, writer);
  }

  /** @throws AppError `entry_not_found` */
  async deleteEntry(workspaceId: WorkspaceId, name: string, key: string): Promise<void> {
    if (await deleteSharedEntry(this.#parts.db, { workspaceId, kind: 'map', name, key })) return;
    throw new AppError('entry_not_found', 'the map has no such key');
  }

  /** The oldest item, which stays; undefined: the queue is empty. @throws AppError `value_not_trusted` */
  async peek(workspaceId: WorkspaceId, name: string, reader: SharedBy): Promise<SharedEntry | undefined> {
    const found = await firstSharedItem(this.#parts.db, { workspaceId, kind: 'queue', name });
    if (found !== undefined) await this.#mayRead(found, reader);
    return found;
  }

  /** Takes the oldest item; undefined: the queue is empty. @throws AppError `value_not_trusted`: the item stays */
  async pop(workspaceId: WorkspaceId, name: string, reader: SharedBy): Promise<SharedEntry | undefined> {
    const { db } = this.#parts;
    const at: SharedPlace = { workspaceId, kind: 'queue', name };
    const take = async (tx: Queryable, mayTake: (entry: SharedEntry) => boolean) => {
      const found = await lockFirstSharedItem(tx, at);
      if (found !== undefined && mayTake(found)) await deleteSharedItem(tx, found.id);
      return found;
    };
    const isPlain = (entry: SharedEntry): boolean =>
      reader === undefined || entry.encoding === 'json' || entry.putBy === null || entry.putBy === reader;
    // Statements of others must not run inside the transaction, so a value that needs a look at stubs takes two.
    const first = await db.transaction((tx) => take(tx, isPlain));
    if (first === undefined || isPlain(first)) return first;
    await this.#mayRead(first, reader);
    const again = await db.transaction((tx) => take(tx, (entry) => isPlain(entry) || entry.putBy === first.putBy));
    if (again === undefined || isPlain(again) || again.putBy === first.putBy) return again;
    return this.pop(workspaceId, name, reader);
  }

  /** @param mostItems - of this queue; undefined: no bound of its own. @throws AppError `shared_state_full` */
  async push(
    workspaceId: WorkspaceId,
    name: string,
    value: NewValue,
    mostItems: number | undefined,
    writer: SharedBy,
  ): Promise<void> {
    const bounds = await this.#parts.roomOf(workspaceId);
    const room = { ...bounds, ...(mostItems === undefined ? {} : { items: mostItems }) };
    const at: SharedPlace = { workspaceId, kind: 'queue', name };
    const id = await pushSharedItem(this.#parts.db, at, stored(value, writer), room);
    if (id !== undefined) return;
    const count = mostItems === undefined ? 0 : await sharedCount(this.#parts.db, at);
    if (mostItems !== undefined && count >= mostItems)
      throw new AppError('shared_state_full', `the queue has ${count} items, its most: take some first`);
    throw full(bounds);
  }

  /** The number of the last time at which the signal was set, while it is set. */
  async signal(workspaceId: WorkspaceId, name: string): Promise<SharedEntry | undefined> {
    return sharedEntry(this.#parts.db, { workspaceId, kind: 'signal', name, key: '' });
  }

  /** @throws AppError `shared_state_full` */
  async setSignal(workspaceId: WorkspaceId, name: string, livesSeconds: number, writer: SharedBy): Promise<void> {
    const value: NewValue = { encoding: 'json', value: 'true', livesSeconds };
    await this.#put({ workspaceId, kind: 'signal', name, key: '' }, value, writer);
  }

  /** Clears the signal, set or not. */
  async clearSignal(workspaceId: WorkspaceId, name: string): Promise<void> {
    await deleteSharedEntry(this.#parts.db, { workspaceId, kind: 'signal', name, key: '' });
  }

  async #put(at: SharedPlace & { readonly key: string }, value: NewValue, writer: SharedBy): Promise<void> {
    const room = await this.#parts.roomOf(at.workspaceId);
    if ((await putSharedEntry(this.#parts.db, at, stored(value, writer), room)) === undefined) throw full(room);
  }

  /** Refuses a value that would bring code into a container which its writer could not have put there. */
  async #mayRead({ encoding, putBy }: SharedEntry, reader: SharedBy): Promise<void> {
    if (encoding === 'json' || reader === undefined || putBy === null || putBy === reader) return;
    if (await this.#parts.mayTakeCode(reader, putBy)) return;
    throw new AppError(
      'value_not_trusted',
      'the value is not JSON, and was written by a container of another app or with fewer rights: write JSON values, ' +
        'or give both handlers the same app, secrets, volumes, pool and network',
    );
  }
}

const stored = ({ encoding, value, livesSeconds = MAX_LIFE_SECONDS }: NewValue, writer: SharedBy) => ({
  encoding,
  value,
  putBy: writer ?? null,
  livesMs: Math.min(livesSeconds, MAX_LIFE_SECONDS) * 1000,
});

const full = ({ entries, bytes }: SharedRoom): AppError =>
  new AppError(
    'shared_state_full',
    `maps, queues and signals of this workspace may have ${entries} entries and ${bytes} bytes together: delete some`,
  );
