import { Type } from 'typebox';
import type { Static } from 'typebox';
import { TOKEN_SCOPES } from '#shared/domain/token-scopes.ts';
import { nullable } from '../fields.ts';
import { Id, OneOf, Time, listOf } from './lists.ts';

const Scopes = () =>
  Type.Array(OneOf(TOKEN_SCOPES), {
    description:
      'invoke: invokes deployments and reads the tasks that it put; read: reads; both add up; none: all that the type may do',
  });

export const TokenRecord = Type.Object({
  id: Id(),
  external_id: Id(),
  name: Type.String(),
  key: Type.String({ description: 'in clear only in the answer that makes it; else masked' }),
  token_type: Type.String(),
  active: Type.Boolean(),
  reusable: Type.Boolean(),
  scopes: Scopes(),
  app_id: nullable(Type.String({ description: 'the only app for which it counts' })),
  expires_at: nullable(Time()),
  last_used_at: nullable(Time()),
  created_at: Time(),
  updated_at: Time(),
});
export type TokenRecord = Static<typeof TokenRecord>;

export const TokenList = listOf(TokenRecord);

const chosen = {
  name: Type.Optional(Type.String({ maxLength: 100 })),
  expires_at: Type.Optional(nullable(Type.String({ format: 'date-time', description: 'null: never' }))),
  scopes: Type.Optional(Scopes()),
  app_id: Type.Optional(nullable(Type.String({ description: 'null: any app' }))),
};

export const CreateToken = Type.Object({
  ...chosen,
  token_type: Type.Optional(Type.String({ description: 'workspace (default) or workspace_restricted' })),
  reusable: Type.Optional(Type.Boolean({ description: 'false: it counts once' })),
});
export type CreateToken = Static<typeof CreateToken>;

/** Fields that a PATCH changes. Absent ones stay. */
export const ChangeToken = Type.Object({ ...chosen, active: Type.Optional(Type.Boolean()) });
export type ChangeToken = Static<typeof ChangeToken>;
