/**
 * Keeps the link to the scheduler up: dials, sends a hello with the full observed state, passes messages to their
 * handlers, and dials again after any end. Reports go out by reports.ts; credentials are in membership.ts. Called by
 * the composition root. Must stay true: one session exists at a time, and messages of an old one have no effect;
 * results and log lines survive its end. The messages: shared/protocol/agent.proto.
 */
import type { PullQuestion } from '../images/permits.ts';
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { sleep } from '#shared/backoff.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type {
  ControlFromAgent,
  ControlToAgent__Output,
  Desired__Output,
  DeviceReport,
  HostDrain,
  Inventory,
  ObservedContainer,
  PrepareImage__Output,
  PullImageResponse__Output,
  ServeContainer__Output,
  ServeVolume__Output,
  BuildImage__Output,
  ChangeContainer__Output,
  TaskToAgent__Output,
  Welcome__Output,
} from '#shared/protocol/generated/messages.ts';
import type { StreamLine } from '#shared/protocol/byte-connections.ts';
import { PROTOCOL_VERSION } from '#shared/protocol/link.ts';
import type { LogBuffer } from '../containers/log-buffer.ts';
import type { UpstreamCall } from '../gateway/relay.ts';
import type { Permission } from '../reconcile/agent-state.ts';
import type { RunnerSlots } from '../slots/slots.ts';
import { cutText } from '../slots/failure-text.ts';
import type { ClockWatch } from '../telemetry/clock.ts';
import type { Conditions } from '../telemetry/conditions.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import { bearer } from './channel.ts';
import type { Contact } from './contact.ts';
import { Dialler } from './dialler.ts';
import { ByteConnections } from './byte-connections.ts';
import { CallChannel } from './call-channel.ts';
import type { IdentityFile } from './identity.ts';
import type { JoinFacts } from './join.ts';
import { Membership } from './membership.ts';
import { fitted } from '../slots/message-parts.ts';
import { RECONNECT_MS, redialWaitMs } from './redial.ts';
import { Reports } from './reports.ts';
import { Session } from './session.ts';
import { isRefusal, reasonOf } from '../grpc-errors.ts';
import { FailedDials } from './failed-dials.ts';

const SUPERSEDED_WAIT_MS = 30_000;
const FULL_STATUS_MS = 60_000;
const DEFAULT_HEARTBEAT_MS = 10_000;
const RENEW_CHECK_MS = 30_000;
/** Reason of a session's end after the machine's deletion. */
const REVOKED = new Error('this machine was deleted');
const PULL_ANSWER_MS = 5000;

export interface LinkParts {
  readonly identity: IdentityFile;
  readonly joinFacts: JoinFacts;
  readonly slots: RunnerSlots;
  readonly logs: LogBuffer;
  readonly metrics: AgentMetrics;
  readonly log: Log;
  readonly bootId: string;
  readonly inventory: () => Promise<Inventory>;
  readonly observedAll: () => ObservedContainer[];
  readonly observedOf: (containerId: string) => ObservedContainer | undefined;
  /** The machine's GPUs, as they are now. */
  readonly devices: () => DeviceReport;
  readonly conditions: Pick<Conditions, 'names' | 'words'>;
  readonly diskFreeBytes: () => number;
  /** The drain of a host that goes down; undefined: none. */
  readonly hostDrain: () => HostDrain | undefined;
  readonly clock: ClockWatch;
  readonly contact: Pick<Contact, 'asking'>;
  /** Resolves when the runner processes of adopted containers have dialled again, or the time for that is over. */
  readonly attemptsKnown: () => Promise<void>;
}

