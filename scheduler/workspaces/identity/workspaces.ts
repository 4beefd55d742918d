import { randomBytes } from 'node:crypto';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Sealer } from '../secrets/seal.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { insertWorkspace } from '../../stores/store/queries/workspaces.ts';
import type { WorkspaceRow } from '../../stores/store/queries/workspaces.ts';

/** Context under which the workspace's signing key is sealed. */
export const SIGNING_KEY = 'workspaces.signing_key';

/** Creates a workspace with a signing key of its own; `name` absent: a short random one. */
export function createWorkspace(
  db: Queryable,
  sealer: Sealer,
  options: { readonly name?: string; readonly isAdmin?: boolean } = {},
): Promise<WorkspaceRow> {
  const signingKey = `sk_${randomBytes(32).toString('base64url')}`;
  return insertWorkspace(db, {
    id: newId<WorkspaceId>(),
    name: options.name ?? randomBytes(3).toString('hex'),
    signingKey: sealer.seal(Buffer.from(signingKey), SIGNING_KEY),
    isAdmin: options.isAdmin ?? false,
  });
}

/** The key that SignPayload and callbacks sign with: `sk_…`. */
export function signingKeyOf(workspace: WorkspaceRow, sealer: Sealer): string {
  return Buffer.from(sealer.open(workspace.signingKey, SIGNING_KEY)).toString('utf8');
}
