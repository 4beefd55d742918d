// The port that agents dial (1995): TLS with the installation's own CA, one gRPC service. The service binds streams to
// sessions, sessions to machines, and tells dispatch which containers it can reach.
// Invariant: a machine has one current session, and the newer wins. Every
// stream shows a machine credential, and speaks for that machine only.
import type { MachineId, QueueName } from '#shared/domain/ids.ts';
import { Metadata, Server } from '@grpc/grpc-js';
import type { sendUnaryData, ServerDuplexStream, ServerUnaryCall } from '@grpc/grpc-js';
import type { Socket } from 'node:net';
import type { Clock } from '#shared/clock.ts';
import { AppError } from '#shared/errors.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { SessionLine } from '#shared/protocol/byte-connections.ts';
import { loadLink, MAX_MESSAGE_BYTES } from '#shared/protocol/link.ts';
import type {
  ChallengeRequest__Output,
  ChallengeResponse,
  Delivered,
  GatewayRequest__Output,
  GatewayResponse,
  JoinRequest__Output,
  JoinResponse,
  PullImageRequest__Output,
  PullImageResponse,
  ProveRequest__Output,
  ProveResponse,
  MetricsPage__Output,
  RenewCredentialResponse,
  ContainerChanged__Output,
  Samples__Output,
} from '#shared/protocol/generated/messages.ts';
import { isSyncKind } from '../workspaces/deployments/kinds.ts';
import type { ContainerEntryChange, ContainerRegistry } from './containers/container-registry.ts';
import type { ContainerEntry } from './containers/container-entry.ts';
import type { StartProgress } from './containers/start-progress.ts';
import type { Reports } from '../tasks/completion/reports.ts';
import type { SlotTable } from '../tasks/dispatch/slots.ts';
import type { ImageOrders } from './images/orders.ts';
import type { LogSink } from './logs/log-sink.ts';
import { LogStreams } from './logs/log-streams.ts';
import type { LogCall } from './logs/log-streams.ts';
import type { MachineCredentials } from './credentials.ts';
import type { AgentReports } from './agent-reports.ts';
import { AcceptRate } from './accept-rate.ts';
import { AgentPort } from './agent-port.ts';
import { ByteConnections } from './byte-connections.ts';
import type { OrderedStream, RegistryConnection, StreamedCall } from './byte-connections.ts';
import { BuildObjects } from './builds/build-objects.ts';
import { sendCode } from './code-stream.ts';
import type { CodeCall } from './code-stream.ts';
import { grpcError } from './grpc-errors.ts';
import type { Machine } from './machine.ts';
import type { Machines } from './machines.ts';
import type { DeviceUses } from './device-use.ts';
import type { Usage } from './usage.ts';
import type { FleetMetrics } from './metrics.ts';
import { isNewOrder } from './orders.ts';
import type { AgentOrder, ControlCall, SessionParts } from './session.ts';
import type { SessionSettings } from './session-settings.ts';
import { Session } from './session.ts';
import { PartsBudget } from './result-parts.ts';
import type { TaskCall } from './task-stream.ts';
import type { StreamedTasks } from './task-stream.ts';
import { TaskStream } from './task-stream.ts';

export interface LinksParts {
  readonly machines: Machines;
  readonly agentReports: AgentReports;
  readonly containers: ContainerRegistry;
  readonly progress: StartProgress;
  readonly slots: SlotTable;
  readonly reports: StreamedTasks['reports'] & Pick<Reports, 'heartbeat' | 'containerReady'>;
  readonly attempts: StreamedTasks['attempts'];
  readonly leases: StreamedTasks['leases'];
  readonly logs: LogSink;
  readonly credentials: MachineCredentials;
  readonly secretsOf: SessionParts['secretsOf'];
  readonly tokenOf: SessionParts['tokenOf'];
  readonly noticeMs: SessionParts['noticeMs'];
  readonly usage: Usage;
  readonly deviceUses: DeviceUses;
  readonly pages: { delivered(machineId: MachineId, requestId: string, page: Uint8Array): boolean };
  readonly images: Pick<ImageOrders, 'pull' | 'prepared'>;
  readonly openObject: (objectId: string) => Promise<NodeJS.ReadableStream | undefined>;
  readonly server: { readonly chainPem: string; readonly keyPem: string };
  readonly address: string;
  /** Unix socket that the agent of this machine may dial as well. */
  readonly socketPath?: string | undefined;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: FleetMetrics;
  readonly settings: SessionSettings;
}

