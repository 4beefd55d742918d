// Starts of the scaling loop that wait for their turn. Workspaces take turns, and the queues of one workspace start in
// the order in which they were decided, because one that asks for a thousand containers must delay no other.
// Invariants: a queue has one waiting start at most. None begins by a sample that is older than a second: its queue is
// read and decided again first, and keeps its place.
import type { QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { QueueDepth } from '../../stores/queues/task-queues.ts';

export interface WaitingStart {
  readonly queue: QueueName;
  readonly target: Target;
  readonly depth: QueueDepth;
  /** Monotonic time at which the depth was there. */
  readonly sampledMs: number;
}

export interface StartTurnsParts {
  readonly clock: Pick<Clock, 'monotonicMs'>;
  /** Carries a start out. Never throws. */
  readonly begin: (start: WaitingStart) => Promise<void>;
  /** Has the queues read and decided again, which puts or drops their starts. */
  readonly readAgain: (queues: readonly QueueName[]) => void;
}

/** Milliseconds for which a sample is good for a start. Source: invariant I13. */
export const FRESH_MS = 1_000;
/** Most starts under way: enough to keep the database busy, few enough that a new one begins soon. */
export const MOST_STARTS = 8;

export class StartTurns {
  readonly #parts: StartTurnsParts;
  /** Waiting starts of each workspace, the first in turn first. No workspace is without one. */
  readonly #turns = new Map<WorkspaceId, Map<QueueName, WaitingStart>>();
  readonly #workspaces = new Map<QueueName, WorkspaceId>();
  /** Queues that are being read again. */
  readonly #read = new Set<QueueName>();
  #underWay = 0;

  constructor(parts: StartTurnsParts) {
    this.#parts = parts;
  }

  /** Adds a start. A waiting one of the same queue is replaced, and keeps its place. */
  put(start: WaitingStart): void {
    const { queue, target } = start;
    const starts = this.#turns.get(target.workspaceId) ?? new Map<QueueName, WaitingStart>();
    starts.set(queue, start);
    this.#turns.set(target.workspaceId, starts);
    this.#workspaces.set(queue, target.workspaceId);
    this.#read.delete(queue);
  }

  /** Takes the waiting start of a queue out, because it asks for none now. */
  drop(queue: QueueName): void {
    const workspaceId = this.#workspaces.get(queue);
    if (workspaceId === undefined) return;
    const starts = this.#turns.get(workspaceId);
    starts?.delete(queue);
    if (starts?.size === 0) this.#turns.delete(workspaceId);
    this.#workspaces.delete(queue);
    this.#read.delete(queue);
  }

  /** Takes all of them out. @returns their queues */
  clear(): readonly QueueName[] {
    const queues = [...this.#workspaces.keys()];
    this.#turns.clear();
    this.#workspaces.clear();
    this.#read.clear();
    return queues;
  }

  /** Begins as many starts as may be under way. */
  begin(): void {
    // A workspace that is put back while the loop runs is visited again, at the end.
    for (const [workspaceId, starts] of this.#turns) {
      if (this.#underWay >= MOST_STARTS) return;
      const [first] = starts.values();
      if (first === undefined || this.#isOld(first)) {
        this.#readAgain(starts);
        continue;
      }
      this.drop(first.queue);
      if (this.#turns.delete(workspaceId)) this.#turns.set(workspaceId, starts);
      this.#underWay += 1;
      void this.#parts.begin(first).finally(() => {
        this.#underWay -= 1;
        this.begin();
      });
    }
  }

  #isOld({ sampledMs }: WaitingStart): boolean {
    return this.#parts.clock.monotonicMs() - sampledMs > FRESH_MS;
  }

  /** The first start of a workspace is too old, so others behind it are, too: one read serves them all. */
  #readAgain(starts: ReadonlyMap<QueueName, WaitingStart>): void {
    const [first] = starts.keys();
    if (first === undefined || this.#read.has(first)) return;
    const old = [...starts.values()].filter((start) => this.#isOld(start)).map(({ queue }) => queue);
    for (const queue of old) this.#read.add(queue);
    this.#parts.readAgain(old);
  }
}
