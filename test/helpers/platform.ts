/**
 * A whole installation for a test file: a scheduler with its embedded stores, and an agent. Each is a process of its
 * own as a person starts it, on ports that the kernel picks, in a directory of its own. Apps get in by plain HTTP.
 * `stop()` ends everything and throws when a process, container, volume or network stayed behind (it is removed too).
 */
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import type { Readable } from 'node:stream';
import type { ContainerInfo } from 'dockerode';
import { Redis } from 'ioredis';
import { ZipFile } from 'yazl';
import { AGENT_NODE_OPTIONS, AGENT_PROCESS_ENV } from '#shared/agent-process.ts';
import { socketPathIn } from '#shared/socket-path.ts';
import { TEST_NODE_FLAGS } from './node-flags.ts';
import { TEST_REGISTRIES } from './registry.ts';
import { docker, tempDirectory, test as base, waitFor } from './services.ts';
import type { TestDocker } from './services.ts';

export const ROOT = resolve(import.meta.dirname, '..', '..');
export const MAIN = join(ROOT, 'cli', 'main.ts');
const APPS = join(ROOT, 'test', 'fixtures', 'apps');
const READY_MS = 120_000;
const STOP_MS = 25_000;
/**
 * Time limit of a call, above any call of a test. A slow call then fails by its own name, not by its test's time limit.
 */
const CALL_MS = 60_000;

/** A message of a daemon over IPC. */
type Message = Readonly<Record<string, unknown>> & { readonly kind: string };

/** Our own environment without what would change a daemon's settings. */
export function plainEnv(): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('LONGSHORE_') && name !== 'DATABASE_URL' && name !== 'REDIS_URL',
  );
  return Object.fromEntries(own);
}

/** `longshore scheduler` or `longshore agent`, with the channel over which `longshore up` talks to them. */
export class Daemon {
  readonly name: string;
  readonly logPath: string;
  readonly #env: () => NodeJS.ProcessEnv;
  readonly #command: readonly string[];
  #child: ChildProcess | undefined;

  /** @param command - what starts it, where that is not this repository's own command line */
  constructor(
    name: string,
    logPath: string,
    env: () => NodeJS.ProcessEnv,
    command: readonly string[] = [process.execPath, ...TEST_NODE_FLAGS, MAIN, name],
  ) {
    this.name = name;
    this.logPath = logPath;
    this.#env = env;
    this.#command = command;
  }

  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Starts it and waits for its `ready`. */
  async start(): Promise<Message> {
    const log = openSync(this.logPath, 'a');
    const [program = '', ...args] = this.#command;
    const child = spawn(program, args, {
      env: this.#env(),
      stdio: ['ignore', log, log, 'ipc'],
    });
    closeSync(log);
    this.#child = child;
    let ready: Message | undefined;
    child.on('message', (message) => {
      if (isMessage(message) && message.kind === 'ready') ready = message;
    });
    return waitFor(
      () => {
        if (!this.isRunning) throw new Error(`the ${this.name} ended before it was ready:\n${this.log().slice(-4000)}`);
        return ready;
      },
      `the ${this.name} is ready`,
      READY_MS,
    );
  }

  /** Asks over IPC, as `longshore up` does. */
  async request(kind: string): Promise<Message> {
    const child = this.#running();
    const id = randomBytes(4).toString('hex');
    let answer: Message | undefined;
    const listen = (message: unknown): void => {
      if (isMessage(message) && message['id'] === id) answer = message;
    };
    child.on('message', listen);
    child.send({ kind, id });
    try {
      return await waitFor(() => answer, `the ${this.name} answers ${kind}`, READY_MS);
    } finally {
      child.off('message', listen);
    }
  }

  /** kill -9. */
  async kill(): Promise<void> {
    const child = this.#running();
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }

  /** SIGSTOP: everything of it stands still, its connections stay open. */
  freeze(): void {
    this.#running().kill('SIGSTOP');
  }

  /** Sends SIGHUP, on which the daemon reads its files again. */
  hangUp(): void {
    this.#running().kill('SIGHUP');
  }

  thaw(): void {
    this.#running().kill('SIGCONT');
  }

  /** Stops the daemon by the message (or TERM), and by KILL when it takes too long. */
  async stop(message?: Message): Promise<void> {
    if (!this.isRunning) return;
    const child = this.#running();
    const gone = once(child, 'exit');
    child.kill('SIGCONT');
    if (message !== undefined && child.connected) child.send(message);
    else child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
    await gone;
    clearTimeout(timer);
  }

