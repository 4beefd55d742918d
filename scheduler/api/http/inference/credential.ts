// Callers of /v1. Source: reference of the inference API, §2.
import type { FastifyRequest } from 'fastify';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { tokenOf } from '../auth.ts';
import type { Authenticator } from '../auth.ts';
import { InferenceError } from './errors.ts';

const TYPES: ReadonlySet<string> = new Set(['admin', 'workspace_primary', 'workspace', 'workspace_restricted']);

const badKey = (text: string): InferenceError =>
  new InferenceError(401, 'invalid_api_key', text, { headers: { 'www-authenticate': 'Bearer' } });

/**
 * The caller of a request.
 * @param needs - scope of limited tokens that may call; `read` also means that nobody needs a token
 * @returns null: no token was sent, where none is needed
 * @throws InferenceError 401, 403
 */
export async function callerOf(
  request: FastifyRequest,
  {
    authenticator,
    callerOf: found,
  }: {
    readonly authenticator: Pick<Authenticator, 'authenticate' | 'refused'>;
    /** Another credential than a token. */
    readonly callerOf?: (request: FastifyRequest) => Promise<Caller>;
  },
  needs: 'read' | 'invoke',
): Promise<Caller | null> {
  if (found !== undefined) return allowed(await found(request), needs);
  const { authorization } = request.headers;
  if (authorization === undefined) {
    if (needs === 'read') return null;
    throw badKey('send a token of your workspace: Authorization: Bearer TOKEN');
  }
  const token = tokenOf(authorization);
  const caller = token === null ? null : await authenticator.authenticate(token);
  if (caller === null) {
    if (token !== null) authenticator.refused?.(request.ip);
    throw badKey('the token is unknown, expired or switched off');
  }
  return allowed(caller, needs);
}

/** @throws InferenceError 403 */
function allowed(caller: Caller, needs: 'read' | 'invoke'): Caller {
  if (!TYPES.has(caller.type)) throw new InferenceError(403, 'permission_denied', 'this token may not call models');
  const { confined } = caller;
  if (confined === undefined) return caller;
  const { scopes, appId } = confined;
  const isAllowed = scopes.length === 0 || scopes.includes(needs) || (needs === 'read' && scopes.includes('invoke'));
  // Models belong to no app: a token of a single app neither calls nor lists them.
  if (!isAllowed || appId !== undefined)
    throw new InferenceError(403, 'permission_denied', 'the limits of this token leave models out');
  return caller;
}
