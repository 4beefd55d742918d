// The task queues, with the local queue (lane) before them, and the callers who wait at this replica.
import type { Redis } from 'ioredis';
import type { QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { Replies } from '../tasks/dispatch/replies.ts';
import type { Leases } from '../tasks/dispatch/leases.ts';
import type { LaneQueuesParts } from '../tasks/local-queue/queues.ts';
import { LaneQueues } from '../tasks/local-queue/queues.ts';
import type { LendingParts } from '../tasks/local-queue/loans.ts';
import { LaneStore } from '../tasks/local-queue/store.ts';
import { openTaskQueues } from '../stores/queues/bullmq.ts';
import type { Keys } from '../stores/queues/keys.ts';
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

/** Parts of other rooms that the queues need. */
export interface LaneNeeds extends Pick<LaneQueuesParts, 'slots' | 'isOursAlone' | 'isAlone' | 'isOn' | 'knownForMs'> {
  readonly client: Redis;
  readonly keys: Keys;
  readonly leases: Leases;
  readonly log: Log;
  /** Absent: there are no other replicas, or nothing is lent to them. */
  readonly lending?: Omit<LendingParts, 'channelOf' | 'jobOf'> | undefined;
}

export async function buildLanes({ keys, leases, lending, ...needs }: LaneNeeds): Promise<Lanes> {
  const { client, log } = needs;
  const inner = await openTaskQueues({ client, log, prefix: keys.prefix });
  const store = new LaneStore({ client, keys, leases, depthKeys: (queue) => inner.depthKeys(queue) });
  const replies = new Replies();
  const jobOf: LendingParts['jobOf'] = (taskId) => replies.get(taskId)?.job;
  const lent = lending && { ...lending, channelOf: keys.loansChannel, jobOf };
  const queues = new LaneQueues({ ...needs, inner, store, ...(lent && { lending: lent }) });
  return { store, queues, replies };
}

export function openLanes({ hot: client, keys, instance, settings, log }: Ground, books: Books): Promise<Lanes> {
  const { bus, isAlone, book, leases, slots, room, rollCall } = books;
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
  const lending = isAlone ? undefined : { instance, bus, borrowerOf, mayTakeBack: () => rollCall.isOver() };
  const isOn = settings.LONGSHORE_LOCAL_QUEUE === 'on';
  return buildLanes({ client, keys, leases, slots, isOursAlone, isAlone, isOn, lending, log });
}
