/**
 * The distribution project's registry as a child: its settings are written, layers that nothing names are collected,
 * and only then it listens. Once a day it is started anew for that. Must stay true: a collection never runs beside a
 * registry that takes pushes to the same data; on a bucket the marks of registry-marks.ts see to that.
 */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { Pool } from 'undici';
import { sleep, withDeadline } from '#shared/backoff.ts';
import { StartupError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { isAlive, startTicks } from '#shared/process-facts.ts';
import { makeSocketDirectory, socketPathIn } from '#shared/socket-path.ts';
import { marksPlace, registryConfig, registryDirectory } from './registry-config.ts';
import type { RegistrySettings } from './registry-config.ts';
import { RegistryMarks } from './registry-marks.ts';

const READY_MS = 30_000;
const STOP_MS = 25_000;
/** A large store on a slow disk takes long to walk through. */
const COLLECT_MS = 3 * 3_600_000;
const COLLECT_EVERY_MS = 24 * 3_600_000;
const MOST_TAIL = 4000;

export interface ManagedRegistryOptions {
  readonly program: string;
  readonly settings: RegistrySettings;
  /** `unix:///path` or `http://127.…:port`; undefined: a socket below the data directory. */
  readonly address: string | undefined;
  readonly log: Log;
}

export class ManagedRegistry {
  readonly #options: ManagedRegistryOptions;
  readonly address: string;
  readonly #directory: string;
  readonly #configPath: string;
  /** Process number and start of the child, for the next owner. */
  readonly #pidPath: string;
  readonly #stopping = new AbortController();
  /** Ends the wait for the next collection. */
  #day = new AbortController();
  #child: ChildProcess | undefined;
  /** The end of the child, with its exit code; awaited from its start on, because it may end at once. */
  #exited: Promise<number | null> = Promise.resolve(null);
  #tail = '';
  /** Absent: the data is a folder that no other registry has. */
  #marks: RegistryMarks | undefined;

  constructor(options: ManagedRegistryOptions) {
    this.#options = options;
    this.#directory = registryDirectory(options.settings.LONGSHORE_DATA_DIR);
    this.#pidPath = join(this.#directory, 'pid');
    this.#configPath = join(this.#directory, 'registry.yml');
    this.address = options.address ?? `unix://${socketPathIn(this.#directory, 'registry.sock')}`;
  }

  /** @throws StartupError `registry_missing`, `registry_failed`, `object_store_failed` */
  async start(): Promise<void> {
    await this.#configure();
    await this.#endLeftover();
    this.#marks = await this.#openMarks();
    await this.#collect();
    await this.#serve();
  }

  /** Runs until `stop`, or until the registry ends by itself. @throws StartupError `registry_failed` */
  async run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      if (this.#child === undefined) return;
      this.#day = new AbortController();
      const { signal: day } = this.#day;
      const isServing = await Promise.race([
        this.#exited.then(() => false),
        sleep(COLLECT_EVERY_MS, AbortSignal.any([signal, day])).then(() => true),
      ]);
      this.#day.abort();
      if (signal.aborted) return;
      if (!isServing) throw this.#failed('ended');
      await this.#end();
      await this.#collect();
      if (!signal.aborted) await this.#serve();
    }
  }

  /** Has `run` collect at once what it collects once a day. */
  collectNow(): void {
    this.#day.abort();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#end();
    await this.#marks?.close();
    this.#marks = undefined;
  }

  async #configure(): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    await chmod(this.#directory, 0o700);
    if (this.address.startsWith('unix:')) await makeSocketDirectory(new URL(this.address).pathname);
    const config = registryConfig(this.#options.settings, this.address, await this.#secret());
    // The file has the keys of the object store.
    await writeFile(this.#configPath, JSON.stringify(config), { mode: 0o600 });
    await chmod(this.#configPath, 0o600);
  }

  async #openMarks(): Promise<RegistryMarks | undefined> {
    const { settings, log } = this.#options;
    const place = marksPlace(settings);
    if (place === undefined) return undefined;
    const { openS3Objects } = await import('#scheduler/stores/objects/s3.ts');
    const id = createHash('sha256')
      .update(`${hostname()} ${await this.#secret()}`)
      .digest('hex')
      .slice(0, 16);
    return new RegistryMarks({ store: await openS3Objects(place), id, log });
  }

  /** Survives a restart, so that uploads under way go on. */
  async #secret(): Promise<string> {
    const path = join(this.#directory, 'secret');
    try {
      return await readFile(path, 'utf8');
    } catch {
      const secret = randomBytes(32).toString('hex');
      await writeFile(path, secret, { mode: 0o600 });
      return secret;
    }
  }

  /** Ends the registry of an owner that was killed. */
  async #endLeftover(): Promise<void> {
    const [pid = 0, ticks = ''] = (await readFile(this.#pidPath, 'utf8').catch(() => '')).split(' ');
    const left = Number(pid);
    if (ticks === '') return;
    const deadlineMs = performance.now() + STOP_MS;
    while (isAlive(left, ticks)) {
      process.kill(left, performance.now() > deadlineMs ? 'SIGKILL' : 'SIGTERM');
      await sleep(100);
    }
  }

  /** Frees the bytes of images that were removed. A failure costs disk, and stops nothing. */
  async #collect(): Promise<void> {
    const { log } = this.#options;
    const from = performance.now();
    const lost = await this.#mayCollect();
    if (lost === undefined) return;
    const child = await this.#spawn(['garbage-collect', '--delete-untagged', this.#configPath]);
    lost.addEventListener('abort', () => child.kill('SIGKILL'), { once: true });
    const code = await withDeadline(this.#exited, COLLECT_MS, () =>
      this.#failed('took too long to collect its layers'),
    ).catch((error: unknown) => {
      child.kill('SIGKILL');
      log.warn({ err: error }, 'the registry could not collect its layers');
      return null;
    });
    this.#child = undefined;
    // A registry that is still empty has nothing to walk through, and says so with a failure.
    log.info({ code, durationMs: Math.round(performance.now() - from) }, 'layers of the registry collected');
  }

  /** @returns a signal that ends the collection; undefined: another registry uses the data */
  async #mayCollect(): Promise<AbortSignal | undefined> {
    const { log } = this.#options;
    if (this.#marks === undefined) return new AbortController().signal;
    try {
      const lost = await this.#marks.collecting();
      if (lost === undefined) log.info('another registry uses this bucket: its layers are not collected');
      return lost;
    } catch (error) {
      log.warn({ err: error }, 'the registry could not collect its layers');
      return undefined;
    }
  }

  async #serve(): Promise<void> {
    await this.#marks?.serving(this.#stopping.signal);
    if (this.#stopping.signal.aborted) return;
    const child = await this.#spawn(['serve', this.#configPath]);
    const url = new URL(this.address);
    const pool =
      url.protocol === 'unix:'
        ? new Pool('http://registry', { connect: { socketPath: decodeURIComponent(url.pathname) } })
        : new Pool(url.origin);
    const deadlineMs = performance.now() + READY_MS;
    try {
      for (;;) {
        if (child.exitCode !== null || child.signalCode !== null) throw this.#failed('ended');
        const answer = await pool.request({ method: 'GET', path: '/v2/' }).catch(() => undefined);
        await answer?.body.dump();
        if (answer?.statusCode === 200) return;
        if (performance.now() > deadlineMs) throw this.#failed('did not answer in time');
        await sleep(50, this.#stopping.signal);
        if (this.#stopping.signal.aborted) return;
      }
    } finally {
      await pool.destroy();
    }
  }

  async #spawn(args: readonly string[]): Promise<ChildProcess> {
    const { program, log } = this.#options;
    this.#tail = '';
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], env: registryEnv(process.env) });
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#tail = (this.#tail + text).slice(-MOST_TAIL);
        for (const line of text.split('\n')) if (/level=(?:error|fatal)/.test(line)) log.warn({ line }, 'registry');
      });
    this.#child = child;
    this.#exited = new Promise((resolve) => {
      child.once('exit', (code) => resolve(code));
      child.once('error', () => resolve(null));
    });
    try {
      await once(child, 'spawn');
      const ticks = child.pid === undefined ? undefined : startTicks(child.pid);
      if (ticks !== undefined) await writeFile(this.#pidPath, `${child.pid} ${ticks}`);
    } catch (error) {
      throw new StartupError(
        'registry_missing',
        `cannot run ${program} (${messageOf(error)}): install it (apt-get install docker-registry), or name it with LONGSHORE_REGISTRY_PROGRAM`,
        { cause: error },
      );
    }
    return child;
  }

  async #end(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGTERM');
    const late = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
    await this.#exited;
    clearTimeout(late);
  }

  #failed(what: string): StartupError {
    const lines = this.#tail.trim().split('\n');
    // A program that panics says why first, and then where.
    const at = lines.findIndex((line) => line.startsWith('panic:'));
    const said = (at === -1 ? lines.slice(-3) : lines.slice(at, at + 2)).join('\n');
    return new StartupError('registry_failed', `the registry ${what}${said === '' ? '' : `:\n${said}`}`);
  }
}

/**
 * The registry's client for S3 refuses AWS_CA_BUNDLE with its own connections ("unsupported transport"). The library
 * below it reads SSL_CERT_FILE.
 */
function registryEnv({ AWS_CA_BUNDLE: bundle, ...env }: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return bundle === undefined || env['SSL_CERT_FILE'] ? env : { ...env, SSL_CERT_FILE: bundle };
}
