// Scaling loop of the leader. A round reads the depths of queues that changed, and decide.ts decides for all of them.
// The round does not wait for stops, which begin at once, nor for starts, which take turns (start-turns.ts). A change
// (coalesced for a few milliseconds), the next expiry of a keep-warm or window, or a slow sweep starts a round.
// Invariants: a bad sample changes nothing; a container with an attempt is never stopped; right after a start nothing
// is stopped. A queue is not decided while its last decision is carried out.
import { setImmediate as turn } from 'node:timers/promises';
import type { ContainerId, MachineId, QueueName, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { isLiveContainer } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerControl, ContainerEntryChange } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { TargetChange, Targets } from '../../workspaces/deployments/targets.ts';
import type { SlotTable } from '../../tasks/dispatch/slots.ts';
import type { LoopMetrics } from '../../cluster/loop-metrics.ts';
import type { QueueDepth, TaskQueues } from '../../stores/queues/task-queues.ts';
import { controlledInFlightOf, totalOf } from '../../stores/queues/task-queues.ts';
import type { Loads } from '../../cluster/loads.ts';
import type { ReservedTokens } from '../../cluster/reserved-tokens.ts';
import type { Breakers } from './breakers.ts';
import { HostBrakes } from './host-brake.ts';
import type { ScaleDecision, ScaleInput } from './decide.ts';
import { decideScale, demandReason, spareContainers, wantedContainers } from './decide.ts';
import type { ScaleInHold } from './scale-in-hold.ts';
import { scaleInHold } from './scale-in-hold.ts';
import { ScaleInputReader, scaleFacts, windowMsOf } from './scale-input-reader.ts';
import type { QueueHistory } from './history.ts';
import { QueueHistories, recordDecision, recordState, rememberEnds } from './history.ts';
import type { ScaleEvents } from './scale-events.ts';
import type { AutoscalerMetrics } from './metrics.ts';
import { FailedStarts } from './failed-starts.ts';
import { letGo } from './let-go.ts';
import { sampleQueues } from './samples.ts';
import { StartTurns } from './start-turns.ts';
import type { WaitingStart } from './start-turns.ts';
import { EARLY_EXIT_MS, stayedUp } from './starts.ts';
import { rememberWanted } from './window.ts';
import { WokenQueues } from './woken-queues.ts';

