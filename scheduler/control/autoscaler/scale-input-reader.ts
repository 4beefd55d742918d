// Facts about one queue for the scaling loop: its bounds, its sample and its containers as decide.ts
// wants them. Reads only. The loop acts on these facts, and explanations show the same ones.
import { WarmTimes } from '../../domain/warm.ts';
import type { WarmNow, WarmTime } from '../../domain/warm.ts';
import type { ContainerId, MachineId, QueueName, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { isLiveContainer, isServe } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { ContainerControl, ContainerEntryChange } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import { replaceableAfterMs } from '../../fleet/containers/spec.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { DeploymentFacts } from '../../workspaces/deployments/state.ts';
import type { QueueDepth } from '../../stores/queues/task-queues.ts';
import { controlledInFlightOf, totalOf } from '../../stores/queues/task-queues.ts';
import { isMadeByHand } from '../../workspaces/deployments/kinds.ts';
import type { Loads } from '../../cluster/loads.ts';
import type { ReservedTokens } from '../../cluster/reserved-tokens.ts';
import { DEFAULT_CONTEXT_LENGTH, tokensPerContainer } from '../../domain/serving.ts';
import type { Breakers } from './breakers.ts';
import type { HostBrakes } from './host-brake.ts';
import { breakerPhase } from './breaker.ts';
import type { ScaleBounds, ScaleContainer, ScaleInput, TokenDemand } from './decide.ts';
import { wantedContainers } from './decide.ts';
import type { ScaleInHold } from './scale-in-hold.ts';
import type { QueueHistory } from './history.ts';
import { largestWanted, nextLeaves } from './window.ts';

export interface ScaleInputReaderParts {
  readonly containers: ContainerControl;
  readonly loads: Pick<Loads, 'of'>;
  /** Tokens that calls to models reserve. Absent: none. */
  readonly reservedTokens?: Pick<ReservedTokens, 'of'>;
  readonly clock: Clock;
  readonly breakers: Breakers;
  readonly hostBrakes: HostBrakes;
  /** Whether a stub has a development server now. */
  readonly isServed: (stubId: StubId) => boolean;
  /** Most containers of one deployment of the workspace; undefined: not known yet, `whenRead` is called once it is. */
  readonly maxContainers: (workspaceId: WorkspaceId, whenRead: () => void) => number | undefined;
  /** Has the queue looked at again. */
  readonly wake: (queue: QueueName) => void;
  /** Time since which a machine is silent; null: it talks, or is not known. */
  readonly silentSinceMs: (id: MachineId) => number | null;
  /** Whether a machine that is reserved for a larger request waits for the end of the container. Absent: never. */
  readonly isAwaited?: (entry: ContainerEntry) => boolean;
}

/** Least keep-warm of a container that a rollout brought, until its first call. */
const FIRST_CALL_MS = 30_000;
/** Bounds of a queue whose deployment is gone, so that no container is wanted. */
const GONE: ScaleBounds = { active: false, tasksPerContainer: 1, minContainers: 0, maxContainers: 1 };
/** Bounds of a development server, while its lease lives. */
const SERVED: ScaleBounds = { active: true, tasksPerContainer: 1, minContainers: 1, maxContainers: 1 };
/** Bounds of a queue whose containers CreatePod makes. */
const BY_HAND = { tasksPerContainer: 1, minContainers: 0, maxContainers: 0 };

export class ScaleInputReader {
  readonly #parts: ScaleInputReaderParts;
  /** Whether a container serves on, but no longer counts. */
  leftOut: (id: ContainerId) => boolean = () => false;
  /** Whether this process found a container when it began to lead. */
  isFound: (id: ContainerId) => boolean = () => false;
  /** Containers that came back with a lost machine, and the number of tasks each had completed by then. */
  readonly #returned = new Map<ContainerId, number>();

  readonly #warmTimes = new WeakMap<readonly WarmTime[], WarmTimes>();

  constructor(parts: ScaleInputReaderParts) {
    this.#parts = parts;
  }

  containerChanged({ entry, from, to }: ContainerEntryChange): void {
    if (from === 'UNKNOWN' && to === 'RUNNING')
      this.#returned.set(entry.row.id, this.#parts.loads.of(entry.row.id)?.completed ?? 0);
    else this.#returned.delete(entry.row.id);
  }

  bounds(target: Target | undefined): ScaleBounds {
    if (target === undefined) return GONE;
    if (isMadeByHand(target.config.stubType)) return { ...BY_HAND, active: target.active };
    if (isServe(target.config.stubType)) return this.#parts.isServed(target.stubId) ? SERVED : GONE;
    const { autoscaler } = target.config;
    const { maxContainers, wake } = this.#parts;
    const known = maxContainers(target.workspaceId, () => wake(target.queue));
    const cap = known ?? Infinity;
    const scale = target.scale ?? autoscaler;
    const isSuperseded = target.supersededBy !== null;
    const most = Math.min(Math.max(1, scale.maxContainers), cap);
    const warm = this.#warmNow(target);
    return {
      // A superseded version keeps containers only while its queue has tasks.
      active: target.active || isSuperseded,
      tasksPerContainer: Math.max(1, autoscaler.tasksPerContainer),
      minContainers: Math.max(Math.min(leastOf(target), cap), Math.min(warm?.least ?? 0, most)),
      maxContainers: most,
      ...(warm === undefined ? {} : { warm }),
      // Nothing slows down the change to another version.
      ...(autoscaler.scaleInPerMinute === undefined || isSuperseded
        ? {}
        : { scaleInPerMinute: autoscaler.scaleInPerMinute }),
      ...(known === undefined ? { limitsUnknown: true } : {}),
      ...this.#tokens(target),
    };
  }

  /** Containers by schedule; undefined: the target has no schedule, or serves no calls of its name. */
  #warmNow({ active, deploymentId, supersededBy, rollout, config }: Target): WarmNow | undefined {
    const { warm } = config.autoscaler;
    if (warm === undefined || !active || deploymentId === null) return undefined;
    if (supersededBy !== null || rollout === 'failed') return undefined;
    let times = this.#warmTimes.get(warm);
    if (times === undefined) this.#warmTimes.set(warm, (times = new WarmTimes(warm)));
    return times.at(this.#parts.clock.nowMs());
  }

  #tokens({ queue, config: { autoscaler, serving } }: Target): { readonly tokens?: TokenDemand } {
    if (autoscaler.type !== 'llm_token_pressure') return {};
    const llm = serving?.llm ?? { contextLength: DEFAULT_CONTEXT_LENGTH };
    const perContainer = tokensPerContainer(llm, autoscaler.tasksPerContainer);
    const reserved = this.#parts.reservedTokens?.of(queue) ?? 0;
    return { tokens: { reserved, perContainer, ...this.#engines(queue) } };
  }

  #engines(queue: QueueName): Pick<TokenDemand, 'engines'> {
    const sum = { containers: 0, running: 0, waiting: 0 };
    for (const { row } of this.#parts.containers.ofQueue(queue)) {
      const engine = row.state === 'RUNNING' ? this.#parts.loads.of(row.id)?.engine : undefined;
      if (engine === undefined) continue;
      sum.containers += 1;
      sum.running += engine.running;
      sum.waiting += engine.waiting;
    }
    return sum.containers === 0 ? {} : { engines: sum };
  }

  /** Reads the input of the decision for a queue. @param depth - undefined: the sample failed */
  read(
    queue: QueueName,
    target: Target | undefined,
    depth: QueueDepth | undefined,
    history: QueueHistory | undefined,
    hold: ScaleInHold | undefined,
  ): ScaleInput {
    const windowEndsMs = history && nextLeaves(history.window, windowMsOf(target));
    const bounds = this.bounds(target);
    // A superseded version whose queue is empty keeps no containers.
    const isSuperseded = target !== undefined && target.supersededBy !== null;
    const isServed = isSuperseded && depth !== undefined && totalOf(depth) === 0;
    return {
      ...bounds,
      active: bounds.active && !isServed,
      inFlight: depth === undefined ? undefined : controlledInFlightOf(depth, target?.queueControl),
      waiting: depth === undefined ? 0 : depth.waiting + depth.prioritized,
      keepWarmMs: target === undefined ? 0 : keepWarmMsOf(target),
      containers: [...this.#parts.containers.ofQueue(queue)]
        .filter(({ row, spec }) => spec.byHand !== true && !this.leftOut(row.id))
        .map((entry) => this.#container(entry, target)),
      breaker: this.#parts.breakers.of(queue),
      hostBrake: this.#parts.hostBrakes.of(queue),
      wantedInWindow: history === undefined ? 0 : largestWanted(history.window),
      endedAtMs: history?.endedAtMs ?? [],
      ...(windowEndsMs === undefined ? {} : { windowEndsMs }),
      hold,
    };
  }

  #container(entry: ContainerEntry, target: Target | undefined): ScaleContainer {
    const load = this.#parts.loads.of(entry.row.id);
    const completedBefore = this.#returned.get(entry.row.id);
    const untilFirstCallMs = firstCallMs(target, load?.completed ?? 0);
    return {
      id: entry.row.id,
      state: entry.row.state,
      // The load is unknown when the machine is not linked (yet), or
      // its replica has not told. Such a container counts as busy.
      attempts: load?.inFlight ?? (entry.row.state === 'RUNNING' ? 1 : 0),
      idleSinceMs: load?.idleSinceMs ?? entry.row.createdAtMs,
      createdAtMs: entry.row.createdAtMs,
      keepWarmMs: Math.max(load?.keepWarmMs ?? 0, untilFirstCallMs),
      // The first call after a rollout must find its container, wherever it is.
      ...(untilFirstCallMs > 0
        ? { awaitsFirstCall: true }
        : this.#parts.isAwaited?.(entry) === true
          ? { isAwaited: true }
          : {}),
      warmUp: entry.spec.warmUp === true,
      found: this.isFound(entry.row.id),
      returned: completedBefore !== undefined && (load?.completed ?? 0) <= completedBefore,
      ...this.#held(entry),
    };
  }

  #held({ row, spec }: ContainerEntry): Pick<ScaleContainer, 'heldUntilMs'> {
    const afterMs = replaceableAfterMs(spec);
    // A container that was leaving already has its replacement.
    if (
      row.state !== 'UNKNOWN' ||
      row.machineId === null ||
      afterMs === 0 ||
      !isLiveContainer(row.stateBefore ?? 'UNKNOWN')
    )
      return {};
    // A machine that talks again soon reports what became of the container.
    const { clock, silentSinceMs } = this.#parts;
    return { heldUntilMs: (silentSinceMs(row.machineId) ?? clock.nowMs()) + afterMs };
  }
}

/**
 * Least keep-warm of a container that served nothing yet. A rollout moves calls to a container that is ready, and their
 * first one must find it, also with a keep-warm of 0. Source: decision 0215.
 */
const firstCallMs = (target: Target | undefined, completed: number): number =>
  target?.rollout === 'done' && completed === 0 ? FIRST_CALL_MS : 0;

/** Containers that a target wants without work. A version whose rollout waits wants one, to show whether it starts. */
function leastOf({ deploymentId, supersededBy, rollout, scale, config }: Target): number {
  if (deploymentId === null || supersededBy !== null) return 0;
  // No call of the name reaches a version that does not start. A person may still scale it.
  const least = scale?.minContainers ?? (rollout === 'failed' ? 0 : config.autoscaler.minContainers);
  return Math.max(rollout === 'waiting' ? 1 : 0, least);
}

/** Facts for the deployment's state. @param wanted - as last decided, for while a sample fails */
export function scaleFacts(input: ScaleInput, wanted: number, nowMs: number): DeploymentFacts {
  let live = 0;
  let ready = 0;
  for (const { state } of input.containers) {
    if (isLiveContainer(state)) live += 1;
    if (state === 'RUNNING') ready += 1;
  }
  return {
    active: input.active,
    deleted: false,
    desired: input.inFlight === undefined ? wanted : wantedContainers(input, input.inFlight),
    live,
    ready,
    present: input.containers.length,
    cooling: breakerPhase(input.breaker, nowMs) === 'cooling',
    waiting: input.waiting,
  };
}

/** Keep-warm of the target, in milliseconds; Infinity: a container never stops for want of work. */
export const keepWarmMsOf = (target: Target): number =>
  target.config.keepWarmSeconds < 0 ? Number.POSITIVE_INFINITY : target.config.keepWarmSeconds * 1000;

export const windowMsOf = (target: Target | undefined): number => (target?.config.autoscaler.windowSeconds ?? 0) * 1000;
