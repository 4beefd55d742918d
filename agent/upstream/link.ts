/**
 * The link to the scheduler, kept up: dials, says hello with everything observed, hands messages to their owners, reports changes, and dials again after any end.
 * Called by the composition root. Must stay true: one session at a time, nothing of an old one is acted on; results and log lines survive its end.
 * The messages: shared/protocol/agent.proto.
 */
import { randomBytes } from 'node:crypto';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type {
  ControlFromAgent,
  ControlToAgent__Output,
  Desired__Output,
  Inventory,
  ObservedContainer,
  TaskToAgent__Output,
  Welcome__Output,
} from '#shared/protocol/generated/messages.ts';
import { PROTOCOL_VERSION } from '#shared/protocol/link.ts';
import type { LogBuffer } from '../containers/log-buffer.ts';
import type { SlotTable } from '../slots/slots.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import { bearer, isRefusal } from './channel.ts';
import { Dialler } from './dialler.ts';
import type { IdentityFile } from './identity.ts';
import type { JoinFacts } from './join.ts';
import { hasNewToken, join, renew } from './join.ts';
import { Session } from './session.ts';

const RECONNECT_MS = 500;
const REFUSED_WAIT_MS = 60_000;
const SUPERSEDED_WAIT_MS = 30_000;
const STATUS_COALESCE_MS = 3;
const FULL_STATUS_MS = 60_000;
const DEFAULT_HEARTBEAT_MS = 10_000;
const RENEW_CHECK_MS = 30_000;

export interface LinkParts {
  readonly identity: IdentityFile;
  readonly joinFacts: JoinFacts;
  readonly slots: SlotTable;
  readonly logs: LogBuffer;
  readonly metrics: AgentMetrics;
  readonly log: Log;
  readonly bootId: string;
  readonly inventory: () => Promise<Inventory>;
  readonly observedAll: () => ObservedContainer[];
  readonly observedOf: (containerId: string) => ObservedContainer | undefined;
  readonly conditions: () => readonly string[];
  readonly diskFreeBytes: () => Promise<number>;
  /** Resolves when the runner processes of adopted containers have dialled again (or had the time to). */
  readonly attemptsKnown: () => Promise<void>;
  readonly onSession: () => void;
  readonly onDesired: (desired: Desired__Output) => void;
  readonly onProceed: (assignmentId: string) => void;
  readonly onFirstConnected: () => void;
}

export class Link {
  readonly #parts: LinkParts;
  readonly #abort = new AbortController();
  readonly #instanceId = randomBytes(8).toString('hex');
  #session: Session | undefined;
  #dialling: Promise<void> | undefined;
  #revision = -1;
  #seq = 0;
  #changed = new Set<string>();
  #statusTimer: NodeJS.Timeout | undefined;
  #heartbeatTimer: NodeJS.Timeout | undefined;
  #timers: NodeJS.Timeout[] = [];
  #nextWaitMs: number | undefined;
  #reconnectWindowMs = RECONNECT_MS;
  #everConnected = false;
  readonly #dialler: Dialler;
  #refusals = 0;

  constructor(parts: LinkParts) {
    this.#parts = parts;
    this.#dialler = new Dialler(parts.joinFacts);
  }

  start(): void {
    this.#timers.push(setInterval(() => this.#sendStatus(true), FULL_STATUS_MS));
    this.#timers.push(setInterval(() => void this.#renewIfDue(), RENEW_CHECK_MS));
    this.#parts.metrics.connected.set(0);
    this.#dialling = this.#keepDialling();
  }

