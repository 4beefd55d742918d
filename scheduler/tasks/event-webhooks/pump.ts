// Delivery of events to webhooks, by the leader. Nothing is written for a webhook when an event is: the pump reads
// behind each webhook's cursor, woken by new events and by a slow sweep. Outcomes and cursors are written in batches.
// So a leader that dies repeats what ended within the last moment.
// Invariants:
// - Posts are bounded for a webhook, for a workspace and in all; workspaces take turns.
// - Outcomes are written with the cursor that passes them, or before.
// - Only the leader pumps. A cursor never moves back.
import { repeat } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { DeliveryId, WebhookId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import type { LeaderLease } from '../../cluster/leader.ts';
import { whileLeading } from '../../cluster/while-leading.ts';
import type { Db } from '../../stores/store/db.ts';
import type { EventRow } from '../../stores/store/queries/events.ts';
import {
  backlogEdge,
  bringForward,
  dueDeliveries,
  eventsBehind,
  pruneDeliveries,
  waitingSubjects,
  writeDeliveries,
  writeProgress,
} from '../../stores/store/queries/webhook-deliveries.ts';
import type { Delivered } from '../../stores/store/queries/webhook-deliveries.ts';
import {
  activeWebhooks,
  deactivateWebhook,
  webhooksById,
  webhooksWithWork,
} from '../../stores/store/queries/webhooks.ts';
import type { WebhookWork } from '../../stores/store/queries/webhooks.ts';
import { cloudEventOf } from '../../workspaces/events/envelope.ts';
import { wordOf } from '../webhooks/decide.ts';
import type { Outcome } from '../webhooks/decide.ts';
import { hostOf } from '../webhooks/deliveries.ts';
import { NoPlaceError, Places } from '../webhooks/places.ts';
import { Lane, PAGE } from './lane.ts';
import type { LaneHost } from './lane.ts';
import { messageOf } from './message.ts';
import type { EventWebhookMetrics } from './metrics.ts';
import type { Receivers } from './receivers.ts';
import type { WebhookSecrets } from './secrets.ts';

/** Most posts at once, and those of one workspace; to slow receivers, which have places of their own, half as many. */
const AT_ONCE = 128;
const OF_ONE_WORKSPACE = 16;
const PLACE_MS = 5_000;
/** Most webhooks whose events are in memory; the others have their turn. */
const MOST_LANES = 256;
/** Most pages read at once. */
const READS_AT_ONCE = 4;
const SWEEP_MS = 2_000;
const WAKE_MS = 20;
const FLUSH_MS = 200;
const FLUSH_AGAIN_MS = 1_000;
/** Outcomes of one statement, and those in memory above which nothing new begins. */
const FLUSH_ROWS = 1_000;
const MOST_UNWRITTEN = 5_000;
/** Outcomes of a webhook that are kept, of each state. */
export const KEPT_OUTCOMES = 1_000;
const PRUNE_EVERY = 200;
/** Events of its kinds that may wait for a webhook. */
export const MOST_BACKLOG = 100_000;
const MOST_WOKEN = 10_000;

export interface PumpParts {
  readonly db: Db;
  readonly receivers: Pick<Receivers, 'post'>;
  readonly secrets: Pick<WebhookSecrets, 'of'>;
  readonly metrics: EventWebhookMetrics;
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  readonly log: Log;
  readonly leader: Pick<LeaderLease, 'onChange' | 'isLeader'>;
  readonly mostBacklog?: number;
  readonly sweepMs?: number;
  readonly keptOutcomes?: number;
}

export class WebhookPump implements Part {
  readonly name = 'webhook pump';
  readonly #parts: PumpParts;
  #reign: Reign | undefined;
  #end: (() => void) | undefined;
  #ending: Promise<void> = Promise.resolve();

  constructor(parts: PumpParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#end = whileLeading(this.#parts.leader, (signal) => this.#lead(signal));
  }

  /** Ends posts under way, and writes what has ended. */
  async stop(): Promise<void> {
    this.#end?.();
    await this.#ending;
  }

  /** The workspace has events up to this number. */
  wake(workspaceId: WorkspaceId, lastSeq: number): void {
    this.#reign?.wake(workspaceId, lastSeq);
  }

  #lead(signal: AbortSignal): void {
    const reign = new Reign(this.#parts);
    this.#reign = reign;
    // The one before writes first how far it came.
    void this.#ending.then(() => {
      if (!signal.aborted) reign.start();
    });
    const end = (): void => {
      this.#reign = undefined;
      this.#ending = Promise.all([this.#ending, reign.end()]).then(() => undefined);
    };
    signal.addEventListener('abort', end, { once: true });
  }
}

