// Random interleavings of everything that replicas do to one task queue, on real Redis. They
// include locks left by dead processes, stall scans, repeated results, and the loss and rebuild of
// all data. In any order every task ends exactly once, and at most one of its results is accepted.
// The attempts of a task stay within their bound.
import fc from 'fast-check';
import { expect } from 'vitest';
import type { InstanceId, LockToken, QueueName, StubId, TaskId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newId, newInstanceId, queueNameOf } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import { totalOf } from '#scheduler/stores/queues/task-queues.ts';
import type { Redis } from 'ioredis';
import { test as base } from '../helpers/services.ts';
import type { PrivateRedis } from '../helpers/services.ts';
import { aTaskJob } from '../helpers/task-job.ts';

const SEEDS = 300;
const quiet = createLog({ name: 'test', level: 'silent' });

interface Replica {
  readonly queues: TaskQueues;
  instance: InstanceId;
}
interface Server {
  readonly client: Redis;
  readonly replicas: readonly [Replica, Replica];
}

const test = base.extend('server', { scope: 'file' }, async ({ redis }, { onCleanup }): Promise<Server> => {
  const client = redis.connect();
  const replicas = [await aReplica(redis), await aReplica(redis)] as const;
  onCleanup(async () => {
    for (const { queues } of replicas) await queues.close();
  });
  return { client, replicas };
});

async function aReplica(redis: PrivateRedis): Promise<Replica> {
  const client = redis.connect({ maxRetriesPerRequest: 1, commandTimeout: 10_000 });
  // Scans are throttled by a key that lives as long as this: here each one counts.
  return { queues: await openTaskQueues({ client, log: quiet, stalledIntervalMs: 1 }), instance: newInstanceId() };
}

interface Task {
  readonly job: TaskJob;
  /** Ends of the task, as the queue's answers decided them. */
  readonly ends: string[];
  results: number;
  handedOut: number;
  /** Attempts lost to their replica's death or a loss of data. */
  losses: number;
}

interface Attempt {
  readonly task: Task;
  readonly lock: LockToken;
  readonly instance: InstanceId;
  readonly retriesUsed: number;
}

/** A story on a queue of its own. */
class Story {
  readonly server: Server;
  readonly queue: QueueName = queueNameOf(null, newId<StubId>());
  readonly tasks = new Map<TaskId, Task>();
  /** Ended attempts stay, too: their results may come again. */
  readonly attempts: Attempt[] = [];
  readonly lines: string[] = [];

  constructor(server: Server) {
    this.server = server;
  }

  replica(at: number): Replica {
    return this.server.replicas[at % 2 === 0 ? 0 : 1];
  }

  pick<T>(all: readonly T[], at: number): T | undefined {
    return all[at % Math.max(1, all.length)];
  }

  isOpen(task: Task): boolean {
    return task.ends.length === 0;
  }

  end(task: Task, how: string): void {
    task.ends.push(how);
    expect(task.ends, 'one final state').toHaveLength(1);
  }

  async add(at: number): Promise<void> {
    const { queues, instance } = this.replica(at);
    const times = { timeoutMs: 60_000, deadlineMs: Date.now() + 3_600_000 };
    const job = aTaskJob({ replica: instance, ...times, retries: at % 4 });
    this.tasks.set(job.taskId, { job, ends: [], results: 0, handedOut: 0, losses: 0 });
    await queues.add(this.queue, job);
  }

  /** The answer to an add was lost, so the add is repeated. */
  async addAgain(at: number): Promise<void> {
    const task = this.pick(
      [...this.tasks.values()].filter((one) => this.isOpen(one)),
      at,
    );
    // Adding an id that is still there has no effect.
    if (task !== undefined && (await this.replica(at).queues.read(this.queue, task.job.taskId)) !== undefined)
      await this.replica(at).queues.add(this.queue, task.job);
  }

  async fetch(at: number): Promise<Attempt | undefined> {
    const { queues, instance } = this.replica(at);
    const lock = lockTokenOf(instance, newAttemptToken());
    const { job } = await queues.fetch(this.queue, lock);
    if (job === undefined) return undefined;
    const task = this.tasks.get(job.taskId);
    if (task === undefined) throw new Error('a task that nobody added');
    // The task ended while its entry had no holder, so this fetch takes the entry out, as every fetch does.
    if (!this.isOpen(task)) {
      await queues.fail(this.queue, job.taskId, lock, 'ended before');
      return undefined;
    }
    task.handedOut += 1;
    expect(job.retriesUsed, 'retries within the budget').toBeLessThanOrEqual(task.job.retries);
    expect(task.handedOut, 'attempts within slots').toBeLessThanOrEqual(1 + task.job.retries + task.losses);
    const attempt = { task, lock, instance, retriesUsed: job.retriesUsed };
    this.attempts.push(attempt);
    return attempt;
  }

  /** Tells a result, perhaps for the second time, to the replica that the agent reaches. */
  async complete(at: number, of = this.pick(this.attempts, at)): Promise<void> {
    if (of === undefined) return;
    const { task, lock } = of;
    const fence = await this.replica(at).queues.complete(this.queue, task.job.taskId, lock);
    if (fence.kind !== 'done') return;
    task.results += 1;
    expect(task.results, 'one accepted result').toBe(1);
    this.end(task, 'COMPLETE');
  }

