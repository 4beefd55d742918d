// The links of agents, and their traffic beside orders and tasks: images
// ahead of containers, resource use, pages of metrics, calls of containers.
import { MachineCredentials } from '../fleet/credentials.ts';
import type { LinksParts } from '../fleet/links.ts';
import { Links } from '../fleet/links.ts';
import { MachinePages } from '../fleet/machine-pages.ts';
import { SESSION_SETTINGS } from '../fleet/session.ts';
import { Usage } from '../fleet/usage.ts';
import type { ContainerCallsParts } from '../api/http/container-calls.ts';
import { ContainerCalls } from '../api/http/container-calls.ts';
import { machineSigner } from '../workspaces/identity/machine-credentials.ts';
import { ImageCredentials } from '../fleet/images/workspace-credentials.ts';
import { RegistryCredentials } from '../fleet/images/credentials.ts';
import { ImageOrders } from '../fleet/images/orders.ts';
import { PullPlaces } from '../fleet/images/places.ts';
import { LogQuota } from '../fleet/logs/log-quota.ts';
import { LogSink } from '../fleet/logs/log-sink.ts';
import { LogMetrics } from '../fleet/logs/metrics.ts';
import type { Objects } from '../stores/objects/service.ts';
import type { Tasks } from '../tasks/service.ts';
import type { Books } from './books.ts';
import type { Ground } from './ground.ts';
import type { Identity } from './identity.ts';

export interface LinksSetup {
  readonly ground: Ground;
  readonly identity: Identity;
  readonly books: Books;
  readonly tasks: Tasks;
  readonly objects: Objects;
  readonly cpuWorkAllowed: (poolName: string) => boolean;
  readonly onServable: LinksParts['onServable'];
  readonly httpServer: ContainerCallsParts['server'];
  readonly isHttpOpen: ContainerCallsParts['isOpen'];
}

export interface LinkParts {
  readonly links: Links;
  readonly usage: Usage;
  readonly pages: MachinePages;
  readonly images: ImageOrders;
}

export function openLinks(setup: LinksSetup): LinkParts {
  const { books, tasks, objects, cpuWorkAllowed, onServable, httpServer, isHttpOpen } = setup;
  const { db, general, keys, clock, log, registry, settings } = setup.ground;
  const { tokens, secrets, installation, limits } = setup.identity;
  const { bus, isAlone, book, machines, slots, credentials, fleetMetrics: metrics } = books;
  const usage = new Usage({ redis: isAlone ? undefined : general, keyOf: keys.usage, clock, log });
  const pages: MachinePages = new MachinePages({
    bus,
    channel: keys.pagesChannel,
    machines,
    order: (machineId, requestId) => links.orderMetrics(machineId, requestId),
  });
  const images = new ImageOrders({
    machines,
    book,
    credentials: new ImageCredentials(new RegistryCredentials(settings.LONGSHORE_REGISTRY_CONFIG, log), secrets),
    send: (machineId, order) => links.prepareImage(machineId, order),
    places: new PullPlaces(general, keys),
    cpuWorkAllowed,
    log,
  });
  const tokenOf: LinksParts['tokenOf'] = (row) => credentials.tokenOf(row);
  const logMetrics = new LogMetrics(registry);
  const quota = new LogQuota({
    limitOf: (workspaceId) => limits.peek(workspaceId).bytes.logs_per_day,
    clock,
    onDropped: () => logMetrics.dropped.inc(),
  });
  const containerCalls = new ContainerCalls({
    book,
    tokenOf,
    tokens,
    server: httpServer,
    isOpen: isHttpOpen,
    metrics,
    log,
  });
  const links: Links = new Links({
    usage,
    pages,
    machines,
    book,
    slots,
    tasks,
    logs: new LogSink({ db, book, quota }),
    credentials: new MachineCredentials({ machines, signer: machineSigner(installation), clock, log }),
    secretsOf: (workspaceId, names) => secrets.valuesOf(workspaceId, names),
    tokenOf,
    serveCall: (machineId, call) => containerCalls.serve(machineId, call),
    images,
    openObject: async (objectId) => (await objects.open(objectId))?.stream,
    server: installation.server,
    address: settings.LONGSHORE_AGENT_ADDRESS,
    socketPath: settings.LONGSHORE_LINK_SOCKET,
    clock,
    log,
    metrics,
    settings: SESSION_SETTINGS,
    onServable,
  });
  return { links, usage, pages, images };
}
