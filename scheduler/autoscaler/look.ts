// What one queue looks like to the scaling loop: its bounds, its sample and its containers as decide.ts wants them. Reads only; the loop acts on it, and whoever asks why is shown the same.
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Book, BookEntry } from '../containers/book.ts';
import { replaceableAfterMs } from '../containers/spec.ts';
import type { Target } from '../deployments/stub-config.ts';
import type { DeploymentFacts } from '../deployments/state.ts';
import type { DueTimes } from '../queues/due.ts';
import type { QueueDepth } from '../queues/task-queues.ts';
import { totalOf } from '../queues/task-queues.ts';
import type { Loads } from '../replicas/loads.ts';
import type { Breakers } from './breakers.ts';
import { breakerPhase } from './breaker.ts';
import type { ScaleBounds, ScaleContainer, ScaleInput } from './decide.ts';
import { isLive, wantedContainers } from './decide.ts';
import type { ScaleInHold } from './grace.ts';
import type { QueueMemory } from './memory.ts';
import { largestWanted, nextLeaves } from './window.ts';

export interface LookParts {
  readonly book: Book;
  readonly loads: Pick<Loads, 'of'>;
  readonly clock: Clock;
  readonly due: DueTimes;
  readonly breakers: Breakers;
  /** Cap on containers of one deployment of the workspace. */
  readonly maxContainers: (workspaceId: WorkspaceId) => number;
  /** Since when a machine is silent; null: it talks, or is not known. */
  readonly silentSinceMs: (id: MachineId) => number | null;
}

const DUE_SOON_MS = 10_000;
/** A queue whose deployment is gone wants nothing. */
const GONE: ScaleBounds = { active: false, tasksPerContainer: 1, minContainers: 0, maxContainers: 1 };

export class Look {
  readonly #parts: LookParts;
  /** They serve on, and count as gone already. */
  leftOut: (id: ContainerId) => boolean = () => false;
  /** They came back with a machine that was lost; what they had completed then. */
  readonly #returned = new Map<ContainerId, number>();

  constructor(parts: LookParts) {
    this.#parts = parts;
    parts.book.onChange(({ entry, from, to }) => {
      if (from === 'UNKNOWN' && to === 'RUNNING')
        this.#returned.set(entry.row.id, parts.loads.of(entry.row.id)?.completed ?? 0);
      else this.#returned.delete(entry.row.id);
    });
  }

  bounds(target: Target | undefined): ScaleBounds {
    if (target === undefined) return GONE;
    const { autoscaler } = target.config;
    const cap = this.#parts.maxContainers(target.workspaceId);
    const scale = target.scale ?? autoscaler;
    const isSuperseded = target.supersededBy !== null;
    return {
      // Of what a newer version took the place of the queue alone asks for containers.
      active: target.active || isSuperseded,
      tasksPerContainer: Math.max(1, autoscaler.tasksPerContainer),
      minContainers: Math.min(Math.max(0, target.deploymentId === null || isSuperseded ? 0 : scale.minContainers), cap),
      maxContainers: Math.min(Math.max(1, scale.maxContainers), cap),
    };
  }

  /** Tasks that wait, run, or are due within 10 s. */
  inFlight(queue: QueueName, depth: QueueDepth): number {
    // Delayed jobs that are known not to be due soon; what is not known (after a restart) counts as due, so that a fetch finds out.
    const soon = this.#parts.due.countWithin(queue, DUE_SOON_MS);
    return totalOf(depth) - (soon === undefined ? 0 : Math.max(0, depth.delayed - soon));
  }

  /** @param depth - undefined: the sample failed */
  input(
    queue: QueueName,
    target: Target | undefined,
    depth: QueueDepth | undefined,
    memory: QueueMemory | undefined,
    hold: ScaleInHold | undefined,
  ): ScaleInput {
    const windowEndsMs = memory && nextLeaves(memory.window, windowMsOf(target));
    const bounds = this.bounds(target);
    // Nothing is left of it, so nothing is kept for it.
    const isSuperseded = target !== undefined && target.supersededBy !== null;
    const isServed = isSuperseded && depth !== undefined && totalOf(depth) === 0;
    return {
      ...bounds,
      active: bounds.active && !isServed,
      inFlight: depth === undefined ? undefined : this.inFlight(queue, depth),
      waiting: depth === undefined ? 0 : depth.waiting + depth.prioritized,
      keepWarmMs: target === undefined ? 0 : keepWarmMsOf(target),
      containers: [...this.#parts.book.ofQueue(queue)]
        .filter(({ row }) => !this.leftOut(row.id))
        .map((entry) => this.#container(entry)),
      breaker: this.#parts.breakers.of(queue),
      wantedInWindow: memory === undefined ? 0 : largestWanted(memory.window),
      ...(windowEndsMs === undefined ? {} : { windowEndsMs }),
      hold,
    };
  }

  #container(entry: BookEntry): ScaleContainer {
    const load = this.#parts.loads.of(entry.row.id);
    const completedBefore = this.#returned.get(entry.row.id);
    return {
      id: entry.row.id,
      state: entry.row.state,
      // On a machine that is not linked (yet), or whose replica has not told: what it works on is not known, so it counts as busy.
      attempts: load?.inFlight ?? (entry.row.state === 'RUNNING' ? 1 : 0),
      idleSinceMs: load?.idleSinceMs ?? entry.row.createdAtMs,
      createdAtMs: entry.row.createdAtMs,
      keepWarmMs: load?.keepWarmMs ?? 0,
      warmUp: entry.spec.warmUp === true,
      returned: completedBefore !== undefined && (load?.completed ?? 0) <= completedBefore,
      ...this.#held(entry),
    };
  }

  #held({ row, spec }: BookEntry): Pick<ScaleContainer, 'heldUntilMs'> {
    const afterMs = replaceableAfterMs(spec);
    // What was leaving already has its replacement.
    if (row.state !== 'UNKNOWN' || row.machineId === null || afterMs === 0 || !isLive(row.stateBefore ?? 'UNKNOWN'))
      return {};
    // Its machine talks again: soon it says what became of it.
    const { clock, silentSinceMs } = this.#parts;
    return { heldUntilMs: (silentSinceMs(row.machineId) ?? clock.nowMs()) + afterMs };
  }
}

/** @param wanted - as last decided, for while a sample fails */
export function scaleFacts(input: ScaleInput, wanted: number, nowMs: number): DeploymentFacts {
  let live = 0;
  let ready = 0;
  for (const { state } of input.containers) {
    if (isLive(state)) live += 1;
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
  };
}

/** Infinity: never stopped for want of work. */
export const keepWarmMsOf = (target: Target): number =>
  target.config.keepWarmSeconds < 0 ? Number.POSITIVE_INFINITY : target.config.keepWarmSeconds * 1000;

export const windowMsOf = (target: Target | undefined): number => (target?.config.autoscaler.windowSeconds ?? 0) * 1000;
