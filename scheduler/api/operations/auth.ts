import { timingSafeEqual } from 'node:crypto';
import { AuthorizeRequest, AuthorizeResponse, SignPayloadRequest, SignPayloadResponse } from '#shared/api/auth.ts';
import type { Clock } from '#shared/clock.ts';
import { sha256Hex } from '#shared/domain/ids.ts';
import type { FirstWorkspace } from '../../workspaces/identity/bootstrap.ts';
import { signatureOf } from '../../workspaces/identity/signatures.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export interface Bootstrap {
  /** Makes the first workspace, once; `exists` from then on. */
  readonly ensureFirstWorkspace: () => Promise<FirstWorkspace>;
  /** `LONGSHORE_BOOTSTRAP_TOKEN`: required from callers on other hosts. */
  readonly token: string | null;
}

/**
 * Tells a client whose token it holds. On a fresh installation the operation makes
 * the first workspace for a caller on this host, or one with the bootstrap token.
 */
export function authorize(bootstrap: Bootstrap): Operation {
  return operation({
    name: 'Authorize',
    http: 'POST /auth/authorize',
    scope: 'open',
    containers: true,
    grants: { scopes: ['invoke', 'read'], confinesToApp: true },
    request: AuthorizeRequest,
    response: AuthorizeResponse,
    handle: async (caller, _request, origin) => {
      if (caller !== null) return { ok: true, workspaceId: caller.workspaceId, newToken: '', errorMsg: '' };
      const refused = { ok: false, workspaceId: '', newToken: '', errorMsg: 'Invalid token' };
      const mayBootstrap = origin.loopback || isSame(origin.bearer, bootstrap.token);
      if (!mayBootstrap) return refused;
      const first = await bootstrap.ensureFirstWorkspace();
      if (first.kind === 'exists') return refused;
      return { ok: true, workspaceId: first.workspaceId, newToken: first.token, errorMsg: '' };
    },
  });
}

/** Compares in constant time. */
function isSame(presented: string | null, expected: string | null): boolean {
  if (presented === null || expected === null || expected === '') return false;
  return timingSafeEqual(Buffer.from(sha256Hex(presented)), Buffer.from(sha256Hex(expected)));
}

/** Gives a workspace's signing key; undefined when the workspace is gone. */
export type SigningKeyReader = (workspaceId: string) => Promise<string | undefined>;

/** Signs a payload in the same way as task callbacks, so that a receiver can verify it. */
export function signPayload(signingKeyOf: SigningKeyReader, clock: Pick<Clock, 'nowMs'>): Operation {
  return operation({
    name: 'SignPayload',
    http: 'POST /auth/sign',
    scope: 'any',
    containers: true,
    // A signature by the workspace's key is for a program, and a page has no use of one.
    byTokenOnly: true,
    request: SignPayloadRequest,
    response: SignPayloadResponse,
    handle: async (caller, { payload }) => {
      const key = await signingKeyOf(caller.workspaceId);
      if (key === undefined) return { ok: false, signature: '', timestamp: 0, errorMsg: 'Invalid signing key' };
      const timestamp = Math.floor(clock.nowMs() / 1000);
      return { ok: true, signature: signatureOf(key, payload, timestamp), timestamp, errorMsg: '' };
    },
  });
}
