// Baseline B1, first process: an HTTP server, as people build it by hand. Each body goes into a BullMQ queue, and the
// job's result is the answer. queue.ts starts it.
import { Queue, QueueEvents } from 'bullmq';
import Fastify from 'fastify';

const QUEUE = 'bench';
const ANSWER_MS = 30_000;

const path = process.argv[2] ?? '';
const connection = { path, maxRetriesPerRequest: null };
const queue = new Queue(QUEUE, { connection });
const events = new QueueEvents(QUEUE, { connection });
await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);

const app = Fastify();
app.post('/', async (request) => {
  // With `true` instead of a count, the job is gone before some
  // callers look for its result. Such calls fail, and look like speed.
  const job = await queue.add('call', request.body, { removeOnComplete: { count: 1000 }, removeOnFail: true });
  return job.waitUntilFinished(events, ANSWER_MS);
});
await app.listen({ host: '127.0.0.1', port: 0 });
const address = app.server.address();

const stop = async (): Promise<void> => {
  await app.close();
  await Promise.all([events.close(), queue.close()]);
  process.exit(0);
};
process.once('SIGTERM', () => void stop());
process.once('disconnect', () => void stop());
process.send?.({ kind: 'ready', port: typeof address === 'object' ? address?.port : undefined });