  log(): string {
    return existsSync(this.logPath) ? readFileSync(this.logPath, 'utf8') : '';
  }

  #running(): ChildProcess {
    if (this.#child === undefined || !this.isRunning) throw new Error(`the ${this.name} is not running`);
    return this.#child;
  }
}

/** Answer to a call, unchanged. */
export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly taskId: string;
  /** Text of a refusal, where the body has no field for it. */
  readonly error?: string;
}

/** The answer's JSON. */
export function jsonOf<T = Readonly<Record<string, unknown>>>(answer: Answer): T {
  return JSON.parse(answer.text) as T;
}

export interface Deployment {
  readonly name: string;
  readonly deploymentId: string;
  readonly stubId: string;
  readonly url: string;
}

/** A task as `GET /api/v1/task/{workspace}/{id}` gives it. */
export interface TaskView {
  readonly status: string;
  readonly failure_reason: string;
  readonly container_id: string;
  readonly result: unknown;
}

/** `app`: a file of test/fixtures/apps, or a path from the repository's root; the rest are fields of a stub. */
export interface AppRequest {
  readonly app: string;
  /** A function of that file. */
  readonly handler: string;
  readonly name?: string;
  readonly onStart?: string;
  readonly [field: string]: unknown;
}

export interface CallOptions {
  readonly method?: string;
  readonly body?: unknown;
  /** Token to use instead of the admin's; an empty one sends none. */
  readonly token?: string;
  readonly signal?: AbortSignal;
}

/** An installation with both daemons; see the head of this file. */
export class Platform {
  readonly directory: string;
  readonly dataDir: string;
  readonly engine: TestDocker;
  readonly scheduler: Daemon;
  readonly agent: Daemon;
  readonly network = `ls-e2e-${randomBytes(4).toString('hex')}`;
  url = '';
  token = '';
  workspaceId = '';
  httpAddress = '127.0.0.1:0';
  agentAddress = '127.0.0.1:0';
  grpcAddress = '127.0.0.1:0';
  #joinToken: string | undefined;
  readonly #removeDirectory: () => void;
  readonly #redis = new Set<Redis>();

