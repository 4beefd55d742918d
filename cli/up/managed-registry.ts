/**
 * The distribution project's registry as a child. At its start and once a day, layers that nothing names are collected.
 * Meanwhile another child takes reads alone, so that pulls go on; pushes wait at the scheduler. On a unix socket
 * children change places without a gap: the address is a link to the socket of one of them. Must stay true: a
 * collection never runs beside a registry that takes pushes to the same data; on a bucket the marks of
 * registry-marks.ts see to that.
 */
import { createHash, randomBytes } from 'node:crypto';
import { chmod, mkdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { Pool } from 'undici';
import { sleep } from '#shared/backoff.ts';
import { StartupError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { isAlive } from '#shared/process-facts.ts';
import { makeSocketDirectory, socketPathIn } from '#shared/socket-path.ts';
import { RegistryChild } from './registry-child.ts';
import { addressProblem, marksPlace, registryConfig, registryDirectory } from './registry-config.ts';
import type { RegistryMode, RegistrySettings } from './registry-config.ts';
import { RegistryMarks } from './registry-marks.ts';

const READY_MS = 30_000;
const STOP_MS = 25_000;
/** Pulls of a child that was replaced go on for so long: longer than its own time, after which it cuts them. */
const LEAVE_MS = 11 * 60_000;
/** A large store on a slow disk takes long to walk through. */
const COLLECT_MS = 3 * 3_600_000;
const COLLECT_EVERY_MS = 24 * 3_600_000;
/** Sockets of children have these numbers in turn. */
const MOST_SOCKETS = 9;

export interface ManagedRegistryOptions {
  readonly program: string;
  readonly settings: RegistrySettings;
  /** `unix:///path` or `http://127.…:port`; undefined: a socket below the data directory. */
  readonly address: string | undefined;
  readonly log: Log;
}

interface Serving {
  readonly child: RegistryChild;
  readonly mode: RegistryMode;
}

export class ManagedRegistry {
  readonly #options: ManagedRegistryOptions;
  readonly address: string;
  /** Path of the socket; undefined: the address is a port. */
  readonly #socketPath: string | undefined;
  readonly #directory: string;
  /** Process numbers and starts of the children, for the next owner. */
  readonly #pidPath: string;
  readonly #stopping = new AbortController();
  readonly #writable = Promise.withResolvers<void>();
  readonly #children = new Set<RegistryChild>();
  /** The child that answers at the address. */
  #serving: Serving | undefined;
  #life: Promise<void> = Promise.resolve();
  /** Ends the wait for the next collection. */
  #day = new AbortController();
  #socketNumber = 0;
  /** Absent: the data is a folder that no other registry has. */
  #marks: RegistryMarks | undefined;

  constructor(options: ManagedRegistryOptions) {
    this.#options = options;
    this.#directory = registryDirectory(options.settings.LONGSHORE_DATA_DIR);
    this.#pidPath = join(this.#directory, 'pid');
    this.address = options.address ?? `unix://${socketPathIn(this.#directory, 'registry.sock')}`;
    const url = new URL(this.address);
    this.#socketPath = url.protocol === 'unix:' ? decodeURIComponent(url.pathname) : undefined;
    this.#writable.promise.catch(() => undefined);
  }

  /**
   * Resolves once pulls are answered. Layers are collected behind that, and pushes are taken afterwards.
   * @throws StartupError `bad_address`, `registry_missing`, `registry_failed`, `object_store_failed`
   */
  async start(): Promise<void> {
    const problem = addressProblem(this.address);
    if (problem !== undefined) throw new StartupError('bad_address', problem);
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    await chmod(this.#directory, 0o700);
    await this.#endLeftovers();
    this.#marks = await this.#openMarks();
    await this.#serve('reads');
    this.#life = this.#live();
    this.#life.catch((error: unknown) => this.#writable.reject(error));
  }

  /** Runs until `stop`, or until the registry ends by itself. @throws StartupError `registry_failed` */
  async run(): Promise<void> {
    await this.#life;
  }

  /** Resolves once it has begun to take pushes. @throws Error: it ended before */
  async whenWritable(): Promise<void> {
    await this.#writable.promise;
  }

  /** Has it collect at once what it collects once a day. */
  collectNow(): void {
    this.#day.abort();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#life.catch(() => undefined);
    await Promise.all([...this.#children].map((child) => child.end(STOP_MS)));
    if (this.#socketPath !== undefined) await rm(this.#socketPath, { force: true });
    await this.#marks?.close();
    this.#marks = undefined;
  }

  async #live(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const lost = await this.#mayCollect();
      if (lost !== undefined) {
        await this.#serve('reads');
        await this.#collect(lost);
      }
      await this.#serve('all');
      if (signal.aborted) return;
      this.#writable.resolve();
      this.#day = new AbortController();
      const isDayOver = sleep(COLLECT_EVERY_MS, AbortSignal.any([signal, this.#day.signal])).then(() => true);
      const isServing = await Promise.race([this.#ended(), isDayOver]);
      this.#day.abort();
      if (!isServing && !signal.aborted) throw this.#failed();
    }
  }

  /** Resolves with false when the serving child has ended. */
  async #ended(): Promise<boolean> {
    await this.#serving?.child.exited;
    return false;
  }

  #failed(): Error {
    return this.#serving?.child.failed('ended') ?? new Error('the registry does not run');
  }

  // ---- the address --------------------------------------------------------------------------------------------------

  /** Has a child in that mode answer at the address, and ends the one that did. */
  async #serve(mode: RegistryMode): Promise<void> {
    const { signal } = this.#stopping;
    if (mode === 'all') await this.#marks?.serving(signal);
    if (signal.aborted || this.#serving?.mode === mode) return;
    const before = this.#serving?.child;
    // A port has room for one child at a time. The scheduler asks again meanwhile.
    if (this.#socketPath === undefined) await before?.end(STOP_MS);
    const socket = this.#socketPath === undefined ? undefined : await this.#newSocket(this.#socketPath);
    const address =
      socket === undefined ? this.address : `unix://${socket.split('/').map(encodeURIComponent).join('/')}`;
    const child = await this.#spawn(['serve', await this.#configure(mode, address)]);
    await this.#untilItAnswers(child, address);
    if (socket !== undefined && this.#socketPath !== undefined) await pointAt(this.#socketPath, socket);
    this.#serving = { child, mode };
    // Pushes under way end before layers are collected. Nothing waits for the last pulls.
    if (mode === 'reads') await before?.end(STOP_MS);
    else void before?.end(LEAVE_MS);
  }

  /** @returns path of a socket for a child */
  async #newSocket(path: string): Promise<string> {
    this.#socketNumber = (this.#socketNumber % MOST_SOCKETS) + 1;
    const socket = socketPathIn(dirname(path), `${basename(path)}.${this.#socketNumber}`);
    await makeSocketDirectory(path);
    await makeSocketDirectory(socket);
    await rm(socket, { force: true });
    return socket;
  }

  /** @returns path of the settings of a child */
  async #configure(mode: RegistryMode, address: string): Promise<string> {
    const path = this.#configPath(mode);
    const config = registryConfig(this.#options.settings, address, await this.#secret(), mode);
    // The file has the keys of the object store.
    await writeFile(path, JSON.stringify(config), { mode: 0o600 });
    await chmod(path, 0o600);
    return path;
  }

  #configPath(mode: RegistryMode): string {
    return join(this.#directory, mode === 'all' ? 'registry.yml' : 'registry-reads.yml');
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

  async #untilItAnswers(child: RegistryChild, address: string): Promise<void> {
    const url = new URL(address);
    const pool =
      url.protocol === 'unix:'
        ? new Pool('http://registry', { connect: { socketPath: decodeURIComponent(url.pathname) } })
        : new Pool(url.origin);
    const deadlineMs = performance.now() + READY_MS;
    try {
      while (!this.#stopping.signal.aborted) {
        if (child.isOver) throw child.failed('ended');
        const answer = await pool.request({ method: 'GET', path: '/v2/' }).catch(() => undefined);
        await answer?.body.dump();
        if (answer?.statusCode === 200) return;
        if (performance.now() > deadlineMs) throw child.failed('did not answer in time');
        await sleep(20, this.#stopping.signal);
      }
    } finally {
      await pool.destroy();
    }
  }

  // ---- collections --------------------------------------------------------------------------------------------------

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

  /** Frees the bytes of images that were removed. A failure costs disk, and stops nothing. */
  async #collect(lost: AbortSignal): Promise<void> {
    const { log } = this.#options;
    const { signal } = this.#stopping;
    if (signal.aborted) return;
    const from = performance.now();
    const child = await this.#spawn(['garbage-collect', '--delete-untagged', this.#configPath('reads')]);
    const tooLong = AbortSignal.any([lost, AbortSignal.timeout(COLLECT_MS)]);
    const kill = (): void => child.kill();
    for (const reason of [tooLong, signal]) reason.addEventListener('abort', kill, { once: true });
    if (tooLong.aborted || signal.aborted) kill();
    const isServing = await Promise.race([this.#ended(), child.exited.then(() => true)]);
    if (!isServing) kill();
    const code = await child.exited;
    for (const reason of [tooLong, signal]) reason.removeEventListener('abort', kill);
    if (signal.aborted) return;
    if (!isServing) throw this.#failed();
    if (tooLong.aborted) log.warn('the registry could not collect its layers in time');
    // A registry that is still empty has nothing to walk through, and says so with a failure.
    log.info({ code, durationMs: Math.round(performance.now() - from) }, 'layers of the registry collected');
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

  // ---- children -----------------------------------------------------------------------------------------------------

  async #spawn(args: readonly string[]): Promise<RegistryChild> {
    const child = new RegistryChild(this.#options.program, args, this.#options.log);
    this.#children.add(child);
    void child.exited.then(() => this.#children.delete(child));
    await child.begun();
    await writeFile(this.#pidPath, [...this.#children].map((one) => `${one.facts}\n`).join(''));
    return child;
  }

  /** Ends the children of an owner that was killed. */
  async #endLeftovers(): Promise<void> {
    const lines = (await readFile(this.#pidPath, 'utf8').catch(() => '')).split('\n');
    const deadlineMs = performance.now() + STOP_MS;
    for (const line of lines) {
      const [pid = 0, ticks = ''] = line.split(' ');
      if (ticks === '') continue;
      while (isAlive(Number(pid), ticks)) {
        process.kill(Number(pid), performance.now() > deadlineMs ? 'SIGKILL' : 'SIGTERM');
        await sleep(100);
      }
    }
  }
}

/** Makes a path a link to a socket, in one step: a connection of that moment reaches the old socket or the new one. */
async function pointAt(path: string, socket: string): Promise<void> {
  const made = `${path}.new`;
  await rm(made, { force: true });
  await symlink(dirname(socket) === dirname(path) ? basename(socket) : socket, made);
  await rename(made, path);
}
