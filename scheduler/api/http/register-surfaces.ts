// Routes of every HTTP surface, each in a scope of its own. `surfaces.ts` makes the server that they are on.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { Places } from '#shared/places.ts';
import type { Deployments } from '../../workspaces/deployments/deployments.ts';
import type { Stubs } from '../../workspaces/deployments/stubs.ts';
import type { UrlSettings } from '../../workspaces/deployments/urls.ts';
import { Stacks } from '../../workspaces/deployments/stacks.ts';
import type { Volumes } from '../../workspaces/deployments/volumes.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import type { Operation } from '../operations/operation.ts';
import type { ConsoleFiles } from '../ops/console-files.ts';
import { Readiness } from '../ops/health.ts';
import { HOST as CONTAINER_HOST } from './container-calls.ts';
import type { Outputs } from '../../tasks/outputs/service.ts';
import { codeTrust } from '../../workspaces/deployments/code-trust.ts';
import type { SharedState } from '../../workspaces/shared-state/service.ts';
import { InstallationTrail } from '../../workspaces/events/installation-trail.ts';
import type { boundedAuthenticator } from './auth.ts';
import { mayTrustLoopback, senders } from './auth.ts';
import type { Senders } from './auth.ts';
import type { GatewayCalls } from './gateway-calls.ts';
import { BodyBudget } from './body-budget.ts';
import { bindOperations, GATEWAY_BASE } from './bind.ts';
import { registerContainers } from './containers/routes.ts';
import { ConsolePlace, CONSOLE_BASE } from './console/address.ts';
import type { ConsoleCallParts } from './console/calls.ts';
import { countSession, guardPassage, isThrough, sendersOf } from './console/passage.ts';
import { keepApart, registerConsole } from './console/register.ts';
import { sessionSenders } from './console/session.ts';
import type { ContainerSockets } from './containers/sockets.ts';
import { openApiDocument } from './description/openapi.ts';
import { registerViewer } from './description/viewer.ts';
import { Backends } from './inference/backends.ts';
import { deferredRunner } from './inference/deferred-call.ts';
import { InferenceMetrics } from './inference/metrics.ts';
import { routeEvent } from './inference/route-event.ts';
import type { RoutedCall } from './inference/route-event.ts';
import { registerInference } from './inference/routes.ts';
import type { InferenceParts } from './inference/routes.ts';
import { ANSWER_RULES } from './inference/whole-answer.ts';
import { registerInvoke } from './invoke/invoke.ts';
import type { InvokeParts } from './invoke/invoke.ts';
import { registerDiscovery } from './ops/discovery.ts';
import { registerHealth } from './ops/health-page.ts';
import { registerInstall } from './ops/install.ts';
import { registerMetrics } from './ops/metrics-page.ts';
import { registerDownload } from './ops/download.ts';
import { registerUpload } from './ops/upload.ts';
import { VolumeFileMetrics } from './ops/volume-file-metrics.ts';
import { registerVolumeFiles } from './ops/volume-files.ts';
import { originReader } from './origin.ts';
import { bindRest, REST_BASE } from './rest/rest.ts';
import { isAtRoot } from './rest/route.ts';
import { restRoutes } from './rest/routes.ts';
import { StreamMetrics } from './streams/metrics.ts';
import { registerRelay } from './streams/relay-route.ts';
import type { OpenCalls } from './streams/open-calls.ts';
import { MOST_CONNECTIONS } from './streams/sandbox-call.ts';
import { StreamRoom } from './streams/room.ts';
import type { WebSockets } from './streams/websockets.ts';
import type { ServerState } from './server.ts';
import type { SseStreams } from './sse.ts';
import type { SurfaceParts } from './surface-parts.ts';

/** The services that the surfaces make themselves, and the sockets and streams that they hold. */
export interface SurfacesMade {
  readonly stubs: Stubs;
  readonly deployments: Deployments;
  readonly volumes: Volumes;
  readonly sharedState: SharedState;
  readonly outputs: Outputs;
  /** Counts a request in its workspace's rate. @throws AppError `rate_limited` */
  readonly mayAsk: (caller: Caller, kind: 'rest' | 'state') => Promise<void>;
  /** The gateway's operations, which several transports serve. */
  readonly operations: readonly Operation[];
  readonly calls: GatewayCalls;
  readonly authenticator: ReturnType<typeof boundedAuthenticator>;
  readonly webSockets: WebSockets;
  readonly containerSockets: ContainerSockets;
  readonly openCalls: OpenCalls;
  readonly sse: SseStreams;
}

