// Shares of workspaces as administrators change them, and as the pools file declares them. The row is the authority. A
// change is announced as one of the workspace's limits is, so placement decides by it at once, on every replica.
// Invariant: only the file changes a share that the file declares.
import { isDeepStrictEqual } from 'node:util';
import { AppError } from '#shared/errors.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { noSuchWorkspace } from '../../domain/no-workspace.ts';
import { changedShare, shareOf } from '../../domain/workspace-share.ts';
import type { GivenShare, ShareChange, StoredShare } from '../../domain/workspace-share.ts';
import type { WorkspaceShare } from '../../domain/shares.ts';
import type { Db, Transaction } from '../../stores/store/db.ts';
import {
  guaranteesOfAll,
  lockWorkspacesForShares,
  setWorkspaceShare,
  workspaceById,
} from '../../stores/store/queries/workspaces.ts';
import type { WorkspaceRow } from '../../stores/store/queries/workspaces.ts';
import { SYSTEM, auditEvent } from '../events/audit.ts';
import type { Actor, Audited } from '../events/audit.ts';
import { EventWriter } from '../events/writer.ts';
import type { Say } from '../events/installation-trail.ts';
import type { Invalidation } from './invalidation.ts';

/** A share in effect, and the file that declares it; null: commands change it. */
export interface ShareView {
  readonly share: WorkspaceShare;
  readonly declaredIn: string | null;
}

/** A workspace's share in the pools file. */
export interface DeclaredShare {
  /** The workspace, by id or name. */
  readonly workspace: string;
  readonly share: GivenShare | null;
}

/** Outcome of a declaration, before it is announced. */
export interface DeclaredShares {
  readonly changed: readonly WorkspaceRow[];
  /** Workspaces that the file declares no more: their shares stay. */
  readonly released: readonly WorkspaceRow[];
  /** Names of the file that no workspace has. */
  readonly unknown: readonly string[];
  /** Names of the file that several workspaces have, or whose workspace the file names twice. */
  readonly ambiguous: readonly string[];
}

export interface SharesParts {
  readonly db: Db;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly invalidation?: Pick<Invalidation, 'publish'>;
  readonly events?: Pick<EventWriter, 'transaction'>;
}

export class Shares {
  readonly #parts: SharesParts;

  constructor(parts: SharesParts) {
    this.#parts = parts;
  }

  /** @throws AppError `workspace_not_found` */
  async of(id: WorkspaceId): Promise<ShareView> {
    const row = isUuid(id) ? await workspaceById(this.#parts.db, id) : undefined;
    if (row === undefined) throw noSuchWorkspace();
    return viewOf(row.share);
  }

  /** Sum of what is guaranteed to workspaces, by each market that shares name; 0: there are limits alone. */
  guaranteed(): Promise<ReadonlyMap<string, number>> {
    return guaranteesOfAll(this.#parts.db);
  }

  /**
   * Applies an administrator's change; every replica knows it when this resolves.
   * @throws AppError `workspace_not_found`, `invalid_body`, `share_declared`
   */
  async change(id: WorkspaceId, change: ShareChange, by: Actor = SYSTEM): Promise<ShareView> {
    const { db, clock, events = new EventWriter() } = this.#parts;
    const row = isUuid(id)
      ? await events.transaction(db, async (tx, emit) => {
          const [before] = await lockWorkspacesForShares(tx, { ids: [id] });
          if (before === undefined) return undefined;
          const written = await setWorkspaceShare(tx, id, next(before, change));
          if (written !== undefined)
            emit(auditEvent(by, 'audit.share.updated', entryOf(written, change), clock.nowMs()));
          return written;
        })
      : undefined;
    if (row === undefined) throw noSuchWorkspace();
    await this.#parts.invalidation?.publish('workspace', id);
    return viewOf(row.share);
  }

  /**
   * Writes the shares that a file declares, as far as they differ. Shares that this file declared and no longer does
   * stay as they are, and commands change them. To be announced after the commit.
   */
  async declare(tx: Transaction, say: Say, file: string, declared: readonly DeclaredShare[]): Promise<DeclaredShares> {
    const named = declared.map(({ workspace }) => workspace);
    const rows = await lockWorkspacesForShares(tx, { ids: named, names: named, file });
    const changed: WorkspaceRow[] = [];
    const unknown: string[] = [];
    const ambiguous: string[] = [];
    const kept = new Set<WorkspaceId>();
    for (const { workspace, share } of declared) {
      const found = rows.filter(({ id, name }) => id === workspace || name === workspace);
      const one = found.find(({ id }) => id === workspace) ?? found[0];
      if (one === undefined) unknown.push(workspace);
      else if ((found.length > 1 && one.id !== workspace) || kept.has(one.id)) ambiguous.push(workspace);
      else {
        kept.add(one.id);
        const stored: StoredShare = { ...share, declaredIn: file };
        if (isDeepStrictEqual(one.share, stored)) continue;
        const written = await setWorkspaceShare(tx, one.id, stored);
        if (written === undefined) continue;
        say(SYSTEM, 'audit.share.updated', entryOf(written, share ?? {}, file));
        changed.push(written);
      }
    }
    const released = rows.filter(({ id, share }) => share?.declaredIn === file && !kept.has(id));
    for (const { id, share } of released) {
      const { declaredIn: _, ...given } = share ?? {};
      await setWorkspaceShare(tx, id, Object.keys(given).length === 0 ? null : given);
    }
    return { changed, released, unknown, ambiguous };
  }

  /** Announces shares that a file changed, once the change is made. */
  async announce({ changed }: DeclaredShares): Promise<void> {
    const { invalidation } = this.#parts;
    if (invalidation !== undefined) await Promise.all(changed.map(({ id }) => invalidation.publish('workspace', id)));
  }
}

/** @throws AppError `invalid_body`, `share_declared` */
function next({ share }: WorkspaceRow, change: ShareChange): GivenShare | null {
  const file = share?.declaredIn;
  if (file !== undefined)
    throw new AppError(
      'share_declared',
      `the share of the workspace is declared in ${file}: change it there, and restart a scheduler that has this file, or send its process SIGHUP`,
    );
  const changed = changedShare(share, change);
  if (changed.kind === 'wrong') throw new AppError('invalid_body', changed.problems.join('; '));
  return changed.share;
}

const viewOf = (stored: StoredShare | null): ShareView => ({
  share: shareOf(stored),
  declaredIn: stored?.declaredIn ?? null,
});

/** The parts that were given, as `weight`, `guaranteed.H100` and `limits.H100`; null: the default again. */
const entryOf = ({ id, name }: WorkspaceRow, { weight, ...amounts }: ShareChange, file?: string): Audited => ({
  workspaceId: id,
  target: { type: 'workspace', id, name },
  attrs: {
    ...(weight === undefined ? {} : { weight }),
    ...Object.fromEntries(
      Object.entries(amounts).flatMap(([part, by]): (readonly [string, number | null])[] =>
        by === null ? [[part, null]] : Object.entries(by).map(([market, amount]) => [`${part}.${market}`, amount]),
      ),
    ),
    ...(file === undefined ? {} : { file }),
  },
});
