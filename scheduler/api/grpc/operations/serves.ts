// Development servers of published clients, which attach to the container that the answer names.
import { setTimeout as sleep } from 'node:timers/promises';
import { StartClientServeRequest, StartClientServeResponse } from '#shared/api/calls.ts';
import { beginServe, servedContainer } from '../../operations/serves.ts';
import type { ServeParts } from '../../operations/serves.ts';
import { unrouted } from '../../operations/operation.ts';
import type { UnroutedOperation } from '../../operations/operation.ts';
import { LEAST_LEASE_SECONDS, MOST_LEASE_SECONDS } from '../../../workspaces/deployments/serve-leases.ts';

const CONTAINER_WITHIN_MS = 60_000;
const LOOK_MS = 100;

export function startClientServe(parts: ServeParts): UnroutedOperation {
  return unrouted({
    name: 'StartClientServe',
    scope: 'full',
    withinMs: CONTAINER_WITHIN_MS + 10_000,
    request: StartClientServeRequest,
    response: StartClientServeResponse,
    handle: async (caller, { stubId, timeout }) => {
      const seconds = timeout <= 0 ? 0 : Math.min(Math.max(timeout, LEAST_LEASE_SECONDS), MOST_LEASE_SECONDS);
      const begun = await beginServe(parts, caller, { stubId, timeout: seconds });
      if (!begun.ok) return { ok: false, errorMsg: begun.errMsg, containerId: '' };
      for (let waitedMs = 0; waitedMs < CONTAINER_WITHIN_MS; waitedMs += LOOK_MS) {
        const container = servedContainer(parts, stubId);
        if (container !== undefined) return { ok: true, errorMsg: '', containerId: container.id };
        await sleep(LOOK_MS);
      }
      const errorMsg = `no container was made within ${CONTAINER_WITHIN_MS / 1000} s: ask \`longshore explain ${stubId}\` why`;
      return { ok: false, errorMsg, containerId: '' };
    },
  });
}
