import { Type } from 'typebox';
import type { Static } from 'typebox';
import { nullable } from '../fields.ts';
import { Id, OneOf, Time, listOf } from './lists.ts';
import { TokenRecord } from './tokens.ts';

const { id, name, token_type, scopes, app_id, expires_at } = TokenRecord.properties;

export const SessionRecord = Type.Object({
  token: Type.Object({ id, name, token_type, scopes, app_id, expires_at }),
  workspace: Type.Object({ id: Id(), name: Type.String() }),
  is_admin: Type.Boolean({ description: 'true: GET /workspace lists all workspaces, and each may be named' }),
  via: OneOf(['token', 'console']),
  rights: Type.Array(Type.String(), { description: 'routes that the token may call, such as `GET /task/{ws}`' }),
  version: Type.String({ description: 'of the scheduler' }),
  domains: Type.Object({
    external_url: nullable(Type.String()),
    invoke_domain: nullable(Type.String()),
    console_url: nullable(Type.String({ description: 'null: the console is switched off' })),
    api_url: nullable(
      Type.String({ description: 'where everything else is. null: at the address of the console, too' }),
    ),
  }),
});
export type SessionRecord = Static<typeof SessionRecord>;

export const ConsoleLink = Type.Object({
  url: Type.String({ description: 'opens the web console once' }),
  expires_at: Time(),
});
export type ConsoleLink = Static<typeof ConsoleLink>;

/** Begins a session of the web console: by the code of a link, or by a token. */
export const BeginSession = Type.Object({
  code: Type.Optional(Type.String({ maxLength: 64 })),
  token: Type.Optional(Type.String({ maxLength: 4096 })),
});
export type BeginSession = Static<typeof BeginSession>;

export const ConsoleSession = Type.Object({
  id: Id(),
  created_at: Time(),
  expires_at: Time(),
  ends_at: Time(),
  address: Type.String({ description: 'where it was begun from' }),
  is_clear: Type.Boolean({ description: 'true: this connection is not encrypted, and leaves the machine' }),
});
export type ConsoleSession = Static<typeof ConsoleSession>;

/** A browser that is signed in to the web console. */
export const ListedSession = Type.Object({
  id: Id(),
  token_id: Id(),
  token_name: Type.String(),
  address: Type.String({ description: 'where it was begun from' }),
  created_at: Time(),
  used_at: Time(),
  expires_at: Time(),
  ends_at: Time(),
  current: Type.Boolean({ description: 'true: the session that asks' }),
});
export type ListedSession = Static<typeof ListedSession>;

export const SessionList = listOf(ListedSession);

export const BegunSession = Type.Object({
  ...ConsoleSession.properties,
  key: Type.String({ description: 'to send as X-Longshore-Console beside the cookie' }),
});
export type BegunSession = Static<typeof BegunSession>;
