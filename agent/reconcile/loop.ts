/**
 * The agent's one loop: changes, a timer and the engine's events wake it. Each round decides the next actions and hands
 * them to the executor. Rounds never overlap, and a container with an action in progress is left alone. Events of the
 * engine are hints; an inspection is the truth.
 */
import { backoffMs, sleep } from '#shared/backoff.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerPhase } from '#shared/domain/status.ts';
import type { ContainerRuntime, RuntimeContainer } from '../containers/runtime.ts';
import { LABELS } from '../containers/runtime.ts';
import type { Conditions } from '../telemetry/conditions.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import type { AgentState } from './agent-state.ts';
import type { Executor } from './execute.ts';
import type { Action, Work } from './plan.ts';
import { plan } from './plan.ts';

const SWEEP_MS = 15_000;
/**
 * Whole listings take at most a thousandth of the engine's time: Docker 29 needs 160 ms for a hundred containers, 20.10
 * needs 10. A sweep in between asks for those alone that do not run.
 */
const LISTING_SHARE = 1 / 1000;
/** A container that vanished without an event is missed within these times, the first where listings are quick. */
const SHORTEST_WITHOUT_LISTING_MS = 60_000;
const LONGEST_WITHOUT_LISTING_MS = 180_000;
const PING_MS = 10_000;
const PINGS_TO_DOWN = 3;
/**
 * Longest time without a finished sweep while the loop works: one begins every 15 s, and the engine has 30 s to answer.
 */
const TURN_LIMIT_MS = 75_000;

const WORK_OF: Readonly<Partial<Record<Action['kind'], Work>>> = { start: 'start', stop: 'stop' };

export interface LoopParts {
  readonly runtime: ContainerRuntime;
  readonly agentState: AgentState;
  readonly executor: Executor;
  readonly metrics: AgentMetrics;
  readonly conditions: Pick<Conditions, 'set'>;
  readonly log: Log;
  readonly machineIds: () => readonly string[];
}

export class ReconcileLoop {
  readonly #parts: LoopParts;
  readonly #oom = new Listeners<[string]>();
  readonly #pauseContainerEnded = new Listeners<[string]>();
  readonly #listed = new Listeners<[readonly RuntimeContainer[]]>();
  readonly #abort = new AbortController();
  readonly #retryAt = new Map<string, { tries: number; atMs: number }>();
  readonly #running = new Set<Promise<void>>();
  #begun = false;
  #woken = false;
  #scheduled = false;
  #stopped = false;
  #timers: NodeJS.Timeout[] = [];
  #missedPings = 0;
  #turnedMs = performance.now();
  /**
   * When the last whole listing began, by the wall clock of the engine's events. Events are requested from then on, so
   * that none falls between a listing and the stream.
   */
  #listedFromMs = 0;
  /** When the next whole listing is due, in monotonic time. */
  #listingDueMs = 0;
  #watching: Promise<void> | undefined;

  constructor(parts: LoopParts) {
    this.#parts = parts;
  }

  /** Told when a container ran out of memory. */
  onOom(listener: (containerId: string) => void): void {
    this.#oom.add(listener);
  }

  /** Told when a pause container ended. */
  onPauseContainerEnded(listener: (dockerId: string) => void): void {
    this.#pauseContainerEnded.add(listener);
  }

  /** Told of everything of ours after each listing. */
  onListed(listener: (containers: readonly RuntimeContainer[]) => void): void {
    this.#listed.add(listener);
  }

  /** The engine has not answered three pings. */
  get dockerDown(): boolean {
    return this.#missedPings >= PINGS_TO_DOWN;
  }

  /** Whether sweeps finish, with or without an answer of the engine. */
  get isTurning(): boolean {
    return performance.now() - this.#turnedMs < TURN_LIMIT_MS;
  }