/** The server that surfaces are registered on, and what all of them use. */
interface Registering {
  readonly app: FastifyInstance;
  readonly state: ServerState;
  readonly parts: SurfaceParts;
  readonly made: SurfacesMade;
  readonly authenticator: ReturnType<typeof boundedAuthenticator>;
  readonly urls: UrlSettings;
  /** Whether a request from loopback counts as this host's own. */
  readonly trustsLoopback: boolean;
  readonly originOf: ReturnType<typeof originReader>;
  /** Where the web console is; undefined: it is switched off. */
  readonly console: ConsolePlace | undefined;
}

export function registerAll(app: FastifyInstance, state: ServerState, parts: SurfaceParts, made: SurfacesMade): void {
  const { settings } = parts;
  const { scheme, listenUrl } = state;
  const trustsLoopback = mayTrustLoopback(settings);
  const place =
    settings.console === 'off'
      ? undefined
      : new ConsolePlace({ consoleUrl: settings.consoleUrl ?? null, externalUrl: settings.externalUrl });
  const on: Registering = {
    app,
    state,
    parts,
    made,
    authenticator: made.authenticator,
    urls: { invokeDomain: settings.invokeDomain },
    trustsLoopback,
    originOf: originReader({
      externalUrl: settings.externalUrl,
      listenUrl,
      scheme,
      trustsLoopback,
      isConsole: (request) => place?.isItsOwn(request) === true,
    }),
    console: place,
  };
  if (on.console !== undefined) {
    keepApart(app, { place: on.console });
    guardPassage(app, on.console);
  }
  const calls = { invoke: invokeParts(on), inference: inferenceParts(on) };
  registerGateway(on);
  registerRest(on, calls);
  plugin(app, '', (scope) => registerInvoke(scope, calls.invoke));
  plugin(app, '', (scope) => registerInference(scope, calls.inference));
  registerBytes(on);
  registerPages(on);
}

/** The gateway's operations. */
function registerGateway(on: Registering): void {
  const { app, parts, made, authenticator, originOf } = on;
  const { operations, calls } = made;
  const bySession = bySessionOf(on);
  const passage =
    bySession === undefined
      ? {}
      : {
          passage: {
            isThrough,
            find: async (request: FastifyRequest) => bySession.find(request),
            mayAsk: (caller: Caller) => countSession(parts.rates, caller),
          },
        };
  plugin(app, GATEWAY_BASE, (scope) => {
    bindOperations(scope, operations, { authenticator, originOf, log: parts.log, calls, ...passage });
  });
}

/** Finds senders by sessions of the console; undefined: there is no console. */
function bySessionOf({ parts, authenticator, console: place }: Registering): Senders | undefined {
  return place === undefined ? undefined : sessionSenders({ sessions: parts.consoleSessions, place, authenticator });
}

