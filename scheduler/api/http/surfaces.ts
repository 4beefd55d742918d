// Every HTTP surface of the scheduler, put together: the gateway's operations, the workspace REST API, invoke, uploads,
// and operators' pages. compose/surfaces.ts calls createSurfaces with the services and gets a server to start and stop.
import type { IncomingMessage } from 'node:http';
import type { StubRow } from '../../stores/store/queries/stubs.ts';
import { codeTrust } from '../../workspaces/deployments/code-trust.ts';
import { Deployments } from '../../workspaces/deployments/deployments.ts';
import type { GpuMachine } from '../../workspaces/deployments/gpu-supply.ts';
import { Stubs } from '../../workspaces/deployments/stubs.ts';
import { Volumes } from '../../workspaces/deployments/volumes.ts';
import { SharedState } from '../../workspaces/shared-state/service.ts';
import { SignalWatch } from '../../workspaces/shared-state/signal-watch.ts';
import { Outputs } from '../../tasks/outputs/service.ts';
import type { MachineView } from '../../fleet/machine-service.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import { splitAddress } from '#shared/address.ts';
import { GrpcServer } from '../grpc/server.ts';
import type { GrpcPlace } from '../operations/workspace.ts';
import { poolNameOf } from '../../domain/pools.ts';
import { MOST_UPLOAD_BYTES } from '../operations/pods/files.ts';
import { readNamedPool } from '../../control/placement/named-pool-reader.ts';
import { boundedAuthenticator } from './auth.ts';
import { GATEWAY_BODY_LIMIT } from './bind.ts';
import { ContainerSockets } from './containers/sockets.ts';
import { routeThrough } from './console/passage.ts';
import { GatewayCalls } from './gateway-calls.ts';
import { hostRewriter } from './invoke/host-form.ts';
import { sendInShape } from './problem-shape.ts';
import { createHttpServer } from './server.ts';
import { OpenCalls } from './streams/open-calls.ts';
import { WebSockets } from './streams/websockets.ts';
import type { HttpServer } from './server.ts';
import { SseMetrics, SseStreams } from './sse.ts';
import { registerAll } from './register-surfaces.ts';
import { restRate } from './rest/limits.ts';
import { surfaceOperations } from './surface-operations.ts';
import type { SurfaceParts, SurfaceSettings } from './surface-parts.ts';

export interface Surfaces {
  readonly server: HttpServer;
  readonly grpc: GrpcServer;
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
    pythonProblem: (workspaceId, { imageId, extra, gpu, gpuCount, pythonVersion }) =>
      imageId === ''
        ? parts.feasibility.pythonProblem({ workspaceId, poolName: poolNameOf(extra), gpu, gpuCount }, pythonVersion)
        : undefined,
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
    labelKey: parts.labelKey,
    events: parts.events.writer,
    nowMs: () => parts.clock.nowMs(),
    isServed: (queue) => parts.containers.isServed(queue),
    ...limits,
  });
  const authenticator = boundedAuthenticator(parts.tokens, parts.refusals);
  const calls = new GatewayCalls(parts.events.passing, () => parts.clock.nowMs());
  const grpcPlace = (): GrpcPlace | null => {
    const { external } = parts.settings.grpc;
    if (external !== undefined) return splitAddress(external);
    return grpc.port === 0 ? null : { host: '', port: grpc.port };
  };
  const operations = surfaceOperations(parts, { stubs, deployments, volumes, grpcPlace });
  const mayTakeCode = codeTrust(parts.directory);
  const sharedState = new SharedState({
    db,
    mayTakeCode,
    roomOf: async (workspaceId) => {
      const { counts, bytes } = await parts.limits.of(workspaceId);
      return { entries: counts.shared_entries, bytes: bytes.shared };
    },
  });
  const outputs = new Outputs({ db, objects: parts.objects, tasks: parts.tasks });
  const mayAsk = parts.rates === undefined ? async () => undefined : restRate(parts.limits, parts.rates);
  const webSockets = new WebSockets();
  const containerSockets = new ContainerSockets();
  const openCalls = new OpenCalls();
  const sse = new SseStreams({ clock: parts.clock, metrics: new SseMetrics(parts.registry) });
  const server = createHttpServer({
    log: parts.log,
    trustedProxies: parts.settings.trustedProxies ?? [],
    origins: parts.settings.origins ?? [],
    plaintext: parts.settings.plaintext ?? 'loopback',
    ...(parts.certificate === undefined ? {} : { certificate: parts.certificate }),
    largestBodyBytes: Math.max(parts.settings.maxInvokeBodyBytes, GATEWAY_BODY_LIMIT, MOST_UPLOAD_BYTES),
    ...(parts.settings.maxConnections === undefined ? {} : { maxConnections: parts.settings.maxConnections }),
    sendProblem: sendInShape,
    rewriteUrl: rewriterOf(parts.settings),
    onStop: () => {
      webSockets.closeAll();
      containerSockets.closeAll();
      openCalls.refuseWebSockets();
      sse.endAll();
    },
    onLast: () => openCalls.refuseAll(),
    onCut: () => openCalls.cutAll(),
    register: (app, state) =>
      registerAll(app, state, parts, {
        stubs,
        deployments,
        volumes,
        sharedState,
        outputs,
        mayAsk,
        operations,
        calls,
        authenticator,
        webSockets,
        containerSockets,
        openCalls,
        sse,
      }),
  });
  const grpc = new GrpcServer({
    address: parts.settings.grpc.address,
    plaintext: parts.settings.grpc.plaintext,
    ...(parts.certificate === undefined ? {} : { certificate: parts.certificate }),
    log: parts.log,
    open: async (connections) => {
      const { openWire, unroutedOperations } = await import('../grpc/open-wire.ts');
      const listenUrl = (): string | null => server.listenUrl;
      const { serves: leases, containers } = parts;
      const serveParts = { stubs, leases, containers, began: (stub: StubRow) => stubs.began(stub) };
      const signalWatch = new SignalWatch({ db, log: parts.log });
      const state = { sharedState, signalWatch, outputs, mayAsk };
      const unrouted = { ...parts, ...state, volumes, deployments, serveParts, mayTakeCode };
      const all = [...operations, ...unroutedOperations(unrouted)];
      return openWire({ parts, operations: all, calls, authenticator, streams: sse, listenUrl, ...connections });
    },
  });
  return { server, grpc, stubs, deployments };
}

const gpuMachineOf = (machine: MachineView, isOwn: boolean): GpuMachine => ({
  poolName: machine.poolName,
  isOwn,
  requiresPoolSelector: machine.requiresPoolSelector,
  gpus: machine.gpus,
  gpuDriver: machine.host?.gpuDriver ?? '',
  freeGpuCount: machine.status === 'available' ? machine.freeGpuCount : 0,
});

/** Addresses by which requests are routed: host labels have paths of their own, and so has the console's passage. */
function rewriterOf(settings: SurfaceSettings) {
  const byHost = hostRewriter(invokeDomains(settings));
  if (settings.console === 'off') return byHost;
  return (host: string | undefined, url: string, request: IncomingMessage) => routeThrough(request, byHost(host, url));
}

/** Domains below which every host label counts. */
function invokeDomains({ invokeDomain, externalUrl }: SurfaceSettings): readonly string[] {
  const external = externalUrl === null ? null : new URL(externalUrl).hostname;
  return ['localhost', invokeDomain, external].filter((domain) => domain !== null);
}
