// The scaling loop of the leader: looks at the queues that changed, reads their depth, lets decide.ts decide, and asks the book for containers or tells some to go. Woken by change
// (coalesced for a few milliseconds), by the next keep-warm that runs out, and by a slow sweep. What must stay true: a bad sample changes nothing; a container with an attempt never goes.
import type { ContainerId, QueueName } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Book, BookChange, BookEntry, Moved } from '../containers/book.ts';
import type { Target } from '../deployments/stub-config.ts';
import type { Targets } from '../deployments/targets.ts';
import type { SlotTable } from '../dispatch/slots.ts';
import { isUserCause } from '../fleet/observe.ts';
import type { LoopMetrics } from '../loop-metrics.ts';
import type { DueTimes } from '../queues/due.ts';
import type { QueueDepth, TaskQueues } from '../queues/task-queues.ts';
import { totalOf } from '../queues/task-queues.ts';
import type { Breaker, ScaleContainer, ScaleDecision } from './decide.ts';
import { breakerAfterFailure, CLOSED_BREAKER, decideScale, wantedContainers } from './decide.ts';
import type { AutoscalerMetrics } from './metrics.ts';

export interface AutoscalerParts {
  readonly targets: Targets;
  readonly queues: TaskQueues;
  readonly book: Book;
  readonly slots: SlotTable;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: AutoscalerMetrics;
  readonly loops: LoopMetrics;
  readonly due: DueTimes;
  readonly isLeader: () => boolean;
  /** Cap on containers of one deployment. */
  readonly maxContainers: number;
  /** A start failed by the user's cause and nothing else serves the queue: its waiting callers get these lines. */
  readonly onStartFailed: (queue: QueueName, lastLines: string) => void;
}

const COALESCE_MS = 2;
const SWEEP_MS = 30_000;
const MAX_MISSED = 10_000;
const EARLY_EXIT_MS = 60_000;
const DUE_SOON_MS = 10_000;
/** Rounds of one queue are never further apart than this while it has containers. */
const LONGEST_WAIT_MS = 30_000;

export class Autoscaler {
  readonly #parts: AutoscalerParts;
  readonly #dirty = new Set<QueueName>();
  /** Woken while another replica led, or nobody: looked at when this one begins to lead. */
  readonly #missed = new Set<QueueName>();
  readonly #timers = new Map<QueueName, NodeJS.Timeout>();
  readonly #breakers = new Map<QueueName, Breaker>();
  /** The last decision of each queue that has containers or tasks, for whoever asks why. */
  readonly #decisions = new Map<QueueName, ScaleDecision>();
  /** What each of them asked for when it was looked at last; a bad sample leaves it. */
  readonly #wanted = new Map<QueueName, { readonly kind: string; readonly count: number }>();
  #timer: NodeJS.Timeout | undefined;
  #sweep: NodeJS.Timeout | undefined;
  #running = false;
  #stopped = true;

