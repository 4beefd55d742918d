// Two schedulers on a Postgres and a Redis server, with simulated machines that write down every run. Each scheduler is
// a process of its own, which is killed, frozen or replaced at its addresses.
import { join } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import { aPostgres } from '../../test/helpers/postgres.ts';
import type { PrivatePostgres } from '../../test/helpers/postgres.ts';
import { aRedis } from '../../test/helpers/redis.ts';
import type { PrivateRedis } from '../../test/helpers/redis.ts';
import { SimulatedAgent } from '../../test/helpers/simulated-agent.ts';
import type { SimulatedHandler } from '../../test/helpers/simulated-agent.ts';
import type { BenchChild } from '../child.ts';
import { startScheduler, text } from '../product.ts';
import { CALL_MS, Caller } from '../soak/caller.ts';
import type { Workplace } from '../workplace.ts';
import { resultOf } from './audit.ts';
import type { Run } from './audit.ts';

const MOST_REQUESTS = 32;
/** As the unit has it: TimeoutStopSec. */
const STOPS_MS = 150_000;

type Environment = Readonly<Record<string, string | undefined>>;

/** A scheduler of the two. */
export class Replica {
  readonly agentAddress: string;
  readonly caller: Caller;
  readonly #place: Workplace;
  readonly #env: Environment;
  #child: BenchChild;

  constructor(
    place: Workplace,
    parts: { readonly env: Environment; readonly child: BenchChild; readonly caller: Caller },
  ) {
    this.#place = place;
    this.#env = parts.env;
    this.#child = parts.child;
    this.caller = parts.caller;
    this.agentAddress = parts.env['LONGSHORE_AGENT_ADDRESS'] ?? '';
  }

  /** kill -9; returns when the process has ended. */
  kill(): Promise<void> {
    return this.#child.kill();
  }

  /** Starts another process at the same addresses. @param wait - until it is ready */
  async start(wait: boolean): Promise<void> {
    this.#child = startScheduler(this.#place, this.#env);
    if (wait) await this.#child.ready();
  }

  /** Ends the process by its signal, as a service manager does. @throws Error when it has not ended in its time */
  terminate(): Promise<void> {
    return this.#child.terminate(STOPS_MS);
  }

  /** Stops the process for so long, then lets it go on. */
  async freeze(ms: number, signal: AbortSignal): Promise<void> {
    const { pid } = this.#child;
    process.kill(pid, 'SIGSTOP');
    try {
      await sleep(ms, signal);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
  }
}

export interface Pair {
  readonly replicas: readonly [Replica, Replica];
  readonly postgres: PrivatePostgres;
  readonly redis: PrivateRedis;
  /** Every run that a handler began. */
  readonly runs: readonly Run[];
}

/**
 * @param machines - for each machine the schedulers that it dials, by index
 * @param absenceMs - how long something may be away; a call that needs it is answered behind that
 * @throws Error when the installation cannot be started
 */
export async function startPair(
  place: Workplace,
  machines: readonly (readonly number[])[],
  absenceMs: number,
): Promise<Pair> {
  const postgres = await aPostgres({ durable: true });
  place.later(() => postgres.stop());
  const redis = await aRedis();
  place.later(() => redis.stop());
  const env = {
    ...place.env,
    LONGSHORE_DATA_DIR: join(place.directory, 'd'),
    DATABASE_URL: postgres.url,
    REDIS_URL: redis.url,
    LONGSHORE_RATE_LIMITS: 'off',
  };
  const any = { LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0', LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0' };
  const children = [startScheduler(place, { ...env, ...any }), startScheduler(place, { ...env, ...any })] as const;
  const [first] = children;
  await first.ready();
  const workspace = await first.request({ kind: 'ensureFirstWorkspace' });
  const replicaOf = async (child: BenchChild): Promise<Replica> => {
    const ready = await child.ready();
    const addresses = {
      LONGSHORE_HTTP_ADDRESS: text(ready, 'httpAddress'),
      LONGSHORE_AGENT_ADDRESS: text(ready, 'agentAddress'),
    };
    const url = `http://${addresses.LONGSHORE_HTTP_ADDRESS}`;
    const context = { url, token: text(workspace, 'token'), workspaceId: text(workspace, 'workspaceId') };
    const caller = new Caller(context, MOST_REQUESTS, CALL_MS + absenceMs);
    place.later(() => caller.close());
    return new Replica(place, { env: { ...env, ...addresses }, child, caller });
  };
  const replicas = [await replicaOf(children[0]), await replicaOf(children[1])] as const;
  const runs: Run[] = [];
  for (const dialled of machines) {
    const joinToken = text(await first.request({ kind: 'createLocalMachine' }), 'joinToken');
    const addresses = (): string[] => dialled.map((at) => (replicas[at] as Replica).agentAddress);
    const agent = new SimulatedAgent({ addresses, joinToken, handle: writing(runs) });
    place.later(() => agent.stop());
    await agent.start();
  }
  return { replicas, postgres, redis, runs };
}

/** The handler of every container: writes down that it began, and takes its time. */
const writing =
  (runs: Run[]): SimulatedHandler =>
  async ({ taskId, input, signal }) => {
    const { n, seconds } = JSON.parse(input) as { readonly n: number; readonly seconds: number };
    runs.push({ n, taskId });
    await sleep(seconds * 1000, signal);
    return resultOf(n);
  };