  /** Says goodbye; containers and their attempts live on. */
  async stop(): Promise<void> {
    this.#abort.abort();
    for (const timer of this.#timers) clearInterval(timer);
    clearTimeout(this.#statusTimer);
    clearTimeout(this.#heartbeatTimer);
    await this.#session?.close({ goodbye: { reason: 'restarting' } });
    this.#ended?.();
    await this.#dialling;
  }

  /** A container changed: the scheduler hears within milliseconds, and once for many changes. */
  changed(containerId: string): void {
    this.#changed.add(containerId);
    if (this.#session?.welcome === undefined || this.#statusTimer !== undefined) return;
    this.#statusTimer = setTimeout(() => {
      this.#statusTimer = undefined;
      this.#sendStatus(false);
    }, STATUS_COALESCE_MS);
  }

  logsWaiting(): void {
    this.#session?.logsWaiting();
  }

  send(message: ControlFromAgent): void {
    this.#session?.sendControl(message);
  }

  /** The bytes of a code archive. */
  async *fetchCode(objectId: string, signal: AbortSignal): AsyncIterable<Uint8Array> {
    const session = this.#session;
    const credential = this.#parts.identity.current?.credential;
    if (session?.welcome === undefined || credential === undefined) throw new Error('not connected to the scheduler');
    const call = session.client.fetchCode({ objectId }, bearer(credential, session.welcome.sessionId));
    const onAbort = (): void => call.cancel();
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      for await (const chunk of call) yield (chunk as { data: Uint8Array }).data;
    } finally {
      signal.removeEventListener('abort', onAbort);
      call.cancel();
    }
  }

  // ---- dialling ----------------------------------------------------------------------------------------------------------------

  #ended: (() => void) | undefined;

  async #keepDialling(): Promise<void> {
    const { signal } = this.#abort;
    while (!signal.aborted) {
      try {
        await this.#oneSession();
      } catch (error) {
        this.#parts.log.error({ err: error }, 'session with the scheduler could not be opened');
      }
      if (signal.aborted) return;
      const waitMs = this.#nextWaitMs ?? Math.random() * this.#reconnectWindowMs;
      this.#nextWaitMs = undefined;
      if (!(await sleep(waitMs, signal))) return;
    }
  }

