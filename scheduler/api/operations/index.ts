// The list of operations, one entry each; HTTP and gRPC bind the same list.
import type { ExplainedGrowth } from '#shared/api/explain.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Builds } from '../../fleet/builds/builds.ts';
import type { ContainerActions } from '../../fleet/containers/actions.ts';
import type { ContainerReads } from '../../fleet/containers/container-view.ts';
import type { Deployments } from '../../workspaces/deployments/deployments.ts';
import type { Directory } from '../../workspaces/deployments/directory.ts';
import type { Stubs } from '../../workspaces/deployments/stubs.ts';
import type { UrlSettings } from '../../workspaces/deployments/urls.ts';
import type { Volumes } from '../../workspaces/deployments/volumes.ts';
import type { MachineService } from '../../fleet/machine-service.ts';
import type { EnrolmentService } from '../../fleet/enrolment.ts';
import type { PoolService } from '../../fleet/pools.ts';
import type { WorkerService } from '../../fleet/worker-service.ts';
import type { TokenAdmin } from '../../workspaces/identity/token-admin.ts';
import type { Objects } from '../../stores/objects/service.ts';
import type { TaskActions } from '../../tasks/actions.ts';
import type { TaskReads } from '../../tasks/records/reads.ts';
import type { Usage } from '../../fleet/usage.ts';
import { authorize, signPayload } from './auth.ts';
import type { Bootstrap, SigningKeyReader } from './auth.ts';
import { checkpointContainer, listContainers, stopContainer } from './containers.ts';
import { deleteDeployment, listDeployments, scaleDeployment, startDeployment, stopDeployment } from './deployments.ts';
import { createEnrolmentToken, listEnrolmentTokens, revokeEnrolmentToken } from './enrolment-tokens.ts';
import { createMachine, deleteMachine, labelMachine, listMachines } from './machines.ts';
import type { AgentUpstream } from './machines.ts';
import { buildImage, verifyImageBuild } from './images.ts';
import { createObject, headObject } from './objects.ts';
import type { Operation } from './operation.ts';
import { createPod } from './create-pod.ts';
import type { CreatePodParts } from './create-pod.ts';
import { podOperations } from './pods.ts';
import type { PodOperationParts } from './pods.ts';
import { changePool, createPool, deletePool, getPool, listPools } from './pools.ts';
import { endServe, startServe } from './serves.ts';
import type { ServeParts } from './serves.ts';
import { checkStub, deployStub, getOrCreateStub, getUrl } from './stubs.ts';
import { endTask, listTasks, startTask, stopTasks } from './tasks.ts';
import { changeMachineGpu, listMachineGpus } from './machine-gpus.ts';
import type { GpuChanges } from './machine-gpus.ts';
import { createToken, deleteToken, listTokens, toggleToken } from './tokens.ts';
import { getOrCreateVolume } from './volumes.ts';
import { cordonWorker, drainWorker, listWorkers, uncordonWorker } from './workers.ts';
import { exportWorkspaceConfig } from './workspace.ts';
import type { GrpcPlace } from './workspace.ts';

export interface OperationParts extends Omit<CreatePodParts, 'stubs'>, PodOperationParts {
  readonly serves: ServeParts['leases'];
  readonly servedContainers: ServeParts['containers'];
  readonly began: ServeParts['began'];
  readonly bootstrap: Bootstrap;
  readonly objects: Pick<Objects, 'head' | 'create'>;
  readonly stubs: Stubs;
  readonly deployments: Deployments;
  readonly urls: UrlSettings;
  readonly machines: MachineService;
  readonly enrolment: EnrolmentService;
  readonly agentUpstream: AgentUpstream;
  readonly tasks: Pick<TaskReads, 'list'>;
  readonly taskActions: Pick<TaskActions, 'startTask' | 'endTask' | 'stopTasks'>;
  readonly containers: Pick<ContainerReads, 'list'>;
  readonly usage: Pick<Usage, 'of'>;
  readonly containerActions: Pick<ContainerActions, 'stopContainer'>;
  readonly workers: WorkerService;
  readonly gpuChanges: GpuChanges;
  readonly pools: PoolService;
  /** Growth of a pool, as the leader explains it; null: the leader does not answer. */
  readonly growthOf: (poolId: number, isAdmin: boolean) => Promise<ExplainedGrowth | null>;
  readonly tokenAdmin: Pick<TokenAdmin, 'list' | 'create' | 'toggle' | 'remove'>;
  readonly volumes: Pick<Volumes, 'getOrCreate' | 'among'>;
  readonly builds: Pick<Builds, 'verify' | 'build'>;
  readonly signingKeyOf: SigningKeyReader;
  /** Where published clients speak gRPC; null: nowhere. */
  readonly grpcPlace: () => GrpcPlace | null;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly directory: Directory;
  readonly log: Log;
}

export function allOperations(parts: OperationParts): readonly Operation[] {
  return [
    authorize(parts.bootstrap),
    signPayload(parts.signingKeyOf, parts.clock),
    headObject(parts.objects),
    createObject(parts.objects),
    getOrCreateVolume(parts.volumes, parts.directory),
    getOrCreateStub(parts.stubs),
    checkStub(parts.stubs),
    deployStub(parts.deployments, parts.urls, parts.log),
    getUrl(parts.stubs, parts.deployments, parts.urls),
    startServe({ stubs: parts.stubs, leases: parts.serves, containers: parts.servedContainers, began: parts.began }),
    endServe({ stubs: parts.stubs, leases: parts.serves }),
    listDeployments(parts.deployments, parts.directory, parts.urls),
    stopDeployment(parts.deployments),
    startDeployment(parts.deployments),
    scaleDeployment(parts.deployments),
    deleteDeployment(parts.deployments),
    listTasks(parts.tasks, parts.directory),
    startTask(parts.taskActions),
    endTask(parts.taskActions),
    stopTasks(parts.taskActions),
    listContainers(parts.containers, parts.usage, parts.directory),
    stopContainer(parts.containerActions),
    checkpointContainer(),
    createMachine(parts.machines, parts.agentUpstream),
    listMachines(parts.machines, parts.workers),
    labelMachine(parts.workers),
    deleteMachine(parts.workers),
    listMachineGpus(parts.workers),
    changeMachineGpu(parts.workers, parts.gpuChanges),
    createEnrolmentToken(parts.enrolment, parts.agentUpstream),
    listEnrolmentTokens(parts.enrolment),
    revokeEnrolmentToken(parts.enrolment),
    listWorkers(parts.workers),
    cordonWorker(parts.workers),
    uncordonWorker(parts.workers),
    drainWorker(parts.workers),
    listPools(parts.workers),
    createPool(parts.pools, parts.workers),
    getPool(parts.workers, parts.growthOf),
    changePool(parts.pools, parts.workers),
    deletePool(parts.pools),
    listTokens(parts.tokenAdmin),
    createToken(parts.tokenAdmin),
    toggleToken(parts.tokenAdmin),
    deleteToken(parts.tokenAdmin),
    exportWorkspaceConfig(parts.grpcPlace),
    verifyImageBuild(parts.builds),
    buildImage(parts.builds),
    createPod(parts),
    ...podOperations(parts),
  ];
}
