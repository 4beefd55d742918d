import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Flag, Text } from './fields.ts';

export const AuthorizeRequest = Type.Object({});
export type AuthorizeRequest = Static<typeof AuthorizeRequest>;

export const AuthorizeResponse = Type.Object({
  ok: Flag(),
  workspaceId: Text(),
  newToken: Text({ description: 'Not empty only in the answer that makes the first workspace: keep it.' }),
  errorMsg: Text(),
});
export type AuthorizeResponse = Static<typeof AuthorizeResponse>;
