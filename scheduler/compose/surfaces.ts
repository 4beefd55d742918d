// The HTTP surfaces for people and programs, built from the settings that shape them and the services behind them.
import { X509Certificate } from 'node:crypto';
import type { SchedulerSettings } from '../config.ts';
import { CertificateWatch } from '../api/http/certificate.ts';
import { StartupError } from '#shared/errors.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import { ownVersion } from '#shared/version.ts';
import type { SurfaceParts, SurfaceSettings } from '../api/http/surface-parts.ts';
import type { Surfaces } from '../api/http/surfaces.ts';
import { createSurfaces } from '../api/http/surfaces.ts';
import { ensureFirstWorkspace } from '../workspaces/identity/bootstrap.ts';
import { signingKeyOf } from '../workspaces/identity/workspaces.ts';
import { LogReader } from '../fleet/logs/log-reads.ts';
import { SeriesReader } from '../fleet/series/series-reads.ts';
import { hostAddress, reachableAt } from '../api/ops/host-address.ts';
import { ConsoleFiles } from '../api/ops/console-files.ts';
import { Packages } from '../api/ops/packages.ts';
import { Releases } from '../api/ops/releases.ts';
import { useOf } from '../control/placement/snapshot.ts';
import { totalOf } from '../stores/queues/task-queues.ts';
import { ContainerCalls } from '../api/http/container-calls.ts';
import { issueCredential } from '../fleet/containers/credentials.ts';
import { Alerts } from '../api/explain/alerts.ts';
import { GpuMap } from '../fleet/gpu-map.ts';
import type { ConsoleSessions } from '../workspaces/identity/console-sessions.ts';
import type { TokenAdmin } from '../workspaces/identity/token-admin.ts';
import type { Tokens } from '../workspaces/identity/tokens.ts';
import type { ActionParts } from './actions.ts';
import type { ClusterState } from './cluster-state.ts';
import type { CreditParts } from './credits.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Identity } from './identity.ts';
import type { LineParts } from './lines.ts';
import type { LinkParts } from './links.ts';
import type { TaskParts } from './tasks.ts';
import type { EventWebhooks } from './event-webhooks.ts';
import type { CreditAccounts } from '../workspaces/credits/accounts.ts';
import { guaranteeWarningsOf } from './shares.ts';
import type { Webhooks } from './webhooks.ts';
import { StreamRelay } from '../replicas/stream-relay.ts';

export interface SurfacesSetup extends Pick<
  SurfaceParts,
  | 'objects'
  | 'directory'
  | 'targets'
  | 'workers'
  | 'pools'
  | 'explains'
  | 'deploymentHealth'
  | 'taskStatistics'
  | 'growthOf'
  | 'providerAdmin'
  | 'recording'
  | 'volumeFiles'
  | 'volumeCalls'
  | 'cacheVolumes'
  | 'builds'
  | 'imageCollector'
  | 'imageReads'
  | 'handMade'
  | 'containerUses'
  | 'containerWaits'
  | 'containerStreams'
  | 'containerChanges'
  | 'access'
  | 'inside'
  | 'snapshots'
  | 'events'
  | 'liveLogs'
  | 'serves'
  | 'models'
  | 'modelCatalog'
  | 'externalServers'
  | 'keptAnswers'
  | 'deferredCalls'
  | 'deferredExecutor'
  | 'workspaceDeletion'
  | 'runtimeSettings'
  | 'shareRows'
  | 'reservations'
  | 'waiting'
  | 'noticeMs'
> {
  readonly infrastructure: Infrastructure;
  readonly identity: Identity;
  readonly clusterState: ClusterState;
  readonly tokens: Tokens;
  readonly tokenAdmin: TokenAdmin;
  readonly consoleSessions: ConsoleSessions;
  readonly lineParts: LineParts;
  readonly taskParts: TaskParts;
  readonly linkParts: LinkParts;
  readonly actionParts: ActionParts;
  readonly webhooks: Webhooks;
  readonly creditAccounts: CreditAccounts;
  readonly eventWebhooks: EventWebhooks;
  readonly certificate: CertificateWatch | undefined;
  readonly streamRelay: StreamRelay;
  readonly credits: CreditParts;
}

