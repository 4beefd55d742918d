// The task queues, with the local queue before them, and the callers who wait at this replica.
import type { Redis } from 'ioredis';
import type { QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { Replies } from '../tasks/dispatch/replies.ts';
import type { Leases } from '../tasks/dispatch/leases.ts';
import type { LocalQueuesParts } from '../tasks/local-queue/queues.ts';
import { LocalQueues } from '../tasks/local-queue/queues.ts';
import type { ForwardingPeers } from '../tasks/local-queue/forwarding.ts';
import { LocalQueueStore } from '../tasks/local-queue/store.ts';
import { openTaskQueues } from '../stores/queues/bullmq.ts';
import type { Keys } from '../stores/queues/keys.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';

export interface LocalQueueParts {
  readonly queues: LocalQueues;
  readonly store: LocalQueueStore;
  /** Callers who wait at this replica. */
  readonly replies: Replies;
}

/** Number of containers above which a queue counts as one that other replicas serve, too. */
const MOST_LOOKED_AT = 64;

/** Parts of other rooms that the queues need. */
export interface LocalQueueNeeds extends Pick<
  LocalQueuesParts,
  'slots' | 'isOursAlone' | 'isAlone' | 'isOn' | 'knownForMs'
> {
  readonly client: Redis;
  readonly keys: Keys;
  readonly leases: Leases;
  readonly log: Log;
  /** Absent: there are no other replicas, or nothing is forwarded to them. */
  readonly peers?: Omit<ForwardingPeers, 'channelOf' | 'jobOf'> | undefined;
}

export async function buildLocalQueue({ keys, leases, peers, ...needs }: LocalQueueNeeds): Promise<LocalQueueParts> {
  const { client, log } = needs;
  const inner = await openTaskQueues({ client, log, prefix: keys.prefix });
  const store = new LocalQueueStore({ client, keys, leases, log, depthKeys: (queue) => inner.depthKeys(queue) });
  const replies = new Replies();
  const jobOf: ForwardingPeers['jobOf'] = (taskId) => replies.get(taskId)?.job;
  const access = peers && { ...peers, channelOf: keys.forwardingChannel, jobOf };
  const queues = new LocalQueues({ ...needs, inner, store, ...(access && { peers: access }) });
  return { store, queues, replies };
}

export function openLocalQueue(
  { hot: client, keys, instance, settings, log }: Infrastructure,
  clusterState: ClusterState,
): Promise<LocalQueueParts> {
  const { bus, isAlone, containers, leases, slots, remoteCapacity, rollCall } = clusterState;
  const isOursAlone = (queue: QueueName): boolean => {
    if (isAlone) return true;
    let looked = 0;
    for (const { row } of containers.ofQueue(queue)) {
      if (row.state !== 'RUNNING') continue;
      looked += 1;
      if (looked > MOST_LOOKED_AT || slots.get(row.id)?.link === undefined) return false;
    }
    return looked > 0;
  };
  const receiverOf: ForwardingPeers['receiverOf'] = (queue, forwardedTo) =>
    remoteCapacity.receiverOf(queue, forwardedTo);
  const peers = isAlone ? undefined : { instance, bus, receiverOf, mayTakeBack: () => rollCall.isOver() };
  const isOn = settings.LONGSHORE_LOCAL_QUEUE === 'on';
  return buildLocalQueue({ client, keys, leases, slots, isOursAlone, isAlone, isOn, peers, log });
}
