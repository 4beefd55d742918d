// Scaling loop of the leader: looks at the queues that changed, reads their depth, lets decide.ts
// decide, and asks the container registry for containers or tells some to stop. A change (coalesced for a few
// milliseconds), the next expiry of a keep-warm or window, or a slow sweep starts a round.
// Invariants: a bad sample changes nothing; a container with an
// attempt is never stopped; right after a start nothing is stopped.
import type { ContainerId, MachineId, QueueName, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { isLiveContainer, isTerminalContainer } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerControl, ContainerEntryChange, Moved } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { TargetChange, Targets } from '../../workspaces/deployments/targets.ts';
import type { SlotTable } from '../../tasks/dispatch/slots.ts';
import type { LoopMetrics } from '../../cluster/loop-metrics.ts';
import type { DueTimes } from '../../stores/queues/due.ts';
import type { QueueDepth, TaskQueues } from '../../stores/queues/task-queues.ts';
import { totalOf } from '../../stores/queues/task-queues.ts';
import type { Loads } from '../../cluster/loads.ts';
import type { ReservedTokens } from '../../cluster/reserved-tokens.ts';
import type { Breakers } from './breakers.ts';
import { HostBrakes } from './host-brake.ts';
import type { ScaleDecision, ScaleInput } from './decide.ts';
import { decideScale, demandReason, wantedContainers } from './decide.ts';
import type { ScaleInHold } from './scale-in-hold.ts';
import { scaleInHold } from './scale-in-hold.ts';
import { ScaleInputReader, scaleFacts, windowMsOf } from './scale-input-reader.ts';
import type { QueueHistory } from './history.ts';
import { QueueHistories, recordDecision, recordState } from './history.ts';
import type { ScaleEvents } from './scale-events.ts';
import type { AutoscalerMetrics } from './metrics.ts';
import { sampleQueues } from './samples.ts';
import { EARLY_EXIT_MS, failedStart, stayedUp } from './starts.ts';
import { rememberWanted } from './window.ts';

export interface AutoscalerParts {
  readonly targets: Targets;
  readonly queues: Pick<TaskQueues, 'depths'>;
  readonly containers: ContainerControl;
  /** Makes new containers, and places them where that is possible at once. */
  readonly create: (target: Target, count: number) => Promise<readonly ContainerEntry[]>;
  readonly slots: SlotTable;
  readonly loads: Pick<Loads, 'of' | 'isHere'>;
  /** Tokens that calls to models reserve. Absent: none. */
  readonly reservedTokens?: Pick<ReservedTokens, 'of'>;
  readonly breakers: Breakers;
  readonly clock: Clock;
  readonly log: Log;
  /** Told of decisions that change the number of containers; absent: nobody. */
  readonly scaled?: Pick<ScaleEvents, 'decided'>;
  readonly metrics: AutoscalerMetrics;
  readonly loops: LoopMetrics;
  readonly due: DueTimes;
  readonly isLeader: () => boolean;
  /** Development servers: stubs that have one, and their queues. */
  readonly serves: { isServed(stubId: StubId): boolean; queues(): Iterable<QueueName> };
  /** Most containers of one deployment of the workspace. */
  readonly maxContainers: (workspaceId: WorkspaceId) => number;
  /** Time since which a machine is silent; null: it talks, or is not known. */
  readonly silentSinceMs: (id: MachineId) => number | null;
  /**
   * Milliseconds after the start of this process for which containers
   * that it found are not stopped for want of work; 120 s when absent.
   */
  readonly graceMs?: number;
  /**
   * Whether many machines went silent at once where the queue's
   * containers are: nothing is stopped for want of work. Absent: never.
   */
  readonly isGuarded?: (queue: QueueName) => boolean;
}

/** Facts behind a decision about one queue, at one moment. */
export interface QueueScaling {
  readonly target: Target | undefined;
  /** Sampled depth; undefined: the sample failed. */
  readonly depth: QueueDepth | undefined;
  readonly input: ScaleInput;
  readonly decision: ScaleDecision;
  readonly windowMs: number;
  readonly history: QueueHistory | undefined;
}

