// Whose message is inflated or deflated next. The library queues both for all connections in the order of their
// arrival, so a workspace with many large messages would make every other one wait.
// Invariant: one workspace never has all places, and workspaces that wait take turns.
import type { WorkspaceId } from '#shared/domain/ids.ts';

/** Messages that are inflated or deflated at once: as many as Node has threads for it. */
export const AT_ONCE = 4;
/** Places of one workspace: it always leaves one to the others. */
const MOST_OF_ONE = AT_ONCE - 1;

/** Works on a message. @param done - called once, when the place is free again */
type Work = (done: () => void) => void;

interface Queue {
  running: number;
  readonly waiting: Work[];
}

export class CompressionTurns {
  /** Workspaces with work, in the order of their turns. */
  readonly #queues = new Map<WorkspaceId, Queue>();
  #running = 0;

  /** Workspaces that have work. */
  get workspaces(): number {
    return this.#queues.size;
  }

  /** Begins the work at its workspace's turn: at once where there is a place. */
  add(workspaceId: WorkspaceId, work: Work): void {
    const queue = this.#queues.get(workspaceId) ?? { running: 0, waiting: [] };
    this.#queues.set(workspaceId, queue);
    queue.waiting.push(work);
    this.#next();
  }

  #next(): void {
    while (this.#running < AT_ONCE) {
      const next = this.#queues.entries().find(([, one]) => one.waiting.length > 0 && one.running < MOST_OF_ONE);
      if (next === undefined) return;
      const [workspaceId, queue] = next;
      const work = queue.waiting.shift();
      // Behind the others: they come first now.
      this.#queues.delete(workspaceId);
      this.#queues.set(workspaceId, queue);
      queue.running += 1;
      this.#running += 1;
      work?.(() => {
        queue.running -= 1;
        this.#running -= 1;
        if (queue.running === 0 && queue.waiting.length === 0) this.#queues.delete(workspaceId);
        this.#next();
      });
    }
  }
}
