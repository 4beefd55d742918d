// The lane before the queues, and when it is looked at: whatever changes which replica has containers may make what waits here somebody else's, too.
import type { Redis } from 'ioredis';
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerBook } from '../containers/book.ts';
import type { Leases } from '../dispatch/leases.ts';
import type { SlotTable } from '../dispatch/slots.ts';
import type { Machines } from '../fleet/machines.ts';
import { LaneQueues } from '../lane/queues.ts';
import type { LendingParts } from '../lane/loans.ts';
import { LaneStore } from '../lane/store.ts';
import type { BullmqQueues } from '../queues/bullmq.ts';
import type { Keys } from '../queues/keys.ts';

export interface Lanes {
  readonly queues: LaneQueues;
  readonly store: LaneStore;
}

export interface LanesParts {
  readonly inner: BullmqQueues;
  readonly client: Redis;
  readonly keys: Keys;
  readonly leases: Leases;
  readonly slots: SlotTable;
  readonly log: Log;
  /** No other scheduler process can have the same stores. */
  readonly isAlone: boolean;
  readonly book: () => Pick<ContainerBook, 'ofQueue'>;
  readonly lending: LendingParts;
  readonly wakeHere: (queue: QueueName, taskId: TaskId) => boolean;
}

/** With more containers than this a queue counts as one that others serve, too. */
const MOST_LOOKED_AT = 64;

export function openLanes(parts: LanesParts): Lanes {
  const { inner, client, keys, leases, slots, log, isAlone, book, wakeHere } = parts;
  const store = new LaneStore({ client, keys, leases, depthKeys: (queue) => inner.depthKeys(queue) });
  const isOursAlone = (queue: QueueName): boolean => {
    if (isAlone) return true;
    let looked = 0;
    for (const { row } of book().ofQueue(queue)) {
      if (row.state !== 'RUNNING') continue;
      looked += 1;
      if (looked > MOST_LOOKED_AT || slots.get(row.id)?.link === undefined) return false;
    }
    return looked > 0;
  };
  const lending = isAlone ? {} : { lending: parts.lending };
  const queues = new LaneQueues({ inner, store, client, slots, isOursAlone, isAlone, ...lending, wakeHere, log });
  return { store, queues };
}

/** What waits in the lane moves when it must; whoever has room hears of it. */
export function watchLanes(
  { queues }: Lanes,
  book: Pick<ContainerBook, 'onChange'>,
  machines: Pick<Machines, 'onChange'>,
  wake: (queue: QueueName) => void,
): void {
  book.onChange(({ entry }) => queues.look(entry.spec.queue));
  machines.onChange(() => queues.lookAll());
  queues.onWaiting(wake);
}