  async start(): Promise<void> {
    const [listed] = await Promise.allSettled([this.sweep(), this.#parts.executor.openAhead()]);
    if (listed.status === 'rejected') throw listed.reason;
    this.#begun = true;
    this.wake();
    this.#timers.push(
      setInterval(() => void this.#sweepAgain().catch((error: unknown) => this.#onSweepError(error)), SWEEP_MS),
    );
    this.#timers.push(setInterval(() => void this.#ping(), PING_MS));
    this.#watching = this.#watch();
    this.#parts.metrics.dockerUp.set(1);
  }

  /** Requests a round soon; several requests cause one. */
  wake(): void {
    if (this.#stopped) return;
    this.#woken = true;
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#round();
    });
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    for (const timer of this.#timers) clearInterval(timer);
    this.#abort.abort();
    for (const { abort } of this.#parts.agentState.busy.values()) abort.abort();
    await Promise.allSettled([...this.#running, this.#watching]);
  }

  /** Resolves when no action is in progress and none is due. */
  async idle(): Promise<void> {
    while (this.#woken || this.#running.size > 0) {
      await Promise.allSettled(this.#running);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Lists everything of ours in the engine. */
  async sweep(): Promise<void> {
    const { agentState } = this.#parts;
    const since = performance.now();
    const fromMs = Date.now();
    try {
      const lists = await this.#listOurs();
      agentState.learnAll(lists.flat(), since);
      this.#listedFromMs = fromMs;
      this.#listingDueMs = since + restAfterListingMs(performance.now() - since);
      this.#listed.tell(lists.flat());
    } finally {
      this.#turnedMs = performance.now();
    }
    this.wake();
  }

  #listOurs(only?: 'not_running'): Promise<RuntimeContainer[][]> {
    const { runtime, machineIds } = this.#parts;
    return Promise.all(
      machineIds().map((machineId) => runtime.list({ [LABELS.managed]: '1', [LABELS.machine]: machineId }, only)),
    );
  }

  /** Lists everything when that is due, else what does not run: an end without an event is seen all the same. */
  async #sweepAgain(): Promise<void> {
    if (performance.now() >= this.#listingDueMs) return await this.sweep();
    const since = performance.now();
    try {
      const lists = await this.#listOurs('not_running');
      this.#parts.agentState.learnSome(lists.flat(), since);
    } finally {
      this.#turnedMs = performance.now();
    }
    this.wake();
  }

  /** Inspects one container now. */
  async check(dockerId: string): Promise<void> {
    const { runtime, agentState } = this.#parts;
    const container = await runtime.inspect(dockerId);
    if (container === undefined) agentState.forgetSeen(dockerId);
    else agentState.learn(container);
  }

  #round(): void {
    if (this.#stopped) return;
    this.#woken = false;
    // Before the first listing every container would look gone.
    if (!this.#begun) return;
    const { agentState, metrics } = this.#parts;
    const from = performance.now();
    for (const action of plan(agentState.planInput(), performance.now())) {
      if (action.kind === 'interrupt') {
        agentState.busy.get(action.containerId)?.abort.abort();
        continue;
      }
      const retry = this.#retryAt.get(action.containerId);
      if (retry !== undefined && retry.atMs > performance.now()) continue;
      this.#perform(action);
    }
    const counts = new Map<ContainerPhase, number>();
    for (const entry of agentState.journal.all()) {
      const phase = agentState.phaseOf(entry);
      if (phase !== 'removed') counts.set(phase, (counts.get(phase) ?? 0) + 1);
    }
    metrics.setContainers(counts);
    metrics.reconcileDuration.observe((performance.now() - from) / 1000);
  }

  #perform(action: Action): void {
    const { agentState, executor, log } = this.#parts;
    const { containerId } = action;
    const abort = new AbortController();
    agentState.busy.set(containerId, { work: WORK_OF[action.kind] ?? 'other', abort });
    if (action.kind === 'stop') agentState.changed(containerId);
    const running = executor
      .run(action, abort.signal)
      .then(
        () => void this.#retryAt.delete(containerId),
        (error: unknown) => {
          const tries = this.#retryAt.get(containerId)?.tries ?? 0;
          const waitMs = backoffMs(tries, { baseMs: 500, capMs: 30_000, floorMs: 100 });
          this.#retryAt.set(containerId, { tries: tries + 1, atMs: performance.now() + waitMs });
          setTimeout(() => this.wake(), waitMs + 1).unref();
          log.warn({ err: error, containerId, action: action.kind }, 'an action on a container failed');
        },
      )
      .finally(() => {
        agentState.busy.delete(containerId);
        this.#running.delete(running);
        this.wake();
      });
    this.#running.add(running);
  }

  async #ping(): Promise<void> {
    const { runtime, metrics, conditions, log } = this.#parts;
    try {
      await runtime.ping();
      if (this.dockerDown) log.info('container engine answers again');
      this.#missedPings = 0;
    } catch (error) {
      this.#missedPings += 1;
      if (this.#missedPings === PINGS_TO_DOWN) log.error({ err: error }, 'container engine does not answer');
    }
    metrics.dockerUp.set(this.dockerDown ? 0 : 1);
    conditions.set('DockerDown', this.dockerDown);
  }

  #onSweepError(error: unknown): void {
    this.#parts.log.warn({ err: error }, 'containers could not be listed');
  }

  /** Follows the engine's events for as long as the agent runs; each gap is followed by a whole listing. */
  async #watch(): Promise<void> {
    const { runtime, agentState, log } = this.#parts;
    const { signal } = this.#abort;
    for (let tries = 0; !signal.aborted; tries += 1) {
      const from = performance.now();
      try {
        await runtime.watch(
          this.#listedFromMs,
          (event) => {
            if (event.labels[LABELS.pauseContainer] !== undefined && event.action === 'die')
              this.#pauseContainerEnded.tell(event.dockerId);
            const containerId = event.labels[LABELS.container];
            if (containerId === undefined || !agentState.hasSeen(event.dockerId)) return;
            if (event.action === 'kill') agentState.signalled(event.dockerId);
            else if (event.action === 'oom') {
              agentState.ranOutOfMemory(event.dockerId);
              this.#oom.tell(containerId);
            } else if (event.exitCode !== undefined) agentState.died(event.dockerId, event.exitCode, event.atMs);
            else
              this.check(event.dockerId).catch((error: unknown) =>
                log.info({ err: error, containerId }, 'container could not be inspected'),
              );
          },
          signal,
        );
      } catch (error) {
        if (!signal.aborted) log.info({ err: error }, "the engine's event stream ended");
      }
      if (performance.now() - from > 10_000) tries = 0;
      if (signal.aborted || !(await sleep(backoffMs(tries, { baseMs: 200, capMs: 10_000, floorMs: 100 }), signal)))
        return;
      await this.sweep().catch((error: unknown) => this.#onSweepError(error));
    }
  }
}

/** @returns how long after its begin a listing that took so long is followed by another, in milliseconds */
export function restAfterListingMs(tookMs: number): number {
  // Half a sweep less, since a timer may come early.
  const restMs = Math.max(tookMs / LISTING_SHARE, SHORTEST_WITHOUT_LISTING_MS);
  return Math.min(restMs, LONGEST_WITHOUT_LISTING_MS) - SWEEP_MS / 2;
}
