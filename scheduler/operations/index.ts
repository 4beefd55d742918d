// The list of operations: one entry each, and every door (HTTP now) binds the same list.
import type { Log } from '#shared/log.ts';
import type { ContainerReads } from '../containers/container-view.ts';
import type { Deployments } from '../deployments/deployments.ts';
import type { Directory } from '../deployments/directory.ts';
import type { Stubs } from '../deployments/stubs.ts';
import type { UrlSettings } from '../deployments/urls.ts';
import type { MachineService } from '../fleet/machine-service.ts';
import type { Objects } from '../objects/service.ts';
import type { TaskService } from '../tasks/task-service.ts';
import { authorize } from './auth.ts';
import type { Bootstrap } from './auth.ts';
import { listContainers } from './containers.ts';
import { listDeployments } from './deployments.ts';
import { createMachine, listMachines } from './machines.ts';
import type { AgentUpstream } from './machines.ts';
import { createObject, headObject } from './objects.ts';
import type { Operation } from './operation.ts';
import { deployStub, getOrCreateStub, getUrl } from './stubs.ts';
import { listTasks } from './tasks.ts';

export interface OperationParts {
  readonly bootstrap: Bootstrap;
  readonly objects: Pick<Objects, 'head' | 'create'>;
  readonly stubs: Stubs;
  readonly deployments: Deployments;
  readonly urls: UrlSettings;
  readonly machines: MachineService;
  readonly agentUpstream: AgentUpstream;
  readonly tasks: Pick<TaskService, 'list'>;
  readonly containers: Pick<ContainerReads, 'list'>;
  readonly directory: Directory;
  readonly log: Log;
}

export function allOperations(parts: OperationParts): readonly Operation[] {
  return [
    authorize(parts.bootstrap),
    headObject(parts.objects),
    createObject(parts.objects),
    getOrCreateStub(parts.stubs),
    deployStub(parts.deployments, parts.urls, parts.log),
    getUrl(parts.stubs, parts.deployments, parts.urls),
    listDeployments(parts.deployments, parts.directory),
    listTasks(parts.tasks, parts.directory),
    listContainers(parts.containers),
    createMachine(parts.machines, parts.agentUpstream),
    listMachines(parts.machines),
  ];
}
