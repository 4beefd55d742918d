// Development servers: StartServe begins or renews one, EndServe ends it.
import { EndServeRequest, EndServeResponse, StartServeRequest, StartServeResponse } from '#shared/api/stubs.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import { SERVED_KINDS, isLiveContainer, isServe } from '#shared/domain/status.ts';
import type { ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import type { StubRow } from '../../stores/store/queries/stubs.ts';
import {
  LEAST_LEASE_SECONDS,
  MOST_LEASE_SECONDS,
  SERVE_LEASE_SECONDS,
} from '../../workspaces/deployments/serve-leases.ts';
import type { ServeLeases } from '../../workspaces/deployments/serve-leases.ts';
import type { Stubs } from '../../workspaces/deployments/stubs.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export interface ServeParts {
  readonly stubs: Pick<Stubs, 'find'>;
  readonly leases: Pick<ServeLeases, 'end' | 'renew'>;
  readonly containers: Pick<ContainerRegistry, 'ofQueue'>;
  /** Tells that one began. */
  readonly began: (stub: StubRow) => Promise<void>;
}

export function startServe({ stubs, leases, containers, began }: ServeParts): Operation {
  const refused = (errMsg: string) => ({ ok: false, errMsg, containerId: '', state: '', leaseSeconds: 0 });
  return operation({
    name: 'StartServe',
    http: 'POST /stubs/{stubId}/serve',
    scope: 'full',
    request: StartServeRequest,
    response: StartServeResponse,
    handle: async (caller, { stubId, timeout }) => {
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
      const live = [...containers.ofQueue(queueNameOf(null, stub.id))]
        .filter(({ row }) => isLiveContainer(row.state))
        .toSorted((a, b) => b.row.createdAtMs - a.row.createdAtMs)[0];
      return {
        ok: true,
        errMsg: '',
        containerId: live?.row.id ?? '',
        state: live?.row.state ?? '',
        leaseSeconds: seconds,
      };
    },
  });
}

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
