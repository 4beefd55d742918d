// The thread that holds PGlite: a statement in the main thread would block everything else while it runs. The thread
// answers one message after another. The other end (pglite.ts) decides whose message comes next.
import { PGlite } from '@electric-sql/pglite';
import { existsSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { parentPort, workerData } from 'node:worker_threads';
import { OPENED } from './pglite-protocol.ts';
import type { WorkerReply, WorkerRequest } from './pglite-protocol.ts';
import { copyTemplate } from './template.ts';

const port = parentPort;
if (port === null) throw new Error('pglite-worker.ts runs as a worker thread');
/**
 * The database's own cache takes its memory from the first moment on, used or not (128 MB by default). The kernel
 * caches the files anyway. An analysis reads 300 rows for each point of the statistics' target. With the default of 100
 * it stops this thread for 0.4 s, which matters while tables are new and grow fast. The rest is PGlite's default.
 */
const SETTINGS = ['shared_buffers=32MB', 'default_statistics_target=30'];
const START = [...PGlite.defaultStartParams, ...SETTINGS.flatMap((setting) => ['-c', setting])];
/** Lines of the engine in an error. */
const MOST_SAID = 3;
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

/**
 * The caller holds the lock of the data directory, so every trace of another process is that of a killed one. A kill in
 * the middle of a start must leave nothing that the next start refuses.
 */
async function open(): Promise<PGlite> {
  if (!existsSync(directory)) await make();
  // A kill between the making of this file and its writing leaves it empty, which the engine refuses for ever.
  rmSync(join(directory, 'postmaster.pid'), { force: true });
  try {
    return await PGlite.create(directory, { startParams: START });
  } catch (error) {
    throw new Error(await reason(error), { cause: error });
  }
}

/** Copies or makes an empty database beside its place, which it takes once it is whole. */
async function make(): Promise<void> {
  const unfinished = `${directory}.new`;
  rmSync(unfinished, { recursive: true, force: true });
  if (!(await copyTemplate(unfinished))) await (await PGlite.create(unfinished, { startParams: START })).close();
  renameSync(unfinished, directory);
}

/** The engine says why it ends only when it says everything, so it is started once more. */
async function reason(error: unknown): Promise<string> {
  const said: string[] = [];
  const hear = (...words: readonly unknown[]): void => {
    const [, fatal] = /\b(?:FATAL|PANIC):\s+(.*)/.exec(words.map(String).join(' ')) ?? [];
    if (fatal !== undefined && said.length < MOST_SAID) said.push(fatal);
  };
  const { log, error: logError } = console;
  Object.assign(console, { log: hear, error: hear });
  try {
    await (await PGlite.create(directory, { startParams: START, debug: 1 })).close();
  } catch {
    // The first error counts.
  } finally {
    Object.assign(console, { log, error: logError });
  }
  return said.length > 0 ? said.join('; ') : String((error as { message?: unknown }).message ?? error);
}

try {
  const database = await open();
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