  /**
   * @param settings - of both daemons, or of each
   * @param flags - of Node for each daemon, where those of tests would disturb
   */
  constructor(
    engine: TestDocker,
    settings: NodeJS.ProcessEnv | ((daemon: 'scheduler' | 'agent') => NodeJS.ProcessEnv) = {},
    flags?: Readonly<Record<'scheduler' | 'agent', readonly string[]>>,
  ) {
    const made = tempDirectory('e2e');
    this.directory = made.path;
    this.#removeDirectory = () => made.remove();
    this.dataDir = join(made.path, 'data');
    mkdirSync(this.dataDir, { mode: 0o700 });
    this.engine = engine;
    const settingsOf = typeof settings === 'function' ? settings : () => settings;
    const common = (daemon: 'scheduler' | 'agent'): NodeJS.ProcessEnv => ({ ...this.env(), ...settingsOf(daemon) });
    const commandOf = (daemon: 'scheduler' | 'agent'): readonly string[] | undefined =>
      flags && [process.execPath, ...flags[daemon], MAIN, daemon];
    const schedulerEnv = (): NodeJS.ProcessEnv => ({
      // A call that waits for a container must not hold up the end of a test.
      LONGSHORE_DRAIN_SECONDS: '10',
      ...common('scheduler'),
      LONGSHORE_HTTP_ADDRESS: this.httpAddress,
      LONGSHORE_RATE_LIMITS: 'off',
      LONGSHORE_AGENT_ADDRESS: this.agentAddress,
      LONGSHORE_GRPC_ADDRESS: this.grpcAddress,
    });
    const agentEnv = (): NodeJS.ProcessEnv => ({
      ...common('agent'),
      LONGSHORE_SCHEDULER_ADDRESS: this.agentAddress,
      LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_NETWORK: this.network,
      LONGSHORE_AGENT_REGISTRIES: TEST_REGISTRIES,
      LONGSHORE_AGENT_HOLDERS: '0',
      ...(this.#joinToken === undefined ? {} : { LONGSHORE_JOIN_TOKEN: this.#joinToken }),
    });
    const logOf = (daemon: string): string => join(made.path, `${daemon}.log`);
    this.scheduler = new Daemon('scheduler', logOf('scheduler'), schedulerEnv, commandOf('scheduler'));
    this.agent = new Daemon('agent', logOf('agent'), agentEnv, commandOf('agent'));
  }

  /** Environment for a program of this installation: its own home and data directory, nothing of ours. */
  env(): NodeJS.ProcessEnv {
    return {
      ...plainEnv(),
      HOME: this.directory,
      // Set-up keeps the pause containers' image here; engines of simulated hosts lack it.
      XDG_CACHE_HOME: process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'),
      XDG_CONFIG_HOME: '',
      XDG_DATA_HOME: '',
      LONGSHORE_DATA_DIR: this.dataDir,
      LONGSHORE_BASE_IMAGE: baseImageOf(this.engine),
      // Releases that this checkout may have built must not be used.
      LONGSHORE_RELEASES_DIR: join(this.directory, 'releases'),
    };
  }

  async start(): Promise<void> {
    await this.startScheduler();
    const first = await this.scheduler.request('ensureFirstWorkspace');
    this.token = String(first['token']);
    this.workspaceId = String(first['workspaceId']);
    const machine = await this.scheduler.request('createLocalMachine');
    this.#joinToken = String(machine['joinToken']);
    await this.agent.start();
    this.#joinToken = undefined;
  }

  /** Starts the scheduler; after a kill, at the same addresses. */
  async startScheduler(): Promise<void> {
    const ready = await this.scheduler.start();
    this.httpAddress = String(ready['httpAddress']);
    this.agentAddress = String(ready['agentAddress']);
    this.grpcAddress = String(ready['grpcAddress']);
    this.url = `http://${this.httpAddress}`;
  }

  /** Any path or absolute URL; nothing is thrown for a status. */
  async call(path: string, options: CallOptions = {}): Promise<Answer> {
    const token = options.token ?? this.token;
    const { body } = options;
    const answer = await fetch(path.startsWith('/') ? `${this.url}${path}` : path, {
      method: options.method ?? (body === undefined ? 'GET' : 'POST'),
      headers: {
        ...(token === '' ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined || body instanceof Buffer ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined
        ? {}
        : { body: typeof body === 'string' || body instanceof Buffer ? body : JSON.stringify(body) }),
      signal: AbortSignal.any([
        AbortSignal.timeout(CALL_MS),
        ...(options.signal === undefined ? [] : [options.signal]),
      ]),
    }).catch((error: unknown) => {
      throw new Error(`${path} was not answered`, { cause: error });
    });
    return {
      status: answer.status,
      text: await answer.text(),
      taskId: answer.headers.get('x-task-id') ?? '',
      error: answer.headers.get('x-longshore-error') ?? '',
    };
  }

  /** A gateway operation, which must succeed. */
  async gateway<T = Readonly<Record<string, string>>>(path: string, body?: unknown): Promise<T> {
    const answer = await this.call(`/api/v1/gateway${path}`, body === undefined ? {} : { body });
    const value = jsonOf<T & { readonly ok?: boolean }>(answer);
    if (answer.status !== 200 || value.ok === false)
      throw new Error(`${path} was answered ${answer.text} ${answer.error ?? ''}`);
    return value;
  }

  /** Uploads the app (once), makes the stub and deploys it. */
  async deploy(request: AppRequest): Promise<Deployment> {
    const { app, handler, onStart, name = handler, ...fields } = request;
    const objectId = await this.upload({ 'app.py': readFileSync(join(app.includes('/') ? ROOT : APPS, app)) });
    const stub = await this.gateway('/stubs', {
      objectId,
      stubType: 'endpoint/deployment',
      name,
      handler: `app:${handler}`,
      cpu: 250,
      memory: 128,
      timeout: 60,
      keepWarmSeconds: 5,
      ...(onStart === undefined ? {} : { onStart: `app:${onStart}` }),
      ...fields,
    });
    const stubId = String(stub['stubId']);
    const deployed = await this.gateway('/stubs/deploy', { stubId, name });
    return { name, stubId, deploymentId: String(deployed['deploymentId']), url: String(deployed['invokeUrl']) };
  }

  async upload(files: Readonly<Record<string, Buffer>>): Promise<string> {
    const archive = await zipOf(files);
    const hash = createHash('sha256').update(archive).digest('hex');
    const head = await this.gateway<{ exists: boolean; objectId: string }>(`/objects/${hash}`);
    if (head.exists) return head.objectId;
    const size = String(archive.byteLength);
    const made = await this.gateway('/objects', { hash, size, objectMetadata: { name: hash, size }, overwrite: true });
    const put = await this.call(String(made['presignedUrl']), { method: 'PUT', body: archive, token: '' });
    if (put.status !== 200) throw new Error(`the upload was answered ${put.status} ${put.text}`);
    return String(made['objectId']);
  }

  /** Calls the deployment with JSON, and expects JSON. */
  invoke(deployment: Deployment, input: unknown = {}, options: CallOptions = {}): Promise<Answer> {
    return this.call(deployment.url, { method: 'POST', body: input, ...options });
  }

  async task(taskId: string): Promise<TaskView> {
    return jsonOf<TaskView>(await this.call(`/api/v1/task/${this.workspaceId}/${taskId}`));
  }

  /** Waits until the task has that status: the record of a caller's answer may be a moment behind it. */
  async taskIs(taskId: string, status: string, timeoutMs = 10_000): Promise<TaskView> {
    let seen: TaskView | undefined;
    return waitFor(
      async () => {
        seen = await this.task(taskId);
        return seen.status === status && seen;
      },
      `task ${taskId} is ${status}`,
      timeoutMs,
    ).catch((error: unknown) => {
      throw new Error(`task ${taskId} is ${JSON.stringify(seen)}, not ${status}`, { cause: error });
    });
  }

  /** Newest tasks of a deployment, as ListTasks gives them. */
  async tasks(deployment: Deployment): Promise<readonly { readonly id: string; readonly status: string }[]> {
    const filters = encodeURIComponent(JSON.stringify({ 'stub-ids': deployment.stubId }));
    const answer = await this.gateway<{ tasks: { id: string; status: string }[] }>(
      `/tasks?limit=1000&filters=${filters}`,
    );
    return answer.tasks;
  }

  /** Log lines: `task_id=…`, `deployment_id=…`, `container_id=…`. */
  async logs(filter: string): Promise<readonly string[]> {
    const answer = await this.call(`/api/v1/logs/${this.workspaceId}?limit=1000&${filter}`);
    return jsonOf<{ logs: readonly { message: string }[] }>(answer).logs.map((line) => line.message);
  }

  /** Waits for a line that contains the text. */
  async logSays(filter: string, text: string): Promise<string> {
    let lines: readonly string[] = [];
    return waitFor(
      async () => {
        lines = await this.logs(filter);
        return lines.find((line) => line.includes(text));
      },
      `the log says ${text}`,
      10_000,
    ).catch((error: unknown) => {
      throw new Error(`no line with ${JSON.stringify(text)} among:\n${lines.join('\n')}`, { cause: error });
    });
  }

  /** Containers of this installation in Docker, stopped ones too. */
  async containers(deployment?: Deployment): Promise<readonly ContainerInfo[]> {
    const machineId = this.machineId();
    if (machineId === undefined) return [];
    const label = [`io.longshore.machine=${machineId}`];
    if (deployment !== undefined) label.push(`io.longshore.deployment=${deployment.deploymentId}`);
    return this.engine.client.listContainers({ all: true, filters: { label } });
  }

  /** Longshore's ids of the deployment's containers. */
  async containerIds(deployment: Deployment): Promise<readonly string[]> {
    const found = await this.containers(deployment);
    return found.map((one) => one.Labels['io.longshore.container'] ?? one.Id).toSorted();
  }

  async noContainers(deployment: Deployment, timeoutMs: number): Promise<void> {
    await waitFor(
      async () => (await this.containers(deployment)).length === 0,
      `no container of ${deployment.name} is left`,
      timeoutMs,
    );
  }

  /** A client of the installation's own Redis; closed with the platform. */
  redis(): Redis {
    const path = socketPathIn(join(this.dataDir, 'redis'), 'redis.sock');
    const client = new Redis({ path, maxRetriesPerRequest: 1 });
    client.on('error', () => undefined);
    this.#redis.add(client);
    return client;
  }

  machineId(): string | undefined {
    const path = join(this.dataDir, 'agent', 'machine.json');
    if (!existsSync(path)) return undefined;
    return (JSON.parse(readFileSync(path, 'utf8')) as { machineId: string }).machineId;
  }

  /**
   * @param beforeRemoval - called when the daemons have ended
   * @throws when something stayed behind
   */
  async stop(beforeRemoval: () => void = () => undefined): Promise<void> {
    for (const client of this.#redis) client.disconnect();
    const left: string[] = [];
    try {
      await this.agent.stop({ kind: 'stop', containers: 'stop' });
      await this.scheduler.stop();
      left.push(...(await this.#leftInDocker()), ...(await this.#leftProcesses()));
    } finally {
      beforeRemoval();
      this.#removeDirectory();
    }
    if (left.length > 0) throw new Error(`left behind by the installation: ${left.join(', ')}`);
  }

  async #leftInDocker(): Promise<string[]> {
    const { client } = this.engine;
    const left: string[] = [];
    for (const one of await this.containers()) {
      left.push(`container ${one.Names[0] ?? one.Id} (${one.State})`);
      await client.getContainer(one.Id).remove({ force: true, v: true });
    }
    const filters = { label: [`io.longshore.machine=${this.machineId() ?? 'none'}`] };
    for (const volume of (await client.listVolumes({ filters })).Volumes ?? []) {
      left.push(`volume ${volume.Name}`);
      await client.getVolume(volume.Name).remove();
    }
    // Built images stay on their machine by design.
    const built = `io.longshore.build=${this.machineId() ?? 'none'}`;
    for (const { Id } of await client.listImages({ filters: { label: [built] } }))
      await client
        .getImage(Id)
        .remove({ force: true })
        .catch(() => undefined);
    for (const network of await client.listNetworks({ filters: { name: [this.network] } })) {
      left.push(`network ${network.Name}`);
      await client.getNetwork(network.Id).remove();
    }
    return left;
  }

  async #leftProcesses(): Promise<string[]> {
    await waitFor(() => processesNaming(this.dataDir).length === 0, 'every process ended', 5000).catch(() => undefined);
    return processesNaming(this.dataDir).map(({ pid, command }) => {
      process.kill(pid, 'SIGKILL');
      return `process ${pid} (${command.slice(0, 100)})`;
    });
  }
}

/** Processes (zombies apart) with the directory in their command line or environment. */
export function processesNaming(directory: string): readonly { readonly pid: number; readonly command: string }[] {
  const found: { pid: number; command: string }[] = [];
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry) || Number(entry) === process.pid) continue;
    try {
      readlinkSync(`/proc/${entry}/exe`);
      const command = readFileSync(`/proc/${entry}/cmdline`, 'utf8').replaceAll('\0', ' ');
      const text = command + readFileSync(`/proc/${entry}/environ`, 'utf8');
      if (text.includes(directory)) found.push({ pid: Number(entry), command });
    } catch {
      // The process ended meanwhile, or waits to be reaped.
    }
  }
  return found;
}