export function openSurfaces(setup: SurfacesSetup): Surfaces {
  const {
    infrastructure,
    identity,
    clusterState,
    tokens,
    tokenAdmin,
    consoleSessions,
    lineParts,
    taskParts,
    linkParts,
    actionParts,
    webhooks,
    eventWebhooks,
    certificate,
    streamRelay,
    credits,
    ...services
  } = setup;
  const { lines } = lineParts;
  const { actions, cancellation, deploymentStops, containerActions } = actionParts;
  const { db, general, clock, log, registry, settings } = infrastructure;
  const { sealer, installation, limits, shares, rates, refusals, tenants, terminalTickets, secrets } = identity;
  const { containers, machines, joining, enrolment, presence, feasibility } = clusterState;
  const { links, usage, deviceUses, pages, images } = linkParts;
  const gpuMap = new GpuMap({ machines, containers, deviceUses, clock });
  return createSurfaces({
    ...services,
    submissions: taskParts.submissions,
    lostCallers: taskParts.lostCallers,
    streams: taskParts.streams,
    relay: {
      isReplica: (taskId, credential) => streamRelay.isGood(taskId, credential),
      take: (taskId, bytes) => taskParts.streams.take(taskId, bytes),
    },
    charging: credits.charges,
    holds: credits.charges,
    inferenceRates: identity.inferenceRates,
    cancelTask: (taskId, ending) => cancellation.cancel(taskId, ending),
    tasks: taskParts.reads,
    taskInputs: taskParts.inputs,
    reruns: taskParts.reruns,
    flow: lineParts.queues,
    deadLetters: taskParts.deadLetters,
    containerActions,
    callbackProblem: webhooks.urlProblem,
    webhooks: eventWebhooks.service,
    ...(certificate === undefined ? {} : { certificate }),
    clock,
    usage,
    gpuMap,
    alerts: new Alerts({ machines, workers: services.workers, gpuMap, waiting: services.waiting, clock }),
    discovery: { machines, pages, replicas: () => presence.addresses },
    deploymentEffects: deploymentStops,
    images,
    labelKey: installation.labelKey,
    taskActions: actions,
    db,
    log,
    registry,
    tokens,
    tokenAdmin,
    consoleSessions,
    consoleFiles: new ConsoleFiles(),
    ...(refusals === undefined ? {} : { refusals }),
    signingKeys: installation.ring,
    tenants,
    terminalTickets,
    limits,
    shares,
    guaranteeWarnings: guaranteeWarningsOf(infrastructure, identity, clusterState),
    ...(rates === undefined ? {} : { rates }),
    usageOf: (workspaceId) => ({ ...useOf(containers, workspaceId), volume_bytes: machines.volumeBytes(workspaceId) }),
    feasibility,
    secrets,
    machines: joining,
    enrolment,
    containers: containers,
    logs: new LogReader(db),
    series: new SeriesReader(db),
    settings: surfaceSettings(settings),
    bootstrap: {
      token: settings.LONGSHORE_BOOTSTRAP_TOKEN ?? null,
      ensureFirstWorkspace: () => ensureFirstWorkspace(db, sealer, installation),
    },
    signingKeyOf: (workspace) => signingKeyOf(workspace, sealer),
    queueDepth: async (queue) => totalOf(await lines.depth(queue)),
    agentUpstream: {
      url: () => `grpcs://${settings.LONGSHORE_EXTERNAL_AGENT_ADDRESS ?? links.address}`,
      hostAddress,
      branch: settings.LONGSHORE_RELEASE_CHANNEL,
    },
    packages: new Packages({ directory: settings.LONGSHORE_RELEASES_DIR, dataDir: settings.LONGSHORE_DATA_DIR }),
    releases: new Releases({
      directory: settings.LONGSHORE_RELEASES_DIR,
      dataDir: settings.LONGSHORE_DATA_DIR,
      channel: settings.LONGSHORE_RELEASE_CHANNEL,
    }),
    checks: {
      database: async () => void (await db.query('select 1')),
      redis: async () => void (await general.ping()),
    },
  });
}

