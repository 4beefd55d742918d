// The links of agents, and their traffic beside orders and tasks: images
// ahead of containers, resource use, pages of metrics.
import type { Redis } from 'ioredis';
import { MachineCredentials } from '../fleet/credentials.ts';
import type { LinksParts } from '../fleet/links.ts';
import { Links } from '../fleet/links.ts';
import { MachinePages } from '../fleet/machine-pages.ts';
import { SESSION_SETTINGS } from '../fleet/session-settings.ts';
import { DeviceUses } from '../fleet/device-use.ts';
import { Usage } from '../fleet/usage.ts';
import { StartProgress } from '../fleet/containers/start-progress.ts';
import { issueCredential } from '../fleet/containers/credentials.ts';
import type { Tokens } from '../workspaces/identity/tokens.ts';
import { machineSigner } from '../workspaces/identity/machine-credentials.ts';
import { ImageCredentials } from '../fleet/images/workspace-credentials.ts';
import { RegistryCredentials } from '../fleet/images/credentials.ts';
import { ImageOrders } from '../fleet/images/orders.ts';
import type { PullLineSettings } from '../fleet/images/pull-line.ts';
import { PULL_LINE, PullLines } from '../fleet/images/pull-line.ts';
import { LogQuota } from '../fleet/logs/log-quota.ts';
import type { LogSinkParts } from '../fleet/logs/log-sink.ts';
import { LogSink } from '../fleet/logs/log-sink.ts';
import { LogMetrics } from '../fleet/logs/metrics.ts';
import type { Objects } from '../stores/objects/service.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Events } from './events.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Identity } from './identity.ts';
import type { RegistryParts } from './registry.ts';
import type { Scaling } from './scaling.ts';
import type { TaskParts } from './tasks.ts';

export interface LinksSetup {
  readonly infrastructure: Infrastructure;
  readonly events: Pick<Events, 'writer'>;
  readonly identity: Identity;
  readonly clusterState: ClusterState;
  readonly objects: Objects;
  readonly taskParts: TaskParts;
  readonly scaling: Pick<Scaling, 'cpuWorkAllowed'>;
  readonly tokens: Tokens;
  readonly registryParts: RegistryParts;
}

export interface LinkParts {
  readonly links: Links;
  readonly logs: LogSink;
  readonly usage: Usage;
  readonly deviceUses: DeviceUses;
  readonly pages: MachinePages;
  readonly images: ImageOrders;
}

/** Parts of other rooms, and questions to them, that the links need. */
export interface LinkNeeds
  extends
    Omit<
      LinksParts,
      'usage' | 'deviceUses' | 'pages' | 'logs' | 'credentials' | 'secretsOf' | 'images' | 'progress' | 'server'
    >,
    Pick<Infrastructure, 'db' | 'keys'>,
    Pick<Identity, 'installation' | 'secrets'>,
    Pick<ClusterState, 'bus' | 'isAlone' | 'joining' | 'enrolment' | 'hostIdentities'>,
    Pick<Scaling, 'cpuWorkAllowed'> {
  readonly redis: Redis;
  /** The scheduler's own credentials for registries. */
  readonly registries: Pick<RegistryCredentials, 'of'>;
  /** Absent: built images are in no registry. */
  readonly builtRegistry?: RegistryParts['builtRegistry'];
  /** Settings of the lines of pulls that differ from the defaults. */
  readonly pullLine?: Partial<PullLineSettings>;
  /** Absent: logs have no bound. */
  readonly quota?: LogQuota;
  /** Database and writer of events about dropped log lines; absent: nothing is told. */
  readonly told?: NonNullable<LogSinkParts['told']>;
}

/** Builds the links; `wireLinks` connects them. */
export function buildLinks({ redis, keys, bus, isAlone, installation, secrets, ...needs }: LinkNeeds): LinkParts {
  const usage = new Usage({ ...needs, redis: isAlone ? undefined : redis, keyOf: keys.usage });
  const deviceUses = new DeviceUses({ ...needs, redis: isAlone ? undefined : redis, keyOf: keys.deviceUse });
  const pages = new MachinePages({ bus, channel: keys.pagesChannel, machines: needs.machines });
  const images = new ImageOrders({
    ...needs,
    credentials: new ImageCredentials(needs.registries, secrets),
    lines: new PullLines({ ...needs, client: redis, keys, bus, settings: { ...PULL_LINE, ...needs.pullLine } }),
    registry: needs.builtRegistry?.access,
  });
  const progress = new StartProgress({ ...needs, bus, channel: keys.startsChannel });
  const logs = new LogSink(needs);
  const links = new Links({
    ...needs,
    usage,
    deviceUses,
    pages,
    logs,
    images,
    progress,
    credentials: new MachineCredentials({ ...needs, signer: machineSigner(installation) }),
    secretsOf: (workspaceId, names) => secrets.valuesOf(workspaceId, names),
    server: installation.server,
  });
  return { links, logs, usage, deviceUses, pages, images };
}

export function openLinks({ infrastructure, identity, clusterState, ...setup }: LinksSetup): LinkParts {
  const { db, general, keys, clock, log, registry, settings } = infrastructure;
  const { secrets, installation, limits } = identity;
  const { reports, attempts, drainCutoff } = setup.taskParts;
  const logMetrics = new LogMetrics(registry);
  const quota = new LogQuota({
    limitOf: (workspaceId) => limits.peek(workspaceId).bytes.logs_per_day,
    clock,
    onDropped: () => logMetrics.dropped.inc(),
  });
  return buildLinks({
    ...clusterState,
    db,
    told: { db, events: setup.events.writer },
    redis: general,
    keys,
    clock,
    log,
    installation,
    secrets,
    registries: new RegistryCredentials(settings.LONGSHORE_REGISTRY_CONFIG, log),
    ...setup.registryParts,
    reports,
    attempts,
    quota,
    pullLine: { width: settings.LONGSHORE_IMAGE_PULLS, widthMost: settings.LONGSHORE_IMAGE_PULLS_MOST },
    cpuWorkAllowed: setup.scaling.cpuWorkAllowed,
    tokenOf: (row) => issueCredential(setup.tokens, row),
    noticeMs: (id) => drainCutoff.noticeLeftMs(id),
    openObject: async (objectId) => (await setup.objects.open(objectId))?.stream,
    address: settings.LONGSHORE_AGENT_ADDRESS,
    socketPath: settings.LONGSHORE_LINK_SOCKET,
    metrics: clusterState.fleetMetrics,
    settings: SESSION_SETTINGS,
  });
}