  /** A handler that asks for another try, or has no more. */
  async fail(at: number): Promise<void> {
    const attempt = this.pick(this.attempts, at);
    if (attempt === undefined) return;
    const { task, lock, retriesUsed } = attempt;
    const { queues } = this.replica(at);
    const { taskId, retries } = task.job;
    if (retriesUsed < retries) {
      const whole = await queues.read(this.queue, taskId);
      if (whole !== undefined)
        await queues.delay(this.queue, taskId, lock, Date.now(), { ...whole, retriesUsed: retriesUsed + 1 });
    } else if ((await queues.fail(this.queue, taskId, lock, 'handler_error')).kind === 'done') this.end(task, 'ERROR');
  }

  /**
   * Gives back an attempt that reached no runner: the task is first in the queue again, as if it had not been fetched.
   */
  async giveBack(at: number): Promise<void> {
    const attempt = this.pick(this.attempts, at);
    if (attempt === undefined) return;
    const { task, lock } = attempt;
    const { queues } = this.replica(at);
    if ((await queues.lockOf(this.queue, task.job.taskId)) !== lock) return;
    expect(await queues.giveBack(this.queue, task.job.taskId, lock)).toEqual({ kind: 'done' });
    task.handedOut -= 1;
  }

  async cancel(at: number): Promise<void> {
    const task = this.pick(
      [...this.tasks.values()].filter((one) => this.isOpen(one)),
      at,
    );
    if (task === undefined) return;
    const { queues } = this.replica(at);
    if (await queues.remove(this.queue, task.job.taskId)) return this.end(task, 'CANCELLED');
    const lock = await queues.lockOf(this.queue, task.job.taskId);
    if (lock === undefined) return;
    if ((await queues.fail(this.queue, task.job.taskId, lock, 'cancelled')).kind === 'done')
      this.end(task, 'CANCELLED');
  }

  async renew(at: number): Promise<void> {
    const attempt = this.pick(this.attempts, at);
    if (attempt === undefined) return;
    const held = { queue: this.queue, taskId: attempt.task.job.taskId, lock: attempt.lock };
    const lost = await this.replica(at).queues.renew([held], 60_000);
    const holds = (await this.replica(at).queues.lockOf(this.queue, held.taskId)) === attempt.lock;
    expect(lost).toEqual(holds ? [] : [held]);
  }

  /** A replica dies: its locks are not renewed any more, and expire after a while. */
  async crash(at: number): Promise<void> {
    const replica = this.replica(at);
    const dead = replica.instance;
    replica.instance = newInstanceId();
    for (const { task, lock, instance } of this.attempts) {
      if (instance !== dead || !this.isOpen(task)) continue;
      if ((await replica.queues.lockOf(this.queue, task.job.taskId)) !== lock) continue;
      await this.server.client.del(`ls:${this.queue}:${task.job.taskId}:lock`);
      task.losses += 1;
    }
  }

  async scan(at: number): Promise<void> {
    await this.server.client.del(`ls:${this.queue}:stalled-check`);
    await this.replica(at).queues.scanStalled(this.queue);
  }

  /** Redis comes back empty. Promised tasks are queued again from their rows. */
  async loseData(): Promise<void> {
    await this.server.client.flushall();
    const { queues } = this.replica(0);
    for (const replica of this.server.replicas) await replica.queues.reopenAll();
    for (const task of this.tasks.values()) {
      if (!this.isOpen(task)) continue;
      task.losses += task.handedOut;
      await queues.add(this.queue, { ...task.job, attempts: task.handedOut });
    }
  }

  /** All replicas live again and work the queue off. */
  async settle(): Promise<void> {
    await this.crash(0);
    await this.crash(1);
    for (let round = 0; round < 3; round += 1) await this.scan(round);
    for (let turns = 0; turns < 500; turns += 1) {
      const before = totalOf(await this.replica(0).queues.depth(this.queue));
      if (before === 0) break;
      const attempt = await this.fetch(turns);
      if (attempt !== undefined) await this.complete(turns, attempt);
    }
    expect(totalOf(await this.replica(0).queues.depth(this.queue)), 'nothing is left in the queue').toBe(0);
    for (const task of this.tasks.values()) expect(task.ends, 'every task ends').toHaveLength(1);
    await this.replica(0).queues.obliterate(this.queue);
  }
}

const STEPS = {
  add: 6,
  addAgain: 1,
  fetch: 8,
  complete: 5,
  fail: 4,
  giveBack: 2,
  cancel: 2,
  renew: 1,
  crash: 2,
  scan: 3,
  loseData: 1,
} as const;
type StepName = keyof typeof STEPS;
const NAMES = Object.entries(STEPS).flatMap(([name, weight]) => Array<StepName>(weight).fill(name as StepName));

test(
  `${SEEDS} random stories of one queue: one end each, one result, attempts within bounds`,
  { timeout: 400_000 },
  async ({ server }) => {
    const played = new Map<string, number>();
    const aStep = fc.record({ name: fc.constantFrom(...NAMES), at: fc.nat({ max: 47 }) });
    await fc.assert(
      fc.asyncProperty(fc.array(aStep, { minLength: 1, maxLength: 50, size: 'max' }), async (steps) => {
        const story = new Story(server);
        await story.replica(0).queues.open(story.queue);
        for (const { name, at } of steps) await story[name](at);
        await story.settle();
        for (const { ends } of story.tasks.values())
          for (const how of ends) played.set(how, (played.get(how) ?? 0) + 1);
      }),
      { numRuns: SEEDS, unbiased: true },
    );
    expect([...played.keys()].toSorted()).toEqual(['CANCELLED', 'COMPLETE', 'ERROR']);
  },
);
