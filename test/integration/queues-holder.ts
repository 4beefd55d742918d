// A process that fetches one job, says its id and holds it until
// it is killed. Arguments: Redis socket, queue, lock token.
import { Redis } from 'ioredis';
import type { LockToken, QueueName } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';

const [socketPath = '', queue = '', lock = ''] = process.argv.slice(2);
const client = new Redis(socketPath, { maxRetriesPerRequest: 1, commandTimeout: 2000 });
const queues = await openTaskQueues({ client, log: createLog({ name: 'holder' }) });
const { job } = await queues.fetch(queue as QueueName, lock as LockToken);
process.stdout.write(`${job?.taskId ?? 'nothing'}\n`);
setInterval(() => undefined, 60_000);
