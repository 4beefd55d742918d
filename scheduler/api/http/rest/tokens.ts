import { timestampOf } from '#shared/api/fields.ts';
import { ChangeToken, CreateToken, TokenList, TokenRecord } from '#shared/api/rest/tokens.ts';
import { AppError } from '#shared/errors.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { TokenAdmin, TokenWish } from '../../../workspaces/identity/token-admin.ts';
import { maskedToken } from '../../../workspaces/identity/tokens.ts';
import type { IssuedToken } from '../../../workspaces/identity/tokens.ts';
import { tokenTypesFor } from '../../operations/tokens.ts';
import { actorBehind } from '../origin.ts';
import { compileDecoder } from '../decode.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

const NOT_FOUND = 'token_not_found';
const notFound = (): AppError =>
  new AppError(NOT_FOUND, 'there is no token of that id: `longshore token list` shows them');

/** Tokens of a workspace. A key is in the answer that makes it, and in no other. All are closed to limited tokens. */
export function tokenRoutes(tokens: Pick<TokenAdmin, 'list' | 'create' | 'change' | 'remove'>): readonly RestRoute[] {
  return [
    restRoute({
      http: 'GET /token/{ws}',
      grants: NOT_LIMITED,
      summary: 'Tokens, newest first, without their keys',
      scope: 'full',
      answer: TokenList,
      handle: async ({ workspaceId }) => ({
        data: (await tokens.list({ workspaceId })).map((row) => tokenRecord(row, maskedToken(row))),
        next: '',
      }),
    }),
    restRoute({
      http: 'POST /token/{ws}',
      summary: 'Make a token; the answer holds its key, this once',
      scope: 'full',
      status: 201,
      body: CreateToken,
      readBody: readWith(compileDecoder(CreateToken)),
      answer: TokenRecord,
      errors: ['too_many_tokens'],
      handle: async (request) => {
        const { caller, workspaceId, body } = request;
        const { reusable } = body;
        const type = typeOf(caller, body.token_type);
        const options = { ...wishOf(body), ...(reusable === undefined ? {} : { reusable }) };
        const { token, row } = await tokens.create({ workspaceId }, type, options, actorBehind(request));
        return tokenRecord(row, token);
      },
    }),
    restRoute({
      http: 'PATCH /token/{ws}/{tokenId}',
      summary: 'Name, limit, switch off or on a token, at once and everywhere',
      scope: 'full',
      body: ChangeToken,
      readBody: readWith(compileDecoder(ChangeToken)),
      answer: TokenRecord,
      errors: [NOT_FOUND],
      handle: async (request) => {
        const { workspaceId, params, body } = request;
        const row = await tokens.change({ workspaceId }, params['tokenId'] ?? '', wishOf(body), actorBehind(request));
        if (row === undefined) throw notFound();
        return tokenRecord(row, maskedToken(row));
      },
    }),
    restRoute({
      http: 'DELETE /token/{ws}/{tokenId}',
      summary: 'Delete a token, at once and everywhere',
      scope: 'full',
      errors: [NOT_FOUND],
      handle: async (request) => {
        const { workspaceId, params } = request;
        const id = params['tokenId'] ?? '';
        if (!isUuid(id) || !(await tokens.remove({ workspaceId }, id, actorBehind(request)))) throw notFound();
        return undefined;
      },
    }),
  ];
}

type Sent = Readonly<Record<string, unknown>>;

/** Fields that null empties, where decoding takes null for absent. */
const EMPTIED = ['expires_at', 'app_id'] as const;

/** Reads a body, in which null means something. @throws DecodeError */
const readWith = (decode: (sent: Sent) => Record<string, unknown>) => (sent: Sent) => ({
  ...decode(sent),
  ...Object.fromEntries(EMPTIED.filter((name) => sent[name] === null).map((name) => [name, null])),
});

const TIME =
  /^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})$/;

/** @throws AppError `invalid_body` */
function wishOf({ name, expires_at: expiresAt, scopes, app_id: appId, ...rest }: CreateToken | ChangeToken): TokenWish {
  const expiresAtMs = typeof expiresAt === 'string' ? (TIME.test(expiresAt) ? Date.parse(expiresAt) : NaN) : expiresAt;
  if (Number.isNaN(expiresAtMs)) {
    throw new AppError('invalid_body', 'expires_at must be a time such as 2030-01-31T12:00:00Z, or null');
  }
  const active = 'active' in rest ? rest.active : undefined;
  return {
    ...(name === undefined ? {} : { name }),
    ...(expiresAtMs === undefined ? {} : { expiresAtMs }),
    ...(scopes === undefined ? {} : { scopes }),
    ...(appId === undefined ? {} : { appId }),
    ...(active === undefined ? {} : { active }),
  };
}

/** @throws AppError `invalid_body` */
function typeOf(caller: Caller, text: string | undefined) {
  const types = tokenTypesFor(caller);
  const type = types.find((name) => name === (text ?? 'workspace'));
  if (type === undefined) throw new AppError('invalid_body', `token_type must be one of ${types.join(', ')}`);
  return type;
}

const tokenRecord = (row: IssuedToken['row'], key: string): TokenRecord => ({
  id: row.id,
  external_id: row.id,
  name: row.name,
  key,
  token_type: row.type,
  active: row.active,
  reusable: row.reusable,
  scopes: [...row.scopes],
  app_id: row.appId,
  expires_at: timestampOf(row.expiresAtMs),
  last_used_at: timestampOf(row.lastUsedAtMs),
  created_at: timestampOf(row.createdAtMs),
  updated_at: timestampOf(row.updatedAtMs),
});
