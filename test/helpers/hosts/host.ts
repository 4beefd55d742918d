// A simulated host: a network namespace with a cable, an engine of its
// own, a boot id of its own. Each of them can fail as on a real host.
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import Docker from 'dockerode';
import type { ContainerInfo } from 'dockerode';
import { findProgram, runProgram, startProgram, waitFor } from '../programs.ts';
import type { Program } from '../programs.ts';

/** Runs `ip`. */
export const ip = (...args: readonly string[]): Promise<string> => runProgram('ip', args, {}, 10_000);

const ENGINE_UP_MS = 30_000;
const BOOT_ID = '/proc/sys/kernel/random/boot_id';

export interface HostNames {
  /** Name of the network namespace, and of the parent of the host's control groups. */
  readonly name: string;
  readonly directory: string;
  readonly address: string;
  readonly gateway: string;
  readonly bridge: string;
  /** The bridge's end of its cable. */
  readonly cable: string;
}

export interface HostOptions {
  /** Additional settings of the engine (daemon.json). */
  readonly engine?: Readonly<Record<string, unknown>>;
  /** The engine keeps everything on a disk of this size. */
  readonly diskMib?: number;
  /** Additional environment of the engine. */
  readonly engineEnv?: Readonly<Record<string, string>>;
  /** Shell scripts that come before all other programs, by name. */
  readonly programs?: Readonly<Record<string, string>>;
  /**
   * containerd is a service beside the engine with a root of its
   * own, as Docker's packages set it up; else the engine starts it.
   */
  readonly ownContainerd?: boolean;
}

export class SimulatedHost {
  readonly name: string;
  readonly directory: string;
  readonly address: string;
  readonly socket: string;
  /** This machine's end of the host's eth0. */
  readonly cable: string;
  readonly docker: Docker;
  readonly #names: HostNames;
  readonly #options: HostOptions;
  #engine: Program | undefined;
  #containerd: Program | undefined;

  constructor(names: HostNames, options: HostOptions = {}) {
    this.#names = names;
    this.#options = options;
    this.name = names.name;
    this.directory = names.directory;
    this.address = names.address;
    this.cable = names.cable;
    this.socket = join(names.directory, 'docker.sock');
    this.docker = new Docker({ socketPath: this.socket, timeout: 30_000 });
  }

