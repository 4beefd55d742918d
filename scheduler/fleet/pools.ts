// Pools as operators make, change and delete them, by operations and by the pools file.
// The row is the authority. Machines carry their pool's settings. A change is written
// first, and then announced for each machine in the pool, as any change of a machine is.
// Invariant: only the file changes a pool that the file declares.
import { isDeepStrictEqual } from 'node:util';
import type { PoolSettingsChange } from '#shared/api/pools.ts';
import type { Log } from '#shared/log.ts';
import type { Db, Transaction } from '../stores/store/db.ts';
import { databaseUnavailable } from '../stores/store/limits.ts';
import {
  changePool,
  declarePool,
  deletePool,
  lockPool,
  lockSharedPools,
  makePool,
  machinesOfPools,
  poolByName,
  releasePools,
} from '../stores/store/queries/pools.ts';
import type { PoolRow } from '../stores/store/queries/pools.ts';
import { SYSTEM } from '../workspaces/events/audit.ts';
import type { Actor, AuditKind } from '../workspaces/events/audit.ts';
import type { InstallationTrail, Say } from '../workspaces/events/installation-trail.ts';
import type { DeclaredShares, Shares } from '../workspaces/identity/shares.ts';
import type { Machines } from './machines.ts';
import { admitPool, entryOf, mostShared } from './pool-admission.ts';
import type { MostPools } from './pool-admission.ts';
import { agrees, providerProblem, settled } from './pool-settings.ts';
import type { PoolsFile, SaidOfSharing } from './pools-file.ts';
import { readPoolsFile } from './pools-file.ts';
import { unknownProvider } from './provisioning/provider-names.ts';
import type { ProviderNames } from './provisioning/provider-names.ts';
import type { Owner } from './worker-service.ts';

/** Settings that do not go together. */
interface Unfit {
  readonly kind: 'unfit';
  readonly problem: string;
}

export type ChangePoolOutcome =
  | Unfit
  | { readonly kind: 'changed' | 'not_found' }
  | { readonly kind: 'declared'; readonly file: string };
export type CreatePoolOutcome =
  | Unfit
  | { readonly kind: 'made' }
  | { readonly kind: 'differs'; readonly file: string | null };
export type DeletePoolOutcome =
  | { readonly kind: 'deleted' | 'not_found' | 'occupied' }
  | { readonly kind: 'declared'; readonly file: string };

/** Operations on pools for the surfaces, beside their list. */
export interface PoolService {
  /**
   * An existing pool counts as made, unless its settings differ from the given ones.
   * @throws AppError `too_many_pools`, `workspace_not_found`
   */
  create(owner: Owner, name: string, settings: PoolSettingsChange, by?: Actor): Promise<CreatePoolOutcome>;
  /**
   * Settings count for containers placed from then on; other replicas hear of them as of every change of a machine.
   * Running containers stay where they are, even if the machine now holds too many.
   */
  change(owner: Owner, name: string, settings: PoolSettingsChange, by?: Actor): Promise<ChangePoolOutcome>;
  /** Deletes a pool that has no machines and that no file declares. */
  delete(owner: Owner, name: string, by?: Actor): Promise<DeletePoolOutcome>;
}

export interface PoolsParts {
  readonly db: Db;
  readonly machines: Pick<Machines, 'poolChanged'>;
  /** Told after each write of a pool; absent: nobody is. */
  readonly written?: () => Promise<void>;
  /** Most pools of an owner; absent: the bound of the shared pools. */
  readonly mostOf?: MostPools;
  /** Writer of who changed pools; absent: nothing is told. */
  readonly trail?: InstallationTrail;
  /** Shares of workspaces, which the pools file declares too; absent: those of a file are ignored. */
  readonly shares?: Pick<Shares, 'declare' | 'announce'>;
  /** Sets what a file says of sharing; absent: that is ignored. */
  readonly setSharing?: (said: SaidOfSharing) => Promise<void>;
  /** Sentences about markets of which more is guaranteed than there is; absent: none. */
  readonly guaranteeWarnings?: () => Promise<readonly string[]>;
  /** The providers of this scheduler; absent: any name counts as known. */
  readonly providers?: ProviderNames;
  readonly log: Log;
}

/** Most changes that wait for the one before them. */
const MOST_WAITING = 1000;

export class Pools implements PoolService {
  readonly #parts: PoolsParts;
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  constructor(parts: PoolsParts) {
    this.#parts = parts;
  }

