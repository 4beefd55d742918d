// Scheduler processes with local queues on one real Redis, which can die, and the sweep that looks after their tasks.
import { systemClock } from '#shared/clock.ts';
import type { InstanceId, QueueName } from '#shared/domain/ids.ts';
import type { LocalQueueSweepParts } from '#scheduler/tasks/local-queue/sweep.ts';
import { LocalQueueSweep } from '#scheduler/tasks/local-queue/sweep.ts';
import type { Process } from './tasks-fixture.ts';
import { quiet } from './tasks-fixture.ts';
import { testWith } from './tasks-started.ts';

/** Replicas that count as dead. */
export const dead = new Set<InstanceId>();

export const test = testWith({ localQueue: true, alive: (replica) => !dead.has(replica) });

export const inLocalQueue = (one: Process, queue: QueueName) => one.client.hkeys(one.keys.localQueue(queue));
export const jobs = async (one: Process, queue: QueueName) =>
  Number(await one.client.llen(`${one.keys.prefix}:${queue}:wait`)) +
  Number(await one.client.llen(`${one.keys.prefix}:${queue}:active`));

/** The sweep of local queues that every replica has. */
export const sweepOf = (one: Process, parts: Partial<LocalQueueSweepParts> = {}): LocalQueueSweep =>
  new LocalQueueSweep({
    localQueues: one.queues,
    store: one.localQueueStore,
    records: one.records,
    completion: one.completion,
    instance: one.instance,
    isAlive: (replica) => !dead.has(replica),
    isLeader: () => true,
    mayJudge: () => true,
    clock: systemClock,
    log: quiet,
    ...parts,
  });

/** Runs two rounds: an entry is judged when it is still there at the second. @returns number of judged entries */
export async function swept(one: Process): Promise<number> {
  const sweep = sweepOf(one);
  return (await sweep.round()) + (await sweep.round());
}

/** Kills a process as kill -9 does: nothing of it reaches Redis any more, and it counts as dead. */
export function kill(one: Process): void {
  dead.add(one.instance);
  one.client.disconnect();
}

/** Delivers the results that come in at `other` to the callers that wait at `one`. */
export function answersOf(other: Process, one: Process): void {
  other.replies.connect({
    finished: (_replica, taskId, finished) => void one.replies.settle(taskId, finished),
    item: (replica, taskId, seq, event) => one.replies.item(replica, taskId, seq, event),
  });
}
