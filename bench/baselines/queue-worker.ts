// Baseline B1, second process: a Worker that does nothing but answer. Started by queue.ts.
import { Worker } from 'bullmq';

const [, , path = '', concurrency = '1'] = process.argv;
const worker = new Worker(
  'bench',
  (job: { readonly data: { readonly name: string } }) => Promise.resolve({ greeting: `Hello, ${job.data.name}!` }),
  { connection: { path, maxRetriesPerRequest: null }, concurrency: Number(concurrency) },
);
// An unheard error event would end the process.
worker.on('error', (error) => process.stderr.write(`${error.message}\n`));
await worker.waitUntilReady();

const stop = async (): Promise<void> => {
  await worker.close();
  process.exit(0);
};
process.once('SIGTERM', () => void stop());
process.once('disconnect', () => void stop());
process.send?.({ kind: 'ready' });
