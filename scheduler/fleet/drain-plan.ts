// The next step of a drain for the containers of one queue; pure.
// Invariant: a container that serves, or that minContainers needs, keeps taking tasks until its replacement does. It
// waits for a replacement that makes progress, up to the deadline. It leaves without progress for five minutes, or
// without capacity for one. At most a quarter of the needed containers (at least one) wait for that at a time. A
// container with a task, or one made by hand, is stopped at the deadline only.
import type { ContainerId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';

/** A container on a machine that drains. */
export interface DrainContainer {
  readonly id: ContainerId;
  readonly state: ContainerState;
  /** Number of its tasks; undefined: not known, so the container counts as busy. */
  readonly attempts: number | undefined;
  /** When the wait for its replacement began; undefined: not picked yet. */
  readonly pickedAtMs: number | undefined;
  /** Whether the machine's deadline has passed. */
  readonly isLate: boolean;
  readonly createdAtMs: number;
  /** Whether CreatePod made it: nothing can replace it, so it stays until the deadline. */
  readonly byHand: boolean;
}

export interface DrainQueue {
  /** Containers that the queue asks for now. */
  readonly wanted: number;
  readonly minContainers: number;
  /** Ready containers on machines that stay. */
  readonly readyElsewhere: number;
  /** Whether placement found no machine for a waiting container, and no other one is on its way. */
  readonly hasNoCapacity: boolean;
  /**
   * When a container on its way to a machine that stays got on last: its place, its image, its volumes or the phase of
   * its start changed. Undefined: none is on its way, or nothing is known.
   */
  readonly progressedAtMs: number | undefined;
  readonly containers: readonly DrainContainer[];
}

/**
 * `pick`: the container serves on while a replacement is made. `drain`: no more tasks, and a stop after the last.
 * `stop`: stopped now, since it has no task. `end`: stopped now, with or without tasks.
 */
export interface DrainStep {
  readonly kind: 'pick' | 'drain' | 'stop' | 'end';
  readonly id: ContainerId;
}

/** Time without progress of any replacement after which a container does not wait for it any more. */
export const PROGRESS_WITHIN_MS = 5 * 60_000;
/** The same where no machine takes a replacement: longer than a burst of starts, or a GPU that is probed, has it so. */
export const CAPACITY_WITHIN_MS = 60_000;
const AT_ONCE = 0.25;

export function drainSteps(queue: DrainQueue, nowMs: number): readonly DrainStep[] {
  const steps: DrainStep[] = [];
  const serving: DrainContainer[] = [];
  for (const one of queue.containers) {
    // A container in STARTING serves nobody yet: the queue asks for another one elsewhere.
    if (one.byHand) {
      if (one.isLate && one.state !== 'STOPPING') steps.push({ kind: 'end', id: one.id });
    } else if (one.state === 'STARTING' || (one.isLate && (one.state === 'RUNNING' || one.state === 'DRAINING')))
      steps.push({ kind: 'end', id: one.id });
    else if (one.state === 'RUNNING') serving.push(one);
  }
  const idle = serving.filter((one) => one.attempts === 0).toSorted((a, b) => a.createdAtMs - b.createdAtMs);
  const busy = serving.length - idle.length;
  const needed = Math.max(0, queue.minContainers - queue.readyElsewhere - busy);
  const unneeded = new Set(idle.slice(0, Math.max(0, idle.length - needed)));
  for (const { id } of unneeded) steps.push({ kind: 'stop', id });
  return [
    ...steps,
    ...replaced(
      queue,
      serving.filter((one) => !unneeded.has(one)),
      nowMs,
    ),
  ];
}

/** Steps for serving containers: some may leave now, and others get a replacement next. */
function replaced(queue: DrainQueue, serving: readonly DrainContainer[], nowMs: number): readonly DrainStep[] {
  const steps: DrainStep[] = [];
  const picked = serving.filter((one) => one.pickedAtMs !== undefined);
  const rest = serving.filter((one) => one.pickedAtMs === undefined).toSorted((a, b) => a.createdAtMs - b.createdAtMs);
  // Number of serving containers above the queue's demand.
  let spare = queue.readyElsewhere + serving.length - Math.max(queue.wanted, queue.minContainers);
  const leave = ({ id, attempts }: DrainContainer): void => {
    spare -= 1;
    steps.push({ kind: attempts === 0 ? 'stop' : 'drain', id });
  };
  const withinMs = queue.hasNoCapacity ? CAPACITY_WITHIN_MS : PROGRESS_WITHIN_MS;
  for (const one of picked.toSorted((a, b) => (a.pickedAtMs ?? 0) - (b.pickedAtMs ?? 0))) {
    const isOverdue = nowMs - Math.max(one.pickedAtMs ?? nowMs, queue.progressedAtMs ?? 0) >= withinMs;
    if (spare > 0 || isOverdue) leave(one);
  }
  const waiting = picked.length - steps.length;
  for (const one of rest.splice(0, Math.max(0, spare))) leave(one);
  const atOnce = Math.max(1, Math.floor(Math.max(queue.wanted, serving.length) * AT_ONCE));
  for (const { id } of rest.slice(0, Math.max(0, atOnce - waiting))) steps.push({ kind: 'pick', id });
  return steps;
}