export type ContainerCall = ServerDuplexStream<GatewayRequest__Output, GatewayResponse>;

interface Connection {
  readonly session: Session;
  tasks: TaskStream | undefined;
  /** Authorization that was found good for this session's machine last. */
  authorization: string;
  readonly machineId: MachineId;
  /** Connections for bytes that wait for their stream. */
  readonly waiting: Set<Socket>;
}

/** Streams of a connection at once: calls of a machine's containers, code, and the link's own. */
const MOST_STREAMS = 4096;
/** A connection without a stream is closed after this time: an agent that lives has its control stream. */
const IDLE_MS = 60_000;

export class Links {
  readonly name = 'agent links';
  readonly #parts: LinksParts;
  readonly #server: Server;
  readonly #connections = new Map<MachineId, Connection>();
  readonly #bySession = new Map<string, Connection>();
  readonly #logStreams: LogStreams;
  readonly #partsBudget = new PartsBudget();
  readonly #accepting: AcceptRate;
  readonly #port: AgentPort;
  readonly #bytes: ByteConnections;
  readonly #buildObjects = new BuildObjects();
  readonly #queuesReady = new Listeners<[Iterable<QueueName>]>();
  readonly #sampled = new Listeners<[MachineId, Samples__Output]>();
  readonly #containerChanged = new Listeners<[MachineId, ContainerChanged__Output]>();
  #serveCall: (machineId: MachineId, call: ContainerCall) => Promise<void> = () =>
    Promise.reject(new Error('calls of containers are not served'));

