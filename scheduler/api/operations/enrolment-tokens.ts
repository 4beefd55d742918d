// Enrolment tokens over the gateway: of the shared pools for the administrator, of its own pools for a workspace.
import {
  CreateEnrolmentTokenRequest,
  CreateEnrolmentTokenResponse,
  ENROLMENT_LIMITS,
  EnrolmentTokenResponse,
  ListEnrolmentTokensRequest,
  ListEnrolmentTokensResponse,
  RevokeEnrolmentTokenRequest,
} from '#shared/api/enrolment-tokens.ts';
import type { EnrolmentToken } from '#shared/api/enrolment-tokens.ts';
import { timestampOf } from '#shared/api/fields.ts';
import { MOST_ENROLMENT_TOKENS } from '../../fleet/enrolment.ts';
import type { EnrolmentService, EnrolmentToken as Token } from '../../fleet/enrolment.ts';
import { poolNameProblem } from '../../domain/pools.ts';
import { actorOf } from '../../workspaces/events/audit.ts';
import { ownerOf, upstreamUrl } from './machines.ts';
import type { AgentUpstream } from './machines.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

const { defaultMachines, mostMachines, defaultSeconds, leastSeconds, mostSeconds } = ENROLMENT_LIMITS;

export function createEnrolmentToken(enrolment: Pick<EnrolmentService, 'create'>, upstream: AgentUpstream): Operation {
  return operation({
    name: 'CreateEnrolmentToken',
    http: 'POST /enrolment-tokens',
    scope: 'full',
    request: CreateEnrolmentTokenRequest,
    response: CreateEnrolmentTokenResponse,
    handle: async (caller, request, origin) => {
      const asked = {
        name: request.name,
        poolName: request.poolName === '' ? 'default' : request.poolName,
        maxMachines: request.maxMachines === 0 ? defaultMachines : request.maxMachines,
        lifetimeMs: (request.expiresInSeconds === 0 ? defaultSeconds : request.expiresInSeconds) * 1000,
      };
      const problem = problemOf(asked);
      if (problem !== undefined) return refused(problem);
      const outcome = await enrolment.create(ownerOf(caller), asked, actorOf(caller, origin.from));
      switch (outcome.kind) {
        case 'created':
          return {
            ok: true,
            errMsg: '',
            token: tokenRecord(outcome.token),
            secret: outcome.secret,
            agentUpstreamUrl: upstreamUrl(upstream.url(origin), origin, upstream.hostAddress()),
            agentUpstreamBranch: upstream.branch,
          };
        case 'no_pool':
          return refused(
            `poolName: there is no pool ${asked.poolName} of yours: \`longshore pool create ${asked.poolName}\` makes it`,
          );
        case 'name_taken':
          return refused(`name: an active enrolment token is named ${asked.name} already`);
        case 'too_many':
          return refused(`there are ${MOST_ENROLMENT_TOKENS} active enrolment tokens already: revoke one first`);
      }
    },
  });
}

function problemOf(asked: Parameters<EnrolmentService['create']>[1]): string | undefined {
  const named = poolNameProblem('name', asked.name) ?? poolNameProblem('poolName', asked.poolName);
  if (named !== undefined) return named;
  if (asked.maxMachines > mostMachines) return `maxMachines must be from 1 to ${mostMachines}`;
  const seconds = asked.lifetimeMs / 1000;
  return seconds < leastSeconds || seconds > mostSeconds
    ? `expiresInSeconds must be from ${leastSeconds} to ${mostSeconds} (365 days)`
    : undefined;
}

const refused = (errMsg: string): CreateEnrolmentTokenResponse => ({
  ok: false,
  errMsg,
  token: null,
  secret: '',
  agentUpstreamUrl: '',
  agentUpstreamBranch: '',
});

export function listEnrolmentTokens(enrolment: Pick<EnrolmentService, 'list'>): Operation {
  return operation({
    name: 'ListEnrolmentTokens',
    http: 'GET /enrolment-tokens',
    scope: 'full',
    grants: { scopes: ['read'] },
    request: ListEnrolmentTokensRequest,
    response: ListEnrolmentTokensResponse,
    handle: async (caller) => {
      const tokens = await enrolment.list(ownerOf(caller));
      return { ok: true, errMsg: '', tokens: tokens.map(tokenRecord) };
    },
  });
}

/** Revokes a token; one that is revoked already counts as revoked. */
export function revokeEnrolmentToken(enrolment: Pick<EnrolmentService, 'revoke'>): Operation {
  return operation({
    name: 'RevokeEnrolmentToken',
    http: 'DELETE /enrolment-tokens/{tokenId}',
    scope: 'full',
    request: RevokeEnrolmentTokenRequest,
    response: EnrolmentTokenResponse,
    handle: async (caller, { tokenId }, { from }) => {
      const token = await enrolment.revoke(ownerOf(caller), tokenId, actorOf(caller, from));
      return token === undefined
        ? { ok: false, errMsg: 'enrolment token not found', token: null }
        : { ok: true, errMsg: '', token: tokenRecord(token) };
    },
  });
}

const tokenRecord = (token: Token): EnrolmentToken => ({
  id: token.id,
  name: token.name,
  poolName: token.poolName,
  state: token.state,
  maxMachines: token.maxMachines,
  machines: token.machines,
  joined: token.joined,
  expiresAt: timestampOf(token.expiresAtMs),
  revokedAt: timestampOf(token.revokedAtMs),
  lastUsedAt: timestampOf(token.lastUsedAtMs),
  createdAt: timestampOf(token.createdAtMs),
  createdBy: token.createdBy,
});
