// The settings and the services that the surfaces are put together from.
import type { LimitsRecord } from '#shared/api/rest/limits.ts';
import type { VolumeDriverName } from '#shared/domain/volume-drivers.ts';
import type { Clock } from '#shared/clock.ts';
import type { QueueName, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Registry } from '#shared/metrics.ts';
import type { ContainerActions } from '../../fleet/containers/actions.ts';
import type { ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import type { ContainerReads } from '../../fleet/containers/container-view.ts';
import type { HandMadeContainers } from '../../fleet/containers/hand-made.ts';
import type { ContainerStreams } from '../../fleet/container-streams.ts';
import type { ContainerUses } from '../../fleet/containers/uses.ts';
import type { ContainerWaits } from '../../fleet/containers/waits.ts';
import type { Snapshots } from '../../fleet/builds/snapshots.ts';
import type { Access } from '../../fleet/inside/access.ts';
import type { ContainerChanges } from '../../fleet/inside/changes.ts';
import type { Inside } from '../../fleet/inside/inside.ts';
import type { Directory } from '../../workspaces/deployments/directory.ts';
import type { ModelCatalog } from '../../workspaces/models/catalog.ts';
import type { ServeLeases } from '../../workspaces/deployments/serve-leases.ts';
import type { Targets } from '../../workspaces/deployments/targets.ts';
import type { MachineService } from '../../fleet/machine-service.ts';
import type { EnrolmentService } from '../../fleet/enrolment.ts';
import type { PoolService } from '../../fleet/pools.ts';
import type { VolumeCalls } from '../../fleet/volume-calls.ts';
import type { CacheVolumes } from '../../fleet/cache-volumes.ts';
import type { VolumeFiles } from '../../fleet/volume-files.ts';
import type { WorkerService } from '../../fleet/worker-service.ts';
import type { SeriesReads } from '../../fleet/series/series-reads.ts';
import type { GpuMap } from '../../fleet/gpu-map.ts';
import type { Usage } from '../../fleet/usage.ts';
import type { ConsoleSessions } from '../../workspaces/identity/console-sessions.ts';
import type { KeyRing } from '../../workspaces/identity/key-ring.ts';
import type { RuntimeSettings } from '../../workspaces/identity/runtime-settings.ts';
import type { InferenceRates } from '../../workspaces/identity/inference-rates.ts';
import type { Rates } from '../../workspaces/identity/rates.ts';
import type { Refusals } from '../../workspaces/identity/refusals.ts';
import type { TerminalTickets } from '../../workspaces/identity/terminal-tickets.ts';
import type { Tenants } from '../../workspaces/identity/tenants.ts';
import type { WorkspaceDeletion } from '../../workspaces/deletion/deletion.ts';
import type { TokenAdmin } from '../../workspaces/identity/token-admin.ts';
import type { Tokens } from '../../workspaces/identity/tokens.ts';
import type { Limits } from '../../workspaces/identity/workspace-limits.ts';
import type { ImageOrders } from '../../fleet/images/orders.ts';
import type { LogReads } from '../../fleet/logs/log-service.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { KeptAnswers } from '../../stores/queues/kept-answers.ts';
import type { Objects } from '../../stores/objects/service.ts';
import type { OperationParts } from '../operations/index.ts';
import type { Bootstrap } from '../operations/auth.ts';
import type { AgentUpstream } from '../operations/machines.ts';
import type { Alerts } from '../explain/alerts.ts';
import type { WaitingReads } from '../explain/waiting.ts';
import type { ConsoleFiles } from '../ops/console-files.ts';
import type { Packages } from '../ops/packages.ts';
import type { Releases } from '../ops/releases.ts';
import type { HealthChecks } from '../ops/health.ts';
import type { FeasibilityCheck } from '../../control/placement/feasibility-check.ts';
import type { Secrets } from '../../workspaces/secrets/service.ts';
import type { Db } from '../../stores/store/db.ts';
import type { WorkspaceRow } from '../../stores/store/queries/workspaces.ts';
import type { TaskActions } from '../../tasks/actions.ts';
import type { LostCallers } from '../../tasks/admission/lost-callers.ts';
import type { Submissions } from '../../tasks/admission/submissions.ts';
import type { TaskInputs } from '../../tasks/inputs/inputs.ts';
import type { DeadLetters } from '../../tasks/inputs/dead-letters.ts';
import type { Reruns } from '../../tasks/inputs/reruns.ts';
import type { TaskReads } from '../../tasks/records/reads.ts';
import type { Streams } from '../../tasks/streams/streams.ts';
import type { Ending } from '../../domain/endings.ts';
import type { Charging, LastingHolds } from '../../domain/inference.ts';
import type { DeferredCalls } from '../../tasks/deferred-calls/deferred-calls.ts';
import type { DeferredExecutor } from '../../tasks/deferred-calls/executor.ts';
import type { CertificateWatch } from './certificate.ts';
import type { ExternalServers } from './inference/external.ts';
import type { DiscoveryParts } from './ops/discovery.ts';
import type { Explains } from './rest/explain.ts';
import type { DeploymentHealth } from '../explain/health.ts';
import type { TaskStatistics } from '../../tasks/records/task-stats.ts';
import type { ModelRouteParts } from './rest/models.ts';
import type { CreditRouteParts } from './rest/credits.ts';
import type { ProviderRouteParts } from './rest/providers.ts';
import type { RecordingRouteParts } from './rest/recordings.ts';
import type { ShareRouteParts } from './rest/shares.ts';
import type { WebhookRouteParts } from './rest/webhooks.ts';
import type { RelayRouteParts } from './streams/relay-route.ts';
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
  readonly grpc: {
    /** `LONGSHORE_GRPC_ADDRESS` */
    readonly address: string | undefined;
    /** `LONGSHORE_GRPC_PLAINTEXT` */
    readonly plaintext: 'loopback' | 'allow';
    /** `LONGSHORE_EXTERNAL_GRPC_ADDRESS` */
    readonly external: string | undefined;
    /** `LONGSHORE_SECRET_VALUES` */
    readonly secretValues: 'hidden' | 'full';
  };
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
  /** `LONGSHORE_CONSOLE` */
  readonly console?: 'on' | 'off';
  /** `LONGSHORE_CONSOLE_URL` */
  readonly consoleUrl?: string | null;
  /** `LONGSHORE_TRUSTED_PROXIES` */
  readonly trustedProxies?: readonly string[];
  /** Version of this release, for the API description. */
  readonly version: string;
}

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
  readonly consoleSessions: ConsoleSessions;
  readonly consoleFiles: ConsoleFiles;
  /** Counts of refused tokens; absent: not counted. */
  readonly refusals?: Refusals;
  readonly terminalTickets: TerminalTickets;
  readonly tenants: Tenants;
  readonly workspaceDeletion: Pick<WorkspaceDeletion, 'state' | 'begin'>;
  readonly signingKeys: Pick<KeyRing, 'list' | 'rotate' | 'retire'>;
  readonly runtimeSettings: Pick<RuntimeSettings, 'list' | 'set' | 'reset'>;
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
  readonly shares: ShareRouteParts['shares'];
  readonly shareRows: ShareRouteParts['shareRows'];
  readonly reservations: ShareRouteParts['reservations'];
  readonly waiting: Pick<WaitingReads, 'of'>;
  readonly alerts: Pick<Alerts, 'list'>;
  readonly guaranteeWarnings: ShareRouteParts['guaranteeWarnings'];
  readonly creditAccounts: CreditRouteParts['creditAccounts'];
  /** Rates of workspaces; absent: not bounded. */
  readonly rates?: Rates;
  readonly usageOf: (workspaceId: WorkspaceId) => LimitsRecord['usage'];
  readonly feasibility: Pick<FeasibilityCheck, 'warning' | 'refusal' | 'isMakeable' | 'pythonProblem'>;
  readonly submissions: Pick<Submissions, 'submit'>;
  /** Callers of functions whose connection broke. */
  readonly lostCallers: Pick<LostCallers, 'came' | 'isHere' | 'lost'>;
  readonly streams: Pick<Streams, 'expect'>;
  /** Streamed calls that other replicas pass to their callers here. */
  readonly relay: RelayRouteParts;
  /** Ends a running task, because its caller or its limit wants so. */
  readonly cancelTask: (taskId: TaskId, ending: Ending) => Promise<void>;
  readonly tasks: Pick<TaskReads, 'read' | 'list' | 'resultText'>;
  readonly taskInputs: Pick<TaskInputs, 'read' | 'about'>;
  readonly reruns: Pick<Reruns, 'run'>;
  readonly flow: Pick<TaskQueues, 'controls' | 'controlsNamed' | 'depth'>;
  readonly deadLetters: Pick<DeadLetters, 'standings' | 'drop'>;
  readonly taskActions: Pick<TaskActions, 'startTask' | 'endTask' | 'stopTasks'>;
  /** Number of a queue's tasks that have not ended. */
  readonly queueDepth: (queue: QueueName) => Promise<number>;
  readonly containers: ContainerReads & Pick<ContainerRegistry, 'ofQueue' | 'isServed'>;
  /** Leases of development servers. */
  readonly serves: Pick<ServeLeases, 'end' | 'renew'>;
  /** Series of metrics. */
  readonly series: SeriesReads;
  /** Current resource use of containers. */
  readonly usage: Pick<Usage, 'of'>;
  readonly gpuMap: Pick<GpuMap, 'list' | 'byMachine'>;
  /** The fleet as Prometheus finds and reads it. */
  readonly discovery: Pick<DiscoveryParts, 'machines' | 'pages' | 'replicas'>;
  readonly containerActions: Pick<ContainerActions, 'stopContainer' | 'warmUp' | 'preempt'>;
  /** Time for tasks of a container that leaves for another one. */
  readonly noticeMs: () => number;
  /** Pods and sandboxes: their containers, uses of those, and streams into containers. */
  readonly handMade: Pick<HandMadeContainers, 'create' | 'countOf' | 'exposePort' | 'keepNetwork'>;
  readonly containerUses: Pick<ContainerUses, 'used' | 'hold' | 'setTtl'>;
  readonly containerWaits: Pick<ContainerWaits, 'find' | 'waitUntilRunning'>;
  readonly containerStreams: Pick<ContainerStreams, 'open'>;
  /** Programs, files, ports and changes of containers that run. */
  readonly access: Access;
  readonly inside: Inside;
  readonly containerChanges: Pick<ContainerChanges, 'change' | 'changeGpu'>;
  readonly snapshots: Pick<Snapshots, 'take'>;
  readonly deploymentEffects: DeploymentEffects;
  readonly images: Pick<ImageOrders, 'resolve'>;
  readonly labelKey: Uint8Array;
  readonly workers: WorkerService;
  readonly enrolment: EnrolmentService;
  readonly pools: PoolService;
  readonly machines: MachineService;
  readonly agentUpstream: AgentUpstream;
  readonly releases: Pick<Releases, 'installer' | 'open'>;
  readonly packages: Pick<Packages, 'names' | 'open'>;
  readonly logs: LogReads;
  readonly explains: Explains;
  readonly deploymentHealth: Pick<DeploymentHealth, 'of'>;
  readonly taskStatistics: Pick<TaskStatistics, 'of'>;
  readonly providerAdmin: ProviderRouteParts['providerAdmin'];
  readonly recording: RecordingRouteParts['recording'];
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
    'sign' | 'signParts' | 'verify' | 'open' | 'named' | 'reachable' | 'copiesOf' | 'settle' | 'takes' | 'hasFiles'
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