export const RESTART_GRACE_MS = 120_000;
const COALESCE_MS = 2;
const SWEEP_MS = 30_000;
const MAX_MISSED = 10_000;
/** Milliseconds of failing samples that become a condition of the deployment. */
export const METRICS_UNAVAILABLE_MS = 60_000;
/** Longest time between rounds of one queue while it has containers. */
const LONGEST_WAIT_MS = 30_000;

export class Autoscaler {
  readonly name = 'autoscaler';
  readonly #parts: AutoscalerParts;
  readonly #dirty = new Set<QueueName>();
  /** Queues woken while another replica, or none, led: looked at when this one begins to lead. */
  readonly #missed = new Set<QueueName>();
  readonly #timers = new Map<QueueName, NodeJS.Timeout>();
  /** Containers that each queue asked for at its last round; a bad sample leaves the number. */
  readonly #wanted = new Map<QueueName, { readonly kind: string; readonly count: number }>();
  readonly #histories = new QueueHistories();
  readonly #inputs: ScaleInputReader;
  readonly #startFailed = new Listeners<[QueueName, string, ContainerId]>();
  /** Queues that had containers when this process began to lead. */
  #adopted: ReadonlySet<QueueName> = new Set();
  /** Containers of these queues. */
  #found: ReadonlySet<ContainerId> = new Set();
  #startedMs = 0;
  #leadingSinceMs = 0;
  #ready: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  #sweep: NodeJS.Timeout | undefined;
  #running = false;
  #stopped = true;

  readonly #hostBrakes = new HostBrakes();