/** The HTTP server, started last. The other replicas then hear at which address this one is reached. */
export function httpPart({ server }: Surfaces, { settings }: Infrastructure, { presence }: ClusterState): Part {
  return {
    name: 'http',
    start: async () => {
      const address = await server.start(settings.LONGSHORE_HTTP_ADDRESS);
      await presence.announce(reachableAt(address));
    },
    stop: () => server.stop(),
  };
}

/** The port of published clients. Its calls name addresses of HTTP, which listens already. */
export const grpcPart = ({ grpc }: Surfaces): Part => ({
  name: 'grpc',
  start: () => grpc.start(),
  stop: () => grpc.stop(),
});

/** Streamed calls between this replica and others, by the HTTP server's own address. */
export function openStreamRelay(
  { clock, log }: Infrastructure,
  { installation }: Identity,
  { presence }: ClusterState,
  certificate: CertificateWatch | undefined,
): StreamRelay {
  return new StreamRelay({
    addressOf: (replica) => presence.addressOf(replica),
    fingerprint:
      certificate === undefined ? undefined : () => new X509Certificate(certificate.current.cert).fingerprint256,
    keys: () => installation.deriveKeys('replica-streams'),
    nowMs: () => clock.nowMs(),
    log,
  });
}

/** Calls of containers, which come over the links of agents and are served by the HTTP server. */
export function openContainerCalls(
  { log }: Infrastructure,
  { containers, fleetMetrics: metrics }: ClusterState,
  tokens: Tokens,
  { server }: Surfaces,
): ContainerCalls {
  return new ContainerCalls({
    containers,
    tokenOf: (row) => issueCredential(tokens, row),
    tokens,
    server: () => server.app.server,
    isOpen: () => server.isOpen,
    metrics,
    log,
  });
}

/** Opens the certificate of HTTP. @returns undefined: HTTP in clear @throws StartupError `bad_config` */
export async function openCertificate(settings: SchedulerSettings, log: Log): Promise<CertificateWatch | undefined> {
  const { LONGSHORE_HTTP_TLS_CERT: certFile, LONGSHORE_HTTP_TLS_KEY: keyFile } = settings;
  if (certFile === undefined && keyFile === undefined) return undefined;
  if (certFile === undefined || keyFile === undefined) {
    throw new StartupError('bad_config', 'LONGSHORE_HTTP_TLS_CERT and LONGSHORE_HTTP_TLS_KEY: give both, or none', {
      exitCode: 78,
    });
  }
  return CertificateWatch.open({ certFile, keyFile }, log);
}

function surfaceSettings(settings: SchedulerSettings): SurfaceSettings {
  return {
    externalUrl: settings.LONGSHORE_EXTERNAL_URL ?? null,
    grpc: {
      address: settings.LONGSHORE_GRPC_ADDRESS,
      plaintext: settings.LONGSHORE_GRPC_PLAINTEXT,
      external: settings.LONGSHORE_EXTERNAL_GRPC_ADDRESS,
      secretValues: settings.LONGSHORE_SECRET_VALUES,
    },
    invokeDomain: settings.LONGSHORE_INVOKE_DOMAIN ?? null,
    volumeDriver: settings.LONGSHORE_VOLUME_DRIVER,
    maxInvokeBodyBytes: settings.LONGSHORE_MAX_INVOKE_BODY_BYTES,
    retention: {
      tasksDays: settings.LONGSHORE_TASK_DAYS,
      logsDays: settings.LONGSHORE_LOG_DAYS,
      eventsDays: settings.LONGSHORE_EVENT_DAYS,
    },
    plaintext: settings.LONGSHORE_HTTP_PLAINTEXT,
    maxConnections: settings.LONGSHORE_HTTP_MAX_CONNECTIONS,
    origins: listOf(settings.LONGSHORE_HTTP_ORIGINS),
    console: settings.LONGSHORE_CONSOLE,
    consoleUrl: settings.LONGSHORE_CONSOLE_URL ?? null,
    trustedProxies: listOf(settings.LONGSHORE_TRUSTED_PROXIES),
    metricsToken: settings.LONGSHORE_METRICS_TOKEN ?? null,
    version: ownVersion(),
  };
}

const listOf = (text: string | undefined): readonly string[] =>
  (text ?? '')
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');
