// The lower bound for ListDeployments: a bare Fastify route that knows its one token. The route runs the same query on
// the same Postgres. suites/list.ts starts it.
import { createHash } from 'node:crypto';
import Fastify from 'fastify';
import { createLog } from '#shared/log.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { openPostgres } from '#scheduler/stores/store/postgres.ts';
import { listDeployments } from '#scheduler/stores/store/queries/deployments.ts';

const LIMIT = 1000;

const [url = '', token = '', workspaceId = ''] = process.argv.slice(2);
const hashOf = (text: string): string => createHash('sha256').update(text).digest('hex');
const callers = new Map([[hashOf(token), workspaceId as WorkspaceId]]);
const db = await openPostgres({ url, log: createLog({ name: 'bench', level: 'silent' }) });

const app = Fastify();
app.get('/', async (request, reply) => {
  const caller = callers.get(hashOf(request.headers.authorization?.slice('Bearer '.length) ?? ''));
  if (caller === undefined) return reply.code(401).send();
  return { deployments: await listDeployments(db, { workspaceId: caller, limit: LIMIT }) };
});
await app.listen({ host: '127.0.0.1', port: 0 });
const address = app.server.address();

const stop = async (): Promise<void> => {
  await app.close();
  await db.close();
  process.exit(0);
};
process.once('SIGTERM', () => void stop());
process.once('disconnect', () => void stop());
process.send?.({ kind: 'ready', port: typeof address === 'object' ? address?.port : undefined });
