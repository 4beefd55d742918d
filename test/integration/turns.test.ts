// The Redis commands of one turn of the event loop leave together, without a change of behaviour: leases
// stand before the steps that follow them.
import { execFileSync } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { expect } from 'vitest';
import type { ContainerId, InstanceId, MachineId, QueueName, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newId, newInstanceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import type { TaskToAgent } from '#shared/protocol/generated/messages.ts';
import { Leases } from '#scheduler/tasks/dispatch/leases.ts';
import type { Lease } from '#scheduler/tasks/dispatch/leases.ts';
import { PartsBudget } from '#scheduler/fleet/result-parts.ts';
import type { StreamedTasks } from '#scheduler/fleet/task-stream.ts';
import { TaskStream } from '#scheduler/fleet/task-stream.ts';
import type { TaskCall } from '#scheduler/fleet/task-stream.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import { writeTogether } from '#scheduler/stores/queues/turns.ts';
import { TaskRecords } from '#scheduler/tasks/records/records.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import type { Redis } from 'ioredis';
import { test as base, waitFor } from '../helpers/services.ts';
import { aTable } from './tasks-fixture.ts';
import { aTaskJob } from '../helpers/task-job.ts';

const log = createLog({ name: 'test', level: 'silent' });
const keys = keysOf();

interface World {
  readonly client: Redis;
  readonly eye: Redis;
  readonly queues: TaskQueues;
  readonly leases: Leases;
  readonly records: TaskRecords;
  /** How often Redis was given each of these commands meanwhile, those inside scripts too. */
  readonly counted: (work: () => Promise<unknown>) => Promise<(command: string) => number>;
}

const test = base.extend('world', async ({ redis }, { onCleanup }): Promise<World> => {
  const client = redis.connect({ maxRetriesPerRequest: 1, enableOfflineQueue: false });
  await waitFor(async () => client.status === 'ready', 'the client is connected');
  writeTogether(client);
  const eye = redis.connect();
  const queues = await openTaskQueues({ client, log });
  const records = new TaskRecords({ client, keys, log, instance: newInstanceId(), ...aTable(), collectMs: 5 });
  onCleanup(async () => {
    await records.close();
    await queues.close();
    client.disconnect();
  });
  const counted: World['counted'] = async (work) => {
    await eye.config('RESETSTAT');
    await work();
    const stats = await eye.info('commandstats');
    return (command) => Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  };
  return { client, eye, queues, leases: new Leases(client, keys), records, counted };
});

const aJob = (): TaskJob => aTaskJob({ deadlineMs: 2, createdAtMs: 1 });

function aLease(attempt = 1, job = aJob()): Lease {
  const lock = lockTokenOf(newId<InstanceId>(), newAttemptToken());
  const containerId = newId<ContainerId>();
  return { lock, attempt, containerId, machineId: newId<MachineId>(), queue: 'tq-a', job, startedAtMs: 1 };
}

function aRecord(status: 'RUNNING' | 'COMPLETE', attempt: number, taskId = newId<TaskId>()): TaskRecord {
  return {
    taskId,
    workspaceId: newId<WorkspaceId>(),
    stubId: newId<StubId>(),
    deploymentId: null,
    queue: 'tq-a' as QueueName,
    kind: 'taskqueue',
    sync: false,
    status,
    attempt,
    rank: status === 'RUNNING' ? 1 : 3,
    containerId: null,
    failureReason: '',
    createdAtMs: 1,
    startedAtMs: null,
    endedAtMs: null,
    durationMs: null,
    deadlineMs: 2,
  };
}

test('leases of one turn go in one command, and what comes after them in the turn finds them', async ({ world }) => {
  const { leases, records, eye, counted } = world;
  const all = Array.from({ length: 5 }, () => aLease());
  const calls = await counted(async () => {
    await Promise.all(all.map((lease) => leases.write(lease)));
  });
  expect(calls('set')).toBe(5);
  expect(calls('eval') + calls('evalsha')).toBe(1);
  for (const lease of all) expect(await leases.read(lease.job.taskId)).toEqual(lease);
  expect(await eye.ttl(keys.lease(all[0]?.job.taskId ?? ('' as TaskId)))).toBeGreaterThan(100);

  const dropped = aLease();
  const ended = aLease();
  const early = records.append(aRecord('RUNNING', 1));
  void leases.write(dropped);
  const written = leases.write(ended);
  expect(await leases.read(dropped.job.taskId)).toEqual(dropped);
  await Promise.all([leases.drop(dropped.job.taskId), records.append(aRecord('COMPLETE', 1, ended.job.taskId))]);
  await Promise.all([early, written]);
  const left = (): Promise<number> => eye.exists(keys.lease(dropped.job.taskId), keys.lease(ended.job.taskId));
  await waitFor(async () => (await left()) === 0, 'both leases are gone');
});

test('what a reconnecting machine costs follows what it runs: many machines of one queue cost as much as all their tasks once', async ({
  world: { leases, eye, counted },
}) => {
  const machines = Array.from({ length: 40 }, () => newId<MachineId>());
  const mine = new Map(
    machines.map((machineId) => [machineId, Array.from({ length: 5 }, () => ({ ...aLease(), machineId }))]),
  );
  const all = [...mine.values()].flat();
  await Promise.all(all.map((lease) => leases.write(lease)));
  const lookups = async (): Promise<number> => {
    const stats = await eye.info('stats');
    return [...stats.matchAll(/keyspace_(?:hits|misses):(\d+)/g)].reduce((sum, [, count]) => sum + Number(count), 0);
  };
  let read = 0;
  const calls = await counted(async () => {
    const before = await lookups();
    for (const machineId of machines) {
      const found = (await leases.ofMachine(machineId)).map(({ job }) => job.taskId);
      expect(found.toSorted()).toEqual(
        mine
          .get(machineId)
          ?.map(({ job }) => job.taskId)
          .toSorted(),
      );
    }
    read = (await lookups()) - before;
  });
  // The list of each machine, and each lease once.
  expect(read).toBe(machines.length + all.length);
  expect(calls('zrangebylex') + calls('mget')).toBe(2 * machines.length);
  expect(calls('get')).toBe(0);
});

test('the list of leases by machine forgets a lease with it, however that ends', async ({
  world: { leases, records, eye },
}) => {
  const machineId = newId<MachineId>();
  const listed = (): Promise<number> => eye.zlexcount(keys.leased, `[${machineId}:`, `(${machineId};`);
  const [ended, dropped, droppedOf, restored, lapsed, moved] = Array.from({ length: 6 }, () => ({
    ...aLease(),
    machineId,
  })) as [Lease, Lease, Lease, Lease, Lease, Lease];
  for (const lease of [ended, dropped, droppedOf, lapsed, moved]) await leases.write(lease);
  await leases.restore(restored);
  await leases.restore(ended);
  expect(await listed()).toBe(6);
  await records.append(aRecord('COMPLETE', 1, ended.job.taskId));
  await leases.drop(dropped.job.taskId);
  await leases.dropOf(droppedOf.job.taskId, lapsed.lock);
  await waitFor(async () => (await listed()) === 4, 'two have left');
  await leases.dropOf(droppedOf.job.taskId, droppedOf.lock);
  await leases.drop(restored.job.taskId);
  await eye.del(keys.lease(lapsed.job.taskId));
  const elsewhere = { ...moved, machineId: newId<MachineId>(), job: moved.job };
  await leases.write(elsewhere);
  expect(await listed()).toBe(2);
  expect(await leases.ofMachine(machineId)).toEqual([]);
  expect(await listed()).toBe(0);
  expect(await leases.ofMachine(elsewhere.machineId)).toHaveLength(1);
});

test('a lease goes over another attempt’s, and over the announcement of an external runner', async ({
  world: { leases, eye },
}) => {
  const [fetched, announced] = [aJob(), aJob()];
  await leases.write(aLease(1, fetched));
  await leases.announce(announced.taskId);
  for (const lease of [aLease(2, fetched), aLease(1, announced)]) {
    await leases.write(lease);
    const stands = JSON.parse((await eye.get(keys.lease(lease.job.taskId))) ?? '') as Lease;
    expect(stands.lock).toBe(lease.lock);
  }
});

test('the lease of a task is at Redis before its run order is given to the agent’s stream, whatever else the turn writes', async ({
  redis,
  world: { leases, client },
}) => {
  // The first write loads the script, so that Redis knows it by its hash, as in every later turn.
  await leases.write(aLease());
  const isThere = (lease: Lease) =>
    execFileSync('redis-cli', ['-s', redis.socketPath, 'exists', keys.lease(lease.job.taskId)], { encoding: 'utf8' });
  const turns: readonly ((lease: Lease, stream: TaskStream) => void)[] = [
    () => undefined,
    // The stream's flush is due before the lease is written.
    (_lease, stream) => stream.cancel(newId<TaskId>(), newAttemptToken(), 'cancelled'),
    // The ping already holds the socket's writes back.
    () => void client.ping(),
  ];
  for (const [index, before] of turns.entries()) {
    // The large input is sent in several parts, of which the first leaves at once.
    for (const input of ['{}', 'x'.repeat(3_000_000)]) {
      const lease = aLease();
      const seen: string[] = [];
      const call = Object.assign(new EventEmitter(), {
        end: () => undefined,
        write: ({ run, batch }: TaskToAgent) => {
          // This process stands still meanwhile, so commands that have not left it by now do not arrive.
          if (run ?? batch?.messages?.some((message) => message.run)) seen.push(isThere(lease).trim());
        },
      });
      const stream = new TaskStream({
        machineId: lease.machineId,
        agentInstance: 'agent-1',
        sessionEpoch: 1,
        heartbeatIntervalMs: 10_000,
        call: call as unknown as TaskCall,
        tasks: { leases, reports: {} } as unknown as StreamedTasks,
        budget: new PartsBudget(),
        log,
        onReady: () => undefined,
        onEnd: () => undefined,
        isCurrent: () => Promise.resolve(true),
      });
      before(lease, stream);
      void leases.write(lease);
      const token = newAttemptToken();
      const { taskId } = lease.job;
      stream.run({ taskId, token, containerId: lease.containerId, timeoutMs: 1, query: undefined, input });
      await waitFor(() => seen.length > 0, 'the order is given to the stream');
      expect(seen[0], `turn ${index}, input of ${input.length}`).toBe('1');
    }
  }
});
