// The links of agents, and their traffic beside orders and tasks: images
// ahead of containers, resource use, pages of metrics.
import { MachineCredentials } from '../fleet/credentials.ts';
import { Links } from '../fleet/links.ts';
import { MachinePages } from '../fleet/machine-pages.ts';
import { SESSION_SETTINGS } from '../fleet/session.ts';
import { Usage } from '../fleet/usage.ts';
import { issueCredential } from '../fleet/containers/credentials.ts';
import type { Tokens } from '../workspaces/identity/tokens.ts';
import { machineSigner } from '../workspaces/identity/machine-credentials.ts';
import { ImageCredentials } from '../fleet/images/workspace-credentials.ts';
import { RegistryCredentials } from '../fleet/images/credentials.ts';
import { ImageOrders } from '../fleet/images/orders.ts';
import { PullPermits } from '../fleet/images/pull-permits.ts';
import { LogQuota } from '../fleet/logs/log-quota.ts';
import { LogSink } from '../fleet/logs/log-sink.ts';
import { LogMetrics } from '../fleet/logs/metrics.ts';
import type { Objects } from '../stores/objects/service.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Identity } from './identity.ts';
import type { Scaling } from './scaling.ts';
import type { TaskParts } from './tasks.ts';

export interface LinksSetup {
  readonly infrastructure: Infrastructure;
  readonly identity: Identity;
  readonly clusterState: ClusterState;
  readonly objects: Objects;
  readonly taskParts: TaskParts;
  readonly scaling: Pick<Scaling, 'cpuWorkAllowed'>;
  readonly tokens: Tokens;
}

export interface LinkParts {
  readonly links: Links;
  readonly logs: LogSink;
  readonly usage: Usage;
  readonly pages: MachinePages;
  readonly images: ImageOrders;
}

export function openLinks(setup: LinksSetup): LinkParts {
  const { clusterState, tokens, objects } = setup;
  const { reports, attempts } = setup.taskParts;
  const { cpuWorkAllowed } = setup.scaling;
  const { db, general, keys, clock, log, registry, settings } = setup.infrastructure;
  const { secrets, installation, limits } = setup.identity;
  const {
    bus,
    isAlone,
    containers,
    machines,
    joining,
    agentReports,
    slots,
    leases,
    fleetMetrics: metrics,
  } = clusterState;
  const usage = new Usage({ redis: isAlone ? undefined : general, keyOf: keys.usage, clock, log });
  const pages = new MachinePages({ bus, channel: keys.pagesChannel, machines });
  const images = new ImageOrders({
    machines,
    containers,
    credentials: new ImageCredentials(new RegistryCredentials(settings.LONGSHORE_REGISTRY_CONFIG, log), secrets),
    permits: new PullPermits(general, keys),
    cpuWorkAllowed,
    log,
  });
  const logMetrics = new LogMetrics(registry);
  const quota = new LogQuota({
    limitOf: (workspaceId) => limits.peek(workspaceId).bytes.logs_per_day,
    clock,
    onDropped: () => logMetrics.dropped.inc(),
  });
  const logs = new LogSink({ db, containers, quota });
  const links = new Links({
    usage,
    pages,
    machines,
    agentReports,
    containers,
    slots,
    reports,
    attempts,
    leases,
    logs,
    credentials: new MachineCredentials({ machines, joining, db, signer: machineSigner(installation), clock, log }),
    secretsOf: (workspaceId, names) => secrets.valuesOf(workspaceId, names),
    tokenOf: (row) => issueCredential(tokens, row),
    images,
    openObject: async (objectId) => (await objects.open(objectId))?.stream,
    server: installation.server,
    address: settings.LONGSHORE_AGENT_ADDRESS,
    socketPath: settings.LONGSHORE_LINK_SOCKET,
    clock,
    log,
    metrics,
    settings: SESSION_SETTINGS,
  });
  return { links, logs, usage, pages, images };
}
