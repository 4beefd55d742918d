// Who may reach into a container: a full token of its workspace, or the administrator's. Containers' own tokens and
// restricted ones may not, because a program in a container can do all that its handler can.
import type { FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { lookAt, tokenOf } from '../auth.ts';
import type { Authenticator } from '../auth.ts';

export interface Visitor {
  readonly caller: Caller;
  /** The caller's workspace; null: any (the administrator). */
  readonly workspaceId: WorkspaceId | null;
  /** Whether the token still counts. */
  readonly isValid: () => Promise<boolean>;
  /** Interval of the looks; absent: that of every visitor. */
  readonly lookMs?: number;
}

/** @throws AppError `unauthorized`: the caller may not reach into containers */
export function mustReach({ type, confined }: Pick<Caller, 'type' | 'confined'>): void {
  if (type === 'container' || type === 'workspace_restricted')
    throw new AppError('unauthorized', `a token of type ${type} may not reach into containers`);
  if (confined !== undefined) throw new AppError('unauthorized', 'a limited token may not reach into containers');
}

/**
 * @param takesQuery - `?auth_token=` counts as well: browsers send no header with a WebSocket
 * @throws AppError `unauthorized`, `rate_limited`
 */
export async function visitorOf(
  request: FastifyRequest,
  authenticator: Authenticator,
  { takesQuery }: { readonly takesQuery: boolean },
): Promise<Visitor> {
  const query = takesQuery ? (request.query as Readonly<Record<string, unknown>>) : undefined;
  const token = tokenOf(request.headers.authorization, query);
  const caller = token === null ? null : await authenticator.authenticate(token);
  if (token === null || caller === null) {
    if (token !== null) authenticator.refused?.(request.ip);
    throw new AppError('unauthorized', 'invalid or missing token');
  }
  mustReach(caller);
  // A one-use token has been used up by now, and counts as long as this request.
  const isReusable = (await lookAt(authenticator, token)) !== null;
  return {
    caller,
    workspaceId: caller.isAdmin ? null : caller.workspaceId,
    isValid: async () => {
      if (!isReusable) return true;
      const known = await lookAt(authenticator, token);
      return known !== null && known.confined === undefined;
    },
  };
}
