// Deletion of a workspace as an administrator sees it: what would go, its begin, and how far it is.
// Invariant: when a deletion is answered, no replica lets a caller of the workspace in. The rest follows by itself
// (rounds.ts).
import type { Clock } from '#shared/clock.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { isUuid } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { noSuchWorkspace } from '../../domain/no-workspace.ts';
import type { Db } from '../../stores/store/db.ts';
import {
  closeWorkspace,
  lockForDeletion,
  occupiedPools,
  revokeEnrolmentTokens,
  workspaceContents,
} from '../../stores/store/queries/workspace-deletion.ts';
import type { OwnPool, WorkspaceContents } from '../../stores/store/queries/workspace-deletion.ts';
import { workspaceById } from '../../stores/store/queries/workspaces.ts';
import type { WorkspaceRow } from '../../stores/store/queries/workspaces.ts';
import { auditEvent } from '../events/audit.ts';
import type { Actor } from '../events/audit.ts';
import type { EventWriter } from '../events/writer.ts';
import type { Invalidation } from '../identity/invalidation.ts';

export interface DeletionState {
  readonly workspace: WorkspaceRow;
  readonly contents: WorkspaceContents & { readonly volumeBytes: number };
  /** Why it cannot be deleted now; empty: it can, or its deletion is under way. */
  readonly refusal: string;
}

export interface WorkspaceDeletionParts {
  readonly db: Db;
  readonly events: Pick<EventWriter, 'transaction'>;
  readonly invalidation: Pick<Invalidation, 'publish'>;
  readonly clock: Pick<Clock, 'nowMs'>;
  /** Bytes of the workspace's volumes, as machines counted them last. */
  readonly volumeBytes: (id: WorkspaceId) => number;
}

export class WorkspaceDeletion {
  readonly #parts: WorkspaceDeletionParts;

  constructor(parts: WorkspaceDeletionParts) {
    this.#parts = parts;
  }

  /** Contents of a workspace, and how far its deletion is. @throws AppError `workspace_not_found` */
  async state(id: string): Promise<DeletionState> {
    const { db, volumeBytes } = this.#parts;
    const workspace = isUuid(id) ? await workspaceById(db, id.toLowerCase()) : undefined;
    if (workspace === undefined) throw noSuchWorkspace();
    const contents = await workspaceContents(db, workspace.id);
    return {
      workspace,
      contents: { ...contents, volumeBytes: volumeBytes(workspace.id) },
      refusal: workspace.deletingAtMs === null ? ((await this.#refusalOf(db, workspace))?.message ?? '') : '',
    };
  }

  /**
   * Begins the deletion of a workspace; one that is being deleted is left to it.
   * @param trail - the workspace whose audit trail tells it: the administrator's
   * @throws AppError `workspace_not_found`, `workspace_is_administrators`, `workspace_has_machines`
   */
  async begin(id: string, by: Actor, trail: WorkspaceId): Promise<DeletionState> {
    const { db, events, clock, invalidation } = this.#parts;
    const workspaceId = id.toLowerCase() as WorkspaceId;
    if (!isUuid(id)) throw noSuchWorkspace();
    await events.transaction(db, async (tx, emit) => {
      const row = await lockForDeletion(tx, workspaceId);
      if (row === undefined) throw noSuchWorkspace();
      if (row.isDeleting) return;
      // Before machines are counted: a host may be joining by one of these tokens.
      await revokeEnrolmentTokens(tx, workspaceId);
      const refusal = await this.#refusalOf(tx, { id: workspaceId, ...row });
      if (refusal !== undefined) throw refusal;
      await closeWorkspace(tx, workspaceId);
      const target = { type: 'workspace', id: workspaceId, name: row.name };
      emit(auditEvent(by, 'audit.workspace.deleted', { workspaceId: trail, target }, clock.nowMs()));
    });
    // Also of a deletion that is under way: the process that began it may have died before this.
    await invalidation.publish('workspace_deleted', workspaceId);
    return await this.state(workspaceId);
  }

  async #refusalOf(
    db: Parameters<typeof occupiedPools>[0],
    { id, name, isAdmin }: Pick<WorkspaceRow, 'id' | 'name' | 'isAdmin'>,
  ): Promise<AppError | undefined> {
    if (isAdmin)
      return new AppError('workspace_is_administrators', "the administrator's own workspace cannot be deleted");
    const pools = await occupiedPools(db, id);
    return pools.length === 0 ? undefined : new AppError('workspace_has_machines', machinesText(name, pools));
  }
}

const MOST_NAMED = 5;

/** Why machines keep a workspace, and what to do. @internal exported for its test */
export function machinesText(name: string, pools: readonly OwnPool[]): string {
  const named = pools
    .slice(0, MOST_NAMED)
    .map((pool) => `${pool.name} (${pool.machines}${pool.isProvided ? ', made by a provider' : ''})`);
  const more = pools.length > MOST_NAMED ? ', …' : '';
  const provided = pools.some(({ isProvided }) => isProvided)
    ? ', and pools whose machines a provider makes with `longshore pool delete`'
    : '';
  return (
    `workspace ${name} has machines of its own, in these pools: ${named.join(', ')}${more}. With a token of it ` +
    `(\`longshore token create --workspace\`), delete them with \`longshore machine delete\`${provided}`
  );
}