export class Link {
  readonly #parts: LinkParts;
  readonly #prepareImage = new Listeners<[PrepareImage__Output]>();
  readonly #serveVolume = new Listeners<[ServeVolume__Output]>();
  readonly #serveContainer = new Listeners<[ServeContainer__Output]>();
  readonly #changeContainer = new Listeners<[ChangeContainer__Output]>();
  readonly #buildImage = new Listeners<[BuildImage__Output]>();
  readonly #removeImages = new Listeners<[readonly string[]]>();
  readonly #removeCaches = new Listeners<[readonly string[]]>();
  readonly #expectedGpus = new Listeners<[number | undefined]>();
  readonly #sessionBegan = new Listeners<[]>();
  readonly #disconnected = new Listeners<[]>();
  readonly #desired = new Listeners<[Desired__Output]>();
  readonly #proceed = new Listeners<[string, Permission]>();
  readonly #firstConnected = new Listeners<[]>();
  readonly #deleted = new Listeners<[]>();
  readonly #abort = new AbortController();
  readonly #instanceId = randomBytes(8).toString('hex');
  #session: Session | undefined;
  #dialling: Promise<void> | undefined;
  #revision = -1;
  #timers: NodeJS.Timeout[] = [];
  #nextWaitMs: number | undefined;
  #reconnectWindowMs = RECONNECT_MS;
  /** The last dial led to a welcome. */
  #wasLinked = false;
  #everConnected = false;
  readonly #dialler: Dialler;
  readonly #calls: CallChannel;
  readonly #bytes: ByteConnections;
  readonly #membership: Membership;
  readonly #reports: Reports;

  constructor(parts: LinkParts) {
    this.#parts = parts;
    this.#dialler = new Dialler(parts.joinFacts);
    this.#calls = new CallChannel(this.#dialler);
    this.#bytes = new ByteConnections({ dial: (identity) => this.#dialler.bytes(identity) });
    const { identity, joinFacts, log } = parts;
    this.#membership = new Membership({ identity, joinFacts, log, dialler: this.#dialler, signal: this.#abort.signal });
    this.#reports = new Reports(parts, () => this.#session);
  }

  /** Told of an image that is ordered ahead. */
  onPrepareImage(listener: (order: PrepareImage__Output) => void): void {
    this.#prepareImage.add(listener);
  }

  /** Told of a stream that wants the files of a volume. */
  onServeVolume(listener: (order: ServeVolume__Output) => void): void {
    this.#serveVolume.add(listener);
  }

  /** Told of a stream that wants the supervisor of a container. */
  onServeContainer(listener: (order: ServeContainer__Output) => void): void {
    this.#serveContainer.add(listener);
  }

  /** Told of a change of a container that runs. */
  onChangeContainer(listener: (order: ChangeContainer__Output) => void): void {
    this.#changeContainer.add(listener);
  }

  /** Told with each answer to a heartbeat how many GPUs the machine's pool expects; undefined: it does not say. */
  onExpectedGpus(listener: (count: number | undefined) => void): void {
    this.#expectedGpus.add(listener);
  }

  /** Told of an image to build. */
  onBuildImage(listener: (order: BuildImage__Output) => void): void {
    this.#buildImage.add(listener);
  }

  /** Told of images that were built here and are wanted no more. */
  onRemoveImages(listener: (images: readonly string[]) => void): void {
    this.#removeImages.add(listener);
  }

  /** Told of cache volumes that were deleted. */
  onRemoveCaches(listener: (volumeIds: readonly string[]) => void): void {
    this.#removeCaches.add(listener);
  }

  /** Told when a session began. */
  onSession(listener: () => void): void {
    this.#sessionBegan.add(listener);
  }

  /** Told when the session ended; the link dials the next one by itself. */
  onDisconnected(listener: () => void): void {
    this.#disconnected.add(listener);
  }

  /** Told of the desired state. */
  onDesired(listener: (desired: Desired__Output) => void): void {
    this.#desired.add(listener);
  }

  /** Told that a prepared container may start. */
  onProceed(listener: (assignmentId: string, permission: Permission) => void): void {
    this.#proceed.add(listener);
  }

  /** Told at the first welcome. */
  onFirstConnected(listener: () => void): void {
    this.#firstConnected.add(listener);
  }

  /** Told when the scheduler has proved that this machine was deleted. */
  onRevoked(listener: () => void): void {
    this.#deleted.add(listener);
  }

  start(): void {
    this.#timers.push(setInterval(() => this.#reports.all(), FULL_STATUS_MS));
    this.#timers.push(setInterval(() => void this.#renewIfDue(), RENEW_CHECK_MS));
    this.#parts.metrics.connected.set(0);
    this.#dialling = this.#keepDialling();
  }

