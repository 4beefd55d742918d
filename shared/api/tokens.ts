import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Flag, Text, Timestamp, Uint32, nullable } from './fields.ts';

export const Token = Type.Object({
  tokenId: Text(),
  key: Text({ description: 'in clear only in the answer that makes it; else masked' }),
  active: Flag(),
  reusable: Flag(),
  workspaceId: Uint32({ description: "the workspace's internal number" }),
  tokenType: Text(),
  createdAt: Timestamp(),
  updatedAt: Timestamp(),
});
export type Token = Static<typeof Token>;

export const ListTokensRequest = Type.Object({});
export type ListTokensRequest = Static<typeof ListTokensRequest>;

export const ListTokensResponse = Type.Object({ ok: Flag(), errMsg: Text(), tokens: Type.Array(Token) });
export type ListTokensResponse = Static<typeof ListTokensResponse>;

export const CreateTokenRequest = Type.Object({
  tokenType: Text({ description: 'workspace (default) or workspace_restricted' }),
  reusable: Type.Optional(Flag({ description: 'false: it counts once' })),
});
export type CreateTokenRequest = Static<typeof CreateTokenRequest>;

/** The request of ToggleToken and DeleteToken. */
export const OneTokenRequest = Type.Object({ tokenId: Text() });
export type OneTokenRequest = Static<typeof OneTokenRequest>;

export const TokenResponse = Type.Object({ ok: Flag(), errMsg: Text(), token: nullable(Token) });
export type TokenResponse = Static<typeof TokenResponse>;