  constructor(parts: AutoscalerParts) {
    this.#parts = parts;
    parts.book.onChange((change) => this.#bookChanged(change));
    parts.targets.onChange(({ target }) => {
      if (target !== undefined) this.wake(target.queue);
    });
  }

  start(): void {
    this.#stopped = false;
    this.#sweep = setInterval(() => this.sweep(), SWEEP_MS);
    this.#sweep.unref();
    this.sweep();
  }

  stop(): void {
    this.#stopped = true;
    clearInterval(this.#sweep);
    clearTimeout(this.#timer);
    for (const timer of this.#timers.values()) clearTimeout(timer);
  }

  /** Everything that may want or have containers. */
  sweep(): void {
    for (const queue of this.#parts.book.queues()) this.wake(queue);
    for (const target of this.#parts.targets.activeTargets()) this.wake(target.queue);
    if (!this.#parts.isLeader()) return;
    for (const queue of this.#missed) this.wake(queue);
    this.#missed.clear();
  }

  wake(queue: QueueName): void {
    if (this.#stopped) return;
    this.#dirty.add(queue);
    this.#timer ??= setTimeout(() => void this.#round(), COALESCE_MS);
  }

  /** A task came in: only when its queue asks for more than lives is a round worth it. */
  depthSeen(target: Target, depth: number): void {
    let live = 0;
    for (const entry of this.#parts.book.ofQueue(target.queue)) if (COUNTED.has(entry.row.state)) live += 1;
    if (wantedContainers(this.#bounds(target), depth) > live) this.wake(target.queue);
  }

  /** A container may have become idle: its keep-warm runs from now. */
  attemptEnded(queue: QueueName, containerId: ContainerId): void {
    const container = this.#parts.slots.get(containerId);
    // A container that served a task works: whatever failed before it is over.
    if (container !== undefined && container.completed > 0 && this.#breakers.delete(queue)) this.wake(queue);
    if (this.#timers.has(queue)) return;
    if (container !== undefined && container.inFlight === 0) this.wake(queue);
  }

  decisionOf(queue: QueueName): ScaleDecision | undefined {
    return this.#decisions.get(queue);
  }

  /** For the gauges: what queues ask for, by the kind of their stub. */
  wanted(): Iterable<{ readonly kind: string; readonly count: number }> {
    return this.#wanted.values();
  }

  /** Queues whose breaker is open. */
  get degraded(): number {
    let open = 0;
    for (const breaker of this.#breakers.values()) if (breaker.opened > 0) open += 1;
    return open;
  }

  async #round(): Promise<void> {
    this.#timer = undefined;
    if (this.#running || this.#stopped) return;
    this.#running = true;
    try {
      while (this.#dirty.size > 0 && !this.#stopped) {
        const queues = [...this.#dirty];
        this.#dirty.clear();
        if (this.#parts.isLeader()) await this.#parts.loops.round('autoscaler', () => this.#decideAll(queues));
        else this.#remember(queues);
      }
    } finally {
      this.#running = false;
    }
  }

  /** The oldest go first where too many come: the leader heard of them by itself, or the task sweep finds them. */
  #remember(queues: readonly QueueName[]): void {
    for (const queue of queues) this.#missed.add(queue);
    for (const queue of this.#missed) {
      if (this.#missed.size <= MAX_MISSED) return;
      this.#missed.delete(queue);
    }
  }

  async #decideAll(queues: readonly QueueName[]): Promise<void> {
    const { clock, metrics, log } = this.#parts;
    let depths: readonly QueueDepth[] | undefined;
    try {
      depths = await this.#parts.queues.depths(queues);
      metrics.samples.inc({ result: 'ok' });
    } catch (error) {
      metrics.samples.inc({ result: 'failed' });
      log.warn({ err: error }, 'queue depths not read, holding');
    }
    for (const [index, queue] of queues.entries()) {
      try {
        await this.#decideOne(queue, depths?.[index], clock.nowMs());
      } catch (error) {
        log.error({ err: error, queue }, 'scaling round failed, trying again');
        this.#again(queue, clock.nowMs() + 1000);
      }
    }
  }

  async #decideOne(queue: QueueName, depth: QueueDepth | undefined, nowMs: number): Promise<void> {
    const { targets, book, metrics, log } = this.#parts;
    const target = await targets.byQueue(queue);
    const entries = [...book.ofQueue(queue)];
    if (target === undefined && entries.length === 0) {
      this.#forget(queue);
      return;
    }
    const bounds = target === undefined ? GONE : this.#bounds(target);
    if (this.#breakers.has(queue) && entries.some((entry) => stayedUp(entry, nowMs))) this.#breakers.delete(queue);
    const decision = decideScale(
      {
        ...bounds,
        inFlight: depth === undefined ? undefined : totalOf(depth) - this.#notDueSoon(queue, depth),
        waiting: depth === undefined ? 0 : depth.waiting + depth.prioritized,
        keepWarmMs: target === undefined ? 0 : keepWarmMs(target),
        containers: entries.map((entry) => this.#asScaleContainer(entry)),
        breaker: this.#breakers.get(queue) ?? CLOSED_BREAKER,
        scaleInAllowed: true,
      },
      nowMs,
    );
    this.#decisions.set(queue, decision);
    if (depth !== undefined && target !== undefined)
      this.#wanted.set(queue, { kind: target.kind, count: wantedContainers(bounds, totalOf(depth)) });
    switch (decision.kind) {
      case 'start':
        log.info(
          { queue, count: decision.count, wanted: decision.wanted, tasks: depth && totalOf(depth) },
          'scaling up',
        );
        metrics.events.inc({ direction: 'up', reason: 'queue_depth' }, decision.count);
        for (let index = 0; index < decision.count && target !== undefined; index += 1) await book.create(target);
        break;
      case 'stop':
        metrics.events.inc({ direction: 'down', reason: 'idle' }, decision.containers.length);
        await Promise.all(decision.containers.map((id) => this.#letGo(id)));
        this.#again(queue, decision.againAtMs);
        break;
      case 'hold':
        this.#again(queue, decision.againAtMs);
        break;
    }
    if (
      entries.length === 0 &&
      decision.kind === 'hold' &&
      decision.why === 'at_target' &&
      (depth === undefined || totalOf(depth) === 0)
    ) {
      this.#forget(queue);
    }
  }

  /** Delayed jobs that are known not to be due within 10 s; what is not known (after a restart) counts as due, so that a fetch finds out. */
  #notDueSoon(queue: QueueName, depth: QueueDepth): number {
    const soon = this.#parts.due.countWithin(queue, DUE_SOON_MS);
    return soon === undefined ? 0 : Math.max(0, depth.delayed - soon);
  }

  /** Still without an attempt at this very moment: no more tasks go there, then it is told to stop. */
  async #letGo(id: ContainerId): Promise<void> {
    const { book, slots, log } = this.#parts;
    const entry = book.get(id);
    if (entry === undefined) return;
    const container = slots.get(id);
    if (container !== undefined && container.inFlight > 0) return;
    slots.leave(id);
    const event = entry.row.state === 'PENDING' || entry.row.state === 'ASSIGNED' ? 'abandon' : 'stop';
    let moved: Moved = 'refused';
    try {
      moved = await book.transition(id, event, { change: { reason: 'scaled_in' } });
    } finally {
      // It goes on counting as live, so it must go on taking tasks.
      if (moved === 'refused') slots.stay(id);
    }
    if (moved !== 'refused') log.info({ containerId: id, queue: entry.spec.queue }, 'scaling in');
  }

  #bounds(target: Target): Bounds {
    const { autoscaler } = target.config;
    const cap = this.#parts.maxContainers;
    const scale = target.scale ?? autoscaler;
    return {
      active: target.active,
      tasksPerContainer: Math.max(1, autoscaler.tasksPerContainer),
      minContainers: Math.min(Math.max(0, target.deploymentId === null ? 0 : scale.minContainers), cap),
      maxContainers: Math.min(Math.max(1, scale.maxContainers), cap),
    };
  }

  #asScaleContainer(entry: BookEntry): ScaleContainer {
    const container = this.#parts.slots.get(entry.row.id);
    return {
      id: entry.row.id,
      state: entry.row.state,
      // On a machine linked elsewhere, or not linked (yet): what it works on is not known, so it counts as busy.
      attempts: container?.link === undefined ? (entry.row.state === 'RUNNING' ? 1 : 0) : container.inFlight,
      idleSinceMs: container?.idleSinceMs ?? entry.row.createdAtMs,
      createdAtMs: entry.row.createdAtMs,
      keepWarmMs: container?.keepWarmMs ?? 0,
      warmUp: entry.spec.warmUp === true,
    };
  }

  #again(queue: QueueName, atMs: number | undefined): void {
    if (atMs === undefined || this.#stopped) return;
    clearTimeout(this.#timers.get(queue));
    const delay = Math.min(Math.max(1, atMs - this.#parts.clock.nowMs()), LONGEST_WAIT_MS);
    const timer = setTimeout(() => {
      this.#timers.delete(queue);
      this.wake(queue);
    }, delay);
    timer.unref();
    this.#timers.set(queue, timer);
  }

  #forget(queue: QueueName): void {
    clearTimeout(this.#timers.get(queue));
    this.#timers.delete(queue);
    this.#decisions.delete(queue);
    this.#wanted.delete(queue);
    if ((this.#breakers.get(queue)?.closedAtMs ?? 0) < this.#parts.clock.nowMs()) this.#breakers.delete(queue);
  }

  #bookChanged(change: BookChange): void {
    const { entry, from, to } = change;
    // Whether it works is seen by what it serves, or by how long it stays: then the queue is looked at again.
    if (to === 'RUNNING' && from === 'STARTING' && this.#breakers.has(entry.spec.queue))
      this.#again(entry.spec.queue, this.#parts.clock.nowMs() + EARLY_EXIT_MS);
    if (to === 'FAILED') this.#failed(change);
    this.wake(entry.spec.queue);
  }

  /** A start that failed, or an exit right after it with nothing done, counts against the queue. */
  #failed({ entry, from }: BookChange): void {
    const { slots, clock } = this.#parts;
    const { queue } = entry.spec;
    const { row } = entry;
    const container = slots.get(row.id);
    const nowMs = clock.nowMs();
    const failedStart = from === 'STARTING';
    const failedEarly =
      from === 'RUNNING' && (container?.completed ?? 0) === 0 && nowMs - (row.startedAtMs ?? nowMs) < EARLY_EXIT_MS;
    if (!failedStart && !failedEarly) return;
    if (!isUserCause(row.reason ?? 'user_error')) return;
    this.#breakers.set(queue, breakerAfterFailure(this.#breakers.get(queue) ?? CLOSED_BREAKER, nowMs));
    if (!failedStart || slots.hasReady(queue)) return;
    this.#parts.onStartFailed(queue, row.message ?? row.reason ?? 'the container did not start');
  }
}

interface Bounds {
  readonly active: boolean;
  readonly tasksPerContainer: number;
  readonly minContainers: number;
  readonly maxContainers: number;
}
/** A queue whose deployment is gone wants nothing. */
const GONE: Bounds = { active: false, tasksPerContainer: 1, minContainers: 0, maxContainers: 1 };
const COUNTED: ReadonlySet<string> = new Set(['PENDING', 'ASSIGNED', 'STARTING', 'RUNNING']);

const keepWarmMs = (target: Target): number =>
  target.config.keepWarmSeconds < 0 ? Number.POSITIVE_INFINITY : target.config.keepWarmSeconds * 1000;

/** Up for longer than an early exit takes. */
const stayedUp = ({ row }: BookEntry, nowMs: number): boolean =>
  row.state === 'RUNNING' && row.startedAtMs !== null && nowMs - row.startedAtMs >= EARLY_EXIT_MS;
