// A process that adds, fetches and ends jobs with keys as fast as it can, until it is killed. It says a word for each
// hundred that it ended. Arguments: socket of Redis, queue, number of keys, most jobs of a key.
import { Redis } from 'ioredis';
import type { QueueName } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newInstanceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';
import { aTaskJob } from '../helpers/task-job.ts';

const [socket = '', queueName = '', keys = '1', most = '1'] = process.argv.slice(2);
const AT_ONCE = 16;
const queue = queueName as QueueName;
const instance = newInstanceId();
const queues = await openTaskQueues({
  client: new Redis(socket),
  log: createLog({ name: 'load', level: 'silent' }),
  lockMs: 400,
  stalledIntervalMs: 100,
});
let made = 0;
let ended = 0;

async function work(): Promise<never> {
  for (;;) {
    made += 1;
    const flow = { key: `k${made % Number(keys)}`, most: Number(most) };
    await queues.add(queue, aTaskJob({ replica: instance, flow, deadlineMs: Date.now() + 3_600_000 }));
    const lock = lockTokenOf(instance, newAttemptToken());
    const { job } = await queues.fetch(queue, lock);
    if (job === undefined) continue;
    // The task runs for a moment, so that others of its key wait.
    await new Promise((resolve) => setImmediate(resolve));
    await queues.complete(queue, job.taskId, lock);
    ended += 1;
    if (ended % 100 === 0) process.stdout.write('.');
  }
}

await Promise.all(Array.from({ length: AT_ONCE }, work));
