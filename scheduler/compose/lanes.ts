// The task queues, with the local queue (lane) before them, and the callers who wait at this replica.
import type { QueueName } from '#shared/domain/ids.ts';
import { Replies } from '../tasks/dispatch/replies.ts';
import { LaneQueues } from '../tasks/local-queue/queues.ts';
import type { LendingParts } from '../tasks/local-queue/loans.ts';
import { LaneStore } from '../tasks/local-queue/store.ts';
import { openTaskQueues } from '../stores/queues/bullmq.ts';
import type { Books } from './books.ts';
import type { Ground } from './ground.ts';

export interface Lanes {
  readonly queues: LaneQueues;
  readonly store: LaneStore;
  /** Callers who wait at this replica. */
  readonly replies: Replies;
}

/** Number of containers above which a queue counts as one that other replicas serve, too. */
const MOST_LOOKED_AT = 64;

export async function openLanes(ground: Ground, books: Books): Promise<Lanes> {
  const { hot: client, keys, instance, settings, log } = ground;
  const { bus, isAlone, book, leases, slots, room, rollCall } = books;
  const inner = await openTaskQueues({ client, log, prefix: keys.prefix });
  const store = new LaneStore({ client, keys, leases, depthKeys: (queue) => inner.depthKeys(queue) });
  const replies = new Replies();
  const isOursAlone = (queue: QueueName): boolean => {
    if (isAlone) return true;
    let looked = 0;
    for (const { row } of book.ofQueue(queue)) {
      if (row.state !== 'RUNNING') continue;
      looked += 1;
      if (looked > MOST_LOOKED_AT || slots.get(row.id)?.link === undefined) return false;
    }
    return looked > 0;
  };
  const borrowerOf: LendingParts['borrowerOf'] = (queue, lentTo) => room.borrowerOf(queue, lentTo);
  const jobOf: LendingParts['jobOf'] = (taskId) => replies.get(taskId)?.job;
  const mayTakeBack = (): boolean => rollCall.isOver();
  const lent = { instance, bus, channelOf: keys.loansChannel, borrowerOf, jobOf, mayTakeBack };
  const lending = isAlone ? {} : { lending: lent };
  const isOn = settings.LONGSHORE_LOCAL_QUEUE === 'on';
  const queues = new LaneQueues({ inner, store, client, slots, isOursAlone, isAlone, isOn, ...lending, log });
  return { store, queues, replies };
}