/** A zip with fixed times, so that the same files are the same object. */
export async function zipOf(files: Readonly<Record<string, Buffer>>): Promise<Buffer> {
  const zip = new ZipFile();
  for (const [path, content] of Object.entries(files)) zip.addBuffer(content, path, { mtime: new Date(1980, 0, 1) });
  zip.end();
  return buffer(zip.outputStream as Readable);
}

/** The template under which the agent finds the engine's base image. */
export function baseImageOf(engine: TestDocker): string {
  return process.env['LONGSHORE_BASE_IMAGE'] ?? engine.baseImage.replace(/:3\.\d+/, ':{version}');
}

function isMessage(value: unknown): value is Message {
  return typeof value === 'object' && value !== null && 'kind' in value && typeof value.kind === 'string';
}

/**
 * `test` with a running installation, one for the file. When a test
 * of the file failed, the ends of the daemons' logs go to stderr.
 */
export const test = base.extend('platform', { scope: 'file' }, async ({}, { onCleanup }): Promise<Platform> => {
  const platform = new Platform(await docker());
  onCleanup(() => platform.stop());
  await platform.start();
  return platform;
});

/** An installation whose daemons have the options of their units, with a database server: for figures of memory. */
export const platformAsUnits = (engine: TestDocker, databaseUrl: string): Platform =>
  new Platform(engine, (daemon) => (daemon === 'agent' ? AGENT_PROCESS_ENV : { DATABASE_URL: databaseUrl }), {
    scheduler: [],
    agent: AGENT_NODE_OPTIONS,
  });
