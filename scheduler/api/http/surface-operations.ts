// The gateway's operations, made from the services of the surfaces. Every transport serves this list.
import { portsOf } from '../../fleet/inside/access.ts';
import type { Deployments } from '../../workspaces/deployments/deployments.ts';
import type { Stubs } from '../../workspaces/deployments/stubs.ts';
import { containerUrl } from '../../workspaces/deployments/urls.ts';
import type { UrlSettings } from '../../workspaces/deployments/urls.ts';
import type { Volumes } from '../../workspaces/deployments/volumes.ts';
import { allOperations } from '../operations/index.ts';
import type { OperationParts } from '../operations/index.ts';
import type { Operation } from '../operations/operation.ts';
import type { SurfaceParts } from './surface-parts.ts';

interface Made {
  readonly stubs: Stubs;
  readonly deployments: Deployments;
  readonly volumes: Volumes;
  readonly grpcPlace: OperationParts['grpcPlace'];
}

export function surfaceOperations(parts: SurfaceParts, made: Made): readonly Operation[] {
  const { stubs, deployments, volumes, grpcPlace } = made;
  const { directory, log } = parts;
  const urls: UrlSettings = { invokeDomain: parts.settings.invokeDomain };
  return allOperations({
    bootstrap: parts.bootstrap,
    objects: parts.objects,
    stubs,
    deployments,
    urls,
    grpcPlace,
    machines: parts.machines,
    enrolment: parts.enrolment,
    agentUpstream: parts.agentUpstream,
    tasks: parts.tasks,
    taskActions: parts.taskActions,
    containers: parts.containers,
    containerActions: parts.containerActions,
    usage: parts.usage,
    targets: parts.targets,
    handMade: parts.handMade,
    serves: parts.serves,
    servedContainers: parts.containers,
    began: (stub) => stubs.began(stub),
    refusalOf: (target) => parts.feasibility.refusal(target),
    access: parts.access,
    inside: parts.inside,
    used: (containerId) => parts.containerUses.used(containerId),
    setTtl: (containerId, seconds) => parts.containerUses.setTtl(containerId, seconds),
    exposePort: (containerId, port) => parts.handMade.exposePort(containerId, port),
    portsOf: ({ row }) => portsOf(row),
    urlOf: (baseUrl, container, port) => containerUrl(baseUrl, container, port, urls),
    changes: parts.containerChanges,
    gpuChanges: parts.containerChanges,
    keepNetwork: (containerId, network) => parts.handMade.keepNetwork(containerId, network),
    snapshots: parts.snapshots,
    workers: parts.workers,
    pools: parts.pools,
    growthOf: parts.growthOf,
    tokenAdmin: parts.tokenAdmin,
    volumes,
    builds: parts.builds,
    signingKeyOf: async (workspaceId) => {
      const workspace = await directory.workspace(workspaceId);
      return workspace === undefined ? undefined : parts.signingKeyOf(workspace);
    },
    clock: parts.clock,
    directory,
    log,
  });
}