  async #oneSession(): Promise<void> {
    const { identity: file, logs, log, bootId, joinFacts } = this.#parts;
    const identity = file.current;
    if (identity === undefined) throw new Error('not joined');
    const hello: ControlFromAgent = {
      hello: {
        machineId: identity.machineId,
        bootId,
        instanceId: this.#instanceId,
        version: joinFacts.version,
        protocol: PROTOCOL_VERSION,
        inventory: await this.#parts.inventory(),
        observed: this.#parts.observedAll(),
        conditions: { names: [...this.#parts.conditions()] },
      },
    };
    if (this.#abort.signal.aborted) return;
    let failure: unknown;
    await new Promise<void>((resolve) => {
      this.#ended = resolve;
      this.#changed.clear();
      this.#session = new Session(
        this.#dialler.open(identity),
        identity.credential,
        hello,
        {
          onWelcome: (session, welcome) => this.#onWelcome(session, welcome),
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
      );
    });
    this.#ended = undefined;
    if (isRefusal(failure)) await this.#onRefusal(failure);
  }

  /** The credential is refused: one renewal, then a new join token if there is one, then patience. A bare status never ends anything here. */
  async #onRefusal(error: unknown): Promise<void> {
    const { identity: file, joinFacts, log } = this.#parts;
    this.#refusals += 1;
    const identity = file.current;
    if (identity === undefined) return;
    if (hasNewToken(joinFacts, identity)) {
      try {
        await join(file, joinFacts, log, this.#abort.signal);
        this.#nextWaitMs = 0;
        return;
      } catch (joinError) {
        log.error({ err: joinError }, 'the new join token was refused too');
      }
    } else if (this.#refusals === 1) {
      const client = this.#dialler.open(identity);
      try {
        await renew(client, file);
        this.#nextWaitMs = 0;
        return;
      } catch (renewError) {
        log.warn({ err: renewError }, 'credential could not be renewed');
      } finally {
        client.close();
      }
    }
    log.error({ err: error }, 'the scheduler refuses this machine; if that stays so, give the agent a new join token');
    this.#nextWaitMs = REFUSED_WAIT_MS;
  }

  async #renewIfDue(): Promise<void> {
    const { identity: file, log } = this.#parts;
    const identity = file.current;
    const session = this.#session;
    if (identity === undefined || session?.welcome === undefined || identity.credentialExpiresAtMs <= 0) return;
    const halfLife = (identity.credentialExpiresAtMs + identity.credentialSinceMs) / 2;
    if (Date.now() < halfLife) return;
    try {
      await renew(session.client, file);
    } catch (error) {
      log.warn({ err: error }, 'credential could not be renewed; trying again');
    }
  }

  // ---- a session's events ------------------------------------------------------------------------------------------------------

  #onWelcome(session: Session, welcome: Welcome__Output): void {
    if (session !== this.#session) return;
    const { metrics, log, onSession, onFirstConnected } = this.#parts;
    this.#dialler.welcomed();
    this.#revision = -1;
    this.#seq = 0;
    this.#refusals = 0;
    this.#reconnectWindowMs = Math.max(RECONNECT_MS, welcome.reconnectWindowMs);
    metrics.connected.set(1);
    metrics.connectionAttempts.inc({ result: 'ok' });
    log.info({ sessionId: welcome.sessionId }, 'connected to the scheduler');
    onSession();
    session.openLogs();
    this.#scheduleHeartbeat(welcome.heartbeatIntervalMs || DEFAULT_HEARTBEAT_MS);
    if (this.#changed.size > 0) this.#sendStatus(false);
    void this.#parts.attemptsKnown().then(() => {
      if (session !== this.#session) return;
      session.openTasks();
      this.#parts.slots.connect(session);
    });
    if (!this.#everConnected) {
      this.#everConnected = true;
      onFirstConnected();
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
        this.#parts.onDesired(desired);
        return;
      }
      case 'proceed':
        if (message.proceed !== null && message.proceed !== undefined)
          this.#parts.onProceed(message.proceed.assignmentId);
        return;
      case 'superseded':
        this.#parts.log.warn('another agent connected as this machine; waiting before trying again');
        this.#nextWaitMs = SUPERSEDED_WAIT_MS;
        session.end();
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
    clearTimeout(this.#statusTimer);
    this.#statusTimer = undefined;
    clearTimeout(this.#heartbeatTimer);
    slots.disconnect(session);
    metrics.connected.set(0);
    if (session.welcome === undefined) metrics.connectionAttempts.inc({ result: 'error' });
    if (!this.#abort.signal.aborted)
      log.info({ err: error, welcomed: session.welcome !== undefined }, 'session with the scheduler ended');
  }

  // ---- reports -----------------------------------------------------------------------------------------------------------------

  #sendStatus(full: boolean): void {
    const session = this.#session;
    if (session?.welcome === undefined) return;
    const containers = full
      ? this.#parts.observedAll()
      : [...this.#changed].map((id) => this.#parts.observedOf(id)).filter((one) => one !== undefined);
    this.#changed.clear();
    if (!full && containers.length === 0) return;
    this.#seq += 1;
    session.sendControl({ status: { seq: this.#seq, full, containers } });
  }

  /** Reports everything: for a snapshot that was not obeyed. */
  reportAll(): void {
    this.#sendStatus(true);
  }

  #scheduleHeartbeat(intervalMs: number): void {
    clearTimeout(this.#heartbeatTimer);
    const waitMs = intervalMs * (0.9 + Math.random() * 0.2);
    this.#heartbeatTimer = setTimeout(() => {
      void this.#heartbeat().finally(() => {
        if (this.#session?.welcome !== undefined) this.#scheduleHeartbeat(intervalMs);
      });
    }, waitMs);
  }

  async #heartbeat(): Promise<void> {
    const { slots, conditions, diskFreeBytes, metrics, logs } = this.#parts;
    const free = await diskFreeBytes().catch(() => 0);
    const now = conditions();
    metrics.setConditions(now);
    metrics.diskFree.set({ filesystem: 'state' }, free);
    metrics.logBufferBytes.set(logs.bytes);
    this.#session?.sendControl({
      heartbeat: {
        sentAtMs: Date.now(),
        liveAttempts: slots.liveAttempts(),
        conditions: [...now],
        diskFreeBytes: free,
      },
    });
  }
}
