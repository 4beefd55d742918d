// The first workspace of an installation, exactly once whoever asks: Authorize on a fresh installation, and `longshore up` over the child's IPC channel.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Sealer } from '../secrets/seal.ts';
import type { Db } from '../store/db.ts';
import { anyWorkspaceExists, claimBootstrap } from '../store/queries/workspaces.ts';
import type { SigningKeys } from './jwt.ts';
import { issueToken } from './tokens.ts';
import { createWorkspace } from './workspaces.ts';

export type FirstWorkspace =
  /** `token`: of type admin, in clear, this once. */
  { readonly kind: 'created'; readonly workspaceId: WorkspaceId; readonly token: string } | { readonly kind: 'exists' };

/** One row decides: of any number of callers at any number of replicas one gets `created`. All or nothing. */
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
