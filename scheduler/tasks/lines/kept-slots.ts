// Slots here that are kept for a moment for the oldest tasks of other replicas (choose.ts). The replica's offer uses a
// slot, or its word that no task waits there any more frees it; else the end of the moment does.
import type { InstanceId, QueueName } from '#shared/domain/ids.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { ReadyContainer } from '../dispatch/slots.ts';

/** How long a slot is kept. */
const KEEP_MS = 250;

interface Kept {
  readonly container: ReadyContainer;
  readonly timer: NodeJS.Timeout;
}

export class KeptSlots {
  readonly #dispatcher: Pick<Dispatcher, 'free'>;
  readonly #kept = new Map<string, Kept[]>();

  constructor(dispatcher: Pick<Dispatcher, 'free'>) {
    this.#dispatcher = dispatcher;
  }

  /** Keeps a slot that was taken in that container. */
  keep(queue: QueueName, replica: InstanceId, container: ReadyContainer): void {
    const key = keyOf(queue, replica);
    const timer = setTimeout(() => {
      if (this.#takeOut(key, kept)) this.#dispatcher.free(container);
    }, KEEP_MS);
    const kept: Kept = { container, timer };
    const all = this.#kept.get(key);
    if (all === undefined) this.#kept.set(key, [kept]);
    else all.push(kept);
  }

  /** Container of the slot that was kept first; the caller uses the slot or frees it. undefined: none is kept */
  take(queue: QueueName, replica: InstanceId): ReadyContainer | undefined {
    return this.#takeOut(keyOf(queue, replica))?.container;
  }

  stop(): void {
    for (const kept of this.#kept.values()) for (const { timer } of kept) clearTimeout(timer);
  }

  #takeOut(key: string, one?: Kept): Kept | undefined {
    const all = this.#kept.get(key) ?? [];
    const at = one === undefined ? 0 : all.indexOf(one);
    const [kept] = at < 0 ? [] : all.splice(at, 1);
    if (all.length === 0) this.#kept.delete(key);
    clearTimeout(kept?.timer);
    return kept;
  }
}

const keyOf = (queue: QueueName, replica: InstanceId): string => `${queue} ${replica}`;