export interface AutoscalerParts {
  readonly targets: Targets;
  readonly queues: Pick<TaskQueues, 'depths'>;
  readonly containers: ContainerControl;
  /** Makes new containers, and places them where that is possible at once; `unplaced` at most without a place. */
  readonly create: (target: Target, count: number, unplaced: number) => Promise<readonly ContainerEntry[]>;
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
  readonly isLeader: () => boolean;
  /** Development servers: stubs that have one, and their queues. */
  readonly serves: { isServed(stubId: StubId): boolean; queues(): Iterable<QueueName> };
  /** Most containers of one deployment of the workspace; undefined: not known yet, `whenRead` is called once it is. */
  readonly maxContainers: (workspaceId: WorkspaceId, whenRead: () => void) => number | undefined;
  /** Time since which a machine is silent; null: it talks, or is not known. */
  readonly silentSinceMs: (id: MachineId) => number | null;
  /** Whether a machine that is reserved for a larger request waits for the end of the container. Absent: never. */
  readonly isAwaited?: (entry: ContainerEntry) => boolean;
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
/** Milliseconds of decisions without a turn of the event loop. */
const SLICE_MS = 5;
/** Most containers that a start makes: the queue asks for the rest in its next turn, after those of others. */
const MOST_AT_ONCE = 32;
/** Milliseconds of failing samples that become a condition of the deployment. */
export const METRICS_UNAVAILABLE_MS = 60_000;
/** Longest time between rounds of one queue while it has containers. */
const LONGEST_WAIT_MS = 30_000;

export class Autoscaler {
  readonly name = 'autoscaler';
  readonly #parts: AutoscalerParts;
  readonly #woken = new WokenQueues();
  /** Queues whose decision is carried out, and those of them that were woken meanwhile. */
  readonly #acting = new Set<QueueName>();
  readonly #wokenAgain = new Set<QueueName>();
  readonly #starts: StartTurns;
  /** Next look at each queue, and the keep-warm of its containers as it was decided last. */
  readonly #timers = new Map<
    QueueName,
    { readonly timer: NodeJS.Timeout; readonly atMs: number; readonly keepWarmMs: number }
  >();
  /** Containers that each queue asked for at its last round; a bad sample leaves the number. */
  readonly #wanted = new Map<QueueName, { readonly kind: string; readonly count: number }>();
  /** Containers that warmth alone keeps, as of the last decision of their queue; queues without any are left out. */
  readonly #spare = new Map<QueueName, readonly ContainerId[]>();
  readonly #histories = new QueueHistories();
  readonly #inputs: ScaleInputReader;
  readonly #failedStarts: FailedStarts;
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
      wake: (queue) => this.wake(queue),
    });
    this.#starts = new StartTurns({
      clock: parts.clock,
      begin: (start) => this.#act(start.queue, () => this.#start(start)),
      readAgain: (queues) => queues.forEach((queue) => this.wake(queue)),
    });
    this.#failedStarts = new FailedStarts(parts);
    this.#inputs.isFound = (id) => this.#found.has(id);
  }

  /** Told of failed starts, as {@link FailedStarts.on} says. */
  onStartFailed(listener: (queue: QueueName, lastLines: string, containerId: ContainerId) => void): void {
    this.#failedStarts.on(listener);
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
    this.#spare.clear();
    for (const queue of this.#starts.clear()) this.wake(queue);
    this.#ready = breakers.load().catch((error: unknown) => {
      log.warn({ err: error }, 'breakers not read, beginning without them');
    });
    this.sweep();
  }

  stop(): void {
    this.#stopped = true;
    this.#starts.clear();
    clearInterval(this.#sweep);
    clearTimeout(this.#timer);
    for (const { timer } of this.#timers.values()) clearTimeout(timer);
  }

  /** Wakes every queue that may want or have containers. */
  sweep(): void {
    if (this.#stopped) return;
    const { containers, targets, serves, isLeader } = this.#parts;
    this.#woken.sweep(containers.queues());
    for (const { queue } of targets.activeTargets()) this.#woken.sweep([queue]);
    this.#woken.sweep(serves.queues());
    if (isLeader()) this.#woken.sweepMissed();
    this.#roundSoon();
  }

  wake(queue: QueueName): void {
    if (this.#stopped) return;
    this.#woken.add(queue);
    this.#roundSoon();
  }

  #roundSoon(): void {
    this.#timer ??= setTimeout(() => void this.#round(), COALESCE_MS);
  }

  /**
   * Called when a task came in: a round is worth it only when its queue asks for more containers than exist.
   * @param wanted - called with such a queue; absent: a round here
   */
  depthSeen(target: Target, depth: number, wanted: (queue: QueueName) => void = (queue) => this.wake(queue)): void {
    if (wantedContainers(this.#inputs.bounds(target), depth) > this.#liveOf(target.queue)) wanted(target.queue);
  }

  /** Called when an attempt ended: the container may have become idle, and its keep-warm runs from now. */
  attemptEnded(queue: QueueName, containerId: ContainerId): void {
    const { loads, breakers, containers, clock } = this.#parts;
    const container = loads.of(containerId);
    // A container that was handed a task has started, so earlier failures no longer count.
    if (breakers.has(queue) && container?.served === true) {
      const entry = containers.get(containerId);
      if (entry !== undefined && breakers.works(queue, entry.row)) this.wake(queue);
    }
    // A look that comes before the container's warmth is over is early enough.
    const next = this.#timers.get(queue);
    if (next !== undefined && next.atMs <= clock.nowMs() + next.keepWarmMs) return;
    if (container !== undefined && container.inFlight === 0) this.wake(queue);
  }

  /** Containers that the queue asked for last, or its least number, and that least number. Right on the leader only. */
  async demandOf(queue: QueueName): Promise<{ readonly wanted: number; readonly minContainers: number }> {
    const target = await this.#parts.targets.byQueue(queue);
    const { minContainers } = this.#inputs.bounds(target);
    return { wanted: this.#wanted.get(queue)?.count ?? minContainers, minContainers };
  }

  /** Containers that the queue asks for and that are not written yet. Right on the leader only. */
  followOf(queue: QueueName): number {
    return Math.max(0, (this.#wanted.get(queue)?.count ?? 0) - this.#liveOf(queue));
  }

  #liveOf(queue: QueueName): number {
    let live = 0;
    for (const { row, spec } of this.#parts.containers.ofQueue(queue))
      if (spec.byHand !== true && isLiveContainer(row.state)) live += 1;
    return live;
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
    const [only] = await this.explainAll([queue]);
    if (only === undefined) throw new Error(`queue ${queue} has no scaling`);
    return only;
  }

  /** As explain, of several queues with one reading of their depths. */
  async explainAll(queues: readonly QueueName[]): Promise<QueueScaling[]> {
    await this.#ready;
    const [targets, depths] = await Promise.all([
      Promise.all(queues.map(async (queue) => await this.#parts.targets.byQueue(queue))),
      sampleQueues(this.#parts, queues),
    ]);
    const nowMs = this.#parts.clock.nowMs();
    return queues.map((queue, at) => {
      const [target, depth, history] = [targets[at], depths[at], this.#histories.peek(queue)];
      const { input, decision } = this.#decide(queue, target, depth, nowMs);
      return { target, depth, input, decision, windowMs: windowMsOf(target), history };
    });
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

  /** Containers that warmth alone kept when decided last; they may have work again. Right on the leader only. */
  *spare(): Iterable<ContainerId> {
    for (const ids of this.#spare.values()) yield* ids;
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
      while (this.#woken.size > 0 && !this.#stopped) {
        const queues = this.#woken.next();
        if (this.#parts.isLeader()) await this.#parts.loops.round('autoscaler', () => this.#decideAll(queues));
        else this.#woken.remember([...queues, ...this.#starts.clear()]);
      }
    } finally {
      this.#running = false;
    }
  }

  async #decideAll(queues: readonly QueueName[]): Promise<void> {
    const { clock, metrics } = this.#parts;
    metrics.examined.inc(queues.length);
    await this.#ready;
    const found = await Promise.all(queues.map((queue) => this.#targetOf(queue)));
    const targets = new Map(found.filter((one) => one !== undefined));
    const depths = await sampleQueues(this.#parts, queues);
    const sampledMs = clock.monotonicMs();
    let sliceMs = sampledMs;
    for (const [index, queue] of queues.entries()) {
      if (targets.has(queue)) this.#decideOne(queue, targets.get(queue), depths[index], sampledMs);
      if (clock.monotonicMs() - sliceMs < SLICE_MS) continue;
      await turn();
      sliceMs = clock.monotonicMs();
    }
    this.#starts.begin();
  }

  /** @returns undefined: it was not read, and is again soon */
  async #targetOf(queue: QueueName): Promise<readonly [QueueName, Target | undefined] | undefined> {
    try {
      return [queue, await this.#parts.targets.byQueue(queue)];
    } catch (error) {
      this.#failedAgain(queue, error);
      return undefined;
    }
  }

  #failedAgain(queue: QueueName, error: unknown): void {
    const { log, clock } = this.#parts;
    log.warn({ err: error, queue }, 'scaling round failed, trying again');
    this.#starts.drop(queue);
    this.#again(queue, clock.nowMs() + 1000);
  }

  /** Decides now, or once the last decision of the queue is carried out. Never throws. */
  #decideOne(queue: QueueName, target: Target | undefined, depth: QueueDepth | undefined, sampledMs: number): void {
    if (this.#acting.has(queue)) {
      this.#wokenAgain.add(queue);
      return;
    }
    try {
      this.#decideNow(queue, target, depth, sampledMs);
    } catch (error) {
      this.#failedAgain(queue, error);
    }
  }

  #decideNow(queue: QueueName, target: Target | undefined, depth: QueueDepth | undefined, sampledMs: number): void {
    const { containers, breakers, clock } = this.#parts;
    const nowMs = clock.nowMs();
    const entries = [...containers.ofQueue(queue)];
    if (target === undefined && entries.length === 0) {
      this.#forget(queue);
      this.#starts.drop(queue);
      this.#histories.forget(queue);
      breakers.forget(queue);
      return;
    }
    if (breakers.has(queue)) {
      const proof = entries.find((entry) => stayedUp(entry, nowMs));
      if (proof !== undefined) breakers.works(queue, proof.row);
    }
    this.#sampled(target, depth, this.#histories.of(queue), nowMs);
    const { input, decision } = this.#decide(queue, target, depth, nowMs);
    const spare = spareContainers(input, nowMs);
    if (spare.length > 0) this.#spare.set(queue, spare);
    else this.#spare.delete(queue);
    if (decision.kind === 'start' && target !== undefined && depth !== undefined)
      this.#starts.put({ queue, target, depth, sampledMs });
    else this.#starts.drop(queue);
    // A start is recorded when it begins.
    if (decision.kind !== 'start') {
      this.#record(queue, input, decision, nowMs);
      this.#again(queue, decision.againAtMs, input.keepWarmMs);
    }
    if (decision.kind === 'stop') {
      rememberEnds(this.#histories.of(queue), input, decision.containers, nowMs);
      void this.#act(queue, () => this.#stopAll(target, decision));
    }
    this.#remembered(queue, target, input, decision, nowMs);
    if (entries.length === 0 && decision.wanted === 0) this.#histories.rest(queue);
    const isIdle = decision.kind === 'hold' && decision.why === 'at_target' && input.inFlight === 0;
    if (entries.length === 0 && isIdle && input.warm === undefined) this.#forget(queue);
  }

  #decide(
    queue: QueueName,
    target: Target | undefined,
    depth: QueueDepth | undefined,
    nowMs: number,
  ): { readonly input: ScaleInput; readonly decision: ScaleDecision } {
    const history = this.#histories.peek(queue);
    const input = this.#inputs.read(queue, target, depth, history, this.#holdOf(queue, target, history));
    return { input, decision: decideScale(input, nowMs) };
  }

  #record(queue: QueueName, input: ScaleInput, decision: ScaleDecision, nowMs: number): void {
    const live = input.containers.filter(({ state }) => isLiveContainer(state)).length;
    recordDecision(this.#histories.of(queue), { atMs: nowMs, decision, inFlight: input.inFlight ?? null, live });
  }

  /** Remembers the state of the deployment and the number that it asks for, unless that is not known now. */
  #remembered(
    queue: QueueName,
    target: Target | undefined,
    input: ScaleInput,
    decision: ScaleDecision,
    nowMs: number,
  ): void {
    if (decision.wanted === undefined) return;
    const facts = scaleFacts(input, decision.wanted, nowMs);
    recordState(this.#histories.of(queue), facts, nowMs);
    if (target !== undefined)
      this.#wanted.set(queue, { kind: target.kind, count: facts.cooling ? 0 : decision.wanted });
  }

  /** Records a sample beside the earlier ones. */
  #sampled(target: Target | undefined, depth: QueueDepth | undefined, history: QueueHistory, nowMs: number): void {
    if (depth === undefined) {
      history.badSinceMs ??= nowMs;
      return;
    }
    history.badSinceMs = null;
    history.samples += 1;
    const bounds = this.#inputs.bounds(target);
    if (bounds.limitsUnknown === true) return;
    const wanted = wantedContainers(bounds, controlledInFlightOf(depth, target?.queueControl));
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

  /** Carries a decision out, during which no other is made for the queue. Never throws. */
  async #act(queue: QueueName, work: () => Promise<void>): Promise<void> {
    this.#acting.add(queue);
    try {
      await work();
    } catch (error) {
      this.#failedAgain(queue, error);
    } finally {
      this.#acting.delete(queue);
      if (this.#wokenAgain.delete(queue)) this.wake(queue);
    }
  }

  /** Starts what the queue asks for now: its deployment, containers, breaker and limits may have changed meanwhile. */
  async #start({ queue, depth }: WaitingStart): Promise<void> {
    const { targets, create, breakers, metrics, clock, log, isLeader } = this.#parts;
    const target = await targets.byQueue(queue);
    const nowMs = clock.nowMs();
    const { input, decision } = this.#decide(queue, target, depth, nowMs);
    if (decision.kind !== 'start' || target === undefined || !isLeader()) {
      this.#wokenAgain.add(queue);
      return;
    }
    const { wanted, probe, unplaced } = decision;
    const isFirst = target.rollout === 'waiting' && this.#liveOf(queue) === 0;
    const count = isFirst ? 1 : Math.min(decision.count, MOST_AT_ONCE);
    this.#record(queue, input, { ...decision, count }, nowMs);
    const reason = probe ? 'probe' : demandReason(input, input.inFlight ?? 0);
    log.info({ queue, count, wanted, tasks: totalOf(depth), probe }, 'scaling up');
    metrics.events.inc({ direction: 'up', reason }, count);
    this.#tellScaled(target, count, reason);
    const created = await create(isFirst ? withHeadStart(target) : target, count, Math.min(count, unplaced));
    if (probe) for (const { row } of created) breakers.probes(queue, row.id);
  }

  async #stopAll(target: Target | undefined, decision: Extract<ScaleDecision, { kind: 'stop' }>): Promise<void> {
    this.#parts.metrics.events.inc({ direction: 'down', reason: 'idle' }, decision.containers.length);
    this.#tellScaled(target, -decision.containers.length, 'idle');
    await Promise.all(decision.containers.map((id) => letGo(this.#parts, id)));
  }

  #again(queue: QueueName, atMs: number | undefined, keepWarmMs = 0): void {
    if (atMs === undefined || this.#stopped) return;
    clearTimeout(this.#timers.get(queue)?.timer);
    const nowMs = this.#parts.clock.nowMs();
    const delay = Math.min(Math.max(1, atMs - nowMs), LONGEST_WAIT_MS);
    const timer = setTimeout(() => {
      this.#timers.delete(queue);
      this.wake(queue);
    }, delay);
    timer.unref();
    this.#timers.set(queue, { timer, atMs: nowMs + delay, keepWarmMs });
  }

  #forget(queue: QueueName): void {
    clearTimeout(this.#timers.get(queue)?.timer);
    this.#timers.delete(queue);
    this.#wanted.delete(queue);
    this.#spare.delete(queue);
  }

  containerChanged(change: ContainerEntryChange): void {
    this.#inputs.containerChanged(change);
    const { entry, from, to } = change;
    // The tasks that a new container serves, or the time it stays up,
    // show whether it works. So the queue is looked at again then.
    if (to === 'RUNNING' && from === 'STARTING' && this.#parts.breakers.has(entry.spec.queue))
      this.#again(entry.spec.queue, this.#parts.clock.nowMs() + EARLY_EXIT_MS);
    this.#failedStarts.containerChanged(change);
    this.#hostBrakes.containerChanged(change, this.#parts.clock.nowMs());
    this.wake(entry.spec.queue);
  }
}

/** The target with the priority of the first container of a version: calls wait for it, or stay with the older one. */
const withHeadStart = (target: Target): Target => ({ ...target, config: { ...target.config, priority: 'high' } });
