/**
 * Several scheduler processes on one Postgres and one Redis, as behind a load balancer,
 * with simulated agents that know all of them. Each process is the real one, on ports
 * that the kernel picks; they share a data directory (the key file and the objects).
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import type { Answer, CallOptions } from './platform.ts';
import { Daemon, jsonOf, plainEnv } from './platform.ts';
import type { PrivatePostgres } from './postgres.ts';
import { tempDirectory, waitFor } from './programs.ts';
import type { PrivateRedis } from './redis.ts';
import { SimulatedAgent } from './simulated-agent.ts';
import type { SimulatedAgentOptions } from './simulated-agent.ts';

const CALL_MS = 60_000;

/** A scheduler process. */
export interface Replica {
  readonly name: string;
  readonly daemon: Daemon;
  /** Instance id of this replica; new at every start. */
  instance: string;
  url: string;
  agentAddress: string;
  /** Empty: it has no port of published clients. */
  grpcAddress: string;
}

export interface SimulatedDeployment {
  readonly deploymentId: string;
  readonly stubId: string;
  /** Path of its invoke URL, the same at every replica. */
  readonly path: string;
}

export class ReplicaSet {
  readonly replicas: Replica[] = [];
  readonly agents: SimulatedAgent[] = [];
  readonly directory: string;
  readonly redis: Redis;
  readonly prefix = 'ls';
  token = '';
  workspaceId = '';
  readonly #remove: () => void;
  readonly #env: () => NodeJS.ProcessEnv;

  /** @param settings - of every process, beside the addresses of the two servers */
  constructor(
    postgres: PrivatePostgres,
    redis: PrivateRedis,
    databaseUrl = postgres.url,
    settings: NodeJS.ProcessEnv = {},
  ) {
    const made = tempDirectory('replicas');
    this.directory = made.path;
    this.#remove = () => made.remove();
    const dataDir = join(made.path, 'data');
    mkdirSync(dataDir, { mode: 0o700 });
    this.redis = redis.connect();
    this.#env = () => ({
      ...plainEnv(),
      HOME: made.path,
      LONGSHORE_DATA_DIR: dataDir,
      DATABASE_URL: databaseUrl,
      REDIS_URL: redis.url,
      LONGSHORE_REDIS_PREFIX: this.prefix,
      LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
      LONGSHORE_DRAIN_SECONDS: '10',
      LONGSHORE_RATE_LIMITS: 'off',
      LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
      ...settings,
    });
  }

  /**
   * Starts another process and waits until it is ready.
   * @param settings - of this process alone
   */
  async add(settings: NodeJS.ProcessEnv = {}): Promise<Replica> {
    const name = `replica-${this.replicas.length}`;
    const daemon = new Daemon('scheduler', join(this.directory, `${name}.log`), () => ({
      ...this.#env(),
      ...settings,
    }));
    const replica: Replica = { name, daemon, instance: '', url: '', agentAddress: '', grpcAddress: '' };
    this.replicas.push(replica);
    await this.start(replica);
    if (this.token === '') {
      const first = await daemon.request('ensureFirstWorkspace');
      this.token = String(first['token']);
      this.workspaceId = String(first['workspaceId']);
    }
    return replica;
  }

  /** Starts a replica, also again after a kill. */
  async start(replica: Replica): Promise<void> {
    const ready = await replica.daemon.start();
    replica.url = `http://${String(ready['httpAddress'])}`;
    replica.agentAddress = String(ready['agentAddress']);
    replica.grpcAddress = String(ready['grpcAddress']);
    replica.instance = await waitFor(() => nameIn(replica.daemon.log()), `${replica.name} says its name`);
  }

  get running(): readonly Replica[] {
    return this.replicas.filter((replica) => replica.daemon.isRunning);
  }

  /** A joined machine with a linked agent. */
  async agent(options: Partial<SimulatedAgentOptions> = {}): Promise<SimulatedAgent> {
    const [replica] = this.running;
    if (replica === undefined) throw new Error('no replica runs');
    const { joinToken } = await replica.daemon.request('createLocalMachine');
    const addresses = () => this.running.map((one) => one.agentAddress);
    const agent = new SimulatedAgent({ addresses, ...options, joinToken: String(joinToken) });
    this.agents.push(agent);
    await agent.start();
    return agent;
  }

  /** Which process leads; undefined: none at this moment. */
  async leader(): Promise<Replica | undefined> {
    const instance = await this.redis.get(`${this.prefix}:leader`);
    return this.running.find((replica) => replica.instance === instance);
  }

  /** Any path; nothing is thrown for a status. */
  async call(replica: Replica, path: string, options: CallOptions = {}): Promise<Answer> {
    const token = options.token ?? this.token;
    const { body } = options;
    const answer = await fetch(`${replica.url}${path}`, {
      method: options.method ?? (body === undefined ? 'GET' : 'POST'),
      headers: {
        ...(token === '' ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.any([
        AbortSignal.timeout(CALL_MS),
        ...(options.signal === undefined ? [] : [options.signal]),
      ]),
    });
    return { status: answer.status, text: await answer.text(), taskId: answer.headers.get('x-task-id') ?? '' };
  }

  /** A gateway operation, which must succeed. */
  async gateway<T = Readonly<Record<string, string>>>(
    replica: Replica,
    path: string,
    body?: unknown,
    method?: string,
  ): Promise<T> {
    const answer = await this.call(replica, `/api/v1/gateway${path}`, {
      ...(body === undefined ? {} : { body }),
      ...(method === undefined ? {} : { method }),
    });
    const value = jsonOf<T & { readonly ok?: boolean }>(answer);
    if (answer.status !== 200 || value.ok === false) throw new Error(`${path} was answered ${answer.text}`);
    return value;
  }

  /** A deployment without code: simulated containers have their handler already. */
  async deploy(
    replica: Replica,
    name: string,
    fields: Readonly<Record<string, unknown>> = {},
  ): Promise<SimulatedDeployment> {
    const given = fields['stubType'];
    const stubType = typeof given === 'string' ? given : 'endpoint/deployment';
    const stub = await this.gateway(replica, '/stubs', {
      objectId: '',
      stubType,
      name,
      handler: 'app:handler',
      cpu: 100,
      memory: 64,
      timeout: 60,
      keepWarmSeconds: 60,
      ...fields,
    });
    const stubId = String(stub['stubId']);
    const deployed = await this.gateway(replica, '/stubs/deploy', { stubId, name });
    return { stubId, deploymentId: String(deployed['deploymentId']), path: `/${stubType.split('/')[0]}/${name}` };
  }

  async stop(): Promise<void> {
    for (const agent of this.agents) await agent.stop();
    await Promise.all(this.replicas.map((replica) => replica.daemon.stop()));
    this.#remove();
  }
}

/** Instance id that the last start logged. */
function nameIn(log: string): string | undefined {
  const line = log.split('\n').findLast((one) => one.includes('"scheduler ready"'));
  return line === undefined ? undefined : (JSON.parse(line) as { instance: string }).instance;
}
