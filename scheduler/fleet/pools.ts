// Pools as operators make, change and delete them, by operations and by the pools file. The row is the authority; machines carry their pool's settings, so a change is written first and then told of
// each machine in it, as any change of a machine is. Must stay true: what a file declares is changed by that file alone.
import type { PoolSettingsChange } from '#shared/api/pools.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../store/db.ts';
import {
  changePool,
  declarePool,
  deletePool,
  getOrCreatePool,
  machinesOfPool,
  poolByName,
  releasePools,
} from '../store/queries/pools.ts';
import type { PoolRow } from '../store/queries/pools.ts';
import type { Machines } from './machines.ts';
import { agrees } from './pool-settings.ts';
import type { PoolsFile } from './pools-file.ts';
import { readPoolsFile } from './pools-file.ts';
import type { Owner } from './worker-service.ts';

export type ChangePoolOutcome =
  | { readonly kind: 'changed' | 'not_found' }
  | { readonly kind: 'declared'; readonly file: string };
export type CreatePoolOutcome = { readonly kind: 'made' } | { readonly kind: 'differs'; readonly file: string | null };
export type DeletePoolOutcome =
  | { readonly kind: 'deleted' | 'not_found' | 'occupied' }
  | { readonly kind: 'declared'; readonly file: string };

/** What the surfaces may ask of pools, beside their list. */
export interface PoolService {
  /** One that is there already is made, unless it differs from what is said. */
  create(owner: Owner, name: string, settings: PoolSettingsChange): Promise<CreatePoolOutcome>;
  /** Counts for what is placed from then on; other replicas hear of it as of every change of a machine. What runs stays where it is, also where it now is too much. */
  change(owner: Owner, name: string, settings: PoolSettingsChange): Promise<ChangePoolOutcome>;
  /** Needs a pool without machines, and one that no file declares. */
  delete(owner: Owner, name: string): Promise<DeletePoolOutcome>;
}

export interface PoolsParts {
  readonly db: Db;
  readonly machines: Pick<Machines, 'poolChanged'>;
  readonly log: Log;
}

export class Pools implements PoolService {
  readonly #parts: PoolsParts;
  #reading: Promise<void> = Promise.resolve();

  constructor(parts: PoolsParts) {
    this.#parts = parts;
  }

  async create(owner: Owner, name: string, settings: PoolSettingsChange): Promise<CreatePoolOutcome> {
    const pool = await getOrCreatePool(this.#parts.db, { name, workspaceId: owner.workspaceId, settings });
    return agrees(pool.settings, settings) ? { kind: 'made' } : { kind: 'differs', file: pool.declaredIn };
  }

  async change(owner: Owner, name: string, settings: PoolSettingsChange): Promise<ChangePoolOutcome> {
    const key = { name, workspaceId: owner.workspaceId };
    const changed = await changePool(this.#parts.db, key, settings);
    if (changed === undefined) {
      const pool = await poolByName(this.#parts.db, key);
      return pool === undefined ? { kind: 'not_found' } : { kind: 'declared', file: pool.declaredIn ?? '' };
    }
    await this.#tell(changed);
    this.#parts.log.info({ pool: name, workspaceId: owner.workspaceId, settings }, 'settings of a pool changed');
    return { kind: 'changed' };
  }

  async delete(owner: Owner, name: string): Promise<DeletePoolOutcome> {
    const key = { name, workspaceId: owner.workspaceId };
    if (await deletePool(this.#parts.db, key)) return { kind: 'deleted' };
    const pool = await poolByName(this.#parts.db, key);
    if (pool === undefined) return { kind: 'not_found' };
    return pool.declaredIn === null ? { kind: 'occupied' } : { kind: 'declared', file: pool.declaredIn };
  }

  /** Brings the shared pools to what the file says; undefined: there is none, and nothing is declared any more. Only what differs is written. */
  async declare(file: PoolsFile | undefined): Promise<void> {
    const { db, log } = this.#parts;
    const declared: string[] = [];
    for (const { name, settings } of file?.pools ?? []) {
      const changed = await declarePool(db, { name, settings, file: file?.path ?? '' });
      if (changed === undefined) continue;
      declared.push(name);
      await this.#tell(changed);
    }
    const released = await releasePools(
      db,
      (file?.pools ?? []).map(({ name }) => name),
    );
    if (declared.length > 0) log.info({ file: file?.path, pools: declared }, 'pools declared by file');
    if (released.length > 0)
      log.warn(
        { file: file?.path, pools: released.map(({ name }) => name) },
        'no file declares these pools any more: they stay as they are, and operations change them',
      );
  }

  /** Reads the file again, one reading after another; a bad file changes nothing. */
  readAgain(path: string): Promise<void> {
    this.#reading = this.#reading.then(async () => {
      try {
        await this.declare(await readPoolsFile(path));
        this.#parts.log.info({ file: path }, 'pools file read again');
      } catch (error) {
        this.#parts.log.error({ err: error, file: path }, 'pools file not taken: pools stay as they are');
      }
    });
    return this.#reading;
  }

  async #tell(pool: PoolRow): Promise<void> {
    this.#parts.machines.poolChanged(await machinesOfPool(this.#parts.db, pool.id), pool.settings);
  }
}
