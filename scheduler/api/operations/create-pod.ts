import { CreatePodRequest, CreatePodResponse } from '#shared/api/pods.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { HandMadeContainers } from '../../fleet/containers/hand-made.ts';
import { isMadeByHand } from '../../workspaces/deployments/kinds.ts';
import type { Stubs } from '../../workspaces/deployments/stubs.ts';
import type { Targets } from '../../workspaces/deployments/targets.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export interface CreatePodParts {
  readonly stubs: Pick<Stubs, 'find'>;
  readonly targets: Pick<Targets, 'byQueue'>;
  readonly handMade: Pick<HandMadeContainers, 'create'>;
  /** Why no machine can ever serve the target; undefined: one may. */
  readonly refusalOf: (target: Target) => string | undefined;
}

/**
 * Makes a container of a pod or sandbox. The answer comes once it is recorded, before it runs. Clients give up at
 * any status but 200: a published one first sends an empty request, and goes on when that is refused.
 */
export function createPod({ stubs, targets, handMade, refusalOf }: CreatePodParts): Operation {
  return operation({
    name: 'CreatePod',
    http: 'POST /pods',
    scope: 'full',
    request: CreatePodRequest,
    response: CreatePodResponse,
    handle: async (caller, { stubId, checkpointId }) => {
      if (checkpointId !== '') return refused('checkpoints are not available in this version: send stubId');
      if (stubId === '') return refused('stubId is missing: make a stub of type sandbox, pod or pod/run first');
      const stub = await stubs.find(caller, stubId);
      if (stub === undefined)
        return refused(`stubId ${JSON.stringify(stubId.slice(0, 60))} is not a stub of this workspace`);
      if (!isMadeByHand(stub.type))
        return refused(
          `a stub of type ${stub.type} has no containers of this kind: make one of type sandbox, pod or pod/run`,
        );
      const target = await targets.byQueue(queueNameOf(null, stub.id));
      if (target === undefined) return refused('the stub is gone');
      const refusal = refusalOf(target);
      if (refusal !== undefined) return refused(refusal);
      const made = await handMade.create(target);
      if (made.kind === 'full')
        return refused(
          `this workspace has the ${made.most} sandboxes and pods that its limit counts.sandboxes allows: end some, or have an administrator raise it (\`longshore workspace limits\`)`,
        );
      return { ok: true, errorMsg: '', containerId: made.containerId, stubId: stub.id };
    },
  });
}

const refused = (errorMsg: string) => ({ ok: false, errorMsg, containerId: '', stubId: '' });