/** The pump of one time as the leader. */
class Reign implements LaneHost {
  readonly mostBacklog: number;
  readonly #parts: PumpParts;
  readonly #abort = new AbortController();
  readonly #lanes = new Map<WebhookId, Lane>();
  readonly #byWorkspace = new Map<WorkspaceId, Set<Lane>>();
  /** Number of active webhooks, as the last sweep saw them. */
  #active: ReadonlyMap<WorkspaceId, number> = new Map();
  readonly #woken = new Set<WorkspaceId>();
  #wakeTimer: NodeJS.Timeout | undefined;
  #finding: Promise<void> = Promise.resolve();
  readonly #places = new Places(AT_ONCE, OF_ONE_WORKSPACE);
  readonly #slowPlaces = new Places(AT_ONCE / 2, OF_ONE_WORKSPACE / 2);
  readonly #reads = new Places(READS_AT_ONCE);
  readonly #unwritten: { readonly lane: Lane; readonly outcome: Delivered }[] = [];
  readonly #moved = new Set<Lane>();
  /** Lanes whose progress is being written. */
  #writing: ReadonlySet<Lane> = new Set();
  #flushTimer: NodeJS.Timeout | undefined;
  #flushing: Promise<void> | undefined;
  /** Outcomes of a webhook since it was pruned. */
  readonly #sincePruned = new Map<WebhookId, number>();
  readonly #posting = new Set<Promise<unknown>>();
  #sweeps: Promise<void> = Promise.resolve();

  constructor(parts: PumpParts) {
    this.#parts = parts;
    this.mostBacklog = parts.mostBacklog ?? MOST_BACKLOG;
  }

  start(): void {
    const { log } = this.#parts;
    const failed = (error: unknown): void => {
      if (!this.#abort.signal.aborted) log.warn({ err: error }, 'webhooks not looked through, trying again');
    };
    this.#sweeps = (async () => {
      await this.#sweep().catch(failed);
      await repeat(this.#parts.sweepMs ?? SWEEP_MS, this.#abort.signal, () => this.#sweep(), failed);
    })();
  }

