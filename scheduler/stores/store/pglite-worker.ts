// The thread that holds PGlite: a statement in the main thread would block everything else while it runs. The thread
// answers one message after another. The other end (pglite.ts) decides whose message comes next.
import { PGlite } from '@electric-sql/pglite';
import { parentPort, workerData } from 'node:worker_threads';
import { OPENED } from './pglite-protocol.ts';
import type { WorkerReply, WorkerRequest } from './pglite-protocol.ts';

const port = parentPort;
if (port === null) throw new Error('pglite-worker.ts runs as a worker thread');
/**
 * The database's own cache takes its memory from the first moment on, used or not (128 MB by default). The kernel
 * caches the files anyway. Everything else is PGlite's default.
 */
const START = [...PGlite.defaultStartParams, '-c', 'shared_buffers=32MB'];
const { directory } = workerData as { readonly directory: string };

function send(reply: WorkerReply): void {
  port?.postMessage(reply);
}

function failure(id: number, error: unknown): WorkerReply {
  const facts = error as { message?: unknown; code?: unknown; constraint?: unknown };
  return {
    id,
    kind: 'error',
    message: String(facts.message ?? error),
    code: typeof facts.code === 'string' ? facts.code : undefined,
    constraint: typeof facts.constraint === 'string' ? facts.constraint : undefined,
  };
}

async function answer(database: PGlite, request: WorkerRequest): Promise<WorkerReply> {
  switch (request.kind) {
    case 'query': {
      const result = await database.query<unknown>(request.sql, [...request.params]);
      const rowCount = result.rows.length > 0 ? result.rows.length : (result.affectedRows ?? 0);
      return { id: request.id, kind: 'rows', rows: result.rows, rowCount };
    }
    case 'script':
      await database.exec(request.sql);
      return { id: request.id, kind: 'rows', rows: [], rowCount: 0 };
    case 'close':
      await database.close();
      return { id: request.id, kind: 'rows', rows: [], rowCount: 0 };
  }
}

try {
  const database = await PGlite.create(directory, { startParams: START });
  let last: Promise<void> = Promise.resolve();
  port.on('message', (request: WorkerRequest) => {
    last = last.then(async () => {
      try {
        send(await answer(database, request));
      } catch (error) {
        send(failure(request.id, error));
      }
      if (request.kind === 'close') port.close();
    });
  });
  send({ id: OPENED, kind: 'rows', rows: [], rowCount: 0 });
} catch (error) {
  send(failure(OPENED, error));
  port.close();
}
