// The control stream of one machine's agent, from hello to its end: pings (liveness), desired state down,
// acknowledgements and observations up. Owned by links.ts.
// Invariant: a message of an older epoch changes nothing. The agent
// creates nothing before `proceed`. Revisions grow within the session.
import { randomUUID } from 'node:crypto';
import type { ServerDuplexStream } from '@grpc/grpc-js';
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import { MAX_MESSAGE_BYTES, PROTOCOL_VERSION } from '#shared/protocol/link.ts';
import type {
  Ack__Output,
  ControlFromAgent__Output,
  ControlToAgent,
  Hello__Output,
  Refuse__Output,
  Revoked,
  Samples__Output,
  ContainerChanged__Output,
} from '#shared/protocol/generated/messages.ts';
import type { ContainerEntry } from './containers/container-entry.ts';
import type { ContainerRegistry } from './containers/container-registry.ts';
import type { SecretValues } from '../workspaces/secrets/service.ts';
import type { ImageOrders } from './images/orders.ts';
import type { ContainerRow } from '../stores/store/queries/containers.ts';
import type { LiveReport } from '../tasks/completion/reports.ts';
import type { AgentReports } from './agent-reports.ts';
import type { AcceptRate } from './accept-rate.ts';
import { LONGEST_LATER_MS, reconnectWindowMs } from './accept-rate.ts';
import { Inbox } from './inbox.ts';
import { isInService } from './machine.ts';
import type { Machines } from './machines.ts';
import type { FleetMetrics } from './metrics.ts';
import type { EndTimes } from './orders.ts';
import { ordersFor } from './orders.ts';
import { ReportedContainers } from './reported-containers.ts';
import type { ReportedContainersParts } from './reported-containers.ts';
import { paced } from './session-settings.ts';
import type { SessionSettings } from './session-settings.ts';

export type ControlCall = ServerDuplexStream<ControlFromAgent__Output, ControlToAgent>;

/** Time after which an assignment without acknowledgement is sent again. */
const REPEAT_AFTER_MS = 5_000;
/** Unsent control messages above this bound show that the agent does not read: the session ends. */
const MAX_BUFFERED_MESSAGES = 1_000;

export interface SessionParts {
  readonly machineId: MachineId;
  readonly call: ControlCall;
  readonly machines: Machines;
  readonly reports: AgentReports;
  readonly containers: ContainerRegistry;
  readonly progress: ReportedContainersParts['progress'];
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: FleetMetrics;
  readonly settings: SessionSettings;
  /** Rate at which this scheduler accepts machines. */
  readonly accepting: AcceptRate;
  /** Tells the dispatcher that a container runs, and how many of its slots take attempts now. */
  readonly onRunning: (entry: ContainerEntry, slots: number) => void;
  /** Passes on samples of the containers' resource use. */
  readonly onSamples: (samples: Samples__Output) => void;
  /** Passes on the attempts that a heartbeat names. */
  readonly onHeartbeat: (live: readonly LiveReport[]) => void;
  /** A workspace's secrets in the clear, for a container that may now be created. */
  readonly secretsOf: (workspaceId: WorkspaceId, names: readonly string[]) => Promise<SecretValues>;
  /** The credential of a container that may now be created. */
  readonly tokenOf: (row: ContainerRow) => Promise<string>;
  readonly images: Pick<ImageOrders, 'prepared'>;
  readonly noticeMs: EndTimes['noticeMs'];
  /** Passes on the answer to a change of a container. */
  readonly onContainerChanged: (changed: ContainerChanged__Output) => void;
  /** Called with the time that the answer to a ping took. */
  readonly onPing: (ms: number) => void;
  readonly onEnd: (session: Session, reason: string) => void;
}

/** Orders beside the desired state: they start and stop no container. */
export type AgentOrder = Pick<
  ControlToAgent,
  | 'prepareImage'
  | 'serveVolume'
  | 'serveContainer'
  | 'buildImage'
  | 'changeContainer'
  | 'removeCaches'
  | 'removeImages'
  | 'fetchMetrics'
