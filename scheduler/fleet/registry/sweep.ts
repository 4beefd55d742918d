/**
 * Takes images that no row has out of the registry, once an hour, at the leader. Blobs go later: the registry collects
 * them at its start and once a day. What the registry has no longer counts no longer. Must stay true: an image with a
 * row keeps its tag, also while it is pushed.
 */
import { repeat } from '#shared/backoff.ts';
import { builtRepository, builtTag, workspaceOfRepository } from '#shared/domain/built-images.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import { digestsOfWorkspace } from '../../stores/store/queries/images.ts';
import { deleteOldUploads, noteSeenBlobs, unseenBlobs } from '../../stores/store/queries/registry-blobs.ts';
import type { KeptBlob } from '../../stores/store/queries/registry-blobs.ts';
import type { RegistryClient } from './client.ts';
import type { RegistryMetrics } from './metrics.ts';

const EVERY_MS = 3_600_000;
/** Removals of a round. */
const MOST_REMOVED = 1000;
/** Questions of a round whether the registry still has a blob, and those that are under way at once. */
const MOST_LOOKED_AT = 20_000;
const LOOKS_AT_ONCE = 16;
/** A blob is looked for again after so long. */
const LOOK_HOURS = 6;

export interface RegistrySweepParts {
  readonly db: Db;
  readonly client: RegistryClient;
  readonly isLeader: () => boolean;
  readonly metrics: RegistryMetrics;
  readonly log: Log;
}

export class RegistrySweep {
  readonly name = 'registry sweep';
  readonly #parts: RegistrySweepParts;
  readonly #abort = new AbortController();

  constructor(parts: RegistrySweepParts) {
    this.#parts = parts;
  }

  start(): void {
    const { isLeader, log } = this.#parts;
    void repeat(
      EVERY_MS,
      this.#abort.signal,
      () => isLeader() && this.round(),
      (error) => log.warn({ err: error }, 'the registry was not looked through, trying again'),
    );
  }

  stop(): void {
    this.#abort.abort();
  }

  /** @returns the number of images that were removed */
  async round(): Promise<number> {
    const { client, log } = this.#parts;
    let removed = 0;
    for await (const repository of client.repositories()) {
      if (this.#abort.signal.aborted || removed >= MOST_REMOVED) break;
      const workspaceId = workspaceOfRepository(repository);
      if (workspaceId !== '') removed += await this.#repository(repository, workspaceId);
    }
    await this.#look();
    if (removed > 0) log.info({ images: removed }, 'images left the registry');
    return removed;
  }

  /** Forgets what the registry has collected, so that its bytes count no more. */
  async #look(): Promise<void> {
    const { db, client } = this.#parts;
    await deleteOldUploads(db, MOST_LOOKED_AT);
    const unseen = await unseenBlobs(db, LOOK_HOURS, MOST_LOOKED_AT);
    for (let from = 0; from < unseen.length && !this.#abort.signal.aborted; from += LOOKS_AT_ONCE) {
      const some = unseen.slice(from, from + LOOKS_AT_ONCE);
      const has = await Promise.all(
        some.map(({ workspaceId, name }: KeptBlob) => client.has(builtRepository(workspaceId), name)),
      );
      const those = (is: boolean): readonly KeptBlob[] => some.filter((_, at) => has[at] === is);
      await noteSeenBlobs(db, LOOK_HOURS, those(true), those(false));
    }
  }

  async #repository(repository: string, workspaceId: string): Promise<number> {
    const { db, client, metrics } = this.#parts;
    const tags = await client.tags(repository);
    const kept = await digestsOfWorkspace(db, workspaceId);
    const keptTags = new Set([...kept.keys()].map(builtTag));
    const keptDigests = new Set(kept.values());
    let removed = 0;
    for (const tag of tags) {
      if (keptTags.has(tag)) continue;
      const image = await client.image(repository, tag);
      // Two definitions may have given the same bytes: the removal of one would take the other.
      if (image === undefined || keptDigests.has(image.digest)) continue;
      await client.remove(repository, image.digest);
      metrics.removed.inc();
      removed += 1;
    }
    return removed;
  }
}