/** The REST API of workspaces, and the console, from which deployments and models can be called, too. */
function registerRest(on: Registering, calls: Omit<ConsoleCallParts, 'callerOf'>): void {
  const { app, state, parts, made, authenticator, originOf, urls, console: place } = on;
  const { deployments, volumes, sharedState, outputs, mayAsk, sse } = made;
  const { settings, directory, log } = parts;
  const { listenUrl } = state;
  const { maxInvokeBodyBytes, retention } = settings;
  // The name that containers call leads nowhere outside them.
  const publicBaseOf = (request: FastifyRequest): string =>
    settings.externalUrl === null && request.headers.host === CONTAINER_HOST
      ? (listenUrl() ?? originOf(request).baseUrl)
      : originOf(request).baseUrl;
  const stacks = new Stacks(parts.db, async (id) => (await parts.limits.of(id)).counts.stacks);
  const routes = restRoutes({
    ...parts,
    operations: made.operations,
    stacks,
    outputs,
    trail: new InstallationTrail(parts.db, parts.events.writer, () => parts.clock.nowMs()),
    publicBaseOf,
    apartBaseOf: (request) => (place?.base === undefined ? null : publicBaseOf(request)),
    consoleBaseOf: (request) => (place === undefined ? null : (place.base ?? originOf(request).baseUrl)),
    installation: settings,
    sharedState,
    streams: sse,
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
  const byToken = senders(authenticator);
  const bySession = bySessionOf(on);
  const rest = {
    workspaceExists,
    streams: sse,
    log,
    senders: bySession === undefined ? byToken : sendersOf(byToken, bySession),
    mayAsk: (caller: Caller, kind: 'rest' | 'state') =>
      caller.console === undefined ? mayAsk(caller, kind) : countSession(parts.rates, caller),
  };
  plugin(app, REST_BASE, (scope) => bindRest(scope, routes, rest));
  plugin(app, '', (scope) => bindRest(scope, routes.filter(isAtRoot), rest));
  if (place === undefined || bySession === undefined) return;
  const { consoleSessions: sessions, consoleFiles: files, terminalTickets: tickets, access, inside } = parts;
  const { containerSockets: sockets } = made;
  const callerOf = async (request: FastifyRequest): Promise<Caller> => {
    const caller = await bySession.find(request);
    if (caller === null) throw new AppError('unauthorized', 'Unauthorized');
    await countSession(parts.rates, caller);
    return caller;
  };
  const ofConsole = {
    sessions,
    files,
    place,
    authenticator,
    log,
    rates: parts.rates,
    ...calls,
    callerOf,
    tickets,
    access,
    inside,
    sockets,
  };
  plugin(app, CONSOLE_BASE, (scope) => registerConsole(scope, ofConsole));
}

/** Parts of the calls of deployments, and of ports of pods and sandboxes. */
function invokeParts({ state, parts, made, authenticator, originOf, urls }: Registering): InvokeParts {
  const { webSockets, openCalls } = made;
  const { settings, directory, log } = parts;
  return {
    authenticator,
    hosts: {
      ...urls,
      isExternal: settings.externalUrl !== null,
      baseUrlOf: (request) => originOf(request).baseUrl,
    },
    targets: parts.targets,
    submissions: parts.submissions,
    containers: parts.containerActions,
    callbackProblem: parts.callbackProblem,
    mayTakeCode: codeTrust(directory),
    log,
    maxBodyBytes: settings.maxInvokeBodyBytes,
    release: (request) => state.bodies.release(request),
    hasContainers: (queue) => parts.containers.hasLive(queue),
    isServed: (queue) => parts.containers.isServed(queue),
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
  };
}

/** Parts of the calls of models, at once and later. */
function inferenceParts({ state, parts, made, authenticator, originOf }: Registering): InferenceParts {
  const { openCalls } = made;
  const { log } = parts;
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
  parts.deferredExecutor.runsWith(
    deferredRunner({ ...calls, correctRate: (...told) => parts.inferenceRates.correct(...told) }),
  );
  return {
    ...calls,
    authenticator,
    hasContainers: (queue) => parts.containers.hasLive(queue),
    release: (request) => state.bodies.release(request),
    keptAnswers: parts.keptAnswers,
    deferred: parts.deferredCalls,
    taskUrlOf: (request, workspaceId, taskId) => `${originOf(request).baseUrl}/api/v1/task/${workspaceId}/${taskId}`,
    wallMs: () => parts.clock.nowMs(),
  };
}

/** Bytes by signed addresses, into containers and between replicas. */
function registerBytes({ app, parts, made, authenticator }: Registering): void {
  const { containerSockets } = made;
  const { directory, log } = parts;
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
}

/** Pages for operators, programs and people. */
function registerPages(on: Registering): void {
  const { app, state, parts, authenticator, originOf, trustsLoopback, console: place } = on;
  const { settings } = parts;
  const { scheme } = state;
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
  registerOpenApi(app, settings.version, place === undefined ? undefined : parts.consoleFiles);
}

/** Registers openapi.json for programs, and its page for people. */
function registerOpenApi(app: FastifyInstance, version: string, files: ConsoleFiles | undefined): void {
  let text: string | undefined;
  app.get('/openapi.json', (_request, reply) =>
    reply.type('application/json; charset=utf-8').send((text ??= JSON.stringify(openApiDocument(version)))),
  );
  // Browsers that open the bare address are led to the console, where there is one.
  registerViewer(app, async () => ((await files?.list()) === undefined ? '/docs' : '/console/'));
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
