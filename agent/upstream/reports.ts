// Reports of the agent over its session: containers that changed, GPUs, heartbeats, the metrics page.
import type { DeviceReport, ObservedContainer } from '#shared/protocol/generated/messages.ts';
import type { Log } from '#shared/log.ts';
import { MAX_MESSAGE_BYTES } from '#shared/protocol/link.ts';
import type { LogBuffer } from '../containers/log-buffer.ts';
import { attemptParts, fitted, observedParts } from '../slots/message-parts.ts';
import type { RunnerSlots } from '../slots/slots.ts';
import type { ClockWatch } from '../telemetry/clock.ts';
import type { Conditions } from '../telemetry/conditions.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import { bearer } from './channel.ts';
import type { Contact } from './contact.ts';
import type { IdentityFile } from './identity.ts';
import type { Session } from './session.ts';

const STATUS_COALESCE_MS = 3;
const MOST_ASKED = 8;
const MAX_PAGE_BYTES = MAX_MESSAGE_BYTES - 1024;
const DELIVER_MS = 5_000;

export interface ReportsParts {
  readonly identity: IdentityFile;
  readonly slots: Pick<RunnerSlots, 'liveAttempts'>;
  readonly logs: Pick<LogBuffer, 'bytes'>;
  readonly metrics: AgentMetrics;
  readonly log: Log;
  readonly observedAll: () => ObservedContainer[];
  readonly observedOf: (containerId: string) => ObservedContainer | undefined;
  /** The machine's GPUs, as they are now. */
  readonly devices: () => DeviceReport;
  readonly conditions: Pick<Conditions, 'names' | 'words'>;
  readonly diskFreeBytes: () => number;
  readonly clock: ClockWatch;
  readonly contact: Pick<Contact, 'asking'>;
}

export class Reports {
  readonly #parts: ReportsParts;
  readonly #session: () => Session | undefined;
  #seq = 0;
  #changed = new Set<string>();
  #statusTimer: NodeJS.Timeout | undefined;
  #heartbeatTimer: NodeJS.Timeout | undefined;
  #heartbeatSoon = false;
  /** Unanswered heartbeats: the monotonic time of each, and the function to call with its answer. */
  readonly #askedAt = new Map<number, { readonly atMs: number; readonly answered: () => void }>();

  /** @param session - the current session; undefined: there is none */
  constructor(parts: ReportsParts, session: () => Session | undefined) {
    this.#parts = parts;
    this.#session = session;
  }

  /** A hello carries everything: changes before it are reported. */
  forget(): void {
    this.#changed.clear();
  }

  /** A session was welcomed: its reports are numbered anew, and no heartbeat is unanswered. */
  reset(): void {
    this.#seq = 0;
    this.#askedAt.clear();
  }

  /** Begins the heartbeats of a session, and reports what changed between its hello and now. */
  begin(heartbeatIntervalMs: number): void {
    this.#scheduleHeartbeat(heartbeatIntervalMs);
    if ((this.#parts.devices().gpus?.length ?? 0) > 0) this.devicesChanged();
    if (this.#changed.size > 0) this.#sendStatus(false);
  }

  /** The session ended. */
  end(): void {
    clearTimeout(this.#statusTimer);
    this.#statusTimer = undefined;
    clearTimeout(this.#heartbeatTimer);
  }

  /** The link stops: no status follows any more. */
  stop(): void {
    clearTimeout(this.#statusTimer);
    clearTimeout(this.#heartbeatTimer);
  }

  /** Notes a changed container: the report follows within milliseconds, one for many changes. */
  changed(containerId: string): void {
    this.#changed.add(containerId);
    if (this.#session()?.welcome === undefined || this.#statusTimer !== undefined) return;
    this.#statusTimer = setTimeout(() => {
      this.#statusTimer = undefined;
      this.#sendStatus(false);
    }, STATUS_COALESCE_MS);
  }

  /** Reports every container. */
  all(): void {
    this.#sendStatus(true);
  }

  /** Reports a changed GPU, before any message that follows from it. */
  devicesChanged(): void {
    const session = this.#session();
    if (session?.welcome !== undefined) session.sendControl({ devices: this.#parts.devices() });
  }

  #sendStatus(full: boolean): void {
    const session = this.#session();
    if (session?.welcome === undefined) return;
    const containers = full
      ? this.#parts.observedAll()
      : [...this.#changed].map((id) => this.#parts.observedOf(id)).filter((one) => one !== undefined);
    this.#changed.clear();
    if (!full && containers.length === 0) return;
    for (const part of full ? [fitted(containers)] : observedParts(containers)) {
      this.#seq += 1;
      session.sendControl({ status: { seq: this.#seq, full, containers: part } });
    }
  }

  /** Sends a heartbeat now: a value that heartbeats carry has changed and should not wait for the next one. */
  heartbeatNow(): void {
    if (this.#session()?.welcome === undefined || this.#heartbeatSoon) return;
    this.#heartbeatSoon = true;
    setImmediate(() => {
      this.#heartbeatSoon = false;
      if (this.#session()?.welcome !== undefined) this.#heartbeat();
    });
  }

  /** The scheduler answered a heartbeat: takes in the round trip, and its clock. */
  answered(sentAtMs: number, serverTimeMs: number): void {
    const askedAt = this.#askedAt.get(sentAtMs);
    if (askedAt === undefined) return;
    this.#askedAt.delete(sentAtMs);
    askedAt.answered();
    this.#parts.clock.heard(serverTimeMs, performance.now() - askedAt.atMs, Date.now());
  }

  /** Sends this machine's metrics page on its own stream: a page is larger than a message of the control stream. */
  async deliverMetrics(session: Session, requestId: string): Promise<void> {
    const { metrics, identity, log } = this.#parts;
    const credential = identity.current?.credential;
    if (credential === undefined) return;
    const page = Buffer.from(await metrics.registry.metrics());
    const request = { requestId, page: page.length > MAX_PAGE_BYTES ? Buffer.alloc(0) : page };
    const deadline = { deadline: Date.now() + DELIVER_MS };
    session.client.deliverMetrics(request, bearer(credential, session.welcome?.sessionId), deadline, (error) => {
      if (error !== null) log.info({ err: error }, 'metrics page not delivered');
    });
  }

  #scheduleHeartbeat(intervalMs: number): void {
    clearTimeout(this.#heartbeatTimer);
    const waitMs = intervalMs * (0.9 + Math.random() * 0.2);
    this.#heartbeatTimer = setTimeout(() => {
      this.#heartbeat();
      if (this.#session()?.welcome !== undefined) this.#scheduleHeartbeat(intervalMs);
    }, waitMs);
  }

  #heartbeat(): void {
    const { slots, conditions, diskFreeBytes, metrics, logs } = this.#parts;
    metrics.logBufferBytes.set(logs.bytes);
    const sentAtMs = Date.now();
    this.#askedAt.set(sentAtMs, { atMs: performance.now(), answered: this.#parts.contact.asking() });
    for (const asked of this.#askedAt.keys()) if (this.#askedAt.size > MOST_ASKED) this.#askedAt.delete(asked);
    const [names, conditionWords] = [[...conditions.names], { ...conditions.words }];
    for (const liveAttempts of attemptParts(slots.liveAttempts())) {
      this.#session()?.sendControl({
        heartbeat: { sentAtMs, liveAttempts, conditions: names, conditionWords, diskFreeBytes: diskFreeBytes() },
      });
    }
  }
}
