/**
 * A private Postgres server per test file, for behaviour that only a real server shows: locks, `skip locked`, `listen`.
 */
import { chmodSync, chownSync, existsSync, readFileSync, readdirSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, stat } from 'node:fs/promises';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import {
  findProgram,
  missingService,
  type Program,
  runProgram,
  startProgram,
  tempDirectory,
  waitFor,
} from './programs.ts';

/** A real server with one empty database. */
export interface PrivatePostgres {
  /** DATABASE_URL of the empty database that comes with the server. */
  readonly url: string;
  /** Makes another empty database; returns its URL. */
  readonly createDatabase: (name: string) => Promise<string>;
  /** An immediate stop, as a power cut would be; `restart()` recovers. */
  readonly crash: () => Promise<void>;
  readonly restart: () => Promise<void>;
  /** kill -9 of every process of the server at once, as the memory killer or a container's end does. */
  readonly kill: () => Promise<void>;
  /** Freezes all its processes by SIGSTOP (`thaw`: SIGCONT): it accepts connections and does not answer. */
  readonly freeze: () => void;
  readonly thaw: () => void;
  /** Ends the server and removes its files. @throws when a client is still connected a second after the tests ended */
  readonly stop: () => Promise<void>;
}

/**
 * Starts a server for a test file.
 * @param options.durable - keep fsync on: for tests about what survives
 */
export async function aPostgres(options: { readonly durable?: boolean } = {}): Promise<PrivatePostgres> {
  const bin = postgresBin();
  if (bin === undefined) throw missingService('Postgres (initdb, postgres)');
  const directory = tempDirectory('pg');
  try {
    const owner = await serverUser();
    if (owner !== undefined) chownSync(directory.path, owner.uid, owner.gid);
    const data = join(directory.path, 'data');
    const as = { ...owner, cwd: directory.path };
    const cluster = await madeOnce('ls-empty-cluster', async (made) => {
      chmodSync(made, 0o755);
      if (owner !== undefined) chownSync(made, owner.uid, owner.gid);
      await makeCluster(bin, join(made, 'data'), { ...owner, cwd: made });
    });
    if (cluster === undefined) await makeCluster(bin, data, as);
    else await runProgram('cp', ['-r', join(cluster, 'data'), data], as);
    const settings = options.durable === true ? [] : ['-c', 'fsync=off', '-c', 'full_page_writes=off'];
    const start = (port: number): Promise<Program> =>
      startProgram(
        join(bin, 'postgres'),
        [
          '-D',
          data,
          '-p',
          String(port),
          '-c',
          'listen_addresses=127.0.0.1',
          '-c',
          `unix_socket_directories=${directory.path}`,
          ...settings,
        ],
        as,
      );
    const { port, program: first } = await startSomewhere(start);
    let program = first;
    const urlOf = (name: string): string => `postgres://postgres@127.0.0.1:${port}/${name}`;
    const createDatabase = async (name: string): Promise<string> => {
      if (!/^[a-z][a-z0-9_]{0,40}$/.test(name))
        throw new Error(`database name ${name}: use lower case letters, digits and _`);
      await query(urlOf('postgres'), `create database ${name}`);
      return urlOf(name);
    };
    const url = await createDatabase('test');
    return {
      url,
      createDatabase,
      crash: () => program.end('SIGQUIT'),
      kill: async () => {
        const backends = childrenOf(program.pid);
        const ended = program.end('SIGKILL');
        signalAll(backends, 'SIGKILL');
        await ended;
      },
      // The first process begins no other one once it stands still.
      freeze: () => {
        signalAll([program.pid], 'SIGSTOP');
        signalAll(childrenOf(program.pid), 'SIGSTOP');
      },
      thaw: () => signalAll([...childrenOf(program.pid), program.pid], 'SIGCONT'),
      restart: async () => {
        await program.end('SIGINT');
        program = await start(port);
        await untilReady(program, port);
      },
      stop: async () => {
        try {
          if (program.isRunning()) await refuseGuests(urlOf('postgres'));
        } finally {
          await program.end('SIGINT', 5000);
          directory.remove();
        }
      },
    };
  } catch (error) {
    directory.remove();
    throw error;
  }
}

type As = { readonly uid?: number; readonly gid?: number; readonly cwd: string };

/** An empty cluster. Its segments of the log have their smallest size, because each test file copies one. */
async function makeCluster(bin: string, data: string, as: As): Promise<void> {
  const form = ['-A', 'trust', '-U', 'postgres', '--no-sync', '-E', 'UTF8', '--locale=C.UTF-8', '--wal-segsize=1'];
  await runProgram(join(bin, 'initdb'), ['-D', data, ...form], as);
}

