// `longshore up`: Redis, a scheduler and an agent (with --registry a registry, too) as separate processes under one
// foreground supervisor. The supervisor owns their order (Redis, registry, scheduler, agent), their restarts and their
// logs, and nothing of their work. The stop order is the reverse, containers first. No process stays
// behind: a clean stop ends every child; children of a killed `up` notice the closed channel; the next
// start waits for them. Only Redis outlives a kill, and the next start adopts it by its socket.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { shellWord } from '#shared/shell-word.ts';
import { AGENT_NODE_OPTIONS, AGENT_PROCESS_ENV } from '#shared/agent-process.ts';
import { withDeadline } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import { createLog } from '#shared/log.ts';
import { startEmbeddedRedis } from '#shared/redis-child.ts';
import type { EmbeddedRedis } from '#shared/redis-child.ts';
import type { Context } from '../context.ts';
import { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { textField } from '../json.ts';
import { note, print, printError, printJson } from '../print.ts';
import { PROGRAM, programName } from '../program-name.ts';
import type { UpFlags } from '../flags.ts';
import { baseImageOf } from '../up/base-image.ts';
import { judgeSettings, lookAtPorts } from '../up/before.ts';
import { SupervisedChild } from '../up/child.ts';
import type { IpcMessage } from '../up/child.ts';
import { ChildList, lockDataDir, makeDataDir } from '../up/data-dir.ts';
import { pythonImagesHeld } from '../up/engine.ts';
import { NoMachineStarts, runExample } from './up-example.ts';
import type { ExampleAnswer } from './up-example.ts';
import { keepContext, makeFirstWorkspace } from '../up/installation.ts';
import { BoundedLogFile, LineCutter, screenLine } from '../up/log-file.ts';
import { signalGroup } from '#shared/child-process.ts';
import { shownStep } from '../up/step.ts';
import { clientUrl, daemonEnv, linkSocket, mountsEnv, ownNetworks, schedulerEnv, upSettings } from '../up/settings.ts';
import type { UpSettings } from '../up/settings.ts';

type Env = Readonly<Record<string, string | undefined>>;

const READY_TIMEOUT_MS = 60_000;
/** A handler that ignores TERM is killed by the agent after 10 s. Everything together stays within 20 s. */
const STOP_CONTAINERS_MS = 13_000;
const STOP_MOUNTS_MS = 8_000;
/** A Ctrl-C may arrive twice (from the terminal and from npm); a signal after this time means: stop at once. */
const SAME_SIGNAL_MS = 700;

/** Runs until a signal arrives or a child cannot be kept alive; resolves with the exit code. */
export async function runUp(flags: UpFlags, env: Env): Promise<number> {
  const settings = upSettings(flags, env);
  const up = new Up(settings, env);
  const ended = Promise.withResolvers<number>();
  let stopAskedMs: number | undefined;
  const onSignal = (): void => {
    const nowMs = performance.now();
    if (stopAskedMs === undefined) {
      stopAskedMs = nowMs;
      note('stopping (again to stop at once) ...');
      ended.resolve(0);
    } else if (nowMs - stopAskedMs > SAME_SIGNAL_MS) {
      up.kill();
      process.exit(130);
    }
  };
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.on(signal, onSignal);
  // A closed terminal must not keep the supervisor from stopping its children.
  process.stderr.on('error', () => {});
  process.stdout.on('error', () => {});
  up.onGaveUp = (sentence) => {
    printError(sentence);
    ended.resolve(1);
  };
  try {
    const story = tellStory(up, flags, env).catch((error: unknown) => {
      if (stopAskedMs !== undefined) return;
      ended.reject(error);
    });
    const code = await ended.promise;
    await up.stop();
    await story;
    if (stopAskedMs !== undefined) note('stopped');
    return code;
  } catch (error) {
    await up.stop();
    throw error;
  } finally {
    for (const signal of signals) process.off(signal, onSignal);
  }
}

/** Starts everything, deploys the example and prints what to do next. */
async function tellStory(up: Up, flags: UpFlags, env: Env): Promise<void> {
  const context = await up.start();
  let example: ExampleAnswer | undefined;
  if (flags.example !== undefined) {
    try {
      const wanted = { target: flags.example, data: flags.exampleData };
      example = await runExample(context, wanted, env, (line) => note(`- ${line}`));
    } catch (error) {
      if (error instanceof NoMachineStarts && flags.firstRun === true) throw error;
      // The installation is up; the person may repair the example and deploy it by hand.
      if (!up.isStopping) printError(`the example failed: ${messageOf(error)}`);
    }
  }
  if (up.isStopping) return;
  if (flags.json === true) {
    printJson({ url: context.url, token: context.token, workspaceId: context.workspaceId, example: example ?? null });
    return;
  }
  showReady(context, example, flags, env, await consoleLink(context));
  if (up.opensLoopback)
    note(
      'Callbacks and webhooks may go to servers of this machine (127.0.0.1): `longshore settings list` says where else.',
    );
}

/** A link to the web console; undefined: this installation has none. */
async function consoleLink(context: Context): Promise<string | undefined> {
  const client = new Client(context);
  try {
    return textField(await client.restCall('POST', '/console/link'), 'url') || undefined;
  } catch {
    // The installation is up without it: `longshore console` says what is wrong.
    return undefined;
  } finally {
    await client.close();
  }
}

function showReady(
  context: Context,
  example: ExampleAnswer | undefined,
  flags: UpFlags,
  env: Env,
  consoleUrl: string | undefined,
): void {
  if (example !== undefined) {
    print('');
    print(`${example.name} answered in ${example.milliseconds} ms:`);
    print(`  ${example.answer}`);
  }
  print('');
  print(`Longshore is up at ${context.url}`);
  if (consoleUrl !== undefined)
    print(`Console: ${consoleUrl} (once, within 10 minutes; then \`${programName(env)} console\`)`);
  if (flags.firstRun === true || flags.example !== undefined) {
    const program = programName(env);
    print(`Token: ${context.token}`);
    print('');
    print('Next:');
    if (example === undefined) {
      // The example failed, so its URL has no answer: the first advice is to deploy it again.
      print(`  ${program} deploy ${shellWord(flags.example ?? 'examples/hello/app.py')}`);
      print(`  ${program} status`);
    } else {
      print(`  curl -X POST ${example.url} -H "Authorization: Bearer ${context.token}" -d '{}'`);
      print(`  ${program} deploy examples/slow/app.py`);
      print(`  ${program} logs ${shellWord(example.name)} --follow`);
    }
  } else {
    print('`longshore context show` prints the token.');
  }
  print('');
  note('Ctrl-C stops everything.');
}

/** Node's options for this process are meant for its daemons too, except for a debugger's port, which only one has. */
const OWN_NODE_OPTIONS = process.execArgv.filter((option) => !option.startsWith('--inspect'));

/** Owns the processes and their order. */
class Up {
  onGaveUp: (sentence: string) => void = () => {};
  readonly #settings: UpSettings;
  readonly #env: Env;
  readonly #children: ChildList;
  #lock: { release(): Promise<void> } | undefined;
  #redis: EmbeddedRedis | undefined;
  #registry: SupervisedChild | undefined;
  /** Where the registry of built images listens; undefined: this start has none of its own. */
  #registryAddress: string | undefined;
  #scheduler: SupervisedChild | undefined;
  #agent: SupervisedChild | undefined;
  #mounts: SupervisedChild | undefined;
  #redisLog: BoundedLogFile | undefined;
  #stopped: Promise<void> | undefined;
  #isStopping = false;
  /** Addresses that the first start settled, for later starts: port 0 would pick another one. */
  #settled: { httpAddress: string; agentAddress: string };
  #joinToken: string | undefined;
  /** Settings for the image that apps run on, as the engine's images suggest. */
  #baseImage: Readonly<Record<string, string>> = {};

  constructor(settings: UpSettings, env: Env) {
    this.#settings = settings;
    this.#env = env;
    this.#children = new ChildList(settings.dataDir);
    this.#settled = { httpAddress: settings.httpAddress, agentAddress: settings.agentAddress };
  }

  /** Whether callbacks and webhooks may go to this machine because nobody else can use it. */
  get opensLoopback(): boolean {
    return 'LONGSHORE_WEBHOOK_ALLOW' in ownNetworks(this.#settled, this.#env);
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** @throws CliError or StartupError with the sentence for the person; what already ran is stopped by `stop` */
  async start(): Promise<Context> {
    const { dataDir, redisUrl } = this.#settings;
    await judgeSettings(this.#settings, this.#env);
    makeDataDir(dataDir);
    this.#lock = await lockDataDir(dataDir);
    await this.#children.waitForLeftovers((name) => note(`- waiting for the ${name} of an earlier start to end ...`));
    await lookAtPorts(this.#settings, this.#env);
    await this.#lookAtEngine();
    this.#checkStopping();
    if (redisUrl === undefined) await this.#step('Redis', () => this.#startRedis());
    this.#checkStopping();
    if (this.#settings.registry) await this.#step('registry', () => this.#startRegistry());
    this.#checkStopping();
    const ready = await this.#step('scheduler', () => this.#startScheduler());
    this.#settled = {
      httpAddress: textField(ready, 'httpAddress') || this.#settled.httpAddress,
      agentAddress: textField(ready, 'agentAddress') || this.#settled.agentAddress,
    };
    if (!this.#env['DATABASE_URL']) {
      note(
        `- records are kept in ${dataDir}: they survive a killed process, not a power cut (DATABASE_URL names a server)`,
      );
    }
    this.#checkStopping();
    const url = clientUrl(this.#settled.httpAddress, this.#env);
    const made = await makeFirstWorkspace(this.#running(), url, this.#env);
    this.#checkStopping();
    await this.#startMounts();
    this.#checkStopping();
    await this.#step('agent', () => this.#startAgent(made !== undefined));
    this.#joinToken = undefined;
    this.#checkStopping();
    return keepContext(this.#running(), url, made, this.#env);
  }

  /** Stops everything that started, the last one first; runs once. */
  stop(): Promise<void> {
    this.#isStopping = true;
    this.#stopped ??= this.#stopAll();
    return this.#stopped;
  }

  /** Kills at once. Redis loses at most the last second, which the next start makes good. */
  kill(): void {
    this.#isStopping = true;
    this.#agent?.kill();
    this.#mounts?.kill();
    this.#scheduler?.kill();
    this.#registry?.kill();
    if (this.#redis?.pid !== undefined) signalGroup(this.#redis.pid, 'SIGKILL');
  }

  async #stopAll(): Promise<void> {
    // The drain needs the containers, so it comes first.
    await this.#drain();
    // The agent stops next, with its containers: a scheduler that saw them end would ask for new ones.
    await this.#agent?.stop(STOP_CONTAINERS_MS, { kind: 'stop', containers: 'stop' });
    // Mounts end with the helper, now that no container has one.
    await this.#mounts?.stop(STOP_MOUNTS_MS, { kind: 'stop', mounts: 'end' });
    await this.#scheduler?.stop(4_000);
    await this.#registry?.stop(3_000);
    try {
      if (this.#redis !== undefined) {
        await withDeadline(this.#redis.stop(), 3_000, () => new Error('it did not end'));
      }
    } catch (error) {
      note(`Redis did not stop cleanly (${messageOf(error)})`);
    }
    this.#redisLog?.close();
    await this.#lock?.release();
  }

  /** Lets running calls finish for a while. A scheduler that is not running has none. */
  async #drain(): Promise<void> {
    const withinMs = Number(this.#drainSeconds()) * 1000 + 2_000;
    await this.#scheduler?.request({ kind: 'drain' }, withinMs).catch(() => undefined);
  }

  /**
   * The drain time, which the scheduler's schema has validated. A
   * person at a terminal waits less than a service manager.
   */
  #drainSeconds(): string {
    return this.#env['LONGSHORE_DRAIN_SECONDS'] || '10';
  }

  /** Asks the engine before the scheduler spends seconds on its start. */
  async #lookAtEngine(): Promise<void> {
    const image = baseImageOf(await pythonImagesHeld(this.#env['DOCKER_HOST'] || undefined), this.#env);
    if (image === undefined) return;
    this.#baseImage = image.env;
    note(`- ${image.why}`);
  }

  async #startRedis(): Promise<void> {
    const name = 'redis';
    const file = new BoundedLogFile(this.#logPath(name));
    this.#redisLog = file;
    const cutter = new LineCutter((line) => {
      file.write(`${line}\n`);
      const short = screenLine(name, line);
      if (short !== undefined && !this.#isStopping) note(short);
    });
    const log = createLog({ name, destination: { write: (text: string) => cutter.push(text) } });
    const redis = await startEmbeddedRedis({ dataDir: this.#settings.dataDir, log });
    // A stop during the start found no Redis to stop.
    if (this.#isStopping) await redis.stop();
    else this.#redis = redis;
  }

  async #startRegistry(): Promise<void> {
    const env = (): Readonly<Record<string, string | undefined>> => ({
      ...daemonEnv(this.#env),
      LONGSHORE_DATA_DIR: this.#settings.dataDir,
    });
    this.#registry = this.#child('registry', env, [], ['registry', 'serve']);
    this.#registryAddress = textField(await this.#registry.start(), 'address');
  }

  async #startScheduler(): Promise<IpcMessage> {
    this.#scheduler = this.#child('scheduler', () => ({
      ...schedulerEnv(this.#env),
      LONGSHORE_DATA_DIR: this.#settings.dataDir,
      LONGSHORE_HTTP_ADDRESS: this.#settled.httpAddress,
      LONGSHORE_DRAIN_SECONDS: this.#drainSeconds(),
      LONGSHORE_AGENT_ADDRESS: this.#settled.agentAddress,
      ...linkSocket(this.#settings.dataDir),
      ...ownNetworks(this.#settled, this.#env),
      ...(this.#redis === undefined ? {} : { LONGSHORE_REDIS_SOCKET: this.#redis.socketPath }),
      ...(this.#registryAddress === undefined ? {} : { LONGSHORE_REGISTRY: this.#registryAddress }),
    }));
    return this.#scheduler.start();
  }

  /** Starts the mount helper where this user can mount. Without it, everything but buckets works. */
  async #startMounts(): Promise<void> {
    const { dataDir } = this.#settings;
    const own = mountsEnv(dataDir, this.#env);
    if (own === undefined) return;
    this.#mounts = this.#child('mounts', () => ({ ...daemonEnv(this.#env), LONGSHORE_DATA_DIR: dataDir, ...own }));
    try {
      await this.#mounts.start();
    } catch (error) {
      note(`- no buckets can be mounted: ${messageOf(error)}`);
      this.#mounts = undefined;
    }
  }

  async #startAgent(mustJoin: boolean): Promise<void> {
    const { dataDir } = this.#settings;
    // A scheduler that lost its records knows no agent, so the agent joins again.
    if (mustJoin || !existsSync(join(dataDir, 'agent', 'machine.json'))) {
      const made = await this.#running().request({ kind: 'createLocalMachine' }, 20_000);
      this.#joinToken = textField(made, 'joinToken');
    }
    this.#agent = this.#child(
      'agent',
      () => ({
        ...AGENT_PROCESS_ENV,
        // A person's own machine is often fuller than a host's disk should be.
        LONGSHORE_MIN_FREE_DISK_PERCENT: '5',
        ...daemonEnv(this.#env),
        ...this.#baseImage,
        LONGSHORE_DATA_DIR: dataDir,
        LONGSHORE_SCHEDULER_ADDRESS: this.#settled.agentAddress,
        ...linkSocket(dataDir),
        ...(this.#mounts === undefined ? {} : mountsEnv(dataDir, this.#env)),
        ...(this.#joinToken === undefined ? {} : { LONGSHORE_JOIN_TOKEN: this.#joinToken }),
      }),
      AGENT_NODE_OPTIONS,
    );
    await this.#agent.start();
  }

  #child(
    name: string,
    env: () => Readonly<Record<string, string | undefined>>,
    nodeOptions: readonly string[] = [],
    command: readonly string[] = [name],
  ): SupervisedChild {
    this.#checkStopping();
    return new SupervisedChild({
      name,
      command: process.execPath,
      args: [...OWN_NODE_OPTIONS, ...nodeOptions, PROGRAM, ...command],
      env,
      logPath: this.#logPath(name),
      readyTimeoutMs: READY_TIMEOUT_MS,
      children: this.#children,
      onNote: (line) => {
        if (!this.#isStopping) note(line);
      },
      onGaveUp: (sentence) => this.onGaveUp(sentence),
      onBack: () => note(`the ${name} is back`),
    });
  }

  #running(): SupervisedChild {
    if (this.#scheduler === undefined) throw new CliError('the scheduler is not running');
    return this.#scheduler;
  }

  #logPath(name: string): string {
    return join(this.#settings.dataDir, 'logs', `${name}.log`);
  }

  #step<T>(what: string, work: () => Promise<T>): Promise<T> {
    return shownStep(what, this.#logPath(what.toLowerCase()), work);
  }

  #checkStopping(): void {
    if (this.#isStopping) throw new CliError('stopped while starting');
  }
}
