// `flow` (G18): flow control of queues. Tasks a second into a queue, committed first as those of calls, with a key and
// without; and tasks a second through a queue with 10,000 keys and with ten, in Redis alone. No task is held there; how
// many want a container is counted apart.
import { randomUUID } from 'node:crypto';
import { createLog } from '#shared/log.ts';
import { lockTokenOf, newAttemptToken, newInstanceId } from '#shared/domain/ids.ts';
import type { QueueName } from '#shared/domain/ids.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import { writeTogether } from '#scheduler/stores/queues/turns.ts';
import { openDb } from '#scheduler/stores/store/db.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { migrate } from '#scheduler/stores/store/migrate.ts';
import { insertAcceptedTasks } from '#scheduler/stores/store/queries/tasks.ts';
import type { AcceptedTask } from '#scheduler/stores/store/queries/tasks.ts';
import { GroupCommit } from '#scheduler/tasks/admission/accepting.ts';
import { acceptedTaskOf } from '#scheduler/tasks/records/recording.ts';
import { aRedis } from '../../test/helpers/redis.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import type { Check, SuiteContext, SuiteResult } from './suite.ts';
import { aTaskJob } from '../../test/helpers/task-job.ts';

const FULL_TASKS = 10_000;
const QUICK_TASKS = 2_000;
const MANY_KEYS = 10_000;
const FEW_KEYS = 10;
/** Calls side by side. */
const AT_ONCE = 64;
const NO_BOUND = 100_000;
const HELD = { tasks: 1_000, most: 5 };
const INSTANCE = newInstanceId();

export async function flow(context: SuiteContext): Promise<SuiteResult> {
  const { place } = context;
  const postgres = await context.postgres();
  const log = createLog({ name: 'bench', level: 'silent' });
  const db: Db = await openDb({ databaseUrl: await postgres.createDatabase('flow'), dataDir: place.directory, log });
  place.later(() => db.close());
  await migrate(db, log);
  const commits = new GroupCommit<AcceptedTask>((batch) => insertAcceptedTasks(db, batch));
  const redis = await aRedis();
  place.later(() => redis.stop());
  const client = redis.connect();
  writeTogether(client);
  const queues = await openTaskQueues({ client, log });
  place.later(() => queues.close());
  const tasks = context.isQuick ? QUICK_TASKS : FULL_TASKS;

  const run = async (keysAdded: number, keysThrough: number): Promise<Figures> => {
    place.signal.throwIfAborted();
    const enqueue = await into(queues, commits, tasks, keysAdded);
    return { enqueue, keys: await through(queues, tasks, keysThrough) };
  };
  const baseline = (): Promise<Figures> => run(0, FEW_KEYS);
  const product = (): Promise<Figures> => run(MANY_KEYS, MANY_KEYS);
  await baseline();
  await product();
  const rounds = await context.runRounds('flow', inTurn(baseline, product));
  return {
    measures: [
      measureOf('flow', 'enqueue', 'tasks/s', rounds, context.slack),
      measureOf('flow', 'keys', 'tasks/s', rounds, context.slack),
    ],
    rounds,
    checks: [await heldTasks(queues)],
  };
}

const jobsOf = (count: number, keys: number): TaskJob[] =>
  Array.from({ length: count }, (_none, at) =>
    aJob(keys === 0 ? undefined : { key: `k-${at % keys}`, most: NO_BOUND }),
  );
const aQueue = (): QueueName => `tq-${randomUUID()}` as QueueName;
const perSecond = (count: number, sinceMs: number): number => count / ((performance.now() - sinceMs) / 1000);

/** Tasks a second that are committed and added, as those of calls are. @param keys - 0: tasks without a key */
async function into(
  queues: TaskQueues,
  commits: GroupCommit<AcceptedTask>,
  count: number,
  keys: number,
): Promise<number> {
  const queue = aQueue();
  const jobs = jobsOf(count, keys);
  const startedMs = performance.now();
  await sideBySide(async () => {
    const job = jobs.pop();
    if (job === undefined) return false;
    await commits.commit(acceptedTaskOf(job, queue));
    await queues.add(queue, job);
    return true;
  });
  return perSecond(count, startedMs);
}

/** Tasks a second from their adds to their ends. */
async function through(queues: TaskQueues, count: number, keys: number): Promise<number> {
  const queue = aQueue();
  const jobs = jobsOf(count, keys);
  const startedMs = performance.now();
  await sideBySide(async () => {
    const job = jobs.pop();
    if (job === undefined) return false;
    await queues.add(queue, job);
    return true;
  });
  await sideBySide(async () => {
    const lock = lockTokenOf(INSTANCE, newAttemptToken());
    const { job } = await queues.fetch(queue, lock);
    if (job === undefined) return false;
    await queues.complete(queue, job.taskId, lock);
    return true;
  });
  return perSecond(count, startedMs);
}

/** Repeats the work in several loops side by side. A loop ends when the work returns false: nothing is left to do. */
async function sideBySide(work: () => Promise<boolean>): Promise<void> {
  const loop = async (): Promise<void> => {
    while (await work());
  };
  await Promise.all(Array.from({ length: AT_ONCE }, loop));
}

/** Tasks of one key, of which a few may run: the others want no container. */
async function heldTasks(queues: TaskQueues): Promise<Check> {
  const queue = aQueue();
  for (let at = 0; at < HELD.tasks; at += 1) await queues.add(queue, aJob({ key: 'one', most: HELD.most }));
  const { held, ...wanting } = await queues.depth(queue);
  const wanted = Object.values(wanting).reduce((sum, some) => sum + some, 0);
  return {
    suite: 'flow',
    name: 'held tasks want no container',
    isRight: wanted === HELD.most && held === HELD.tasks - HELD.most,
    text: `${wanted} of ${HELD.tasks} tasks of a key want containers, where ${HELD.most} may run`,
  };
}

const aJob = (flowOfTask: TaskJob['flow']): TaskJob =>
  aTaskJob({
    replica: INSTANCE,
    input: '{"x":1}',
    ...(flowOfTask === undefined ? {} : { flow: flowOfTask }),
    timeoutMs: 0,
    deadlineMs: Date.now() + 3_600_000,
  });
