// Enrolment tokens: many hosts join a pool by one.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Flag, Text, Timestamp, Uint32, nullable } from './fields.ts';

/** Bounds of what a token may be asked to be. */
export const ENROLMENT_LIMITS = {
  defaultMachines: 50,
  mostMachines: 10_000,
  defaultSeconds: 30 * 86_400,
  leastSeconds: 60,
  mostSeconds: 365 * 86_400,
} as const;

export const EnrolmentToken = Type.Object({
  id: Text(),
  name: Text(),
  poolName: Text(),
  state: Text({ description: 'active, revoked or expired' }),
  maxMachines: Uint32({ description: 'machines that there may be by it at once' }),
  machines: Uint32({ description: 'machines that there are by it; deleted ones do not count' }),
  joined: Uint32({ description: 'machines that ever joined by it' }),
  expiresAt: Timestamp(),
  revokedAt: Timestamp(),
  lastUsedAt: Timestamp(),
  createdAt: Timestamp(),
  createdBy: Text({ description: 'name or id of the token that made it' }),
});
export type EnrolmentToken = Static<typeof EnrolmentToken>;

export const CreateEnrolmentTokenRequest = Type.Object({
  name: Text({ description: 'a name that no active token of the owner has' }),
  poolName: Text({ description: 'the pool that hosts join; it exists' }),
  maxMachines: Uint32({ description: 'from 1 to 10000; 0: 50' }),
  expiresInSeconds: Uint32({ description: 'from a minute to 365 days; 0: 30 days' }),
});
export type CreateEnrolmentTokenRequest = Static<typeof CreateEnrolmentTokenRequest>;

export const CreateEnrolmentTokenResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  token: nullable(EnrolmentToken),
  secret: Text({ description: 'the token itself, `lse1.…`, this once' }),
  agentUpstreamUrl: Text(),
  agentUpstreamBranch: Text(),
});
export type CreateEnrolmentTokenResponse = Static<typeof CreateEnrolmentTokenResponse>;

export const ListEnrolmentTokensRequest = Type.Object({});
export const ListEnrolmentTokensResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  tokens: Type.Array(EnrolmentToken),
});
export type ListEnrolmentTokensResponse = Static<typeof ListEnrolmentTokensResponse>;

export const RevokeEnrolmentTokenRequest = Type.Object({
  tokenId: Text({ description: 'id, or name of an active token' }),
});
export const EnrolmentTokenResponse = Type.Object({ ok: Flag(), errMsg: Text(), token: nullable(EnrolmentToken) });
export type EnrolmentTokenResponse = Static<typeof EnrolmentTokenResponse>;