/** Processes that the server's first one has begun. */
function childrenOf(pid: number): readonly number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number);
}

/** Processes that have ended by now are passed over. */
function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
    }
  }
}

/** The port is free when asked for and may be taken a moment later: then another one. */
async function startSomewhere(start: (port: number) => Promise<Program>): Promise<{ port: number; program: Program }> {
  for (let attempt = 1; ; attempt += 1) {
    const port = await portOfItsOwn();
    const program = await start(port);
    try {
      await untilReady(program, port);
      return { port, program };
    } catch (error) {
      await program.end('SIGQUIT');
      if (attempt === 3) throw error;
    }
  }
}

/** Least and most: below the ports that the kernel gives to outgoing connections. */
const PORTS = { least: 10_000, most: 32_000 };

/**
 * A free port that no outgoing connection is given while the server is down. A client that dials such a port again and
 * again would sooner or later be given it, and be connected to itself.
 */
async function portOfItsOwn(): Promise<number> {
  for (;;) {
    const port = PORTS.least + Math.floor(Math.random() * (PORTS.most - PORTS.least));
    if (await isFree(port)) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening');
    return true;
  } catch {
    return false;
  } finally {
    server.close();
  }
}

async function untilReady(program: Program, port: number): Promise<void> {
  await waitFor(
    async () => {
      if (!program.isRunning()) throw new Error(`postgres ended at once:\n${program.output()}`);
      return query(`postgres://postgres@127.0.0.1:${port}/postgres`, 'select 1').then(
        () => true,
        () => false,
      );
    },
    'postgres answers on its port',
    20_000,
  );
}

async function query(url: string, text: string): Promise<readonly Record<string, unknown>[]> {
  const client = new Client({
    connectionString: url,
    connectionTimeoutMillis: 5000,
    query_timeout: 10_000,
    application_name: 'fixture',
  });
  await client.connect();
  try {
    const { rows } = await client.query<Record<string, unknown>>(text);
    return rows;
  } finally {
    await client.end();
  }
}

async function refuseGuests(url: string): Promise<void> {
  let guests: readonly Record<string, unknown>[] = [];
  const alone = waitFor(
    async () => {
      guests = await query(
        url,
        `select datname, application_name, state, left(query, 80) as query from pg_stat_activity
       where backend_type = 'client backend' and pid <> pg_backend_pid()`,
      );
      return guests.length === 0;
    },
    'all clients of the test Postgres leave',
    1000,
  );
  await alone.catch(() => {
    throw new Error(`connections to Postgres left behind:\n${JSON.stringify(guests, undefined, 1)}`);
  });
}

/** The server refuses to run as root; then it runs as the user that its package made. */
async function serverUser(): Promise<{ uid: number; gid: number } | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  try {
    const [uid, gid] = await Promise.all(['-u', '-g'].map((flag) => runProgram('id', [flag, 'postgres'])));
    return { uid: Number(uid), gid: Number(gid) };
  } catch (error) {
    throw new Error(missingService('The user postgres').message, { cause: error });
  }
}

function postgresBin(): string | undefined {
  const home = '/usr/lib/postgresql';
  const versions = existsSync(home) ? readdirSync(home).toSorted((a, b) => Number(b) - Number(a)) : [];
  for (const version of versions) {
    if (existsSync(join(home, version, 'bin', 'initdb'))) return join(home, version, 'bin');
  }
  return findProgram('initdb')?.replace(/\/initdb$/, '');
}

/** Time limit of the one file that makes it, on a busy machine. */
const MAKING_MS = 60_000;

/**
 * The path of the directory, whole; `make` fills an empty one where there is none. It lies in the temporary directory
 * of the run, which goes away at the run's end.
 * @returns undefined without `LS_TEST_RUN`: then nothing removes it
 */
async function madeOnce(name: string, make: (directory: string) => Promise<void>): Promise<string | undefined> {
  if (process.env['LS_TEST_RUN'] === undefined) return undefined;
  const path = join(tmpdir(), name);
  if (!(await exists(path))) await makeOrWait(path, make);
  return path;
}

async function makeOrWait(path: string, make: (directory: string) => Promise<void>): Promise<void> {
  const lock = `${path}.lock`;
  const isFirst = await mkdir(lock).then(
    () => true,
    () => false,
  );
  if (!isFirst) return void (await waitFor(() => exists(path), `${path} is there`, MAKING_MS));
  const made = await mkdtemp(`${path}-`);
  try {
    await make(made);
    await rename(made, path);
  } catch (error) {
    await rm(made, { recursive: true, force: true });
    await rm(lock, { recursive: true });
    throw error;
  }
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );
