// Volumes: named directories of a workspace that outlive containers, and the rules for where a stub may mount them. Called by the volume operation and by
// stubs.ts. The path rules are pure; the agent checks them again.
import { isUuid } from '#shared/domain/ids.ts';
import { randomUUID } from 'node:crypto';
import type { Caller } from '../identity/caller.ts';
import type { Queryable } from '../store/db.ts';
import { getOrCreateVolume, volumesByIds } from '../store/queries/volumes.ts';
import type { VolumeRow } from '../store/queries/volumes.ts';

/** One path segment, as it becomes a directory's name. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;
/** Of one workspace. */
const MAX_VOLUMES = 1_000;

export type VolumeOutcome =
  | { readonly kind: 'volume'; readonly volume: VolumeRow }
  | { readonly kind: 'refused'; readonly text: string };

export class Volumes {
  readonly #db: Queryable;

  constructor(db: Queryable) {
    this.#db = db;
  }

  /** The workspace's volume of that name, made when there is none. */
  async getOrCreate(caller: Pick<Caller, 'workspaceId'>, name: string): Promise<VolumeOutcome> {
    if (!NAME.test(name)) {
      return {
        kind: 'refused',
        text: 'name must be letters, digits, dot, dash or underscore, at most 63, and begin with a letter or digit',
      };
    }
    const { workspaceId } = caller;
    const volume = await getOrCreateVolume(this.#db, { newId: randomUUID(), workspaceId, name, most: MAX_VOLUMES });
    if (volume === undefined) return { kind: 'refused', text: `a workspace may have ${MAX_VOLUMES} volumes` };
    return { kind: 'volume', volume };
  }

  /** @returns the first id that is no volume of this workspace; undefined when all are */
  async firstUnknown(caller: Pick<Caller, 'workspaceId'>, ids: readonly string[]): Promise<string | undefined> {
    if (ids.length === 0) return undefined;
    const known = await volumesByIds(this.#db, caller.workspaceId, ids.filter(isUuid));
    const found = new Set(known.map((row) => row.id));
    return ids.find((id) => !found.has(id));
  }
}
