// The first workspace of an installation, made exactly once for either caller:
// Authorize on a fresh installation, or `longshore up` over the child's IPC channel.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { Sealer } from '../secrets/seal.ts';
import type { Db } from '../../stores/store/db.ts';
import { anyWorkspaceExists, claimBootstrap, listWorkspaces } from '../../stores/store/queries/workspaces.ts';
import type { SigningKeys } from './jwt.ts';
import type { Tokens } from './tokens.ts';
import { issueToken } from './tokens.ts';
import { createWorkspace } from './workspaces.ts';

export type FirstWorkspace =
  /** Outcome for the caller. `token`: of type admin, in clear, this once. */
  { readonly kind: 'created'; readonly workspaceId: WorkspaceId; readonly token: string } | { readonly kind: 'exists' };

/** A single row decides: among any number of callers at any number of replicas, one gets `created`. All or nothing. */
export async function ensureFirstWorkspace(
  db: Db,
  sealer: Sealer,
  keys: SigningKeys,
  nowMs: number = Date.now(),
): Promise<FirstWorkspace> {
  if (await anyWorkspaceExists(db)) return { kind: 'exists' };
  return db.transaction(async (tx): Promise<FirstWorkspace> => {
    const isMine = await claimBootstrap(tx);
    if (!isMine || (await anyWorkspaceExists(tx))) return { kind: 'exists' };
    const workspace = await createWorkspace(tx, sealer, { isAdmin: true });
    const owner = { workspaceId: workspace.id };
    const { token } = await issueToken(tx, keys, owner, 'admin', { nowMs });
    await issueToken(tx, keys, owner, 'workspace_primary', { nowMs });
    return { kind: 'created', workspaceId: workspace.id, token };
  });
}

/**
 * The first workspace, for the owner of the data directory.
 * @param issueAnother - a token of type admin where the workspace is there already
 * @returns `token`: in clear, this once
 * @throws AppError `workspace_not_found` where there are workspaces, but none of an admin
 */
export async function firstWorkspaceOfOwner(
  parts: { readonly db: Db; readonly sealer: Sealer; readonly keys: SigningKeys; readonly tokens: Tokens },
  issueAnother: boolean,
): Promise<{ readonly workspaceId: string; readonly token?: string }> {
  const { db, sealer, keys, tokens } = parts;
  const first = await ensureFirstWorkspace(db, sealer, keys);
  if (first.kind === 'created') return { workspaceId: first.workspaceId, token: first.token };
  const admin = (await listWorkspaces(db)).find((workspace) => workspace.isAdmin);
  if (admin === undefined) throw new AppError('workspace_not_found', 'this installation has no admin workspace');
  if (!issueAnother) return { workspaceId: admin.id };
  const issued = await tokens.issue({ workspaceId: admin.id }, 'admin');
  return { workspaceId: admin.id, token: issued.token };
}
