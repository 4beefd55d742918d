// Every HTTP surface of the scheduler, put together: the gateway's operations, the workspace REST API, invoke, uploads,
// and operators' pages. compose/surfaces.ts calls createSurfaces with the services and gets a server to start and stop.
import type { LimitsRecord } from '#shared/api/rest/limits.ts';
import type { VolumeDriverName } from '#shared/domain/volume-drivers.ts';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Clock } from '#shared/clock.ts';
import type { QueueName, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Registry } from '#shared/metrics.ts';
import { Places } from '#shared/places.ts';
import type { ContainerActions } from '../../fleet/containers/actions.ts';
import type { ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import type { ContainerReads } from '../../fleet/containers/container-view.ts';
import type { HandMadeContainers } from '../../fleet/containers/hand-made.ts';
import type { ContainerStreams } from '../../fleet/container-streams.ts';
import type { ContainerUses } from '../../fleet/containers/uses.ts';
import type { ContainerWaits } from '../../fleet/containers/waits.ts';
import type { Snapshots } from '../../fleet/builds/snapshots.ts';
import type { Access } from '../../fleet/inside/access.ts';
import { portsOf } from '../../fleet/inside/access.ts';
import type { ContainerChanges } from '../../fleet/inside/changes.ts';
import type { Inside } from '../../fleet/inside/inside.ts';
import { Deployments } from '../../workspaces/deployments/deployments.ts';
import type { HostLabels } from '../../workspaces/deployments/host-labels.ts';
import type { Directory } from '../../workspaces/deployments/directory.ts';
import type { GpuMachine } from '../../workspaces/deployments/gpu-supply.ts';
import { Stubs } from '../../workspaces/deployments/stubs.ts';
import type { ModelCatalog } from '../../workspaces/models/catalog.ts';
import type { ServeLeases } from '../../workspaces/deployments/serve-leases.ts';
import type { Targets } from '../../workspaces/deployments/targets.ts';
import { containerUrl } from '../../workspaces/deployments/urls.ts';
import { Stacks } from '../../workspaces/deployments/stacks.ts';
import { Volumes } from '../../workspaces/deployments/volumes.ts';
import type { MachineService, MachineView } from '../../fleet/machine-service.ts';
import type { EnrolmentService } from '../../fleet/enrolment.ts';
import type { PoolService } from '../../fleet/pools.ts';
import type { VolumeCalls } from '../../fleet/volume-calls.ts';
import type { CacheVolumes } from '../../fleet/cache-volumes.ts';
import type { VolumeFiles } from '../../fleet/volume-files.ts';
import type { WorkerService } from '../../fleet/worker-service.ts';
import type { SeriesReads } from '../../fleet/series/series-reads.ts';
import type { Usage } from '../../fleet/usage.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import type { KeyRing } from '../../workspaces/identity/key-ring.ts';
import type { InferenceRates } from '../../workspaces/identity/inference-rates.ts';
import type { Rates } from '../../workspaces/identity/rates.ts';
import type { Refusals } from '../../workspaces/identity/refusals.ts';
import type { Tenants } from '../../workspaces/identity/tenants.ts';
import type { WorkspaceDeletion } from '../../workspaces/deletion/deletion.ts';
import type { TokenAdmin } from '../../workspaces/identity/token-admin.ts';
import type { Tokens } from '../../workspaces/identity/tokens.ts';
import type { Limits } from '../../workspaces/identity/workspace-limits.ts';
import type { ImageOrders } from '../../fleet/images/orders.ts';
import type { LogReads } from '../../fleet/logs/log-service.ts';
import type { KeptAnswers } from '../../stores/queues/kept-answers.ts';
import type { Objects } from '../../stores/objects/service.ts';
import { MOST_UPLOAD_BYTES } from '../operations/pods/files.ts';
import { allOperations } from '../operations/index.ts';
import type { OperationParts } from '../operations/index.ts';
import type { Bootstrap } from '../operations/auth.ts';
import type { AgentUpstream } from '../operations/machines.ts';
import type { Packages } from '../ops/packages.ts';
import type { Releases } from '../ops/releases.ts';
import { Readiness } from '../ops/health.ts';
import type { HealthChecks } from '../ops/health.ts';
import { readNamedPool } from '../../control/placement/named-pool-reader.ts';
import type { FeasibilityCheck } from '../../control/placement/feasibility-check.ts';
import type { Secrets } from '../../workspaces/secrets/service.ts';
import { HOST as CONTAINER_HOST } from './container-calls.ts';
import { Outputs } from '../../tasks/outputs/service.ts';
import { codeTrust } from '../../workspaces/deployments/code-trust.ts';
import { SharedState } from '../../workspaces/shared-state/service.ts';
import type { Db } from '../../stores/store/db.ts';
import type { WorkspaceRow } from '../../stores/store/queries/workspaces.ts';
import type { TaskActions } from '../../tasks/actions.ts';
import type { Submissions } from '../../tasks/admission/submissions.ts';
import type { TaskReads } from '../../tasks/records/reads.ts';
import type { Streams } from '../../tasks/streams/streams.ts';
import type { Ending } from '../../domain/endings.ts';
import type { Charging, LastingHolds } from '../../domain/inference.ts';
import type { DeferredCalls } from '../../tasks/deferred-calls/deferred-calls.ts';
import type { DeferredExecutor } from '../../tasks/deferred-calls/executor.ts';
import { boundedAuthenticator, mayTrustLoopback } from './auth.ts';
import type { CertificateWatch } from './certificate.ts';
import { GatewayCalls } from './gateway-calls.ts';
import { BodyBudget } from './body-budget.ts';
import { bindOperations, GATEWAY_BASE, GATEWAY_BODY_LIMIT } from './bind.ts';
import { registerContainers } from './containers/routes.ts';
import { ContainerSockets } from './containers/sockets.ts';
import { openApiDocument } from './description/openapi.ts';
import { registerViewer } from './description/viewer.ts';
import { hostRewriter } from './invoke/host-form.ts';
import { Backends } from './inference/backends.ts';
import { deferredRunner } from './inference/deferred-call.ts';
import type { ExternalServers } from './inference/external.ts';
import { InferenceMetrics } from './inference/metrics.ts';
import { routeEvent } from './inference/route-event.ts';
import type { RoutedCall } from './inference/route-event.ts';
import { registerInference } from './inference/routes.ts';
import { ANSWER_RULES } from './inference/whole-answer.ts';
import { registerInvoke } from './invoke/invoke.ts';
import { registerDiscovery } from './ops/discovery.ts';
import type { DiscoveryParts } from './ops/discovery.ts';
import { registerHealth } from './ops/health-page.ts';
import { registerInstall } from './ops/install.ts';
import { registerMetrics } from './ops/metrics-page.ts';
import { registerDownload } from './ops/download.ts';
import { registerUpload } from './ops/upload.ts';
import { VolumeFileMetrics } from './ops/volume-file-metrics.ts';
import { registerVolumeFiles } from './ops/volume-files.ts';
import { originReader } from './origin.ts';
import type { Explains } from './rest/explain.ts';
import { restRate } from './rest/limits.ts';
import { bindRest, REST_BASE } from './rest/rest.ts';
import { isAtRoot } from './rest/route.ts';
import { restRoutes } from './rest/routes.ts';
import type { ModelRouteParts } from './rest/models.ts';
import type { CreditRouteParts } from './rest/credits.ts';
import type { ProviderRouteParts } from './rest/providers.ts';
import type { WebhookRouteParts } from './rest/webhooks.ts';
import { createHttpServer } from './server.ts';
import { StreamMetrics } from './streams/metrics.ts';
import { registerRelay } from './streams/relay-route.ts';
import type { RelayRouteParts } from './streams/relay-route.ts';
import { OpenCalls } from './streams/open-calls.ts';
import { MOST_CONNECTIONS } from './streams/sandbox-call.ts';
import { StreamRoom } from './streams/room.ts';
import { WebSockets } from './streams/websockets.ts';
import type { HttpServer, ServerState } from './server.ts';
import { SseMetrics, SseStreams } from './sse.ts';
import type { LiveLogs, LogHub } from '../../fleet/logs/live-logs.ts';
import type { EventReads } from '../../workspaces/events/reads.ts';
import type { EventWriter } from '../../workspaces/events/writer.ts';
import type { CollectedEvents } from '../../workspaces/events/collected.ts';
import type { PassingEvents } from '../../workspaces/events/passing.ts';
import type { EventHub } from '../../workspaces/events/source.ts';
import type { Builds } from '../../fleet/builds/builds.ts';
import type { ImageCollector } from '../../fleet/builds/collector.ts';
import type { ImageReads } from '../../fleet/builds/image-reads.ts';
import type { DeploymentEffects } from '../../workspaces/deployments/needs.ts';

export interface SurfaceSettings {
  /** `LONGSHORE_EXTERNAL_URL` */
  readonly externalUrl: string | null;
  /** `LONGSHORE_INVOKE_DOMAIN` */
  readonly invokeDomain: string | null;
  /** `LONGSHORE_MAX_INVOKE_BODY_BYTES` */
  readonly maxInvokeBodyBytes: number;
  /** Days that ended tasks, log lines and events are kept. */
  readonly retention: { readonly tasksDays: number; readonly logsDays: number; readonly eventsDays: number };
  /** `LONGSHORE_METRICS_TOKEN` */
  readonly metricsToken: string | null;
  /** `LONGSHORE_VOLUME_DRIVER` */
  readonly volumeDriver: VolumeDriverName;
  /** `LONGSHORE_HTTP_PLAINTEXT` */
  readonly plaintext?: 'loopback' | 'allow';
  /** `LONGSHORE_HTTP_MAX_CONNECTIONS`; absent: no bound */
  readonly maxConnections?: number;
  /** `LONGSHORE_HTTP_ORIGINS` */
  readonly origins?: readonly string[];
  /** `LONGSHORE_TRUSTED_PROXIES` */
  readonly trustedProxies?: readonly string[];
  /** Version of this release, for the API description. */
  readonly version: string;
}

export const DEFAULT_MAX_INVOKE_BODY_BYTES = 16 * 1024 * 1024;

export interface SurfaceParts {
  readonly settings: SurfaceSettings;
  /** The certificate; absent: HTTP in clear. */
  readonly certificate?: CertificateWatch;
  readonly log: Log;
  readonly registry: Registry;
  readonly db: Db;
  readonly clock: Clock;
  readonly tokens: Tokens;
  readonly tokenAdmin: TokenAdmin;
  /** Counts of refused tokens; absent: not counted. */
  readonly refusals?: Refusals;
  readonly tenants: Tenants;
  readonly workspaceDeletion: Pick<WorkspaceDeletion, 'state' | 'begin'>;
  readonly signingKeys: Pick<KeyRing, 'list' | 'rotate' | 'retire'>;
  readonly bootstrap: Bootstrap;
  readonly signingKeyOf: (workspace: WorkspaceRow) => string;
  readonly objects: Objects;
  readonly secrets: Secrets;
  readonly webhooks: WebhookRouteParts['webhooks'];
  readonly models: ModelRouteParts['models'];
  readonly modelCatalog: ModelCatalog;
  readonly externalServers: ExternalServers;
  readonly keptAnswers: KeptAnswers;
  /** Credits that calls of models cost. */
  readonly charging: Charging;
  readonly holds: LastingHolds;
  readonly deferredCalls: Pick<DeferredCalls, 'accept' | 'ofKey'>;
  readonly deferredExecutor: Pick<DeferredExecutor, 'runsWith'>;
  readonly inferenceRates: InferenceRates;
  /** Why no callback can be sent to that URL; undefined: it may be tried. */
  readonly callbackProblem: (url: string) => string | undefined;
  readonly directory: Directory;
  readonly targets: Targets;
  readonly limits: Limits;
  readonly creditAccounts: CreditRouteParts['creditAccounts'];
  /** Rates of workspaces; absent: not bounded. */
  readonly rates?: Rates;
  readonly usageOf: (workspaceId: WorkspaceId) => LimitsRecord['usage'];
  readonly feasibility: Pick<FeasibilityCheck, 'warning' | 'refusal' | 'isMakeable'>;
  readonly submissions: Pick<Submissions, 'submit'>;
  readonly streams: Pick<Streams, 'expect'>;
  /** Streamed calls that other replicas pass to their callers here. */
  readonly relay: RelayRouteParts;
  /** Ends a running task, because its caller or its limit wants so. */
  readonly cancelTask: (taskId: TaskId, ending: Ending) => Promise<void>;
  readonly tasks: Pick<TaskReads, 'read' | 'list' | 'resultText'>;
  readonly taskActions: Pick<TaskActions, 'startTask' | 'endTask' | 'stopTasks'>;
  /** Number of a queue's tasks that have not ended. */
  readonly queueDepth: (queue: QueueName) => Promise<number>;
  readonly containers: ContainerReads & Pick<ContainerRegistry, 'ofQueue'>;
  /** Leases of development servers. */
  readonly serves: Pick<ServeLeases, 'end' | 'renew'>;
  /** Series of metrics. */
  readonly series: SeriesReads;
  /** Current resource use of containers. */
  readonly usage: Pick<Usage, 'of'>;
  /** The fleet as Prometheus finds and reads it. */
  readonly discovery: Pick<DiscoveryParts, 'machines' | 'pages' | 'replicas'>;
  readonly containerActions: Pick<ContainerActions, 'stopContainer' | 'warmUp'>;
  /** Pods and sandboxes: their containers, uses of those, and streams into containers. */
  readonly handMade: Pick<HandMadeContainers, 'create' | 'countOf' | 'exposePort' | 'keepNetwork'>;
  readonly containerUses: Pick<ContainerUses, 'used' | 'hold' | 'setTtl'>;
  readonly containerWaits: Pick<ContainerWaits, 'find' | 'waitUntilRunning'>;
  readonly containerStreams: Pick<ContainerStreams, 'open'>;
  /** Programs, files, ports and changes of containers that run. */
  readonly access: Access;
  readonly inside: Inside;
  readonly containerChanges: Pick<ContainerChanges, 'change'>;
  readonly snapshots: Pick<Snapshots, 'take'>;
  readonly deploymentEffects: DeploymentEffects;
  readonly images: Pick<ImageOrders, 'resolve'>;
  readonly labels: Pick<HostLabels, 'of'>;
  readonly workers: WorkerService;
  readonly enrolment: EnrolmentService;
  readonly pools: PoolService;
  readonly machines: MachineService;
  readonly agentUpstream: AgentUpstream;
  readonly releases: Pick<Releases, 'installer' | 'open'>;
  readonly packages: Pick<Packages, 'names' | 'open'>;
  readonly logs: LogReads;
  readonly explains: Explains;
  readonly providerAdmin: ProviderRouteParts['providerAdmin'];
  /** Growth of a pool, as the leader explains it; null: the leader does not answer. */
  readonly growthOf: OperationParts['growthOf'];
  /** History of events, and live readers of them. */
  readonly events: {
    readonly reads: EventReads;
    readonly hub: EventHub;
    readonly writer: EventWriter;
    readonly passing: PassingEvents;
    readonly collected: Pick<CollectedEvents, 'tell'>;
  };
  readonly liveLogs: { readonly lines: LiveLogs; readonly hub: LogHub };
  /** Files of volumes by signed addresses. */
  readonly cacheVolumes: Pick<CacheVolumes, 'deleted'>;
  readonly volumeFiles: Pick<
    VolumeFiles,
    'sign' | 'verify' | 'open' | 'named' | 'reachable' | 'copiesOf' | 'settle' | 'hasFiles'
  >;
  /** Folders and entries of volumes. */
  readonly volumeCalls: Pick<VolumeCalls, 'ask'>;
  /** Images that workspaces define. */
  readonly builds: Pick<Builds, 'verify' | 'build' | 'problemOf'>;
  readonly imageCollector: Pick<ImageCollector, 'delete'>;
  readonly imageReads: ImageReads;
  /** Checks of readiness: `database`, `redis`. */
  readonly checks: HealthChecks;
}

export interface Surfaces {
  readonly server: HttpServer;
  readonly stubs: Stubs;
  readonly deployments: Deployments;
}

export function createSurfaces(parts: SurfaceParts): Surfaces {
  const { db, targets, deploymentEffects: effects } = parts;
  const limits = { limitsOf: (caller: Caller) => parts.limits.stubLimits(caller.workspaceId) };
  const volumes = new Volumes(
    db,
    parts.settings.volumeDriver,
    async (id) => (await parts.limits.of(id)).counts.volumes,
  );
  const stubs = new Stubs({
    db,
    events: parts.events.writer,
    nowMs: () => parts.clock.nowMs(),
    volumes,
    secrets: parts.secrets,
    objects: parts.objects,
    callbackProblem: parts.callbackProblem,
    imageProblem: (workspaceId, imageId) => parts.builds.problemOf(workspaceId, imageId),
    gpuMachines: async (workspaceId) => {
      const [shared, own] = await Promise.all([
        parts.machines.list({ workspaceId: null }),
        parts.machines.list({ workspaceId }),
      ]);
      return [
        ...shared.map((machine) => gpuMachineOf(machine, false)),
        ...own.map((machine) => gpuMachineOf(machine, true)),
      ];
    },
    feasibilityWarningOf: (workspaceId, config) => parts.feasibility.warning(workspaceId, config),
    poolNamed: (workspaceId, name) =>
      readNamedPool({ db, machines: parts.discovery.machines, feasibility: parts.feasibility }, workspaceId, name),
    ...limits,
  });
  const deployments = new Deployments({
    db,
    stubs,
    targets,
    effects,
    images: parts.images,
    labels: parts.labels,
    events: parts.events.writer,
    nowMs: () => parts.clock.nowMs(),
    isServed: (queue) => {
      for (const { row } of parts.containers.ofQueue(queue)) if (row.state === 'RUNNING') return true;
      return false;
    },
    ...limits,
  });
  const webSockets = new WebSockets();
  const containerSockets = new ContainerSockets();
  const openCalls = new OpenCalls();
  const sse = new SseStreams({
    authenticator: parts.tokens,
    clock: parts.clock,
    metrics: new SseMetrics(parts.registry),
  });
  const server = createHttpServer({
    log: parts.log,
    trustedProxies: parts.settings.trustedProxies ?? [],
    origins: parts.settings.origins ?? [],
    plaintext: parts.settings.plaintext ?? 'loopback',
    ...(parts.certificate === undefined ? {} : { certificate: parts.certificate }),
    largestBodyBytes: Math.max(parts.settings.maxInvokeBodyBytes, GATEWAY_BODY_LIMIT, MOST_UPLOAD_BYTES),
    ...(parts.settings.maxConnections === undefined ? {} : { maxConnections: parts.settings.maxConnections }),
    rewriteUrl: hostRewriter(invokeDomains(parts.settings)),
    onStop: () => {
      webSockets.closeAll();
      containerSockets.closeAll();
      openCalls.refuseWebSockets();
      sse.endAll();
    },
    onLast: () => openCalls.refuseAll(),
    onCut: () => openCalls.cutAll(),
    register: (app, state) =>
      registerAll(app, state, parts, { stubs, deployments, volumes, webSockets, containerSockets, openCalls, sse }),
  });
  return { server, stubs, deployments };
}

const gpuMachineOf = (machine: MachineView, isOwn: boolean): GpuMachine => ({
  poolName: machine.poolName,
  isOwn,
  requiresPoolSelector: machine.requiresPoolSelector,
  gpuModels: machine.gpuModels,
  freeGpuCount: machine.status === 'available' ? machine.freeGpuCount : 0,
});

/** Domains below which every host label counts. */
function invokeDomains({ invokeDomain, externalUrl }: SurfaceSettings): readonly string[] {
  const external = externalUrl === null ? null : new URL(externalUrl).hostname;
  return ['localhost', invokeDomain, external].filter((domain) => domain !== null);
}

function registerAll(
  app: FastifyInstance,
  state: ServerState,
  parts: SurfaceParts,
  made: {
    readonly stubs: Stubs;
    readonly deployments: Deployments;
    readonly volumes: Volumes;
    readonly webSockets: WebSockets;
    readonly containerSockets: ContainerSockets;
    readonly openCalls: OpenCalls;
    readonly sse: SseStreams;
  },
): void {
  const { stubs, deployments, volumes, webSockets, containerSockets, openCalls, sse } = made;
  const { settings, directory, log } = parts;
  const authenticator = boundedAuthenticator(parts.tokens, parts.refusals);
  const urls = { invokeDomain: settings.invokeDomain };
  const trustsLoopback = mayTrustLoopback(settings);
  const { scheme, listenUrl } = state;
  const originOf = originReader({ externalUrl: settings.externalUrl, listenUrl, scheme, trustsLoopback });

  plugin(app, GATEWAY_BASE, (scope) => {
    const operations = allOperations({
      bootstrap: parts.bootstrap,
      objects: parts.objects,
      stubs,
      deployments,
      urls,
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
    const calls = new GatewayCalls(parts.events.passing, () => parts.clock.nowMs());
    bindOperations(scope, operations, { authenticator, originOf, log, calls });
  });

  const { maxInvokeBodyBytes, retention } = settings;
  const sharedState = new SharedState({
    db: parts.db,
    mayTakeCode: codeTrust(directory),
    roomOf: async (workspaceId) => {
      const { counts, bytes } = await parts.limits.of(workspaceId);
      return { entries: counts.shared_entries, bytes: bytes.shared };
    },
  });
  const outputs = new Outputs({ db: parts.db, objects: parts.objects, tasks: parts.tasks });
  // The name that containers call leads nowhere outside them.
  const publicBaseOf = (request: FastifyRequest): string =>
    settings.externalUrl === null && request.headers.host === CONTAINER_HOST
      ? (listenUrl() ?? originOf(request).baseUrl)
      : originOf(request).baseUrl;
  const stacks = new Stacks(parts.db, async (id) => (await parts.limits.of(id)).counts.stacks);
  const routes = restRoutes({
    ...parts,
    stacks,
    outputs,
    publicBaseOf,
    sharedState,
    deployments,
    volumes,
    urls,
    originOf,
    maxInvokeBodyBytes,
    retention,
  });
  const workspaceExists = async (id: string, isDeletedToo: boolean): Promise<boolean> => {
    const workspace = await directory.workspace(id);
    if (isDeletedToo) return workspace !== undefined || (await directory.wasDeleted(id));
    return workspace !== undefined && workspace.deletingAtMs === null;
  };
  const rest = {
    authenticator,
    workspaceExists,
    streams: sse,
    log,
    ...(parts.rates === undefined ? {} : { mayAsk: restRate(parts.limits, parts.rates) }),
  };
  plugin(app, REST_BASE, (scope) => bindRest(scope, routes, rest));
  plugin(app, '', (scope) => bindRest(scope, routes.filter(isAtRoot), rest));

  plugin(app, '', (scope) => {
    registerInvoke(scope, {
      authenticator,
      targets: parts.targets,
      submissions: parts.submissions,
      containers: parts.containerActions,
      callbackProblem: parts.callbackProblem,
      mayTakeCode: codeTrust(directory),
      log,
      maxBodyBytes: settings.maxInvokeBodyBytes,
      release: (request) => state.bodies.release(request),
      hasContainers: (queue) => parts.containers.hasLive(queue),
      containerStreams: parts.containerStreams,
      containerUses: parts.containerUses,
      containerWaits: parts.containerWaits,
      connections: new Places<WorkspaceId>(MOST_CONNECTIONS),
      streams: parts.streams,
      cancel: parts.cancelTask,
      webSockets,
      room: new StreamRoom(),
      openCalls,
      streamMetrics: new StreamMetrics(parts.registry),
    });
  });

  plugin(app, '', (scope) => {
    const calls = {
      backends: new Backends({
        targets: parts.targets,
        external: parts.externalServers,
        submissions: parts.submissions,
        streams: parts.streams,
        cancel: parts.cancelTask,
        random: Math.random,
        log,
      }),
      catalog: parts.modelCatalog,
      openCalls,
      answers: new BodyBudget(ANSWER_RULES),
      charging: parts.charging,
      holds: parts.holds,
      rates: parts.inferenceRates,
      metrics: new InferenceMetrics(parts.registry),
      routed: (call: RoutedCall) => parts.events.collected.tell(routeEvent(call, parts.clock.nowMs())),
      nowMs: () => parts.clock.monotonicMs(),
      log,
    };
    registerInference(scope, {
      ...calls,
      authenticator,
      hasContainers: (queue) => parts.containers.hasLive(queue),
      release: (request) => state.bodies.release(request),
      keptAnswers: parts.keptAnswers,
      deferred: parts.deferredCalls,
      taskUrlOf: (request, workspaceId, taskId) => `${originOf(request).baseUrl}/api/v1/task/${workspaceId}/${taskId}`,
      wallMs: () => parts.clock.nowMs(),
    });
    parts.deferredExecutor.runsWith(
      deferredRunner({ ...calls, correctRate: (...told) => parts.inferenceRates.correct(...told) }),
    );
  });

  plugin(app, '', (scope) => {
    registerUpload(scope, {
      objects: parts.objects,
      log,
      sha256Of: (objectId) => directory.sha256OfObject(objectId),
      onReplaced: (objectId) => parts.targets.codeChanged(objectId),
    });
  });

  plugin(app, '', (scope) => registerContainers(scope, { ...parts, authenticator, sockets: containerSockets, log }));
  plugin(app, '', (scope) => registerRelay(scope, parts.relay));
  plugin(app, '', (scope) => registerDownload(scope, { objects: parts.objects, log }));
  plugin(app, '', (scope) =>
    registerVolumeFiles(scope, { files: parts.volumeFiles, metrics: new VolumeFileMetrics(parts.registry), log }),
  );

  registerHealth(app, {
    readiness: new Readiness(parts.checks),
    isDraining: state.isDraining,
    warnings: state.warnings,
    version: settings.version,
  });
  registerInstall(app, { ...parts, baseUrlOf: (request) => originOf(request).baseUrl });
  const readers = { authenticator, metricsToken: settings.metricsToken, trustsLoopback };
  registerMetrics(app, { ...readers, registry: parts.registry });
  registerDiscovery(app, {
    ...readers,
    ...parts.discovery,
    scheme,
    baseUrlOf: (request) => originOf(request).baseUrl,
  });
  registerOpenApi(app, settings.version);
}

/** Registers openapi.json for programs, and its page for people. */
function registerOpenApi(app: FastifyInstance, version: string): void {
  let text: string | undefined;
  app.get('/openapi.json', (_request, reply) =>
    reply.type('application/json; charset=utf-8').send((text ??= JSON.stringify(openApiDocument(version)))),
  );
  registerViewer(app);
}

/** Registers a surface as a plugin of its own, so that its error shape and body rules stay inside. */
function plugin(app: FastifyInstance, prefix: string, register: (scope: FastifyInstance) => void): void {
  void app.register(
    (scope, _options, done) => {
      register(scope);
      done();
    },
    prefix === '' ? {} : { prefix },
  );
}