  async end(): Promise<void> {
    this.#abort.abort();
    clearTimeout(this.#wakeTimer);
    for (const lane of this.#lanes.values()) lane.stop();
    await this.#sweeps;
    await this.#finding;
    await Promise.allSettled(this.#posting);
    clearTimeout(this.#flushTimer);
    await this.#flushing;
    await this.#flush();
    this.#parts.metrics.underWay.set(0);
  }

  nowMs(): number {
    return this.#parts.clock.nowMs();
  }

  wake(workspaceId: WorkspaceId, lastSeq: number): void {
    const webhooks = this.#active.get(workspaceId) ?? 0;
    if (webhooks === 0) return;
    const lanes = this.#byWorkspace.get(workspaceId);
    for (const lane of lanes ?? []) lane.more(lastSeq);
    // A lane that the bound of woken workspaces leaves out is found by the sweep.
    if ((lanes?.size ?? 0) >= webhooks || this.#woken.size >= MOST_WOKEN) return;
    this.#woken.add(workspaceId);
    this.#wakeTimer ??= setTimeout(() => {
      this.#wakeTimer = undefined;
      const woken = [...this.#woken];
      this.#woken.clear();
      void this.#find(woken).catch((error: unknown) => {
        this.#parts.log.info({ err: error }, 'webhooks wait for the next sweep');
      });
    }, WAKE_MS);
  }

  async #sweep(): Promise<void> {
    const { db, metrics } = this.#parts;
    this.#active = await activeWebhooks(db);
    if (this.#active.size === 0 && this.#lanes.size === 0) return;
    const rows = new Map((await webhooksById(db, [...this.#lanes.keys()])).map((row) => [row.id, row]));
    for (const lane of this.#lanes.values()) {
      const row = rows.get(lane.id);
      if (row === undefined || !row.active) this.#drop(lane);
      else lane.changed(row, await this.#heldOf(lane));
    }
    for (const lane of [...this.#lanes.values()]) if (this.#isDone(lane)) this.#drop(lane);
    await this.#find();
    metrics.underWay.set([...this.#lanes.values()].filter((lane) => lane.isBehind).length);
  }

  /** Waiting deliveries as the database has them, where it has all: somebody may have sent one again. */
  async #heldOf(lane: Lane): Promise<ReadonlyMap<string, number> | undefined> {
    const isSettled = (): boolean => lane.isCalm && !this.#moved.has(lane) && !this.#writing.has(lane);
    if (!lane.hasWaiting || !isSettled()) return undefined;
    const version = lane.waitingVersion;
    const held = await waitingSubjects(this.#parts.db, lane.id);
    return isSettled() && version === lane.waitingVersion ? held : undefined;
  }

  /** Whether the lane has nothing to do, and nothing that is not written. */
  #isDone(lane: Lane): boolean {
    return lane.isIdle && !this.#moved.has(lane) && !this.#writing.has(lane);
  }

  /** Opens lanes for webhooks with work, one round after another. */
  #find(workspaces?: readonly WorkspaceId[]): Promise<void> {
    const found = this.#finding.then(() => this.#open(workspaces));
    this.#finding = found.catch(() => undefined);
    return found;
  }

  async #open(workspaces: readonly WorkspaceId[] | undefined): Promise<void> {
    const { db } = this.#parts;
    const room = MOST_LANES - this.#lanes.size;
    const rows = await webhooksWithWork(db, [...this.#lanes.keys()], room + 1, workspaces);
    // More webhooks have work than there is room for: those of now make room, and others have their turn.
    if (rows.length > room) for (const lane of this.#lanes.values()) lane.leave();
    for (const row of rows.slice(0, room)) {
      if (this.#abort.signal.aborted) return;
      this.#add(row, await waitingSubjects(db, row.id));
    }
  }

  #add(row: WebhookWork, held: ReadonlyMap<string, number>): void {
    const lane = new Lane(this, row, held, this.#abort.signal);
    this.#lanes.set(lane.id, lane);
    const others = this.#byWorkspace.get(lane.workspaceId) ?? new Set();
    this.#byWorkspace.set(lane.workspaceId, others.add(lane));
    lane.step();
  }

  #drop(lane: Lane): void {
    lane.stop();
    this.#lanes.delete(lane.id);
    this.#sincePruned.delete(lane.id);
    const others = this.#byWorkspace.get(lane.workspaceId);
    others?.delete(lane);
    if (others?.size === 0) this.#byWorkspace.delete(lane.workspaceId);
  }

  mayStart(): boolean {
    return this.#unwritten.length < MOST_UNWRITTEN;
  }

  async post(lane: Lane, event: EventRow): Promise<{ readonly outcome: Outcome; readonly durationMs: number }> {
    const posting = this.#post(lane, event);
    this.#posting.add(posting);
    try {
      return await posting;
    } finally {
      this.#posting.delete(posting);
    }
  }

  async #post(lane: Lane, event: EventRow): Promise<{ readonly outcome: Outcome; readonly durationMs: number }> {
    const { secrets, receivers, clock, metrics } = this.#parts;
    const { webhook } = lane;
    const leave = await this.#place(lane);
    try {
      const keys = await secrets.of(webhook);
      const message = messageOf(cloudEventOf(event), keys, clock.nowMs());
      const beganMs = clock.monotonicMs();
      const outcome = await receivers.post(webhook.url, message, webhook, this.#abort.signal);
      metrics.tries.inc({ outcome: wordOf(outcome) });
      return { outcome, durationMs: Math.round(clock.monotonicMs() - beganMs) };
    } finally {
      leave();
    }
  }

  /** @throws the reason of a stop */
  async #place(lane: Lane): Promise<() => void> {
    for (;;) {
      this.#abort.signal.throwIfAborted();
      try {
        return await (lane.isSlow ? this.#slowPlaces : this.#places).take(PLACE_MS, lane.workspaceId);
      } catch (error) {
        if (!(error instanceof NoPlaceError)) throw error;
      }
    }
  }

  page(lane: Lane, afterSeq: number, types: readonly string[]) {
    return this.#read(() => eventsBehind(this.#parts.db, lane, afterSeq, types, PAGE));
  }

  edge(lane: Lane, afterSeq: number, types: readonly string[]) {
    return this.#read(() => backlogEdge(this.#parts.db, lane.workspaceId, afterSeq, types, this.mostBacklog));
  }

  async fresh(lane: Lane): Promise<WebhookWork | undefined> {
    const [row] = await webhooksById(this.#parts.db, [lane.id]);
    return row;
  }

  due(lane: Lane, except: readonly DeliveryId[]) {
    return this.#read(() => dueDeliveries(this.#parts.db, lane.workspaceId, lane.id, except, PAGE));
  }

  bringForward(lane: Lane): Promise<void> {
    return bringForward(this.#parts.db, lane.id);
  }

  async #read<T>(read: () => Promise<T>): Promise<T> {
    const leave = await this.#reads.take(PLACE_MS);
    try {
      return await read();
    } finally {
      leave();
    }
  }

  ended(lane: Lane, outcome: Delivered, storedAtMs: number): void {
    const { metrics, clock, log } = this.#parts;
    const { state } = outcome;
    metrics.events.inc({ result: state });
    if (state === 'delivered') metrics.duration.observe(Math.max(0, clock.nowMs() - storedAtMs) / 1000);
    else {
      const { webhookId, eventId, eventType, attempts, error } = outcome;
      const facts = { webhookId, eventId, eventType, attempts, error, host: hostOf(lane.webhook.url) };
      log.info(facts, state === 'waiting' ? 'event waits for its webhook' : 'event not delivered to its webhook');
    }
    this.#unwritten.push({ lane, outcome });
    this.moved(lane);
  }

  moved(lane: Lane): void {
    this.#moved.add(lane);
    this.#flushTimer ??= setTimeout(() => void this.#flushSoon(), FLUSH_MS);
  }

  gone(lane: Lane): void {
    const { db, log, metrics } = this.#parts;
    const { id, url } = lane.webhook;
    // The lane stays until the sweep sees the row inactive: another one would ask the receiver again.
    lane.stop();
    db.transaction((tx) => deactivateWebhook(tx, id, url, 'receiver_gone')).then(
      (isChanged) => {
        // The webhook has another address meanwhile: it goes on there.
        if (!isChanged) return this.#drop(lane);
        metrics.deactivated.inc();
        log.warn({ webhookId: id, host: hostOf(url) }, 'webhook deactivated: its receiver answered 410');
      },
      (error: unknown) => {
        // The webhook stays active, and asks its receiver again.
        this.#drop(lane);
        this.failed(lane, error);
      },
    );
  }

  failed(lane: Lane, error: unknown): void {
    if (this.#abort.signal.aborted) return;
    this.#parts.log.info({ err: error, webhookId: lane.id }, 'a webhook waits for the next sweep');
  }

  async #flushSoon(): Promise<void> {
    this.#flushing ??= this.#flush().finally(() => {
      this.#flushing = undefined;
      this.#flushTimer = undefined;
      if (this.#abort.signal.aborted || (this.#unwritten.length === 0 && this.#moved.size === 0)) return;
      this.#flushTimer = setTimeout(() => void this.#flushSoon(), this.#isAway ? FLUSH_AGAIN_MS : FLUSH_MS);
    });
    await this.#flushing;
  }
  #isAway = false;

  /** Writes outcomes and progress. Never throws; what could not be written is kept. */
  async #flush(): Promise<void> {
    const { db, metrics, log } = this.#parts;
    const ended = this.#unwritten.splice(0);
    const lanes = [...this.#moved];
    this.#moved.clear();
    this.#writing = new Set(lanes);
    if (ended.length === 0 && lanes.length === 0) return;
    const progress = lanes.map((lane) => lane.takeProgress());
    try {
      await db.transaction(async (tx) => {
        for (let at = 0; at < ended.length; at += FLUSH_ROWS)
          await writeDeliveries(
            tx,
            ended.slice(at, at + FLUSH_ROWS).map(({ outcome }) => outcome),
          );
        await writeProgress(tx, progress);
      });
      this.#isAway = false;
      this.#writing = new Set();
    } catch (error) {
      this.#isAway = true;
      log.warn({ err: error, outcomes: ended.length }, 'outcomes of webhooks not written, trying again');
      this.#unwritten.unshift(...ended);
      lanes.forEach((lane, at) => {
        const own = progress[at];
        if (own !== undefined) lane.giveBack(own);
        this.#moved.add(lane);
      });
      this.#writing = new Set();
      return;
    }
    for (const { skipped, webhookId } of progress) {
      if (skipped === 0) continue;
      metrics.skipped.inc(skipped);
      log.warn({ webhookId, skipped }, 'events passed over: too many waited for a webhook');
    }
    const ids = new Map<Lane, DeliveryId[]>();
    for (const { lane, outcome } of ended) {
      const own = ids.get(lane) ?? [];
      own.push(outcome.id);
      ids.set(lane, own);
    }
    await this.#prune(ids);
    for (const lane of this.#lanes.values()) lane.written(ids.get(lane) ?? []);
  }

  /** Deletes outcomes beyond those that are kept, now and then. */
  async #prune(ids: ReadonlyMap<Lane, readonly DeliveryId[]>): Promise<void> {
    const { db, log, keptOutcomes = KEPT_OUTCOMES } = this.#parts;
    for (const [{ id }, written] of ids) {
      const since = (this.#sincePruned.get(id) ?? PRUNE_EVERY) + written.length;
      this.#sincePruned.set(id, since);
      if (since < PRUNE_EVERY) continue;
      this.#sincePruned.set(id, 0);
      try {
        await pruneDeliveries(db, id, 'delivered', keptOutcomes);
        await pruneDeliveries(db, id, 'failed', keptOutcomes);
      } catch (error) {
        log.info({ err: error, webhookId: id }, 'outcomes of a webhook not pruned, trying again later');
      }
    }
  }
}
