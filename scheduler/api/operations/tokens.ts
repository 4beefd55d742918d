import { Done, timestampOf } from '#shared/api/fields.ts';
import {
  CreateTokenRequest,
  ListTokensRequest,
  ListTokensResponse,
  OneTokenRequest,
  TokenResponse,
} from '#shared/api/tokens.ts';
import type { Token } from '#shared/api/tokens.ts';
import { isUuid } from '#shared/domain/ids.ts';
import { actorOf } from '../../workspaces/events/audit.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import type { TokenAdmin } from '../../workspaces/identity/token-admin.ts';
import { maskedToken } from '../../workspaces/identity/tokens.ts';
import type { IssuedToken } from '../../workspaces/identity/tokens.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

type TokenRecord = IssuedToken['row'];

export function listTokens(tokens: Pick<TokenAdmin, 'list'>): Operation {
  return operation({
    name: 'ListTokens',
    http: 'GET /tokens',
    scope: 'full',
    request: ListTokensRequest,
    response: ListTokensResponse,
    handle: async (caller) => {
      const rows = await tokens.list(caller);
      return { ok: true, errMsg: '', tokens: rows.map((row) => tokenRecord(row, maskedToken(row))) };
    },
  });
}

/**
 * Token types that a caller may make; an administrator may also make another administrator's.
 * Tokens of other types are made together with their workspace or container.
 */
const TYPES = ['workspace', 'workspace_restricted'] as const;
const ADMIN_TYPES = [...TYPES, 'admin'] as const;
export const tokenTypesFor = ({ isAdmin }: Pick<Caller, 'isAdmin'>) => (isAdmin ? ADMIN_TYPES : TYPES);

export function createToken(tokens: Pick<TokenAdmin, 'create'>): Operation {
  return operation({
    name: 'CreateToken',
    http: 'POST /tokens',
    scope: 'full',
    request: CreateTokenRequest,
    response: TokenResponse,
    handle: async (caller, request, { from }) => {
      const types = tokenTypesFor(caller);
      const type = request.tokenType === '' ? 'workspace' : types.find((name) => name === request.tokenType);
      if (type === undefined) return { ok: false, errMsg: `tokenType must be one of ${types.join(', ')}`, token: null };
      const reusable = request.reusable !== false;
      const { token, row } = await tokens.create(caller, type, { reusable }, actorOf(caller, from));
      return { ok: true, errMsg: '', token: tokenRecord(row, token) };
    },
  });
}

export function toggleToken(tokens: Pick<TokenAdmin, 'toggle'>): Operation {
  return operation({
    name: 'ToggleToken',
    http: 'POST /tokens/{tokenId}/toggle',
    scope: 'full',
    request: OneTokenRequest,
    response: TokenResponse,
    handle: async (caller, { tokenId }, { from }) => {
      const row = await tokens.toggle(caller, tokenId, actorOf(caller, from));
      if (row === undefined) return { ok: false, errMsg: 'Unable to toggle token.', token: null };
      return { ok: true, errMsg: '', token: tokenRecord(row, maskedToken(row)) };
    },
  });
}

/** Deletes a token; an unknown token counts as deleted. */
export function deleteToken(tokens: Pick<TokenAdmin, 'remove'>): Operation {
  return operation({
    name: 'DeleteToken',
    http: 'DELETE /tokens/{tokenId}',
    scope: 'full',
    request: OneTokenRequest,
    response: Done,
    handle: async (caller, { tokenId }, { from }) => {
      if (!isUuid(tokenId)) return { ok: false, errMsg: 'Unable to delete token.' };
      await tokens.remove(caller, tokenId, actorOf(caller, from));
      return { ok: true, errMsg: '' };
    },
  });
}

const tokenRecord = (row: TokenRecord, key: string): Token => ({
  tokenId: row.id,
  key,
  active: row.active,
  reusable: row.reusable,
  workspaceId: row.workspaceNumber,
  tokenType: row.type,
  createdAt: timestampOf(row.createdAtMs),
  updatedAt: timestampOf(row.updatedAtMs),
});