  constructor(parts: LinksParts) {
    this.#parts = parts;
    this.#accepting = new AcceptRate(parts.clock);
    this.#logStreams = new LogStreams(parts.logs, parts.log);
    const { credentials } = parts;
    this.#server = new Server({
      'grpc.max_receive_message_length': 2 * MAX_MESSAGE_BYTES,
      'grpc.max_send_message_length': 2 * MAX_MESSAGE_BYTES,
      'grpc.max_concurrent_streams': MOST_STREAMS,
      'grpc.max_connection_idle_ms': IDLE_MS,
    });
    const { service } = loadLink().longshore.agent.v1.AgentLink;
    this.#server.addService(service, {
      Join: (call: ServerUnaryCall<JoinRequest__Output, JoinResponse>, done: sendUnaryData<JoinResponse>) =>
        void answer(this.#join(call), done),
      RenewCredential: (
        call: ServerUnaryCall<unknown, RenewCredentialResponse>,
        done: sendUnaryData<RenewCredentialResponse>,
      ) => void answer(credentials.renew(call.metadata), done),
      Challenge: (
        call: ServerUnaryCall<ChallengeRequest__Output, ChallengeResponse>,
        done: sendUnaryData<ChallengeResponse>,
      ) => void answer(credentials.challenge(call.request), done),
      Prove: (call: ServerUnaryCall<ProveRequest__Output, ProveResponse>, done: sendUnaryData<ProveResponse>) =>
        void answer(credentials.prove(call.request, call.metadata), done),
      Control: (call: ControlCall) => void this.#control(call),
      Tasks: (call: TaskCall) => void this.#tasks(call),
      Logs: (call: LogCall) => void this.#logs(call),
      DeliverMetrics: (call: ServerUnaryCall<MetricsPage__Output, Delivered>, done: sendUnaryData<Delivered>) =>
        void answer(this.#deliverMetrics(call), done),
      PullImage: (
        call: ServerUnaryCall<PullImageRequest__Output, PullImageResponse>,
        done: sendUnaryData<PullImageResponse>,
      ) => void answer(this.#pullImage(call), done),
      FetchCode: (call: CodeCall) => void this.#fetchCode(call),
      CallGateway: (call: ContainerCall) => void this.#containerCall(call),
    });
    this.#bytes = new ByteConnections({ sessionOf: (line) => this.#sessionOf(line) });
    this.#port = new AgentPort({
      grpc: this.#server,
      onBytes: (socket, onKnown) => this.#bytes.accept(socket, onKnown),
      certificate: parts.server,
      address: parts.address,
      socketPath: parts.socketPath,
      strangers: parts.settings.strangers,
    });
  }

  /** Connections of the port that have shown no credential yet. */
  get strangers(): number {
    return this.#port.strangers.size;
  }

  /** Told when a container takes tasks now, or a machine came back: their queues may be served. */
  onQueuesReady(listener: (queues: Iterable<QueueName>) => void): void {
    this.#queuesReady.add(listener);
  }

  /** Called with a call of one of that machine's containers. The handler serves it, then resolves. */
  onContainerCall(handler: (machineId: MachineId, call: ContainerCall) => Promise<void>): void {
    this.#serveCall = handler;
  }

  /** Told the samples that an agent sends every few seconds. */
  onSampled(listener: (machineId: MachineId, samples: Samples__Output) => void): void {
    this.#sampled.add(listener);
  }

  /** Told the answer of an agent to a change of a container. */
  onContainerChanged(listener: (machineId: MachineId, changed: ContainerChanged__Output) => void): void {
    this.#containerChanged.add(listener);
  }

  /** Called with the bytes of a streamed call that an agent opened. */
  onStream(handler: StreamedCall): void {
    this.#bytes.onStream(handler);
  }

  /** Called with the bytes of a stream that was ordered from an agent. */
  onOrderedStream(handler: OrderedStream): void {
    this.#bytes.onOrderedStream(handler);
  }

  /** Called with a connection of an agent that speaks HTTP for the managed registry. */
  onRegistry(handler: RegistryConnection): void {
    this.#bytes.onRegistry(handler);
  }

  machineChanged({ row }: Machine): void {
    if (this.#parts.machines.get(row.id) === undefined) void this.#machineDeleted(row.id);
  }

  /** Ends the session and streams of a deleted machine, whose credential is invalid now. */
  async #machineDeleted(machineId: MachineId): Promise<void> {
    this.#logStreams.end(machineId);
    const connection = this.#connections.get(machineId);
    if (connection === undefined) return;
    connection.tasks?.close();
    this.#parts.slots.setLink(machineId, undefined);
    connection.session.revoke(await this.#parts.credentials.revocation(machineId));
  }

  /** `host:port` as bound. */
  get address(): string {
    return this.#port.address;
  }

  /** @throws StartupError `port_in_use`, `data_dir_unusable` */
  async start(): Promise<void> {
    await this.#port.start();
  }

  async stop(): Promise<void> {
    const linked = this.#connections.size;
    for (const { session } of this.#connections.values()) session.later('scheduler_stopping', linked);
    this.#port.stop();
    this.#bytes.close();
    await new Promise<void>((resolve) => {
      const force = setTimeout(() => {
        this.#server.forceShutdown();
        resolve();
      }, 1_000);
      this.#server.tryShutdown(() => {
        clearTimeout(force);
        resolve();
      });
    });
  }

  /** Sends an agent a new snapshot when a move changes its orders. */
  containerMoved({ entry, before, machineBefore }: ContainerEntryChange): void {
    const { machineId } = entry.row;
    if (machineId !== null && isNewOrder(before, entry.row)) this.#connections.get(machineId)?.session.changed();
    if (machineBefore !== null && machineBefore !== machineId) this.#connections.get(machineBefore)?.session.changed();
  }

  /** Ends the session of a machine whose agent has since dialled another replica. */
  superseded(machineId: MachineId): void {
    const connection = this.#connections.get(machineId);
    if (connection === undefined) return;
    connection.tasks?.close();
    connection.session.supersede();
  }

  async #join(call: ServerUnaryCall<JoinRequest__Output, JoinResponse>): Promise<JoinResponse> {
    const joined = await this.#parts.credentials.join(call.request, call.metadata);
    this.#port.strangers.knownByCall(call.getPeer(), joined.machineId as MachineId);
    return joined;
  }

  /** The machine of a call, whose connection is no stranger's from now on. */
  async #authenticated(call: Pick<ControlCall, 'metadata' | 'getPeer'>): Promise<MachineId> {
    const machineId = await this.#parts.credentials.authenticate(call.metadata);
    this.#port.strangers.knownByCall(call.getPeer(), machineId);
    return machineId;
  }

  // ---- streams ------------------------------------------------------------------------------------------------------

  async #control(call: ControlCall): Promise<void> {
    call.pause();
    let machineId: MachineId;
    try {
      // Before anything changes: a copy of a machine's disk in another host must not end the machine's session.
      machineId = await this.#parts.credentials.admit(call.metadata);
      this.#port.strangers.knownByCall(call.getPeer(), machineId);
    } catch (error) {
      await this.#refuse(call, error);
      return;
    }
    if (call.cancelled) return;
    const { machines, agentReports, containers, clock, log, metrics, settings } = this.#parts;
    const session = new Session({
      machineId,
      call,
      machines,
      reports: agentReports,
      containers,
      progress: this.#parts.progress,
      clock,
      log,
      metrics,
      settings,
      accepting: this.#accepting,
      onRunning: (entry, slots) => this.#running(entry, slots),
      onSamples: (samples) => {
        this.#parts.usage.heard(machineId, samples);
        this.#parts.deviceUses.heard(machineId, samples);
        this.#parts.progress.sampled(samples);
        this.#sampled.tell(machineId, samples);
      },
      onHeartbeat: (live) => this.#parts.reports.heartbeat(machineId, live),
      secretsOf: this.#parts.secretsOf,
      tokenOf: this.#parts.tokenOf,
      noticeMs: this.#parts.noticeMs,
      images: this.#parts.images,
      onContainerChanged: (changed) => this.#containerChanged.tell(machineId, changed),
      onPing: (ms) => metrics.ping.observe(ms / 1000),
      onEnd: (ended, reason) => this.#sessionEnded(ended, reason),
    });
    const previous = this.#connections.get(machineId);
    const authorization = authorizationOf(call.metadata);
    const connection: Connection = { session, tasks: undefined, authorization, machineId, waiting: new Set() };
    this.#connections.set(machineId, connection);
    this.#bySession.set(session.id, connection);
    if (!session.alive) this.#bySession.delete(session.id);
    metrics.sessions.set({ protocol: '1' }, this.#connections.size);
    if (previous !== undefined) {
      previous.tasks?.close();
      previous.session.supersede();
      this.#parts.slots.setLink(machineId, undefined);
    }
    call.resume();
  }

  /** Tells the agent of a deleted machine so with a signed statement; every other caller gets a bare status. */
  async #refuse(call: ControlCall, error: unknown): Promise<void> {
    const machineId = error instanceof AppError && error.code === 'machine_revoked' && error.details['machineId'];
    if (typeof machineId === 'string') {
      call.on('error', () => undefined);
      call.write({ revoked: await this.#parts.credentials.revocation(machineId as MachineId) });
    }
    call.emit('error', grpcError(error));
  }

  /** Called when a container takes tasks from now on. */
  #running(entry: ContainerEntry, slots: number): void {
    const machineId = entry.row.machineId;
    if (machineId === null) return;
    const stream = this.#connections.get(machineId)?.tasks;
    // Nothing is sent before the machine's report is taken in: a whole one follows the orders that were sent before it.
    const link = stream?.isReady === true ? stream : undefined;
    const container = this.#parts.slots.ready(
      { containerId: entry.row.id, queue: entry.spec.queue, machineId, slots, isSync: isSyncKind(entry.spec.kind) },
      link,
      this.#parts.clock.nowMs(),
    );
    this.#parts.reports.containerReady(container);
    if (entry.row.state === 'DRAINING') this.#parts.slots.leave(entry.row.id);
    this.#queuesReady.tell([entry.spec.queue]);
  }

  #sessionEnded(session: Session, reason: string): void {
    const ended = this.#bySession.get(session.id);
    this.#bySession.delete(session.id);
    if (ended !== undefined) this.#bytes.end(ended);
    // A superseded session ends in SUSPECT as well: until the
    // newer session has said hello, none speaks for the machine.
    this.#parts.agentReports.suspect(session.machineId, session.id, reason);
    const connection = this.#connections.get(session.machineId);
    if (connection?.session !== session) return;
    this.#connections.delete(session.machineId);
    this.#parts.usage.forget(session.machineId);
    this.#parts.deviceUses.forget(session.machineId);
    connection.tasks?.close();
    this.#parts.slots.setLink(session.machineId, undefined);
    this.#parts.metrics.sessions.set({ protocol: '1' }, this.#connections.size);
  }

  async #tasks(call: TaskCall): Promise<void> {
    call.pause();
    try {
      const machineId = await this.#authenticated(call);
      const connection = this.#connections.get(machineId);
      const sessionId = String(call.metadata.get('session-id')[0] ?? '');
      if (connection === undefined || connection.session.id !== sessionId) {
        throw new AppError('session_superseded', 'this task stream belongs to a session that has ended');
      }
      if (call.cancelled) return;
      if (connection.tasks !== undefined) {
        connection.tasks.close();
        this.#parts.slots.setLink(machineId, undefined);
      }
      const stream = new TaskStream({
        machineId,
        agentInstance: connection.session.agentInstance,
        sessionEpoch: connection.session.epoch,
        heartbeatIntervalMs: connection.session.heartbeatIntervalMs,
        call,
        tasks: this.#parts,
        budget: this.#partsBudget,
        log: this.#parts.log,
        onReady: () => {
          if (connection.tasks !== stream || !connection.session.alive) return;
          this.#queuesReady.tell(this.#parts.slots.setLink(machineId, stream));
        },
        onEnd: () => {
          if (connection.tasks !== stream) return;
          connection.tasks = undefined;
          this.#parts.slots.setLink(machineId, undefined);
        },
        isCurrent: () => this.#isCurrent(connection.session),
      });
      connection.tasks = stream;
      call.resume();
    } catch (error) {
      call.emit('error', grpcError(error));
    }
  }

  /** Another replica's newer session is known by its row, if not in memory yet. */
  async #isCurrent(session: Session): Promise<boolean> {
    if (!session.alive) return false;
    return (await this.#parts.machines.byId(session.machineId))?.sessionEpoch === session.epoch;
  }

  async #logs(call: LogCall): Promise<void> {
    call.pause();
    try {
      const machineId = await this.#authenticated(call);
      if (!call.cancelled) this.#logStreams.serve(machineId, call);
    } catch (error) {
      call.emit('error', grpcError(error));
    }
  }

  async #pullImage(call: ServerUnaryCall<PullImageRequest__Output, PullImageResponse>): Promise<PullImageResponse> {
    const machineId = await this.#authenticated(call);
    const gone = new AbortController();
    if (call.cancelled) gone.abort();
    else call.once('cancelled', () => gone.abort());
    return this.#parts.images.pull(machineId, call.request, gone.signal);
  }

  /** Sends an order to an agent. @returns false when that machine is not linked here */
  order(machineId: MachineId, order: AgentOrder): boolean {
    const session = this.#connections.get(machineId)?.session;
    if (session?.alive !== true) return false;
    // The agent asks for the objects that its build needs.
    const objectId = order.buildImage?.context?.objectId ?? '';
    if (objectId !== '') this.#buildObjects.add(machineId, objectId);
    session.order(order);
    return true;
  }

  async #fetchCode(call: CodeCall): Promise<void> {
    try {
      const machineId = await this.#authenticated(call);
      await sendCode(call, machineId, {
        ...this.#parts,
        isForBuild: (machine, objectId) => this.#buildObjects.has(machine, objectId),
      });
    } catch (error) {
      call.emit('error', grpcError(error));
    }
  }

  async #containerCall(call: ContainerCall): Promise<void> {
    call.pause();
    try {
      const machineId = await this.#authenticated(call);
      if (!call.cancelled) await this.#serveCall(machineId, call);
    } catch (error) {
      call.emit('error', grpcError(error));
    }
  }

  /**
   * The session that a connection for bytes names. The authorization that was found good for it last needs no check of
   * its signature and no database; another one may be a renewed one.
   */
  #sessionOf({ sessionId, authorization }: SessionLine): Connection | undefined | Promise<Connection | undefined> {
    const connection = this.#bySession.get(sessionId);
    if (connection === undefined || !connection.session.alive) return undefined;
    if (connection.authorization === authorization) return connection;
    return this.#renewed(connection, sessionId, authorization);
  }

  async #renewed(connection: Connection, sessionId: string, authorization: string): Promise<Connection | undefined> {
    const metadata = new Metadata();
    metadata.set('authorization', authorization);
    const machineId = await this.#parts.credentials.authenticate(metadata);
    if (machineId !== connection.machineId || this.#bySession.get(sessionId) !== connection) return undefined;
    connection.authorization = authorization;
    return connection;
  }

  async #deliverMetrics(call: ServerUnaryCall<MetricsPage__Output, Delivered>): Promise<Delivered> {
    const machineId = await this.#authenticated(call);
    this.#parts.pages.delivered(machineId, call.request.requestId, call.request.page);
    return {};
  }
}

const authorizationOf = (metadata: Metadata): string => String(metadata.get('authorization')[0] ?? '');

async function answer<T>(work: Promise<T>, done: sendUnaryData<T>): Promise<void> {
  try {
    done(null, await work);
  } catch (error) {
    done(grpcError(error));
  }
}
