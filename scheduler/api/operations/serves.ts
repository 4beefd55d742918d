// Development servers: StartServe begins or renews one, EndServe ends it.
import { EndServeRequest, EndServeResponse, StartServeRequest, StartServeResponse } from '#shared/api/stubs.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { StubId } from '#shared/domain/ids.ts';
import { SERVED_KINDS, isLiveContainer, isServe } from '#shared/domain/status.ts';
import type { ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import type { StubRow } from '../../stores/store/queries/stubs.ts';
import {
  LEAST_LEASE_SECONDS,
  MOST_LEASE_SECONDS,
  SERVE_LEASE_SECONDS,
} from '../../workspaces/deployments/serve-leases.ts';
import type { ServeLeases } from '../../workspaces/deployments/serve-leases.ts';
import type { Stubs } from '../../workspaces/deployments/stubs.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export interface ServeParts {
  readonly stubs: Pick<Stubs, 'find'>;
  readonly leases: Pick<ServeLeases, 'end' | 'renew'>;
  readonly containers: Pick<ContainerRegistry, 'ofQueue'>;
  /** Tells that one began. */
  readonly began: (stub: StubRow) => Promise<void>;
}

export function startServe(parts: ServeParts): Operation {
  return operation({
    name: 'StartServe',
    http: 'POST /stubs/{stubId}/serve',
    scope: 'full',
    request: StartServeRequest,
    response: StartServeResponse,
    handle: (caller, request) => beginServe(parts, caller, request),
  });
}

/** Begins a development server, or renews its lease. */
export async function beginServe(
  parts: ServeParts,
  caller: Caller,
  { stubId, timeout }: StartServeRequest,
): Promise<StartServeResponse> {
  const { stubs, leases, began } = parts;
  const refused = (errMsg: string) => ({ ok: false, errMsg, containerId: '', state: '', leaseSeconds: 0 });
  const stub = await stubs.find(caller, stubId);
  if (stub === undefined) return refused('stub not found');
  if (!isServe(stub.type)) return refused(notServed(stub.type));
  const seconds = timeout === 0 ? SERVE_LEASE_SECONDS : timeout;
  if (seconds < LEAST_LEASE_SECONDS || seconds > MOST_LEASE_SECONDS)
    return refused(`timeout must be from ${LEAST_LEASE_SECONDS} to ${MOST_LEASE_SECONDS} seconds, or 0`);
  const renewed = await leases.renew(caller.workspaceId, stub.id, seconds);
  if (renewed.kind === 'full')
    return refused(`this workspace has its ${renewed.most} development servers: end one of them first`);
  if (renewed.kind === 'began') await began(stub);
  const live = servedContainer(parts, stub.id);
  return { ok: true, errMsg: '', containerId: live?.id ?? '', state: live?.state ?? '', leaseSeconds: seconds };
}

/** The newest live container of a development server. */
export const servedContainer = (
  { containers }: Pick<ServeParts, 'containers'>,
  stubId: string,
): ContainerRow | undefined =>
  [...containers.ofQueue(queueNameOf(null, stubId.toLowerCase() as StubId))]
    .map(({ row }) => row)
    .filter(({ state }) => isLiveContainer(state))
    .toSorted((a, b) => b.createdAtMs - a.createdAtMs)[0];

export function endServe({ stubs, leases }: Pick<ServeParts, 'leases' | 'stubs'>): Operation {
  return operation({
    name: 'EndServe',
    http: 'DELETE /stubs/{stubId}/serve',
    scope: 'full',
    request: EndServeRequest,
    response: EndServeResponse,
    handle: async (caller, { stubId }) => {
      const stub = await stubs.find(caller, stubId);
      if (stub === undefined) return { ok: false, errMsg: 'stub not found' };
      if (!isServe(stub.type)) return { ok: false, errMsg: notServed(stub.type) };
      await leases.end(caller.workspaceId, stub.id);
      return { ok: true, errMsg: '' };
    },
  });
}

const notServed = (type: string): string =>
  `a development server serves stubs of type ${SERVED_KINDS.map((kind) => `${kind}/serve`).join(', ')}, not ${type}`;
