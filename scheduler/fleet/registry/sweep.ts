/**
 * Takes images that no row has out of the registry, once an hour, at the leader. Blobs go later: the registry collects
 * them at its start and once a day. What the registry has no longer counts no longer. Must stay true: an image with a
 * row keeps its tag, also while it is pushed; a failure of one name ends the work for no other one, in no round.
 */
import { builtRepository, builtTag, workspaceOfRepository } from '#shared/domain/built-images.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import { digestsOfWorkspace } from '../../stores/store/queries/images.ts';
import { deleteOldUploads, noteSeenBlobs, putBehind, unseenBlobs } from '../../stores/store/queries/registry-blobs.ts';
import type { KeptBlob } from '../../stores/store/queries/registry-blobs.ts';
import type { RegistryClient } from './client.ts';
import type { RegistryMetrics } from './metrics.ts';

/** Removals of a round. */
const MOST_REMOVED = 1000;
/** Questions of a round whether the registry still has a blob, and those that are under way at once. */
const MOST_LOOKED_AT = 20_000;
const LOOKS_AT_ONCE = 16;
/** Failed questions that end the look of a round: each may take a minute. */
const MOST_FAILED = 320;
/** A blob is looked for again after so long. */
const LOOK_HOURS = 6;

export interface RegistrySweepParts {
  readonly db: Db;
  readonly client: RegistryClient;
  readonly metrics: RegistryMetrics;
  readonly log: Log;
}

export class RegistrySweep {
  readonly #parts: RegistrySweepParts;

  constructor(parts: RegistrySweepParts) {
    this.#parts = parts;
  }

  /**
   * The look and the removals, neither of which waits for the other, or fails with it.
   * @returns the number of images that were removed
   * @throws Error: the registry failed for some of its contents; the others were done
   */
  async round(signal?: AbortSignal): Promise<number> {
    const both = await Promise.allSettled([this.#look(signal), this.#removals(signal)] as const);
    const failures = both.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
    if (failures.length > 0) throw new Error(failures.map(messageOf).join('; '), { cause: failures[0] });
    return both[1].status === 'fulfilled' ? both[1].value : 0;
  }

  async #removals(signal?: AbortSignal): Promise<number> {
    const { client, log } = this.#parts;
    const failures: unknown[] = [];
    let removed = 0;
    try {
      for await (const repository of client.repositories()) {
        if (signal?.aborted === true || removed >= MOST_REMOVED) break;
        const workspaceId = workspaceOfRepository(repository);
        if (workspaceId === '') continue;
        await this.#repository(repository, workspaceId, () => (removed += 1)).catch((error) => failures.push(error));
      }
    } finally {
      if (removed > 0) log.info({ images: removed }, 'images left the registry');
    }
    throwFirst(failures, 'repositories were not looked through');
    return removed;
  }

  /** Forgets what the registry has collected, so that its bytes count no more. */
  async #look(signal?: AbortSignal): Promise<void> {
    const { db, client } = this.#parts;
    await deleteOldUploads(db, MOST_LOOKED_AT);
    const unseen = await unseenBlobs(db, LOOK_HOURS, MOST_LOOKED_AT);
    const failures: unknown[] = [];
    for (let from = 0; from < unseen.length && signal?.aborted !== true; from += LOOKS_AT_ONCE) {
      const some = unseen.slice(from, from + LOOKS_AT_ONCE);
      const has = await Promise.allSettled(
        some.map(({ workspaceId, name }: KeptBlob) => client.has(builtRepository(workspaceId), name)),
      );
      const those = (is: boolean | undefined): readonly KeptBlob[] =>
        some.filter((_, at) => (has[at]?.status === 'fulfilled' ? has[at].value : undefined) === is);
      await noteSeenBlobs(db, LOOK_HOURS, those(true), those(false));
      await putBehind(db, LOOK_HOURS, those(undefined));
      failures.push(...has.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : [])));
      if (failures.length >= MOST_FAILED) break;
    }
    throwFirst(failures, 'blobs could not be looked for');
  }

  /** @param onRemoved - called for each image that was removed @throws Error: some of its images failed */
  async #repository(repository: string, workspaceId: string, onRemoved: () => void): Promise<void> {
    const { db, client } = this.#parts;
    const tags = await client.tags(repository);
    const kept = await digestsOfWorkspace(db, workspaceId);
    const keptTags = new Set([...kept.keys()].map(builtTag));
    const keptDigests = new Set(kept.values());
    const failures: unknown[] = [];
    for (const tag of tags) {
      if (keptTags.has(tag)) continue;
      try {
        const image = await client.image(repository, tag);
        // Two definitions may have given the same bytes: the removal of one would take the other.
        if (image === undefined || keptDigests.has(image.digest)) continue;
        await client.remove(repository, image.digest);
        this.#parts.metrics.removed.inc();
        onRemoved();
      } catch (error) {
        failures.push(error);
      }
    }
    throwFirst(failures, `images of ${repository} were not removed`);
  }
}

function throwFirst(failures: readonly unknown[], what: string): void {
  const [first] = failures;
  if (failures.length > 0)
    throw new Error(`${failures.length} ${what}, the first: ${messageOf(first)}`, { cause: first });
}
