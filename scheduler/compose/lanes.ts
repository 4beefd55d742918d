// The task queues, with the local queue (lane) before them. The lane is looked at when containers or machines change:
// tasks that wait here may then have to move to another replica.
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import type { ContainerBook } from '../fleet/containers/book.ts';
import type { Machines } from '../fleet/machines.ts';
import { LaneQueues } from '../tasks/local-queue/queues.ts';
import type { LendingParts } from '../tasks/local-queue/loans.ts';
import { LaneStore } from '../tasks/local-queue/store.ts';
import { openTaskQueues } from '../stores/queues/bullmq.ts';
import type { Books } from './books.ts';
import type { Ground } from './ground.ts';

export interface Lanes {
  readonly queues: LaneQueues;
  readonly store: LaneStore;
}

export interface LanesParts {
  readonly ground: Ground;
  readonly books: Books;
  /** The job of a caller who waits here. */
  readonly jobOf: LendingParts['jobOf'];
  readonly wakeHere: (queue: QueueName, taskId: TaskId) => boolean;
}

/** Number of containers above which a queue counts as one that other replicas serve, too. */
const MOST_LOOKED_AT = 64;

export async function openLanes({ ground, books, jobOf, wakeHere }: LanesParts): Promise<Lanes> {
  const { hot: client, keys, instance, settings, log } = ground;
  const { bus, isAlone, book, leases, slots, room, rollCall } = books;
  const inner = await openTaskQueues({ client, log, prefix: keys.prefix });
  const store = new LaneStore({ client, keys, leases, depthKeys: (queue) => inner.depthKeys(queue) });
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
  const mayTakeBack = (): boolean => rollCall.isOver();
  const lent = { instance, bus, channelOf: keys.loansChannel, borrowerOf, jobOf, mayTakeBack };
  const lending = isAlone ? {} : { lending: lent };
  const isOn = settings.LONGSHORE_LOCAL_QUEUE === 'on';
  const queues = new LaneQueues({ inner, store, client, slots, isOursAlone, isAlone, isOn, ...lending, wakeHere, log });
  return { store, queues };
}

/** Looks at the local queue again after changes of containers and machines, and wakes dispatch when a task waits. */
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