  /** Sends a goodbye and closes; containers and their attempts live on. */
  async stop(): Promise<void> {
    this.#abort.abort();
    for (const timer of this.#timers) clearInterval(timer);
    this.#reports.stop();
    this.#session?.takeNoMore();
    // Their lines go with the last batch, because the processes do not have them any more.
    await this.#parts.slots.leave();
    await this.#session?.close({
      goodbye: { reason: this.#parts.hostDrain() === undefined ? 'restarting' : 'shutdown' },
    });
    this.#calls.close();
    this.#bytes.close();
    this.#ended?.();
    await this.#dialling;
  }

  /** Notes a changed container: the report follows within milliseconds, one for many changes. */
  changed(containerId: string): void {
    this.#reports.changed(containerId);
  }

  /** Reports a changed GPU, before any message that follows from it. */
  devicesChanged(): void {
    this.#reports.devicesChanged();
  }

  /** Reports everything, after a snapshot that was not obeyed. */
  reportAll(): void {
    this.#reports.all();
  }

  /** Sends a heartbeat now: a value that heartbeats carry has changed and should not wait for the next one. */
  heartbeatNow(): void {
    this.#reports.heartbeatNow();
  }

  logsWaiting(): void {
    this.#session?.logsWaiting();
  }

  send(message: ControlFromAgent): void {
    this.#session?.sendControl(withShortTexts(message));
  }

  /** Asks whether this machine may pull that image now, and with which credentials. */
  async askToPull(question: PullQuestion): Promise<PullImageResponse__Output> {
    const session = this.#session;
    const credential = this.#parts.identity.current?.credential;
    if (session?.welcome === undefined || credential === undefined) throw new Error('not connected to the scheduler');
    const { client, welcome } = session;
    return new Promise((resolve, reject) => {
      client.pullImage(
        question,
        bearer(credential, welcome.sessionId),
        { deadline: Date.now() + PULL_ANSWER_MS + (question.maxWaitMs ?? 0) },
        (error, answer) => {
          if (error === null && answer !== undefined) resolve(answer);
          else reject(error ?? new Error('no answer'));
        },
      );
    });
  }

  /** Opens a call of a container; undefined: there is no session. */
  callGateway(deadlineMs: number): UpstreamCall | undefined {
    const sessionId = this.#session?.welcome?.sessionId;
    const identity = this.#parts.identity.current;
    if (sessionId === undefined || identity === undefined) return undefined;
    return this.#calls.open(identity, sessionId, deadlineMs);
  }

  /** Opens a connection for the bytes of a stream; undefined: there is no session. */
  openBytes(line: StreamLine): Promise<Socket> | undefined {
    const sessionId = this.#session?.welcome?.sessionId;
    const identity = this.#parts.identity.current;
    if (sessionId === undefined || identity === undefined) return undefined;
    return this.#bytes.open(identity, sessionId, line);
  }