  async up(): Promise<void> {
    const { name, directory, address, gateway, bridge, cable } = this.#names;
    for (const folder of ['root', 'exec', 'data', 'bin']) mkdirSync(join(directory, folder), { recursive: true });
    for (const [program, script] of Object.entries(this.#options.programs ?? {}))
      writeFileSync(join(directory, 'bin', program), script, { mode: 0o755 });
    this.#newBootId();
    await ip('netns', 'add', name);
    await ip('link', 'add', cable, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name);
    await ip('link', 'set', cable, 'master', bridge, 'up');
    await ip('-n', name, 'addr', 'add', `${address}/24`, 'dev', 'eth0');
    await ip('-n', name, 'link', 'set', 'lo', 'up');
    await ip('-n', name, 'link', 'set', 'eth0', 'up');
    await ip('-n', name, 'route', 'add', 'default', 'via', gateway);
    if (this.#options.diskMib !== undefined) {
      const file = join(directory, 'disk.ext4');
      await runProgram('truncate', ['-s', `${this.#options.diskMib}M`, file]);
      await runProgram('mkfs.ext4', ['-q', '-m', '0', file]);
      await runProgram('mount', ['-o', 'loop', file, join(directory, 'root')]);
    }
    const settings = { 'deprecated-key-path': join(directory, 'key.json'), ...this.#options.engine };
    writeFileSync(join(directory, 'daemon.json'), JSON.stringify(settings));
    await this.startEngine();
  }

  /**
   * Command prefix that runs its arguments on this host: in its
   * network, with its boot id, its own programs before all others.
   */
  get enter(): readonly string[] {
    const { name, directory } = this.#names;
    const script = `mount --bind "$0/boot_id" ${BOOT_ID} && PATH="$0/bin:$PATH" exec "$@"`;
    return [
      ...['nsenter', `--net=/run/netns/${name}`],
      ...['unshare', '--mount', '--propagation', 'slave'],
      ...['sh', '-c', script, directory],
    ];
  }

  /** Environment of an agent here, beside where it dials. */
  get agentEnv(): Readonly<Record<string, string>> {
    return { DOCKER_HOST: `unix://${this.socket}`, LONGSHORE_DATA_DIR: join(this.directory, 'data') };
  }

  /** Runs a program on this host to its end. @returns its output */
  async run(...command: readonly string[]): Promise<string> {
    const [program = '', ...args] = [...this.enter, ...command];
    const { stdout } = await promisify(execFile)(program, args, { timeout: 30_000, maxBuffer: 16 * 1024 ** 2 });
    return stdout;
  }

  /** Whether the agent reports the condition on its metrics page, which only this host can read. */
  async hasCondition(condition: string): Promise<boolean> {
    const page = await this.run('curl', '-sf', '-m', '5', 'http://127.0.0.1:9464/metrics');
    return page.includes(`longshore_agent_condition{condition="${condition}"} 1`);
  }

  /** Loads an archive of `docker save`. */
  async load(archive: string): Promise<void> {
    await runProgram('docker', ['-H', `unix://${this.socket}`, 'load', '-q', '-i', archive]);
  }

  async containers(labels: readonly string[] = []): Promise<readonly ContainerInfo[]> {
    return this.docker.listContainers({ all: true, filters: { label: [...labels] } });
  }

  get engineRuns(): boolean {
    return this.#engine?.isRunning() === true;
  }

  // ---- the engine ---------------------------------------------------------------------------------------------------

  async startEngine(): Promise<void> {
    const { name, directory } = this.#names;
    // An engine that was killed left these, and would wait for a containerd that is gone.
    for (const path of ['docker.pid', 'exec/containerd/containerd.pid']) rmSync(join(directory, path), { force: true });
    const dockerd = findProgram('dockerd') ?? 'dockerd';
    const containerd = this.#options.ownContainerd === true ? ['--containerd', await this.#startContainerd()] : [];
    const more = Object.entries(this.#options.engineEnv ?? {}).map(([setting, value]) => `${setting}=${value}`);
    const engine = await startProgram('nsenter', [
      ...[...this.#enterNetwork, ...more, dockerd, ...containerd],
      ...['--config-file', join(directory, 'daemon.json'), '--log-level', 'warn'],
      ...['--data-root', join(directory, 'root'), '--exec-root', join(directory, 'exec')],
      ...['--pidfile', join(directory, 'docker.pid'), '-H', `unix://${this.socket}`, '--cgroup-parent', `/${name}`],
    ]);
    this.#engine = engine;
    const answers = async (): Promise<boolean> => {
      if (!engine.isRunning()) throw new Error(`the engine of ${name} ended:\n${engine.output().slice(-2000)}`);
      return this.docker.ping().then(
        () => true,
        () => false,
      );
    };
    await waitFor(answers, `the engine of ${name} answers`, ENGINE_UP_MS);
  }

  get #enterNetwork(): readonly string[] {
    const { name, directory } = this.#names;
    return [`--net=/run/netns/${name}`, 'env', `PATH=${join(directory, 'bin')}:${process.env['PATH'] ?? ''}`];
  }

  /** @returns the path of its socket */
  async #startContainerd(): Promise<string> {
    const directory = join(this.directory, 'containerd');
    const socket = join(directory, 'containerd.sock');
    if (this.#containerd?.isRunning() === true) return socket;
    mkdirSync(directory, { recursive: true });
    // The host's own configuration file is another containerd's.
    writeFileSync(join(directory, 'config.toml'), 'version = 2\n');
    rmSync(socket, { force: true });
    const program = await startProgram('nsenter', [
      ...[...this.#enterNetwork, findProgram('containerd') ?? 'containerd', '--log-level', 'warn'],
      ...['--config', join(directory, 'config.toml'), '--address', socket],
      ...['--root', join(directory, 'root'), '--state', join(directory, 'state')],
    ]);
    this.#containerd = program;
    const listens = (): boolean => {
      if (!program.isRunning()) throw new Error(`containerd ended:\n${program.output().slice(-2000)}`);
      return existsSync(socket);
    };
    await waitFor(listens, 'containerd listens', ENGINE_UP_MS);
    return socket;
  }

  /** Sends SIGTERM: the engine stops its containers first. */
  async stopEngine(): Promise<void> {
    await this.#engine?.end('SIGTERM', 30_000);
  }

  /** kill -9: its containers run on. */
  async killEngine(): Promise<void> {
    await this.#engine?.end('SIGKILL');
    for (const pid of this.#processes('containerd --config')) kill(pid, 'SIGKILL');
  }

  /** Makes the engine accept connections and answer nothing. */
  freezeEngine(): void {
    if (this.engineRuns) process.kill(this.#engine?.pid ?? 0, 'SIGSTOP');
  }

  thawEngine(): void {
    if (this.engineRuns) process.kill(this.#engine?.pid ?? 0, 'SIGCONT');
  }

  /**
   * A container's processes take no signal any more, not even KILL, and the engine does not know why.
   * @returns function that undoes the freeze
   */
  freezeProcesses(dockerId: string): () => void {
    const group = join('/sys/fs/cgroup/freezer', this.name, dockerId);
    // The processes move to a group below the container's, because sending KILL thaws the container's own group.
    const held = join(group, 'held');
    mkdirSync(held);
    for (const pid of readFileSync(join(group, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean))
      writeFileSync(join(held, 'cgroup.procs'), pid);
    const state = join(held, 'freezer.state');
    writeFileSync(state, 'FROZEN');
    return () => {
      if (existsSync(state)) writeFileSync(state, 'THAWED');
    };
  }

  // ---- the machine --------------------------------------------------------------------------------------------------

  /** The cable out: nothing gets through, nothing is told. */
  async cut(): Promise<void> {
    await ip('link', 'set', this.cable, 'down');
  }

  async heal(): Promise<void> {
    await ip('link', 'set', this.cable, 'up');
  }

  /**
   * The power fails: engine and containers end at once (the agent belongs to the
   * caller that started it). Files on disk stay, and the next boot has another id.
   */
  async powerCut(): Promise<void> {
    await this.#engine?.end('SIGKILL');
    const isGone = (): boolean => {
      const left = [...this.#processes(this.directory), ...this.containerPids()];
      for (const pid of left) kill(pid, 'SIGKILL');
      return left.length === 0;
    };
    await waitFor(isGone, `everything on ${this.name} has ended`, 20_000);
    this.#newBootId();
  }

  /** Processes of its containers. */
  containerPids(): readonly number[] {
    const walk = (path: string): number[] => {
      try {
        const here = readFileSync(join(path, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean).map(Number);
        const below = readdirSync(path, { withFileTypes: true }).filter((entry) => entry.isDirectory());
        return [...here, ...below.flatMap((entry) => walk(join(path, entry.name)))];
      } catch {
        return [];
      }
    };
    return walk(join('/sys/fs/cgroup/pids', this.name)).filter((pid) => commandOf(pid) !== '');
  }

  /** Engine's processes whose command line contains the text; agents are not among them. */
  #processes(text: string): readonly number[] {
    return readdirSync('/proc')
      .filter((entry) => /^\d+$/.test(entry))
      .map(Number)
      .filter((pid) => {
        const command = commandOf(pid);
        return command.includes(this.directory) && command.includes(text) && /containerd|dockerd|runc/.test(command);
      });
  }

  #newBootId(): void {
    // The file is written in place, because a running agent has it mounted.
    writeFileSync(join(this.directory, 'boot_id'), `${randomUUID()}\n`);
  }
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    return '';
  }
}

function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // it ended by itself
  }
}