  create(owner: Owner, name: string, settings: PoolSettingsChange, by: Actor = SYSTEM): Promise<CreatePoolOutcome> {
    return this.#inTurn(async () => {
      const { db, mostOf = mostShared } = this.#parts;
      const key = { name, workspaceId: owner.workspaceId };
      const problem = providerProblem(settled(settings)) ?? this.#strangerIn(settings);
      if (problem !== undefined) return { kind: 'unfit', problem };
      const most = await mostOf(owner.workspaceId);
      const pool =
        (await poolByName(db, key)) ??
        (await this.#written((tx, say) => admitPool(tx, say, by, { ...key, settings }, most)));
      return agrees(pool.settings, settings) ? { kind: 'made' } : { kind: 'differs', file: pool.declaredIn };
    });
  }

  change(owner: Owner, name: string, settings: PoolSettingsChange, by: Actor = SYSTEM): Promise<ChangePoolOutcome> {
    return this.#inTurn(async () => {
      const key = { name, workspaceId: owner.workspaceId };
      const changed = await this.#written(async (tx, say): Promise<PoolRow | Unfit | undefined> => {
        const before = await lockPool(tx, key);
        const problem =
          before === undefined
            ? undefined
            : (providerProblem(settled({ ...before.settings, ...settings })) ?? this.#strangerIn(settings));
        if (problem !== undefined) return { kind: 'unfit', problem };
        const row = await changePool(tx, key, settings);
        if (row !== undefined) say(by, 'audit.pool.updated', entryOf(row, settings));
        return row;
      });
      if (changed !== undefined && 'problem' in changed) return changed;
      if (changed === undefined) {
        const pool = await poolByName(this.#parts.db, key);
        return pool === undefined ? { kind: 'not_found' } : { kind: 'declared', file: pool.declaredIn ?? '' };
      }
      await this.#tell([changed]);
      this.#parts.log.info({ pool: name, workspaceId: owner.workspaceId, settings }, 'settings of a pool changed');
      return { kind: 'changed' };
    });
  }

  /** Why the named provider makes no machines. A pool whose provider went keeps the name, and other settings change. */
  #strangerIn({ provider }: PoolSettingsChange): string | undefined {
    const known = this.#parts.providers?.names();
    if (known === undefined || typeof provider !== 'string' || known.includes(provider)) return undefined;
    return `settings.provider: ${unknownProvider(provider, known)}; the file is read at the start and at SIGHUP`;
  }

  async delete(owner: Owner, name: string, by: Actor = SYSTEM): Promise<DeletePoolOutcome> {
    const key = { name, workspaceId: owner.workspaceId };
    const isDeleted = await this.#written(async (tx, say) => {
      const isGone = await deletePool(tx, key);
      if (isGone) say(by, 'audit.pool.deleted', entryOf(key));
      return isGone;
    });
    if (isDeleted) return { kind: 'deleted' };
    const pool = await poolByName(this.#parts.db, key);
    if (pool === undefined) return { kind: 'not_found' };
    return pool.declaredIn === null ? { kind: 'occupied' } : { kind: 'declared', file: pool.declaredIn };
  }

  /**
   * Brings the shared pools, and the shares of workspaces, to the file's declaration: all of them or none. Only
   * differences are written. All pools are announced, so that reading the file again makes up for a lost message.
   * Pools that this file declared and no longer does are released. Pools that another file declared stay declared: a
   * scheduler without that file cannot know whether it still declares them.
   */
  async declare(file: PoolsFile): Promise<void> {
    await this.#inTurn(() => this.#declare(file));
  }

  /** @returns the names of the pools that were made or changed, and of the workspaces whose shares were changed */
  async #declare({
    path,
    pools,
    shares = [],
    sharing,
  }: PoolsFile): Promise<{ readonly pools: string[]; readonly shares: string[] }> {
    const { log } = this.#parts;
    const names = pools.map(({ name }) => name);
    const { before, after, changed, released, given } = await this.#written(async (tx, say) => {
      const there = byName(await lockSharedPools(tx));
      const written: string[] = [];
      for (const { name, settings } of pools) {
        const key = { name, workspaceId: null };
        const made = there.has(name) ? undefined : await makePool(tx, { ...key, settings });
        if ((await declarePool(tx, { name, settings, file: path })) === undefined) continue;
        written.push(name);
        const kind: AuditKind = made === undefined ? 'audit.pool.updated' : 'audit.pool.created';
        say(SYSTEM, kind, entryOf(key, settings, path));
      }
      const left = await releasePools(tx, path, names);
      const now = byName(await lockSharedPools(tx));
      const told = await this.#parts.shares?.declare(tx, say, path, shares);
      return { before: there, after: now, changed: written, released: left, given: told };
    });
    if (given !== undefined) await this.#parts.shares?.announce(given);
    if (sharing !== undefined) await this.#parts.setSharing?.(sharing);
    const workspaces = given === undefined ? [] : this.#sharesTold(path, given);
    await this.#tell(names.map((name) => after.get(name)).filter((pool) => pool !== undefined));
    if (changed.length > 0) log.info({ file: path, pools: changed }, 'pools declared by file');
    const overwritten = changed.flatMap((pool) => {
      const was = before.get(pool);
      const is = after.get(pool)?.settings;
      const isOthers = (was?.declaredIn ?? path) !== path;
      if (!isOthers || isDeepStrictEqual(was?.settings, is)) return [];
      return [{ pool, before: was?.settings, after: is, declaredIn: was?.declaredIn }];
    });
    if (overwritten.length > 0)
      log.warn(
        { file: path, pools: overwritten.map(({ pool }) => pool), overwritten },
        'another file declared these pools otherwise: the last to read wins, give every scheduler the same file at the same path',
      );
    const strangers = pools.flatMap(({ name, settings }) => {
      const problem = this.#strangerIn(settings);
      return problem === undefined ? [] : [{ pool: name, problem }];
    });
    if (strangers.length > 0)
      log.warn(
        { file: path, pools: strangers },
        'the pools file names providers that this scheduler does not have: no machines are made for these pools',
      );
    if (released.length > 0)
      log.warn(
        { file: path, pools: released.map(({ name }) => name) },
        'the file declares these pools no more: they stay as they are, and `longshore pool set` changes them',
      );
    return { pools: changed, shares: workspaces };
  }

  /** Logs what a file changed of shares. @returns the names of their workspaces */
  #sharesTold(file: string, { changed, released, unknown, ambiguous }: DeclaredShares): string[] {
    const { log } = this.#parts;
    const names = changed.map(({ name }) => name);
    if (changed.length > 0) log.info({ file, workspaces: names }, 'shares of workspaces declared by file');
    if (unknown.length > 0)
      log.warn(
        { file, workspaces: unknown },
        'the pools file gives shares to workspaces that do not exist: once they are made, have the file read again',
      );
    if (ambiguous.length > 0)
      log.warn(
        { file, workspaces: ambiguous },
        'the pools file names a workspace twice, or by a name that several have: name these workspaces once, by their ids',
      );
    if (released.length > 0)
      log.warn(
        { file, workspaces: released.map(({ name }) => name) },
        'the file declares these shares no more: they stay as they are, and `longshore workspace share` changes them',
      );
    return names;
  }

  /** Reads the file again; a bad file changes nothing. */
  async readAgain(path: string): Promise<void> {
    try {
      // The read is in turn as well: of two readings the later one counts.
      const changed = await this.#inTurn(async () => this.#declare(await readPoolsFile(path)));
      this.#parts.log.info(
        { file: path, ...changed, onScreen: true },
        changed.pools.length > 0
          ? 'pools file read again: it changed pools'
          : changed.shares.length > 0
            ? 'pools file read again: it changed shares of workspaces'
            : 'pools file read again: no pool differed',
      );
      const warnings = (await this.#parts.guaranteeWarnings?.()) ?? [];
      if (warnings.length > 0)
        this.#parts.log.warn({ file: path, warnings }, 'shares of workspaces name more than machines have');
    } catch (error) {
      this.#parts.log.error({ err: error, file: path }, 'pools file not taken: pools stay as they are');
    }
  }

  /** Runs a change and the entries of the audit trail in one transaction. */
  async #written<T>(run: (tx: Transaction, say: Say) => Promise<T>): Promise<T> {
    const { db, trail, written } = this.#parts;
    const outcome = await (trail === undefined
      ? db.transaction((tx) => run(tx, () => undefined))
      : trail.transaction(run));
    await written?.();
    return outcome;
  }

  /** Runs changes one after another, each with its announcement: the last announced change is the last written one. */
  async #inTurn<Outcome>(work: () => Promise<Outcome>): Promise<Outcome> {
    if (this.#waiting >= MOST_WAITING) throw databaseUnavailable(new Error('too many changes of pools wait'));
    this.#waiting += 1;
    const turn = this.#last.then(work).finally(() => (this.#waiting -= 1));
    this.#last = turn.catch(() => undefined);
    return await turn;
  }

  /** Announces written pools. A message that is lost now is made up for when rows are compared. */
  async #tell(pools: readonly PoolRow[]): Promise<void> {
    const { db, machines, log } = this.#parts;
    try {
      const within = await machinesOfPools(
        db,
        pools.map(({ id }) => id),
      );
      for (const { id, settings } of pools) machines.poolChanged(within.get(id) ?? [], settings);
    } catch (error) {
      log.warn({ err: error, pools: pools.map(({ name }) => name) }, 'machines hear later of what their pools offer');
    }
  }
}

const byName = (pools: readonly PoolRow[]): ReadonlyMap<string, PoolRow> =>
  new Map(pools.map((pool) => [pool.name, pool]));
