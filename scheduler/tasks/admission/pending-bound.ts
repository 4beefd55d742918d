// Bound on the asynchronous tasks that a queue may have. The count is the queue's last known depth and what was
// accepted here since. Far below the bound no call asks Redis; near it, and where other replicas may have filled the
// queue meanwhile, the depth is read first. Nothing is accepted and undone. Invariants: within one process the bound
// is exact. Other replicas may add what arrives within READ_MS. A Redis that does not answer refuses nobody.
import { withDeadline } from '#shared/backoff.ts';
import type { QueueName } from '#shared/domain/ids.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import { totalOf } from '../../stores/queues/task-queues.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';

const MAX_QUEUES = 20_000;
/** Fraction of the bound from which on the depth is read for each decision. */
const NEAR = 0.8;
/** Age in milliseconds up to which a depth counts where other replicas add, too; also the longest wait for one. */
const READ_MS = 250;
/** The same where no other process adds: only upkeep does. */
const READ_ALONE_MS = 10_000;
/** Milliseconds for which a Redis that did not answer is not waited for. */
const SILENT_MS = 1_000;

interface Known {
  depth: number;
  readAtMs: number;
  /** Accepted here, and not in the queue yet. */
  coming: number;
  /** Added here since the last reading was asked for. */
  added: number;
  /** The reading under way; false: Redis did not answer. */
  reading: Promise<boolean> | undefined;
}

/** The place of a task that may be accepted. Exactly one of the two is called. */
export interface Place {
  /** The task is in its queue. @returns the number of its tasks, as far as is known here */
  added(): number;
  /** The task does not come. */
  free(): void;
}

export class PendingBound {
  readonly #queues: Pick<TaskQueues, 'depth'>;
  readonly #isAlone: boolean;
  readonly #known = new BoundedMap<QueueName, Known>(MAX_QUEUES);
  #silentUntilMs = 0;

  /** @param isAlone - no other process adds to the queues */
  constructor(queues: Pick<TaskQueues, 'depth'>, isAlone: boolean) {
    this.#queues = queues;
    this.#isAlone = isAlone;
  }

  /** Takes a place in the queue. @returns undefined: it is full */
  async take(queue: QueueName, bound: number): Promise<Place | undefined> {
    const known = this.#of(queue);
    const isFresh = performance.now() - known.readAtMs <= (this.#isAlone ? READ_ALONE_MS : READ_MS);
    if (isFresh && countOf(known) < bound * NEAR) return placeOf(known);
    for (let reads = 1; ; reads += 1) {
      const isRead = await this.#read(queue, known);
      if (countOf(known) < bound) return placeOf(known);
      // Tasks that were added while Redis answered may be counted twice: the next reading has them once.
      if (!isRead || reads > 1 || known.added === 0) return undefined;
    }
  }

  #of(queue: QueueName): Known {
    const found = this.#known.get(queue);
    if (found !== undefined) return found;
    const fresh: Known = { depth: 0, readAtMs: -Infinity, coming: 0, added: 0, reading: undefined };
    this.#known.set(queue, fresh);
    return fresh;
  }

  #read(queue: QueueName, known: Known): Promise<boolean> {
    if (performance.now() < this.#silentUntilMs) return Promise.resolve(false);
    known.reading ??= this.#ask(queue, known).finally(() => (known.reading = undefined));
    return known.reading;
  }

  async #ask(queue: QueueName, known: Known): Promise<boolean> {
    const before = known.added;
    const askedAtMs = performance.now();
    try {
      const depth = await withDeadline(this.#queues.depth(queue), READ_MS, () => new Error('Redis is slow'));
      known.depth = totalOf(depth);
      known.added -= before;
      known.readAtMs = askedAtMs;
      return true;
    } catch {
      this.#silentUntilMs = performance.now() + SILENT_MS;
      return false;
    }
  }
}

const countOf = ({ depth, coming, added }: Known): number => depth + coming + added;

function placeOf(known: Known): Place {
  known.coming += 1;
  return {
    added: () => {
      known.coming -= 1;
      known.added += 1;
      return countOf(known);
    },
    free: () => void (known.coming -= 1),
  };
}
