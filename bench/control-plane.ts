// The scheduler alone, as a process of its own on a Postgres server and a Redis
// of the run's own. Machines, where a benchmark wants some, are simulated.
import { processorMs } from './processes.ts';
import { readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from '#cli/client.ts';
import { sleep, withDeadline } from '#shared/backoff.ts';
import { aPostgres } from '../test/helpers/postgres.ts';
import type { PrivatePostgres } from '../test/helpers/postgres.ts';
import { aRedis } from '../test/helpers/redis.ts';
import type { PrivateRedis } from '../test/helpers/redis.ts';
import type { BenchChild } from './child.ts';
import type { LoadTarget } from './load.ts';
import type { Release } from './release.ts';
import { SimulatedFleet } from './simulated/fleet.ts';
import type { MachineKind } from './simulated/fleet.ts';
import { ANSWER } from './simulated/agent.ts';
import type { Workplace } from './workplace.ts';

export interface IdleApp {
  readonly url: string;
  readonly deploymentId: string;
}

/** Fields of a stub, beside those that make it small. */
export type AppFields = Readonly<Record<string, string | number | object>>;

type Environment = Readonly<Record<string, string | undefined>>;

const DEPLOYED_AT_ONCE = 16;
const CALL_MS = 60_000;
const HEALTH_EVERY_MS = 5;
const MIB = 1024 ** 2;
const COLLECT_MS = 1_000;
/** Settings of a scheduler whose memory is measured without its garbage. */
export const COLLECTING = {
  NODE_OPTIONS: `--expose-gc --import ${join(import.meta.dirname, 'collecting.mjs')}`,
} as const;

/**
 * Starts the server that all control planes of a run share, each with a
 * database of its own. The server syncs to disk, as a production server should.
 */
export async function startPostgres(place: Workplace): Promise<PrivatePostgres> {
  const postgres = await aPostgres({ durable: true });
  place.later(() => postgres.stop());
  return postgres;
}

export class ControlPlane {
  readonly #place: Workplace;
  readonly #env: Environment;
  readonly #release: Release | undefined;
  readonly #redis: PrivateRedis;
  readonly #name: string;
  #scheduler: BenchChild;
  #agentAddress = '';
  #client: Client | undefined;
  #token = '';

  private constructor(place: Workplace, name: string, redis: PrivateRedis, env: Environment, release?: Release) {
    this.#place = place;
    this.#name = name;
    this.#redis = redis;
    this.#env = env;
    this.#release = release;
    this.#scheduler = this.#spawn();
  }

  /**
   * @param postgres - undefined: the scheduler has the embedded database
   * @param name - lower case letters: of its database, and of its processes in logs
   * @param release - the scheduler is of this release, instead of the sources
   */
  static async start(
    place: Workplace,
    postgres: PrivatePostgres | undefined,
    name: string,
    settings: Readonly<Record<string, string>> = {},
    release?: Release,
  ): Promise<ControlPlane> {
    const dataDir = join(place.directory, name);
    await mkdir(dataDir, { recursive: true, mode: 0o700 });
    const redis = await aRedis();
    place.later(() => redis.stop());
    const env = {
      ...place.env,
      ...settings,
      LONGSHORE_DATA_DIR: dataDir,
      LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
      LONGSHORE_RATE_LIMITS: 'off',
      LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
      LONGSHORE_LOG_LEVEL: 'warn',
      ...(postgres === undefined ? {} : { DATABASE_URL: await postgres.createDatabase(name) }),
      REDIS_URL: redis.url,
    };
    const plane = new ControlPlane(place, name, redis, env, release);
    place.later(() => plane.#stop());
    await plane.#ready();
    return plane;
  }

  /** Starts another scheduler process of the same program on the same Postgres and Redis, with the same key file. */
  async another(name: string): Promise<ControlPlane> {
    const plane = new ControlPlane(this.#place, name, this.#redis, this.#env, this.#release);
    this.#place.later(() => plane.#stop());
    await plane.#ready();
    return plane;
  }

  /** Processor time of all threads of the scheduler so far, in milliseconds. */
  cpuMs(): number {
    return processorMs(this.#scheduler.pid);
  }

  /** Has the scheduler collect its garbage; the settings must have {@link COLLECTING}. */
  async collect(): Promise<void> {
    process.kill(this.#scheduler.pid, 'SIGUSR2');
    await sleep(COLLECT_MS);
  }

  /**
   * Starts a new process on the same books, with nothing left in it from filling them.
   * @param meanwhile - done while no process has the database
   */
  async restart(meanwhile?: () => Promise<void>): Promise<void> {
    await this.#scheduler.stop();
    await meanwhile?.();
    this.#scheduler = this.#spawn();
    await this.#ready();
  }

  /** Restarts and returns the moment of the first 200 of the health route, polled every few milliseconds. */
  async restartUntilHealthy(): Promise<{ readonly healthyMs: number }> {
    await this.restart();
    const { url } = this.client.context;
    for (;;) {
      this.#place.signal.throwIfAborted();
      const answer = await fetch(`${url}/api/v1/health`).catch(() => undefined);
      await answer?.arrayBuffer();
      if (answer?.status === 200) return { healthyMs: performance.now() };
      await sleep(HEALTH_EVERY_MS, this.#place.signal);
    }
  }

  /** Address where agents dial now: another port after each start. */
  get agentAddress(): string {
    return this.#agentAddress;
  }

  /** Token to join another machine. */
  async joinToken(): Promise<string> {
    return text(await this.#scheduler.request({ kind: 'createLocalMachine' }), 'joinToken');
  }

  /** Puts a task on the queue of an app. */
  async put(app: IdleApp, input: unknown): Promise<void> {
    const { pathname } = new URL(app.url);
    const url = `${this.client.context.url}${pathname}`;
    const answer = await this.client.call(url, { method: 'POST', body: JSON.stringify(input), timeoutMs: CALL_MS });
    if (answer.status !== 200) throw new Error(`${url} answered ${answer.status}: ${answer.body.toString('utf8')}`);
  }

  /** Makes another workspace. @returns a client of it */
  async workspace(name: string): Promise<Client> {
    const { url } = this.client.context;
    const body = JSON.stringify({ name });
    const answer = await this.client.call(`${url}/api/v1/workspace`, { method: 'POST', body, timeoutMs: CALL_MS });
    const made = JSON.parse(answer.body.toString('utf8')) as { readonly id: string; readonly token: string };
    const client = new Client({ url, token: made.token, workspaceId: made.id });
    this.#place.later(() => client.close());
    return client;
  }

  /** Deploys apps that get no calls yet; no handler is ever run, so there is no code. @param client - of who deploys */
  async deploy(
    count: number,
    prefix: string,
    fields: AppFields = {},
    client = this.client,
  ): Promise<readonly IdleApp[]> {
    const apps: IdleApp[] = [];
    let next = 0;
    const deployer = async (): Promise<void> => {
      for (let number = next++; number < count; number = next++) {
        this.#place.signal.throwIfAborted();
        const name = `${prefix}-${number}`;
        const { stubId } = await client.gateway('POST', '/stubs', {
          stubType: 'endpoint/deployment',
          handler: 'app:handler',
          cpu: 100,
          memory: 128,
          timeout: 60,
          keepWarmSeconds: 0,
          ...fields,
          name,
        });
        const made = await client.gateway('POST', '/stubs/deploy', { stubId: String(stubId), name });
        apps[number] = { url: String(made['invokeUrl']), deploymentId: String(made['deploymentId']) };
      }
    };
    await Promise.all(Array.from({ length: DEPLOYED_AT_ONCE }, deployer));
    return apps;
  }

  async scale(app: IdleApp, containers: number): Promise<void> {
    await this.client.gateway('POST', `/deployments/${app.deploymentId}/scale`, { containers });
  }

  /** Makes a call, whose answer must be that of a simulated machine. */
  async call(app: IdleApp, client = this.client): Promise<void> {
    const answer = await client.call(app.url, { method: 'POST', body: '{}', timeoutMs: CALL_MS });
    const text = answer.body.toString('utf8');
    if (answer.status !== 200 || text !== ANSWER) throw new Error(`${app.url} answered ${answer.status}: ${text}`);
  }

  target(app: IdleApp): LoadTarget {
    return { url: app.url, headers: { authorization: `Bearer ${this.#token}` }, body: '{}', expected: ANSWER };
  }

  /** The same app, called at this scheduler: the app's URL names the scheduler that deployed it. */
  targetOf(app: IdleApp): LoadTarget {
    const { pathname } = new URL(app.url);
    return this.target({ ...app, url: `${this.client.context.url}${pathname}` });
  }

  /**
   * Starts machines of one kind, linked and ready. The workplace ends them.
   * @param kind - slots of each container; GPUs of each machine
   */
  async machines(count: number, kind: MachineKind = {}): Promise<SimulatedFleet> {
    const fleet = await SimulatedFleet.join({
      address: this.#agentAddress,
      machines: count,
      joinToken: () => this.joinToken(),
      cpuMillicores: 16_000,
      memoryBytes: 64 * 1024 * MIB,
      ...kind,
      signal: this.#place.signal,
    });
    this.#place.later(async () => fleet.end());
    return fleet;
  }

  get dataDir(): string {
    return this.#env['LONGSHORE_DATA_DIR'] ?? '';
  }

  /** Empty: the database is the embedded one. */
  get databaseUrl(): string {
    return this.#env['DATABASE_URL'] ?? '';
  }

  /** Sum over all series of a metric. */
  async metric(name: string): Promise<number> {
    const page = (await this.client.call('/metrics')).body.toString('utf8');
    const values = page
      .split('\n')
      .filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
      .map((line) => Number(line.slice(line.lastIndexOf(' ') + 1)));
    return values.reduce((sum, value) => sum + value, 0);
  }

  /**
   * Resource use: processor time of all threads of the scheduler and its Redis
   * so far, the scheduler's resident memory, and its connections to Redis.
   */
  async usage(): Promise<{ readonly cpuMs: number; readonly rssMib: number; readonly connections: number }> {
    const probe = this.#redis.connect();
    try {
      const redisPid = Number(/process_id:(\d+)/.exec(await probe.info('server'))?.[1]);
      const connections = Number(/connected_clients:(\d+)/.exec(await probe.info('clients'))?.[1]) - 1;
      const { pid } = this.#scheduler;
      const rssKib = Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
      return { cpuMs: processorMs(pid) + processorMs(redisPid), rssMib: rssKib / 1024, connections };
    } finally {
      probe.disconnect();
    }
  }

  get client(): Client {
    if (this.#client === undefined) throw new Error('the scheduler is not ready');
    return this.#client;
  }

  #spawn(): BenchChild {
    const program = this.#release?.scheduler ?? { file: 'cli/main.ts', args: ['scheduler'] };
    return this.#place.start({ name: `scheduler-${this.#name}`, ...program, env: this.#env });
  }

  async #ready(): Promise<void> {
    const ready = await this.#scheduler.ready();
    this.#agentAddress = text(ready, 'agentAddress');
    const first = await this.#scheduler.request({ kind: 'ensureFirstWorkspace', issueToken: true });
    this.#token = text(first, 'token');
    await this.#client?.close();
    this.#client = new Client({
      url: `http://${text(ready, 'httpAddress')}`,
      token: this.#token,
      workspaceId: text(first, 'workspaceId'),
    });
  }

  async #stop(): Promise<void> {
    await this.#client?.close();
    await this.#scheduler.stop();
  }
}

/** Waits for the condition, asked again every few milliseconds. @throws Error naming it, as it is then */
export async function until(
  what: string | (() => string),
  condition: () => boolean,
  ms: number,
  signal: AbortSignal,
): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const met = new Promise<void>((resolve, reject) => {
    timer = setInterval(() => {
      if (signal.aborted) reject(signal.reason as Error);
      else if (condition()) resolve();
    }, 5);
  });
  try {
    const text = (): string => (typeof what === 'string' ? what : what());
    await withDeadline(met, ms, () => new Error(`not after ${ms / 1000} s: ${text()}`));
  } finally {
    clearInterval(timer);
  }
}

function text(message: Readonly<Record<string, unknown>>, name: string): string {
  const value = message[name];
  if (typeof value !== 'string' || value === '') throw new Error(`the scheduler's answer has no ${name}`);
  return value;
}
