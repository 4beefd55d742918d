/**
 * A host that runs systemd, in a container. The engine is this machine's, and the
 * agent's data directory has the same path in both, because the engine mounts
 * from it. The host shares the network, so that the scheduler is on its loopback.
 */
import { randomBytes } from 'node:crypto';
import { PassThrough } from 'node:stream';
import { finished } from 'node:stream/promises';
import Docker from 'dockerode';
import { waitFor } from './services.ts';
import type { TestDocker } from './services.ts';

/** Tag that scripts/setup/systemd-image.mjs sets. */
const IMAGE = /^longshore-test-systemd:/;

export class SystemdHost {
  /** On the host's disk, below no directory that a unit hides. */
  readonly dataDir = `/var/lib/longshore-test-${randomBytes(4).toString('hex')}`;
  readonly #engine: TestDocker;
  readonly #shown: Readonly<Record<string, string>>;
  readonly #devices: readonly string[];
  /** The client has no limit on silence: a command may print nothing for a while. */
  readonly #client = new Docker();
  #id = '';

  /**
   * A host that is not started yet.
   * @param shown - directories of this machine that it sees, read-only, and the path of each there
   * @param devices - device files of this machine that it has
   */
  constructor(engine: TestDocker, shown: Readonly<Record<string, string>>, devices: readonly string[] = []) {
    this.#devices = devices;
    this.#engine = engine;
    this.#shown = shown;
  }

  async start(): Promise<void> {
    const { client, run } = this.#engine;
    const images = await client.listImages();
    const image = images.flatMap(({ RepoTags: tags }) => tags ?? []).find((tag) => IMAGE.test(tag));
    if (image === undefined) throw new Error('the image with systemd is missing: node scripts/setup.mjs --hosts');
    const container = await run({
      Image: image,
      StopSignal: 'SIGRTMIN+3',
      HostConfig: {
        CapAdd: ['SYS_ADMIN'],
        Devices: this.#devices.map((path) => ({ PathOnHost: path, PathInContainer: path, CgroupPermissions: 'rwm' })),
        // Newer than the types.
        ...{ CgroupnsMode: 'private' },
        NetworkMode: 'host',
        Tmpfs: { '/run': '', '/run/lock': '', '/tmp': 'exec' },
        Binds: [
          `${process.env['DOCKER_HOST']?.replace('unix://', '') ?? '/var/run/docker.sock'}:/var/run/docker.sock`,
          `${this.dataDir}:${this.dataDir}`,
          ...Object.entries(this.#shown).map(([path, there]) => `${path}:${there}:ro`),
        ],
      },
    });
    this.#id = container.id;
    await waitFor(
      async () => (await this.try('systemctl is-system-running')).includes('running'),
      'systemd runs',
      30_000,
    );
  }

  /** Id of its container. */
  get id(): string {
    return this.#id;
  }

  /** A shell command there, as root. @throws with its output when it fails */
  async sh(command: string, timeoutMs = 60_000): Promise<string> {
    const { code, output } = await this.#exec(command, timeoutMs);
    if (code !== 0) throw new Error(`${command} ended with ${code}:\n${output}`);
    return output;
  }

  /** Output of a command, with any exit code. */
  async try(command: string): Promise<string> {
    return (await this.#exec(command, 60_000)).output;
  }

  /** A property of a unit. */
  async property(unit: string, name: string): Promise<string> {
    return (await this.sh(`systemctl show -p ${name} --value ${unit}`)).trim();
  }

  async #exec(command: string, timeoutMs: number): Promise<{ readonly code: number | null; readonly output: string }> {
    const client = this.#client;
    const exec = await client.getContainer(this.#id).exec({
      Cmd: ['timeout', String(Math.ceil(timeoutMs / 1000)), 'sh', '-c', command],
      AttachStdout: true,
      AttachStderr: true,
    });
    const stream = await exec.start({});
    const chunks: Buffer[] = [];
    const into = new PassThrough().on('data', (chunk: Buffer) => chunks.push(chunk));
    client.modem.demuxStream(stream, into, into);
    await finished(stream);
    const { ExitCode: code } = await exec.inspect();
    return { code, output: Buffer.concat(chunks).toString('utf8') };
  }

  /** The data directory goes with it. */
  async remove(): Promise<void> {
    if (this.#id !== '') await this.try(`find ${this.dataDir} -mindepth 1 -delete`);
    await this.#engine.run({
      Cmd: ['rmdir', `/lib-of-host/${this.dataDir.slice('/var/lib/'.length)}`],
      HostConfig: { Binds: ['/var/lib:/lib-of-host'] },
    });
  }
}