  /** Fetches the bytes of a code archive. */
  async *fetchCode(objectId: string, signal: AbortSignal): AsyncIterable<Uint8Array> {
    const session = this.#session;
    const identity = this.#parts.identity.current;
    if (session?.welcome === undefined || identity === undefined) throw new Error('not connected to the scheduler');
    // The archive has its own connection: on the session's, pings would wait behind body bytes that the kernels buffer.
    const client = this.#dialler.beside(identity);
    const call = client.fetchCode({ objectId }, bearer(identity.credential, session.welcome.sessionId));
    const onAbort = (): void => call.cancel();
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      for await (const chunk of call) yield (chunk as { data: Uint8Array }).data;
    } finally {
      signal.removeEventListener('abort', onAbort);
      call.cancel();
      client.close();
    }
  }

  // ---- dialling -----------------------------------------------------------------------------------------------------

  #ended: (() => void) | undefined;

  readonly #failedDials = new FailedDials();

  async #keepDialling(): Promise<void> {
    const { signal } = this.#abort;
    while (!signal.aborted) {
      try {
        await this.#oneSession();
      } catch (error) {
        this.#parts.log.error({ err: error }, 'session with the scheduler could not be opened');
      }
      if (signal.aborted) return;
      const waitMs = this.#nextWaitMs ?? redialWaitMs(this.#wasLinked, this.#reconnectWindowMs, Math.random());
      this.#nextWaitMs = undefined;
      if (!(await sleep(waitMs, signal))) return;
    }
  }

  async #oneSession(): Promise<void> {
    const { identity: file, logs, log, bootId, joinFacts } = this.#parts;
    const identity = file.current;
    if (identity === undefined) throw new Error('not joined');
    const goingDown = this.#parts.hostDrain();
    const hello: ControlFromAgent = {
      hello: {
        machineId: identity.machineId,
        bootId,
        instanceId: this.#instanceId,
        version: joinFacts.version,
        protocol: PROTOCOL_VERSION,
        inventory: await this.#parts.inventory(),
        observed: fitted(this.#parts.observedAll()),
        conditions: { names: [...this.#parts.conditions.names], words: { ...this.#parts.conditions.words } },
        ...(goingDown === undefined ? {} : { hostDrain: goingDown }),
      },
    };
    if (this.#abort.signal.aborted) return;
    this.#wasLinked = false;
    let failure: unknown;
    const welcomed = this.#parts.contact.asking();
    await new Promise<void>((resolve) => {
      this.#ended = resolve;
      this.#reports.forget();
      this.#session = new Session(
        this.#dialler.open(identity),
        () => file.current?.credential ?? identity.credential,
        hello,
        {
          onWelcome: (session, welcome) => {
            if (session === this.#session) welcomed();
            this.#onWelcome(session, welcome);
          },
          onControl: (session, message) => this.#onControl(session, message),
          onTask: (session, message) => this.#onTask(session, message),
          onEnd: (session, error) => {
            failure = error;
            this.#onEnd(session, error);
            resolve();
          },
        },
        logs,
        log,
        joinFacts.host,
      );
    });
    this.#ended = undefined;
    if (failure === REVOKED || isRefusal(failure)) {
      const after = await this.#membership.refused(failure);
      if (after.kind === 'deleted') this.#revoked();
      else if (after.kind === 'wait') this.#nextWaitMs = after.waitMs;
    }
  }

  async #renewIfDue(): Promise<void> {
    const session = this.#session;
    if (session?.welcome !== undefined) await this.#membership.renewIfDue(session.client);
  }

  #revoked(): void {
    this.#abort.abort();
    this.#deleted.tell();
  }

  /** Handles a revocation. With an unused join token the machine joins anew instead. */
  async #onRevoked(session: Session, statement: string): Promise<void> {
    const verdict = await this.#membership.revoked(statement);
    if (verdict === 'joins_anew') session.end(REVOKED);
    else if (verdict === 'deleted') this.#revoked();
  }

  // ---- a session's events -------------------------------------------------------------------------------------------

  #onWelcome(session: Session, welcome: Welcome__Output): void {
    if (session !== this.#session) return;
    const { metrics, log } = this.#parts;
    this.#dialler.welcomed();
    this.#failedDials.succeeded();
    this.#revision = -1;
    this.#membership.welcomed();
    this.#reconnectWindowMs = welcome.reconnectWindowMs;
    this.#wasLinked = true;
    this.#parts.clock.told(welcome.serverTimeMs, Date.now());
    this.#reports.reset();
    metrics.connected.set(1);
    metrics.connectionAttempts.inc({ result: 'ok' });
    log.info({ sessionId: welcome.sessionId }, 'connected to the scheduler');
    this.#sessionBegan.tell();
    void this.#renewIfDue();
    session.openLogs();
    this.#reports.begin(welcome.heartbeatIntervalMs || DEFAULT_HEARTBEAT_MS);
    void this.#parts.attemptsKnown().then(() => {
      if (session !== this.#session) return;
      session.openTasks();
      this.#parts.slots.connect(session);
    });
    if (!this.#everConnected) {
      this.#everConnected = true;
      this.#firstConnected.tell();
    }
  }

  #onControl(session: Session, message: ControlToAgent__Output): void {
    if (session !== this.#session) return;
    this.#parts.metrics.lastContact.set(Date.now() / 1000);
    switch (message.message) {
      case 'desired': {
        const desired = message.desired;
        if (desired === null || desired === undefined || desired.revision < this.#revision) return;
        this.#revision = desired.revision;
        for (const revoked of desired.revokedAttempts)
          this.#parts.slots.cancel(revoked.taskId, revoked.token, revoked.reason || 'cancelled');
        this.#desired.tell(desired);
        return;
      }
      case 'heartbeatAck':
        if (message.heartbeatAck !== null && message.heartbeatAck !== undefined) {
          this.#reports.answered(message.heartbeatAck.sentAtMs, message.heartbeatAck.serverTimeMs);
          this.#expectedGpus.tell(message.heartbeatAck.expectedGpus ?? undefined);
        }
        return;
      case 'fetchMetrics':
        if (message.fetchMetrics !== null && message.fetchMetrics !== undefined)
          void this.#reports.deliverMetrics(session, message.fetchMetrics.requestId);
        return;
      case 'proceed':
        if (message.proceed !== null && message.proceed !== undefined)
          this.#proceed.tell(message.proceed.assignmentId, message.proceed);
        return;
      case 'prepareImage':
        if (message.prepareImage !== null && message.prepareImage !== undefined)
          this.#prepareImage.tell(message.prepareImage);
        return;
      case 'serveVolume':
        if (message.serveVolume !== null && message.serveVolume !== undefined)
          this.#serveVolume.tell(message.serveVolume);
        return;
      case 'serveContainer':
        if (message.serveContainer !== null && message.serveContainer !== undefined)
          this.#serveContainer.tell(message.serveContainer);
        return;
      case 'changeContainer':
        if (message.changeContainer !== null && message.changeContainer !== undefined)
          this.#changeContainer.tell(message.changeContainer);
        return;
      case 'buildImage':
        if (message.buildImage !== null && message.buildImage !== undefined) this.#buildImage.tell(message.buildImage);
        return;
      case 'removeImages':
        this.#removeImages.tell(message.removeImages?.images ?? []);
        return;
      case 'removeCaches':
        this.#removeCaches.tell(message.removeCaches?.volumeIds ?? []);
        return;
      case 'superseded':
        this.#parts.log.warn('another agent connected as this machine; waiting before trying again');
        this.#nextWaitMs = SUPERSEDED_WAIT_MS;
        session.end();
        return;
      case 'later':
        this.#nextWaitMs = redialWaitMs(false, message.later?.windowMs ?? 0, Math.random());
        session.end(new Error('the scheduler stops, takes up other machines first, or had no answer'));
        return;
      case 'revoked':
        void this.#onRevoked(session, message.revoked?.statement ?? '');
        return;
      case 'welcome':
      case 'ping':
      case undefined:
        return;
    }
  }

  #onTask(session: Session, message: TaskToAgent__Output): void {
    if (session !== this.#session) return;
    const { slots } = this.#parts;
    if (message.batch !== null && message.batch !== undefined) {
      for (const one of message.batch.messages) this.#onTask(session, one);
    } else if (message.run !== null && message.run !== undefined) slots.run(message.run);
    else if (message.acked !== null && message.acked !== undefined)
      slots.acked(message.acked.taskId, message.acked.token);
    else if (message.cancel !== null && message.cancel !== undefined)
      slots.cancel(message.cancel.taskId, message.cancel.token, message.cancel.reason);
    else if (message.known !== null && message.known !== undefined) slots.known(message.known);
  }

  #onEnd(session: Session, error: unknown): void {
    if (session !== this.#session) return;
    const { metrics, slots, log } = this.#parts;
    this.#session = undefined;
    this.#reports.end();
    slots.disconnect(session);
    this.#disconnected.tell();
    metrics.connected.set(0);
    if (session.welcome === undefined) metrics.connectionAttempts.inc({ result: 'error' });
    if (this.#abort.signal.aborted) return;
    const reason = reasonOf(error);
    if (session.welcome !== undefined) return log.info({ reason }, 'the session with the scheduler ended');
    const outage = this.#failedDials.failed(reason, performance.now());
    if (outage === undefined) return;
    const isRefused = isRefusal(error) || error === REVOKED;
    log.warn(
      { reason, ...outage },
      isRefused ? 'the scheduler refuses this machine' : 'the scheduler cannot be reached; trying again',
    );
  }
}

/** Cuts texts of registries and engines, which have no bound of their own. */
function withShortTexts(message: ControlFromAgent): ControlFromAgent {
  const { refuse, imagePrepared } = message;
  if (refuse) return { refuse: { ...refuse, message: cutText(refuse.message ?? '') } };
  if (imagePrepared) return { imagePrepared: { ...imagePrepared, message: cutText(imagePrepared.message ?? '') } };
  return message;
}