>;

export class Session {
  readonly id = randomUUID();
  readonly machineId: MachineId;
  agentInstance = '';
  /** Number of this session among the machine's; 0 before its hello. */
  epoch = 0;
  /** Interval that the agent was told in the welcome. */
  heartbeatIntervalMs = 0;
  readonly #parts: SessionParts;
  #revision = 0;
  #ended = false;
  #pingSeq = 0;
  #pingedAtMs = 0;
  #answered = 0;
  #pingTimer: NodeJS.Timeout | undefined;
  #pongTimer: NodeJS.Timeout | undefined;
  #fullTimer: NodeJS.Timeout | undefined;
  readonly #helloTimer: NodeJS.Timeout;
  #greeted = false;
  #sendScheduled = false;
  #buffered = 0;
  readonly #inbox: Inbox<ControlFromAgent__Output>;
  readonly #containers: ReportedContainers;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.machineId = parts.machineId;
    const { machineId, machines, reports, containers, progress, onRunning } = parts;
    this.#containers = new ReportedContainers({
      machineId,
      sessionId: this.id,
      machines,
      reports,
      containers,
      progress,
      onRunning,
    });
    this.#inbox = new Inbox(parts.call, (message) => this.#take(message));
    this.#helloTimer = setTimeout(() => this.end('no_hello'), parts.settings.helloWithinMs);
    this.#helloTimer.unref();
    parts.call.on('data', (message: ControlFromAgent__Output) => this.#enqueue(message));
    parts.call.on('error', () => this.end('stream_error'));
    parts.call.on('cancelled', () => this.end('stream_ended'));
    parts.call.on('end', () => this.end('stream_ended'));
  }

  /** Messages are handled one after another, but pongs at once. */
  #enqueue(message: ControlFromAgent__Output): void {
    if (this.#ended) return;
    if (message.message === 'pong') {
      const seq = message.pong?.seq ?? 0;
      if (seq === this.#pingSeq && seq > this.#answered) this.#parts.onPing(performance.now() - this.#pingedAtMs);
      this.#answered = Math.max(this.#answered, seq);
      return;
    }
    if (this.#inbox.add(message))
      this.#parts.log.warn({ machineId: this.machineId }, 'agent says more than can be handled, it waits');
  }

  async #take(message: ControlFromAgent__Output): Promise<void> {
    try {
      await this.#handle(message);
    } catch (error) {
      this.#parts.metrics.messages.inc({ type: message.message ?? 'unknown', result: 'failed' });
      this.#parts.log.warn({ err: error, machineId: this.machineId, type: message.message }, 'agent message failed');
      if (message.message === 'hello') this.end('hello_failed');
    }
  }

  async #handle(message: ControlFromAgent__Output): Promise<void> {
    // Messages of an ended session that were still in line say nothing
    // about the machine now, least of all about absent containers.
    if (this.#ended) return;
    this.#parts.metrics.messages.inc({ type: message.message ?? 'unknown', result: 'ok' });
    if (message.hello) await this.#hello(message.hello);
    else if (message.ack) await this.#ack(message.ack);
    else if (message.refuse) await this.#refuse(message.refuse);
    else if (message.status) await this.#containers.status(message.status);
    else if (message.imagePrepared) this.#parts.images.prepared(message.imagePrepared);
    else if (message.devices) await this.#parts.reports.devices(this.machineId, this.id, message.devices);
    else if (message.volumeUse) this.#parts.reports.volumeUse(this.machineId, this.id, message.volumeUse.bytes);
    else if (message.cacheUse) this.#parts.reports.cacheUse(this.machineId, this.id, message.cacheUse.volumes);
    else if (message.containerChanged) this.#parts.onContainerChanged(message.containerChanged);
    else if (message.volumeDrivers)
      await this.#parts.reports.volumeDrivers(this.machineId, this.id, message.volumeDrivers.names);
    else if (message.basePythons) await this.#parts.reports.basePythons(this.machineId, this.id, message.basePythons);
    else if (message.hostWarnings)
      await this.#parts.reports.hostWarnings(this.machineId, this.id, message.hostWarnings.warnings);
    else if (message.hostDrain) await this.#parts.reports.hostDrain(this.machineId, this.id, message.hostDrain);
    else if (message.heartbeat) {
      const { conditions, diskFreeBytes, conditionWords } = message.heartbeat;
      this.#parts.reports.heartbeat(this.machineId, this.id, conditions, diskFreeBytes, conditionWords);
      this.#write({
        heartbeatAck: {
          sentAtMs: message.heartbeat.sentAtMs,
          serverTimeMs: this.#parts.clock.nowMs(),
          ...this.#expectedGpus(),
        },
      });
      this.#parts.onHeartbeat(message.heartbeat.liveAttempts as unknown as readonly LiveReport[]);
    } else if (message.samples) this.#parts.onSamples(message.samples);
    else if (message.goodbye)
      this.end(`goodbye_${message.goodbye.reason === 'restarting' ? 'restarting' : 'shutdown'}`);
  }

  async #hello(hello: Hello__Output): Promise<void> {
    if (this.#greeted) return;
    this.#greeted = true;
    clearTimeout(this.#helloTimer);
    const takenUp = this.#parts.accepting.begin();
    if (takenUp === undefined) return this.later('too_many_hellos', this.#parts.machines.expected());
    try {
      await this.#takeUp(hello);
    } finally {
      takenUp();
    }
  }

  async #takeUp(hello: Hello__Output): Promise<void> {
    this.agentInstance = hello.instanceId;
    const { machines, reports, clock } = this.#parts;
    const machine = await reports.hello(this.machineId, this.id, hello);
    const settings = paced(this.#parts.settings, machines.expected());
    this.heartbeatIntervalMs = settings.heartbeatIntervalMs;
    this.epoch = machine.row.sessionEpoch;
    if (this.#endedInHello()) return;
    this.#write({
      welcome: {
        sessionId: this.id,
        sessionEpoch: machine.row.sessionEpoch,
        serverTimeMs: clock.nowMs(),
        pingIntervalMs: settings.pingIntervalMs,
        heartbeatIntervalMs: settings.heartbeatIntervalMs,
        reconnectWindowMs: this.#windowMs(machines.expected()),
      },
    });
    // The replica that the agent dialled before ordered its containers: read their rows.
    await this.#parts.containers.readMachine(this.machineId);
    if (machine.rebooted) await this.#containers.failAll();
    await this.#containers.whole(hello.observed);
    if (this.#endedInHello()) return;
    reports.ready(this.machineId, this.id);
    this.changed();
    this.#pingTimer = setInterval(() => this.#ping(), settings.pingIntervalMs);
    this.#fullTimer = setInterval(() => void this.#sayAll(), settings.fullEveryMs);
    this.#ping();
    this.#parts.log.info(
      { machineId: this.machineId, version: hello.version, protocol: Math.min(hello.protocol, PROTOCOL_VERSION) },
      'agent connected',
    );
  }

  /**
   * Whether the stream ended while its hello was being written: the machine
   * did not belong to this session yet when that end was announced.
   */
  #endedInHello(): boolean {
    if (this.#ended) this.#parts.reports.suspect(this.machineId, this.id, 'ended_in_hello');
    return this.#ended;
  }

  async #ack(ack: Ack__Output): Promise<void> {
    const { containers } = this.#parts;
    const entry = containers.get(ack.containerId as ContainerId);
    if (entry === undefined || entry.row.machineId !== this.machineId || entry.row.assignmentId !== ack.assignmentId)
      return;
    // The container was placed at the moment when its machine was
    // cordoned: the agent has created nothing yet, and will not (I5).
    if (entry.row.state === 'ASSIGNED' && !this.#takesWork()) {
      const change = { machineId: null, assignmentId: null };
      await containers.transition(entry.row.id, 'revoke', { epoch: ack.epoch, change });
      return;
    }
    const { wire, bucketSecrets = [] } = entry.spec;
    const names = [...(wire.secretNames ?? []), ...bucketSecrets.flatMap((one) => [one.accessKey, one.secretKey])];
    const secrets = await this.#parts.secretsOf(entry.row.workspaceId, [...new Set(names)]);
    const [moved, containerToken] = await Promise.all([
      containers.transition(entry.row.id, 'ack', { epoch: ack.epoch }),
      this.#parts.tokenOf(entry.row),
    ]);
    if (moved !== 'moved' && moved !== 'already') return;
    if (secrets.kind !== 'values') {
      const message =
        secrets.kind === 'missing'
          ? `secret ${secrets.names.join(', ')} was deleted: set it again, or deploy without it`
          : `its secrets have more than ${secrets.mostBytes / 1024} KiB together: name fewer of them, or shorter ones`;
      await containers.transition(entry.row.id, 'fail', {
        epoch: ack.epoch,
        change: { reason: 'user_error', message },
      });
      return;
    }
    const { assignmentId, containerId, epoch } = ack;
    const { values } = secrets;
    const valueOf = (name: string): string => values[name] ?? '';
    this.#write({
      proceed: {
        assignmentId,
        containerId,
        epoch,
        secrets: Object.fromEntries((wire.secretNames ?? []).map((name) => [name, valueOf(name)])),
        containerToken,
        // Keys of a bucket are no variables: the container never sees them.
        bucketKeys: bucketSecrets.map(({ mountPath, accessKey, secretKey }) => ({
          mountPath,
          accessKey: valueOf(accessKey),
          secretKey: valueOf(secretKey),
        })),
      },
    });
  }

  #expectedGpus(): { readonly expectedGpus?: number } {
    const expected = this.#parts.machines.get(this.machineId)?.row.poolSettings.expectedGpus;
    return expected === null || expected === undefined ? {} : { expectedGpus: expected };
  }

  /** Sends an order that no snapshot of desired state has. */
  order(order: AgentOrder): void {
    this.#write(order);
  }

  #takesWork(): boolean {
    const row = this.#parts.machines.get(this.machineId)?.row;
    return row !== undefined && isInService(row) && !row.systemCordon;
  }

  async #refuse(refuse: Refuse__Output): Promise<void> {
    const { containers } = this.#parts;
    const entry = containers.get(refuse.containerId as ContainerId);
    if (entry === undefined || entry.row.machineId !== this.machineId) return;
    this.#parts.log.warn(
      { machineId: this.machineId, containerId: refuse.containerId, reason: refuse.reason, detail: refuse.message },
      'agent refused an assignment',
    );
    await containers.transition(entry.row.id, 'revoke', {
      epoch: refuse.epoch,
      change: { machineId: null, assignmentId: null, message: refuse.message },
    });
  }

  /**
   * Called when this machine's containers changed: one full snapshot
   * goes out in the next turn, however many changes there were.
   */
  changed(): void {
    if (this.#sendScheduled || this.#ended) return;
    this.#sendScheduled = true;
    setImmediate(() => {
      this.#sendScheduled = false;
      if (!this.#ended) this.#sendDesired();
    });
  }

  /**
   * Sends the whole desired state. The rows are read first, since
   * another replica may have changed them and its message may be lost.
   */
  async #sayAll(): Promise<void> {
    try {
      await this.#parts.containers.readMachine(this.machineId);
    } catch (error) {
      this.#parts.log.warn(
        { err: error, machineId: this.machineId },
        'desired state not read again, sending what is known',
      );
    }
    this.changed();
  }

  #sendDesired(): void {
    this.#revision += 1;
    const { assignments, tooMany } = ordersFor(
      this.#parts.containers.ofMachine(this.machineId),
      { stopGraceMs: this.#parts.settings.stopGraceMs, noticeMs: this.#parts.noticeMs },
      MAX_MESSAGE_BYTES,
    );
    this.#write({
      desired: {
        revision: this.#revision,
        full: true,
        confirmEmpty: assignments.length === 0,
        assignments,
        revokedAttempts: [],
      },
    });
    if (tooMany.length > 0) void this.#giveBack(tooMany);
  }

  /** Gives back containers that were never ordered: they go elsewhere, or wait. */
  async #giveBack(entries: readonly ContainerEntry[]): Promise<void> {
    const { containers, log } = this.#parts;
    const message = 'its machine has as many orders as one message to its agent can carry';
    log.warn({ machineId: this.machineId, containers: entries.length }, message);
    for (const { row } of entries) {
      const change = { machineId: null, assignmentId: null, message };
      try {
        await containers.transition(row.id, 'revoke', { epoch: row.epoch, change });
      } catch (error) {
        // The next snapshot leaves the container out again.
        log.warn({ err: error, containerId: row.id }, 'a container that was not ordered was not given back');
      }
    }
  }

  #ping(): void {
    if (this.#pingSeq > this.#answered) return;
    this.#pingSeq += 1;
    const seq = this.#pingSeq;
    this.#pingedAtMs = performance.now();
    this.#write({ ping: { seq } });
    this.#pongTimer = setTimeout(() => this.#judge(seq), this.#parts.settings.pongWithinMs);
    this.#pongTimer.unref();
    this.#repeatUnacknowledged();
  }

  /**
   * Judges a ping without an answer. After a stall of this process the answer may lie unread in the socket, so the loop
   * reads first. The same holds while the inbox does not read.
   */
  #judge(seq: number): void {
    if (this.#answered >= seq) return;
    setImmediate(() =>
      setImmediate(() => {
        if (this.#answered >= seq) return;
        if (!this.#inbox.holds) return this.later('ping_unanswered', this.#parts.accepting.gaveUp());
        this.#pongTimer = setTimeout(() => this.#judge(seq), this.#parts.settings.pongWithinMs);
        this.#pongTimer.unref();
      }),
    );
  }

  /** Sends the desired state again when an assignment, or its acknowledgement, may have been lost. */
  #repeatUnacknowledged(): void {
    const nowMs = this.#parts.clock.nowMs();
    for (const { row } of this.#parts.containers.ofMachine(this.machineId)) {
      if (row.state === 'ASSIGNED' && nowMs - (row.scheduledAtMs ?? nowMs) >= REPEAT_AFTER_MS) return this.changed();
    }
  }

  /** @param machines - those that dial at once */
  #windowMs(machines: number): number {
    return reconnectWindowMs(machines, this.#parts.accepting.perSecond);
  }

  /**
   * Sends the agent away until a moment in the window: this process stops, takes up other machines first, or gave up
   * the agent's link together with others.
   * @param machines - those that are sent away together
   */
  later(reason: 'scheduler_stopping' | 'too_many_hellos' | 'ping_unanswered', machines: number): void {
    this.#write({ later: { windowMs: Math.min(LONGEST_LATER_MS, this.#windowMs(machines)) } });
    this.end(reason);
  }

  /** A newer session of the same machine took over. */
  supersede(): void {
    this.#write({ superseded: {} });
    this.end('superseded');
  }

  /** The machine was deleted: its agent ends what it runs, and itself. */
  revoke(revoked: Revoked): void {
    this.#write({ revoked });
    this.end('machine_deleted');
  }

  end(reason: string): void {
    if (this.#ended) return;
    this.#ended = true;
    clearTimeout(this.#helloTimer);
    clearInterval(this.#pingTimer);
    clearTimeout(this.#pongTimer);
    clearInterval(this.#fullTimer);
    this.#parts.call.end();
    this.#parts.onEnd(this, reason);
  }

  get alive(): boolean {
    return !this.#ended;
  }

  #write(message: ControlToAgent): void {
    if (this.#ended) return;
    this.#buffered += 1;
    this.#parts.call.write(message, () => {
      this.#buffered -= 1;
    });
    if (this.#buffered > MAX_BUFFERED_MESSAGES) this.end('not_reading');
  }
}