  constructor(parts: AutoscalerParts) {
    this.#parts = parts;
    this.#inputs = new ScaleInputReader({
      ...parts,
      hostBrakes: this.#hostBrakes,
      isServed: (stubId) => parts.serves.isServed(stubId),
    });
    this.#inputs.isFound = (id) => this.#found.has(id);
  }

  /**
   * Told when a start failed by the user's cause and nothing
   * else serves the queue: its waiting callers get these lines.
   */
  onStartFailed(listener: (queue: QueueName, lastLines: string, containerId: ContainerId) => void): void {
    this.#startFailed.add(listener);
  }

  start(): void {
    this.#stopped = false;
    this.#startedMs = this.#parts.clock.monotonicMs();
    this.leads();
    this.#sweep = setInterval(() => this.sweep(), SWEEP_MS);
    this.#sweep.unref();
    this.sweep();
  }

  /**
   * Begins to lead: this process's memory is older than the decisions of another leader meanwhile, so it is cleared.
   */
  leads(): void {
    const { clock, containers, breakers, log } = this.#parts;
    this.#leadingSinceMs = clock.monotonicMs();
    this.#adopted = new Set(containers.queues());
    this.#found = new Set(
      [...this.#adopted].flatMap((queue) => [...containers.ofQueue(queue)].map(({ row }) => row.id)),
    );
    this.#histories.clear();
    this.#ready = breakers.load().catch((error: unknown) => {
      log.warn({ err: error }, 'breakers not read, beginning without them');
    });
    this.sweep();
  }

  stop(): void {
    this.#stopped = true;
    clearInterval(this.#sweep);
    clearTimeout(this.#timer);
    for (const timer of this.#timers.values()) clearTimeout(timer);
  }

  /** Wakes every queue that may want or have containers. */
  sweep(): void {
    for (const queue of this.#parts.containers.queues()) this.wake(queue);
    for (const target of this.#parts.targets.activeTargets()) this.wake(target.queue);
    for (const queue of this.#parts.serves.queues()) this.wake(queue);
    if (!this.#parts.isLeader()) return;
    for (const queue of this.#missed) this.wake(queue);
    this.#missed.clear();
  }

  wake(queue: QueueName): void {
    if (this.#stopped) return;
    this.#dirty.add(queue);
    this.#timer ??= setTimeout(() => void this.#round(), COALESCE_MS);
  }

  /**
   * Called when a task came in: a round is worth it only when its queue asks for more containers than exist.
   * @param wanted - called with such a queue; absent: a round here
   */
  depthSeen(target: Target, depth: number, wanted: (queue: QueueName) => void = (queue) => this.wake(queue)): void {
    let live = 0;
    for (const { row, spec } of this.#parts.containers.ofQueue(target.queue))
      if (spec.byHand !== true && isLiveContainer(row.state)) live += 1;
    if (wantedContainers(this.#inputs.bounds(target), depth) > live) wanted(target.queue);
  }

  /** Called when an attempt ended: the container may have become idle, and its keep-warm runs from now. */
  attemptEnded(queue: QueueName, containerId: ContainerId): void {
    const { loads, breakers, containers } = this.#parts;
    const container = loads.of(containerId);
    // A container that was handed a task has started, so earlier failures no longer count.
    if (breakers.has(queue) && container?.served === true) {
      const entry = containers.get(containerId);
      if (entry !== undefined && breakers.works(queue, entry.row)) this.wake(queue);
    }
    if (this.#timers.has(queue)) return;
    if (container !== undefined && container.inFlight === 0) this.wake(queue);
  }

  /** Containers that the queue asked for last, or its least number, and that least number. Right on the leader only. */
  async demandOf(queue: QueueName): Promise<{ readonly wanted: number; readonly minContainers: number }> {
    const target = await this.#parts.targets.byQueue(queue);
    const { minContainers } = this.#inputs.bounds(target);
    return { wanted: this.#wanted.get(queue)?.count ?? minContainers, minContainers };
  }

  /** Names containers that serve on but no longer count: another one is started where they are needed. */
  leaveOut(isLeftOut: (id: ContainerId) => boolean): void {
    this.#inputs.leftOut = isLeftOut;
  }

  /** Last decision that was carried out. */
  decisionOf(queue: QueueName): ScaleDecision | undefined {
    return this.#histories.peek(queue)?.decisions.at(-1)?.decision;
  }

  /**
   * Explains the queue: the decision as it would be made now, its numbers,
   * and earlier decisions. Changes nothing. Right on the leader only.
   */
  async explain(queue: QueueName): Promise<QueueScaling> {
    await this.#ready;
    const [target, depth] = await Promise.all([
      this.#parts.targets.byQueue(queue),
      sampleQueues(this.#parts, [queue]).then(([only]) => only),
    ]);
    const history = this.#histories.peek(queue);
    const input = this.#inputs.read(queue, target, depth, history, this.#holdOf(queue, target, history));
    const nowMs = this.#parts.clock.nowMs();
    return { target, depth, input, decision: decideScale(input, nowMs), windowMs: windowMsOf(target), history };
  }

  targetChanged({ target }: TargetChange): void {
    if (target !== undefined) void this.#reread(target.queue);
  }

  async #reread(queue: QueueName): Promise<void> {
    try {
      // When a user started the deployment, earlier failures no longer count.
      if (this.#parts.breakers.has(queue)) await this.#parts.breakers.reread(queue);
    } catch (error) {
      this.#parts.log.warn({ err: error, queue }, 'breaker not read again');
    }
    this.wake(queue);
  }

  /** Containers that queues ask for, by the kind of their stub, for the gauges. */
  wanted(): Iterable<{ readonly kind: string; readonly count: number }> {
    return this.#wanted.values();
  }

  /** Number of queues whose breaker is open. */
  get degraded(): number {
    return this.#parts.breakers.opened;
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

  /**
   * Remembers queues to look at when this replica leads. Past the bound the oldest
   * are dropped: the leader heard of them by itself, or the task sweep finds them.
   */
  #remember(queues: readonly QueueName[]): void {
    for (const queue of queues) this.#missed.add(queue);
    for (const queue of this.#missed) {
      if (this.#missed.size <= MAX_MISSED) return;
      this.#missed.delete(queue);
    }
  }

  async #decideAll(queues: readonly QueueName[]): Promise<void> {
    const { clock, metrics, log } = this.#parts;
    metrics.examined.inc(queues.length);
    await this.#ready;
    const depths = await sampleQueues(this.#parts, queues);
    for (const [index, queue] of queues.entries()) {
      try {
        await this.#decideOne(queue, depths[index], clock.nowMs());
      } catch (error) {
        log.warn({ err: error, queue }, 'scaling round failed, trying again');
        this.#again(queue, clock.nowMs() + 1000);
      }
    }
  }

  async #decideOne(queue: QueueName, depth: QueueDepth | undefined, nowMs: number): Promise<void> {
    const { targets, containers, breakers } = this.#parts;
    const target = await targets.byQueue(queue);
    const entries = [...containers.ofQueue(queue)];
    if (target === undefined && entries.length === 0) {
      this.#forget(queue);
      this.#histories.forget(queue);
      breakers.forget(queue);
      return;
    }
    if (breakers.has(queue)) {
      const proof = entries.find((entry) => stayedUp(entry, nowMs));
      if (proof !== undefined) breakers.works(queue, proof.row);
    }
    const history = this.#histories.of(queue);
    this.#sampled(queue, target, depth, history, nowMs);
    const input = this.#inputs.read(queue, target, depth, history, this.#holdOf(queue, target, history));
    const decision = decideScale(input, nowMs);
    const live = input.containers.filter(({ state }) => isLiveContainer(state)).length;
    recordDecision(history, { atMs: nowMs, decision, inFlight: input.inFlight ?? null, live });
    await this.#carryOut(queue, target, decision, depth, demandReason(input, input.inFlight ?? 0));
    const facts = scaleFacts(input, decision.wanted ?? 0, nowMs);
    if (depth !== undefined) recordState(history, facts, nowMs);
    if (decision.wanted !== undefined && target !== undefined)
      this.#wanted.set(queue, { kind: target.kind, count: facts.cooling ? 0 : decision.wanted });
    const isIdle = decision.kind === 'hold' && decision.why === 'at_target' && input.inFlight === 0;
    if (entries.length === 0 && isIdle) this.#forget(queue);
  }

  /** Records a sample beside the earlier ones. */
  #sampled(
    queue: QueueName,
    target: Target | undefined,
    depth: QueueDepth | undefined,
    history: QueueHistory,
    nowMs: number,
  ): void {
    if (depth === undefined) {
      history.badSinceMs ??= nowMs;
      return;
    }
    history.badSinceMs = null;
    history.samples += 1;
    const wanted = wantedContainers(this.#inputs.bounds(target), this.#inputs.inFlight(queue, depth));
    history.window = rememberWanted(history.window, wanted, windowMsOf(target), nowMs);
  }

  #holdOf(queue: QueueName, target: Target | undefined, history: QueueHistory | undefined): ScaleInHold | undefined {
    const nowMs = this.#parts.clock.monotonicMs();
    return scaleInHold({
      upMs: nowMs - this.#startedMs,
      leadingMs: nowMs - this.#leadingSinceMs,
      graceMs: this.#parts.graceMs ?? RESTART_GRACE_MS,
      adopted: this.#adopted.has(queue),
      windowMs: windowMsOf(target),
      samples: history?.samples ?? 0,
      guarded: this.#parts.isGuarded?.(queue) ?? false,
    });
  }

  /** @param change - containers more, or less below zero */
  #tellScaled(target: Target | undefined, change: number, reason: string): void {
    const { scaled, containers } = this.#parts;
    if (scaled === undefined || target === undefined) return;
    const current = [...containers.ofQueue(target.queue)].filter(({ row }) => isLiveContainer(row.state)).length;
    scaled.decided(target, { current, desired: current + change, reason });
  }

  async #carryOut(
    queue: QueueName,
    target: Target | undefined,
    decision: ScaleDecision,
    depth: QueueDepth | undefined,
    demand: string,
  ): Promise<void> {
    const { create, breakers, metrics, log } = this.#parts;
    switch (decision.kind) {
      case 'start': {
        const { count, wanted, probe } = decision;
        log.info({ queue, count, wanted, tasks: depth && totalOf(depth), probe }, 'scaling up');
        metrics.events.inc({ direction: 'up', reason: probe ? 'probe' : demand }, count);
        this.#tellScaled(target, count, probe ? 'probe' : demand);
        const created = target === undefined ? [] : await create(target, count);
        if (probe) for (const { row } of created) breakers.probes(queue, row.id);
        break;
      }
      case 'stop':
        metrics.events.inc({ direction: 'down', reason: 'idle' }, decision.containers.length);
        this.#tellScaled(target, -decision.containers.length, 'idle');
        await Promise.all(decision.containers.map((id) => this.#letGo(id)));
        this.#again(queue, decision.againAtMs);
        break;
      case 'hold':
        this.#again(queue, decision.againAtMs);
        break;
    }
  }

  /**
   * Stops a container that still has no attempt at this very moment: it gets no more tasks, then the order to
   * stop. A container linked to another replica is only asked to leave, and stops when that one sees it idle.
   */
  async #letGo(id: ContainerId): Promise<void> {
    const { containers, slots, loads, log } = this.#parts;
    const entry = containers.get(id);
    if (entry === undefined) return;
    const container = slots.get(id);
    if (container !== undefined && container.inFlight > 0) return;
    slots.leave(id);
    const { state } = entry.row;
    const isServed = state === 'RUNNING' && !loads.isHere(id);
    const event = state === 'PENDING' || state === 'ASSIGNED' ? 'abandon' : isServed ? 'drain' : 'stop';
    let moved: Moved = 'refused';
    try {
      moved = await containers.transition(id, event, { change: { reason: 'scaled_in' } });
    } finally {
      // The container still counts as live, so it must go on taking tasks.
      if (moved === 'refused') slots.stay(id);
    }
    if (moved !== 'refused') log.info({ containerId: id, queue: entry.spec.queue }, 'scaling in');
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
    this.#wanted.delete(queue);
  }

  containerChanged(change: ContainerEntryChange): void {
    this.#inputs.containerChanged(change);
    const { entry, from, to } = change;
    // The tasks that a new container serves, or the time it stays up,
    // show whether it works. So the queue is looked at again then.
    if (to === 'RUNNING' && from === 'STARTING' && this.#parts.breakers.has(entry.spec.queue))
      this.#again(entry.spec.queue, this.#parts.clock.nowMs() + EARLY_EXIT_MS);
    this.#failed(change);
    this.#hostBrakes.containerChanged(change, this.#parts.clock.nowMs());
    this.wake(entry.spec.queue);
  }

  /** Whether some container of the queue is ready, at any replica. */
  #isServed(queue: QueueName): boolean {
    const { containers, slots, loads } = this.#parts;
    if (slots.hasReady(queue)) return true;
    for (const { row } of containers.ofQueue(queue))
      if (row.state === 'RUNNING' && loads.of(row.id) !== undefined) return true;
    return false;
  }

  /** Name of the queue's deployment, where it is in memory: a line of a log is not worth a question. */
  #knownName(queue: QueueName): string {
    const target = this.#parts.targets.byQueue(queue);
    return target === undefined || target instanceof Promise ? '' : target.deploymentName;
  }

  /** Counts a failed start, or an exit soon after it without an attempt, against the queue. */
  #failed(change: ContainerEntryChange): void {
    const { loads, clock, breakers } = this.#parts;
    const { row, spec } = change.entry;
    const served = change.entry.served ?? loads.of(row.id)?.served ?? false;
    // The container has started before a task ended it: nothing holds up the next start.
    if (served && isTerminalContainer(change.to)) breakers.works(spec.queue, row);
    const failed = failedStart(change, served, clock.nowMs());
    if (failed === undefined) return;
    const { neverReady, ...failure } = failed;
    // A container made by hand is not started again, so there is nothing to hold back.
    if (spec.byHand !== true) breakers.failed(spec.queue, failure, this.#knownName(spec.queue));
    if (neverReady && !this.#isServed(spec.queue)) this.#startFailed.tell(spec.queue, failure.message, row.id);
  }
}
