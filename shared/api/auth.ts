import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Bytes, Flag, Int64, Text } from './fields.ts';

export const AuthorizeRequest = Type.Object({});
export type AuthorizeRequest = Static<typeof AuthorizeRequest>;

export const AuthorizeResponse = Type.Object({
  ok: Flag(),
  workspaceId: Text(),
  newToken: Text({ description: 'Not empty only in the answer that makes the first workspace: keep it.' }),
  errorMsg: Text(),
});
export type AuthorizeResponse = Static<typeof AuthorizeResponse>;

export const SignPayloadRequest = Type.Object({ payload: Bytes() });
export type SignPayloadRequest = Static<typeof SignPayloadRequest>;

export const SignPayloadResponse = Type.Object({
  ok: Flag(),
  signature: Text({ description: 'lower-case hex of an HMAC-SHA256' }),
  timestamp: Int64({ description: 'unix seconds' }),
  errorMsg: Text(),
});
export type SignPayloadResponse = Static<typeof SignPayloadResponse>;
