/**
 * The container engine behind our port, through dockerode (its only import). Every call has a deadline, and at most 16
 * run at once. Status numbers of the engine are translated here and known nowhere else.
 */
import type { Readable } from 'node:stream';
import Docker from 'dockerode';
import { withDeadline } from '#shared/backoff.ts';
import { digestOf, withTag } from '#shared/domain/image-reference.ts';
import { messageOf } from '#shared/errors.ts';
import { LogDemultiplexer } from './lines.ts';
import {
  connectionOptions,
  createOptions,
  gpusInUse,
  gpusOfRequest,
  isByCdi,
  rootLimitTrial,
} from './docker-options.ts';
import { Limiter } from './limiter.ts';
import { upperDirOf } from './root-path.ts';
import { readPullStream } from './pull-stream.ts';
import type {
  ContainerRuntime,
  CreateContainer,
  EngineEvent,
  EngineInfo,
  ImageFacts,
  NetworkFacts,
  PullOptions,
  RegistryAuth,
  RuntimeContainer,
} from './runtime.ts';
import { EngineError, LABELS } from './runtime.ts';

const CALL_DEADLINE_MS = 30_000;
/** Time to read the printed lines of a helper that missed its deadline. */
const LATE_LINES_MS = 1000;
/** Idle time after which a query's connection closes; the caller has given up at the call's deadline. */
const QUESTION_SILENCE_MS = CALL_DEADLINE_MS + 1000;
const CALLS_AT_ONCE = 16;
const IMPORT_DEADLINE_MS = 120_000;
const MAX_EXEC_OUTPUT = 64 * 1024;
/** Deadline for removing an image: files of many layers take long. */
const REMOVE_IMAGE_MS = 120_000;

export class DockerRuntime implements ContainerRuntime {
  readonly #docker: Docker;
  /**
   * A second client of the same engine, with an idle timeout, for queries about each container. An abort signal for
   * each request instead would cost a third of the query.
   */
  readonly #questions: Docker;
  readonly #limit = new Limiter(CALLS_AT_ONCE);
  /** SELinux support by the engine's last answer; undefined until the first. */
  #hasSelinux: boolean | undefined;
  readonly #onCall: (operation: string, result: 'ok' | 'error', seconds: number) => void;

  constructor(
    host: string | undefined,
    onCall: (operation: string, result: 'ok' | 'error', seconds: number) => void = () => undefined,
  ) {
    this.#docker = new Docker(connectionOptions(host));
    this.#questions = new Docker({ ...connectionOptions(host), timeout: QUESTION_SILENCE_MS });
    this.#onCall = onCall;
  }

  async ping(): Promise<void> {
    await this.#call('ping', () => this.#docker.ping(), 5000);
  }

  async info(): Promise<EngineInfo> {
    const info = await this.#readInfo();
    this.#hasSelinux = info.selinux;
    return info;
  }

  async #readInfo(): Promise<EngineInfo> {
    const info = (await this.#call('info', () => this.#docker.info())) as {
      ServerVersion: string;
      NCPU: number;
      MemTotal: number;
      DockerRootDir: string;
      Driver: string;
      DriverStatus?: readonly (readonly string[])[] | null;
      Containerd?: { readonly Address?: string } | null;
      CgroupVersion?: string;
      CgroupDriver?: string;
      MemoryLimit?: boolean;
      SwapLimit?: boolean;
      CpuCfsQuota?: boolean;
      PidsLimit?: boolean;
      SecurityOptions?: readonly string[] | null;
      LiveRestoreEnabled?: boolean;
      Runtimes?: Readonly<Record<string, unknown>> | null;
      CDISpecDirs?: readonly string[] | null;
      DiscoveredDevices?: readonly { readonly Source?: string; readonly ID?: string }[] | null;
    };
    const secured = (name: string): boolean =>
      (info.SecurityOptions ?? []).some((option) => option.split(',')[0] === `name=${name}`);
    return {
      version: info.ServerVersion,
      cores: info.NCPU,
      memoryBytes: info.MemTotal,
      rootDir: info.DockerRootDir,
      storageDriver: info.Driver,
      containerd: {
        hasImages: (info.DriverStatus ?? []).some(
          ([name, value]) => name === 'driver-type' && value === 'io.containerd.snapshotter.v1',
        ),
        address: info.Containerd?.Address ?? '',
      },
      cgroup: `v${info.CgroupVersion ?? '1'} ${info.CgroupDriver ?? ''}`.trim(),
      limits: {
        memory: info.MemoryLimit === true,
        swap: info.SwapLimit === true,
        cpu: info.CpuCfsQuota === true,
        pids: info.PidsLimit === true,
      },
      userNamespaces: secured('userns'),
      rootless: secured('rootless'),
      selinux: secured('selinux'),
      liveRestore: info.LiveRestoreEnabled === true,
      nvidia: Object.hasOwn(info.Runtimes ?? {}, 'nvidia'),
      cdi: {
        dirs: info.CDISpecDirs ?? [],
        devices: info.DiscoveredDevices?.flatMap(({ Source, ID }) => (Source === 'cdi' ? (ID ?? []) : [])),
      },
    };
  }

  async list(labels: Readonly<Record<string, string>>): Promise<RuntimeContainer[]> {
    const filters = { label: Object.entries(labels).map(([name, value]) => `${name}=${value}`) };
    const found = await this.#call('list', () => this.#docker.listContainers({ all: true, filters }));
    const all = await Promise.all(
      found.map(async (one): Promise<RuntimeContainer | undefined> => {
        const state = stateOf(one.State);
        if (state !== 'running') return this.inspect(one.Id);
        return {
          dockerId: one.Id,
          name: (one.Names[0] ?? '').replace(/^\//, ''),
          labels: one.Labels,
          state,
          network: one.HostConfig.NetworkMode,
          exitCode: 0,
          oomKilled: false,
          startedAtMs: 0,
          finishedAtMs: 0,
          error: '',
          gpuUuids: (one.Labels[LABELS.gpus] ?? '').split(',').filter((uuid) => uuid !== ''),
        };
      }),
    );
    return all.filter((one) => one !== undefined);
  }

  async inspect(nameOrId: string): Promise<RuntimeContainer | undefined> {
    try {
      const facts = await this.#inspect(nameOrId);
      return {
        dockerId: facts.Id,
        name: facts.Name.replace(/^\//, ''),
        labels: facts.Config.Labels ?? {},
        state: stateOf(facts.State.Status),
        network: facts.HostConfig.NetworkMode ?? '',
        exitCode: facts.State.ExitCode,
        oomKilled: facts.State.OOMKilled,
        startedAtMs: timeOf(facts.State.StartedAt),
        finishedAtMs: timeOf(facts.State.FinishedAt),
        error: facts.State.Error,
        gpuUuids: (facts.HostConfig.DeviceRequests ?? []).flatMap(gpusOfRequest),
        hasCdi: isByCdi(facts.HostConfig.DeviceRequests ?? []),
      };
    } catch (error) {
      if (statusOf(error) === 404) return undefined;
      throw error;
    }
  }

  /** Running containers that may use GPUs, of every owner. */
  async gpuContainers(): Promise<
    { readonly dockerId: string; readonly name: string; readonly uuids: readonly string[] | 'all' }[]
  > {
    const running = await this.#call('list', () => this.#docker.listContainers());
    const found = await Promise.all(
      running.map(async ({ Id }) => {
        try {
          const facts = await this.#inspect(Id);
          return { dockerId: Id, name: facts.Name.replace(/^\//, ''), uuids: gpusInUse(facts) };
        } catch (error) {
          if (statusOf(error) === 404) return { dockerId: Id, name: '', uuids: [] };
          throw translate(error, 'cannot look at a container');
        }
      }),
    );
    return found.filter(({ uuids }) => uuids.length > 0);
  }

  async pidOf(dockerId: string): Promise<number | undefined> {
    try {
      const facts = await this.#inspect(dockerId);
      return facts.State.Pid > 0 ? facts.State.Pid : undefined;
    } catch (error) {
      if (statusOf(error) === 404) return undefined;
      throw error;
    }
  }

  async rootPath(dockerId: string): Promise<string | undefined> {
    try {
      const { GraphDriver, State } = (await this.#inspect(dockerId)) as {
        GraphDriver?: { Data?: Record<string, string | undefined> | null } | null;
        State: { Pid: number };
      };
      return GraphDriver?.Data?.['UpperDir'] ?? (await upperDirOf(State.Pid));
    } catch (error) {
      if (statusOf(error) === 404) return undefined;
      throw translate(error, 'cannot look at a container');
    }
  }

  async writtenBytes(dockerId: string): Promise<number | undefined> {
    try {
      const facts = await this.#call('inspect_size', () =>
        this.#questions.getContainer(dockerId).inspect({ size: true } as object),
      );
      return (facts as { SizeRw?: number }).SizeRw ?? 0;
    } catch (error) {
      if (statusOf(error) === 404) return undefined;
      throw translate(error, 'cannot count what a container wrote');
    }
  }

  async canLimitRoots(image: string, labels: Readonly<Record<string, string>>): Promise<boolean> {
    try {
      // With containerd's image store the engine accepts a limit and does not enforce it.
      if ((await this.info()).containerd.hasImages) return false;
      await this.remove(await this.create(rootLimitTrial(image, labels)));
      return true;
    } catch (error) {
      if (error instanceof EngineError && error.failure === 'refused') return false;
      throw error;
    }
  }

  async environment(dockerId: string): Promise<Record<string, string> | undefined> {
    try {
      const { Config } = await this.#inspect(dockerId);
      return Object.fromEntries(
        Config.Env.map((one) => [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)]),
      );
    } catch (error) {
      if (statusOf(error) === 404) return undefined;
      throw translate(error, 'cannot look at a container');
    }
  }

  async create(spec: CreateContainer): Promise<string> {
    try {
      const selinux = this.#hasSelinux ?? (await this.info()).selinux;
      const made = await this.#call('create', (abortSignal) =>
        this.#docker.createContainer({ ...createOptions(spec, { selinux }), abortSignal }),
      );
      return made.id;
    } catch (error) {
      throw translate(error, `cannot create container ${spec.name}`);
    }
  }

  async start(dockerId: string): Promise<void> {
    try {
      await this.#call('start', (abortSignal) => this.#docker.getContainer(dockerId).start({ abortSignal }));
    } catch (error) {
      if (statusOf(error) === 304) return;
      throw translate(error, 'cannot start the container');
    }
  }

  async signal(dockerId: string, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    try {
      await this.#call('kill', (abortSignal) => this.#docker.getContainer(dockerId).kill({ signal, abortSignal }));
    } catch (error) {
      // 404: no such container; 409: the container does not run. Both are the wanted state.
      if (statusOf(error) !== 404 && statusOf(error) !== 409) throw translate(error, 'cannot signal the container');
    }
  }

  async remove(dockerId: string): Promise<void> {
    try {
      await this.#call('remove', (abortSignal) =>
        this.#docker.getContainer(dockerId).remove({ force: true, v: true, abortSignal }),
      );
    } catch (error) {
      if (statusOf(error) === 404) return;
      if (statusOf(error) === 409 && /already in progress/.test(messageOf(error))) return;
      throw translate(error, 'cannot remove the container');
    }
  }

  async removeVolume(name: string): Promise<void> {
    try {
      await this.#call('remove_volume', (abortSignal) => this.#docker.getVolume(name).remove({ abortSignal }));
    } catch (error) {
      if (statusOf(error) !== 404) throw translate(error, `cannot remove volume ${name}`);
    }
  }

  async listVolumes(labels: Readonly<Record<string, string>>): Promise<string[]> {
    const filters = { label: Object.entries(labels).map(([name, value]) => `${name}=${value}`) };
    const found = await this.#call('list_volumes', () =>
      this.#docker.listVolumes({ filters: JSON.stringify(filters) }),
    );
    return (found.Volumes ?? []).map((volume) => volume.Name);
  }

  async image(reference: string): Promise<ImageFacts | undefined> {
    try {
      const facts = (await this.#call('inspect_image', () => this.#docker.getImage(reference).inspect())) as Awaited<
        ReturnType<Docker.Image['inspect']>
      > & {
        Descriptor?: object;
        Identity?: { Pull?: readonly object[] | null } | null;
      };
      const digests = (facts.RepoDigests ?? []).map((name) => digestOf(name)).filter((digest) => digest !== '');
      // With containerd's image store each name has a digest, even that of an image built here; the origin is a
      // separate field.
      const isLocal =
        digests.length === 0 ||
        (facts.Descriptor !== undefined && (facts.Identity?.Pull ?? []).length === 0 && (await this.#tellsOrigin()));
      return { id: facts.Id, digests, isLocal, bytes: facts.Size };
    } catch (error) {
      if (statusOf(error) === 404) return undefined;
      throw translate(error, `cannot look for image ${reference}`);
    }
  }

  /** Whether the engine reports the origin of images: from API 1.53 on (Docker 29.2). */
  async #tellsOrigin(): Promise<boolean> {
    const { ApiVersion } = await this.#call('version', () => this.#docker.version());
    const [major = 0, minor = 0] = ApiVersion.split('.').map(Number);
    return major > 1 || (major === 1 && minor >= 53);
  }

  async listImages(): Promise<string[]> {
    const images = await this.#call('list_images', () => this.#docker.listImages());
    const names = images.flatMap((image) => [...(image.RepoTags ?? []), ...(image.RepoDigests ?? [])]);
    return names.filter((name) => !name.includes('<none>'));
  }

  async imageIdsInUse(): Promise<ReadonlySet<string>> {
    const found = await this.#call('list', () => this.#docker.listContainers({ all: true }));
    return new Set(found.map((one) => one.ImageID));
  }

  async removeImage(reference: string): Promise<boolean> {
    try {
      await this.#call(
        'remove_image',
        () => this.#docker.getImage(reference).remove({ force: false }),
        REMOVE_IMAGE_MS,
      );
      return true;
    } catch (error) {
      if (statusOf(error) === 404) return true;
      if (statusOf(error) === 409) return false;
      throw translate(error, `cannot remove image ${reference}`);
    }
  }

  async registryDigest(reference: string, auth: RegistryAuth | undefined, deadlineMs: number): Promise<string> {
    try {
      // This call is outside the limit: the engine answers only when the registry does.
      const found = (await this.#timed(
        'registry_digest',
        () => this.#docker.getImage(withTag(reference)).distribution(authOption(auth)),
        deadlineMs,
      )) as { Descriptor?: { digest?: unknown } };
      const digest = found.Descriptor?.digest;
      if (typeof digest !== 'string') throw new EngineError('refused', 'the engine named no digest');
      return digest;
    } catch (error) {
      if (REGISTRY_SAYS[statusOf(error) ?? 0] === undefined)
        throw translate(error, `cannot ask the registry for image ${reference}`);
      const message = `cannot ask the registry for image ${reference}: ${registryWordsOf(error)}`;
      throw new EngineError('refused', message, { cause: error });
    }
  }

  async pull(reference: string, options: PullOptions): Promise<string> {
    const { auth, silenceMs, signal, onProgress } = options;
    const from = performance.now();
    const give = new AbortController();
    const abortSignal = AbortSignal.any([signal, give.signal]);
    // This call is outside the limit: the engine answers only when the registry does.
    try {
      const stream = (await withDeadline(
        this.#docker.createImage(authOption(auth).authconfig, { fromImage: withTag(reference), abortSignal }),
        silenceMs,
        () => new Error(`nothing heard for ${silenceMs / 1000} s`),
      )) as unknown as Readable;
      const digest = await readPullStream(stream, silenceMs, signal, onProgress);
      this.#onCall('pull', 'ok', (performance.now() - from) / 1000);
      return digest;
    } catch (error) {
      give.abort();
      this.#onCall('pull', 'error', (performance.now() - from) / 1000);
      // Without a status the engine itself is down; a stream that it cut off has its own message.
      const code = error instanceof Error && 'code' in error ? error.code : undefined;
      if (code === 'ECONNREFUSED' || code === 'ENOENT' || code === 'EACCES')
        throw new EngineError('unavailable', 'the container engine does not answer', { cause: error });
      throw new Error(registryWordsOf(error), { cause: error });
    }
  }

  async importImage(reference: string, tar: Readable): Promise<void> {
    const colon = reference.lastIndexOf(':');
    const work = async (abortSignal: AbortSignal): Promise<string> => {
      const stream = (await this.#docker.importImage(tar, {
        repo: reference.slice(0, colon),
        tag: reference.slice(colon + 1),
        abortSignal,
      })) as unknown as Readable;
      let answer = '';
      await drain(stream, abortSignal, (data) => (answer = (answer + data.toString()).slice(-4096)));
      return answer;
    };
    // A tar file that is not read to its end would stay open.
    const answer = await this.#call('import', work, IMPORT_DEADLINE_MS).finally(() => tar.destroy());
    const failure = /"error":"((?:[^"\\]|\\.)*)"/.exec(answer)?.[1];
    if (failure !== undefined) throw new EngineError('refused', `cannot import image ${reference}: ${failure}`);
  }

  async ensureNetwork(name: string): Promise<NetworkFacts> {
    const there = await this.lookAtNetwork(name);
    if (there !== undefined) return there;
    try {
      await this.#call('create_network', () =>
        this.#docker.createNetwork({
          Name: name,
          CheckDuplicate: true,
          Driver: 'bridge',
          // Containers of different workspaces share the bridge: traffic between them is off.
          Options: { 'com.docker.network.bridge.enable_icc': 'false' },
          Labels: { [LABELS.managed]: '1' },
        }),
      );
    } catch (error) {
      // Another agent of this host created the network meanwhile.
      if (statusOf(error) !== 409) throw translate(error, `cannot create network ${name}`);
    }
    return (await this.lookAtNetwork(name)) ?? { bridge: '', gateways: [], subnets: [] };
  }

  async lookAtNetwork(name: string): Promise<NetworkFacts | undefined> {
    let found: {
      Id?: string;
      Driver?: string;
      Options?: Record<string, string>;
      IPAM?: { Config?: { Gateway?: string; Subnet?: string }[] };
    };
    try {
      found = (await this.#call('inspect_network', () => this.#docker.getNetwork(name).inspect())) as typeof found;
    } catch (error) {
      if (statusOf(error) === 404) return undefined;
      throw translate(error, `cannot look for network ${name}`);
    }
    if (found.Driver !== 'bridge' || found.Options?.['com.docker.network.bridge.enable_icc'] !== 'false')
      throw new EngineError(
        'refused',
        `the Docker network ${name} is not one that keeps containers apart; remove it (docker network rm ${name}), or name another in LONGSHORE_AGENT_NETWORK`,
      );
    const ranges = found.IPAM?.Config ?? [];
    return {
      bridge: found.Options['com.docker.network.bridge.name'] ?? `br-${(found.Id ?? '').slice(0, 12)}`,
      gateways: ranges.flatMap(({ Gateway }) => Gateway?.replace(/\/\d+$/, '') ?? []),
      subnets: ranges.flatMap(({ Subnet }) => Subnet ?? []),
    };
  }

  async removeNetwork(name: string): Promise<void> {
    try {
      await this.#call('remove_network', () => this.#docker.getNetwork(name).remove());
    } catch (error) {
      if (statusOf(error) !== 404 && statusOf(error) !== 403) throw translate(error, `cannot remove network ${name}`);
    }
  }

  async followLogs(
    dockerId: string,
    since: string,
    onLine: (stream: 'stdout' | 'stderr', line: string, position: string) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const stream = (await this.#docker.getContainer(dockerId).logs({
      follow: true,
      stdout: true,
      stderr: true,
      timestamps: true,
      ...(since === '' ? {} : { since: unixTime(since) as unknown as number }),
      abortSignal: signal,
    })) as unknown as Readable;
    const demultiplexer = new LogDemultiplexer(onLine, since);
    await drain(stream, signal, (data) => demultiplexer.push(data));
    demultiplexer.end();
  }

  async watch(sinceMs: number, onEvent: (event: EngineEvent) => void, signal: AbortSignal): Promise<void> {
    const stream = (await this.#docker.getEvents({
      since: Math.floor(sinceMs / 1000),
      filters: { type: ['container'], event: ['die', 'oom', 'destroy'], label: [`${LABELS.managed}=1`] },
      abortSignal: signal,
    })) as unknown as Readable;
    let rest = '';
    await drain(stream, signal, (data) => {
      const lines = (rest + data.toString('utf8')).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        const event = parseEvent(line);
        if (event !== undefined) onEvent(event);
      }
    });
  }

  async exec(
    dockerId: string,
    command: readonly string[],
    deadlineMs: number,
  ): Promise<{ readonly exitCode: number; readonly output: string }> {
    // This call is outside the limit: the container's image determines how long the program runs.
    return this.#timed(
      'exec',
      async (abortSignal) => {
        const exec = await this.#docker
          .getContainer(dockerId)
          .exec({ Cmd: [...command], AttachStdout: true, AttachStderr: true, abortSignal });
        const stream = (await exec.start({ abortSignal })) as unknown as Readable;
        let output = '';
        const demultiplexer = new LogDemultiplexer((_stream, line) => {
          if (output.length < MAX_EXEC_OUTPUT) output += `${line}\n`;
        });
        await drain(stream, abortSignal, (data) => demultiplexer.push(data));
        demultiplexer.end();
        return { exitCode: (await exec.inspect({ abortSignal })).ExitCode ?? 0, output };
      },
      deadlineMs,
    );
  }

  async runOnce(spec: CreateContainer, deadlineMs: number, onLine?: (line: string) => void): Promise<number> {
    const dockerId = await this.create(spec);
    try {
      await this.start(dockerId);
      // This call is outside the limit: waiting lasts as long as the helper's work.
      const overdue = (): EngineError =>
        new EngineError('overdue', `container ${spec.name} did not end in ${deadlineMs} ms`);
      const tellLines = async (ms: number): Promise<void> => {
        if (onLine === undefined) return;
        await this.followLogs(dockerId, '', (_stream, line) => onLine(line), AbortSignal.timeout(ms));
      };
      let result: { StatusCode: number };
      try {
        result = (await this.#timed(
          'wait',
          (abortSignal) => this.#docker.getContainer(dockerId).wait({ abortSignal }),
          deadlineMs,
          overdue,
        )) as { StatusCode: number };
      } catch (error) {
        await tellLines(LATE_LINES_MS).catch(() => undefined);
        throw error;
      }
      await tellLines(CALL_DEADLINE_MS);
      return result.StatusCode;
    } finally {
      await this.remove(dockerId);
    }
  }

  #inspect(nameOrId: string): Promise<Docker.ContainerInspectInfo> {
    return this.#call('inspect', () => this.#questions.getContainer(nameOrId).inspect());
  }

  /** Runs one call inside the limit and its deadline, and counts it. */
  #call<T>(
    operation: string,
    call: (abortSignal: AbortSignal) => Promise<T>,
    deadlineMs = CALL_DEADLINE_MS,
  ): Promise<T> {
    return this.#limit.run(() => this.#timed(operation, call, deadlineMs));
  }

  async #timed<T>(
    operation: string,
    call: (abortSignal: AbortSignal) => Promise<T>,
    deadlineMs: number,
    late = (): EngineError =>
      new EngineError('unavailable', `the container engine did not answer ${operation} in ${deadlineMs} ms`),
  ): Promise<T> {
    const from = performance.now();
    const abort = new AbortController();
    try {
      const result = await withDeadline(call(abort.signal), deadlineMs, late);
      this.#onCall(operation, 'ok', (performance.now() - from) / 1000);
      return result;
    } catch (error) {
      // The abort keeps the request from outliving its deadline.
      abort.abort();
      this.#onCall(operation, (statusOf(error) ?? 500) < 500 ? 'ok' : 'error', (performance.now() - from) / 1000);
      throw error;
    }
  }
}

function stateOf(text: string): RuntimeContainer['state'] {
  switch (text) {
    case 'created':
      return 'created';
    case 'exited':
    case 'dead':
    case 'removing':
      return 'exited';
    default:
      return 'running';
  }
}

/** A time as the engine wants it: seconds, a point, nine digits. */
function unixTime(position: string): string {
  const seconds = Math.floor(Date.parse(position) / 1000);
  return `${seconds}.${/\.(\d{9})Z$/.exec(position)?.[1] ?? '000000000'}`;
}

function timeOf(text: string): number {
  const ms = Date.parse(text);
  // The engine writes year 1 for "never".
  return Number.isNaN(ms) || ms < 0 ? 0 : ms;
}

function statusOf(error: unknown): number | undefined {
  return error instanceof Error && 'statusCode' in error && typeof error.statusCode === 'number'
    ? error.statusCode
    : undefined;
}

/** The engine's message, without the client's frame around it. */
const wordsOf = (error: unknown): string =>
  messageOf(error)
    .replace(/^\(HTTP code \d+\) [^-]*- /, '')
    .trim();

const REGISTRY_SAYS: Readonly<Record<number, string>> = { 401: 'unauthorized', 403: 'denied', 429: 'toomanyrequests' };

/** The registry's message with its code, which Docker 29 keeps in the status and omits from the text. */
function registryWordsOf(error: unknown): string {
  const [words, code] = [wordsOf(error), REGISTRY_SAYS[statusOf(error) ?? 0]];
  return code === undefined || words.toLowerCase().includes(code) ? words : `${code}: ${words}`;
}

interface AuthOption {
  readonly authconfig?: {
    readonly username: string;
    readonly password: string;
    readonly serveraddress: string;
    readonly identitytoken?: string;
  };
}

const authOption = (auth: RegistryAuth | undefined): AuthOption =>
  auth === undefined
    ? {}
    : {
        authconfig: {
          username: auth.username,
          password: auth.password,
          serveraddress: auth.serverAddress,
          ...(auth.identityToken === '' ? {} : { identitytoken: auth.identityToken }),
        },
      };

/** Messages of a refused GPU: from NVIDIA's hook, its CDI hooks, the engine, and a runtime that lacks a driver file. */
const GPU_REFUSED: readonly RegExp[] = [
  /nvidia-container-cli|nvidia-container-runtime|libnvidia-container|nvidia-cdi-hook|nvidia-ctk/,
  /CDI device injection failed|unresolvable CDI devices/,
  // A specification of an older driver names files that an upgrade removed. Sources of volumes lie elsewhere.
  /(?:error mounting|mount request: open) "?\/(?:usr|lib|lib64|run|var\/run|dev)\/[^"\s]*(?:nvidia|libcuda|libnv)/,
];

function translate(error: unknown, what: string): EngineError {
  if (error instanceof EngineError) return error;
  const status = statusOf(error);
  const text = wordsOf(error);
  const message = `${what}: ${text}`;
  if (status === 409) return new EngineError('conflict', message, { cause: error });
  if (status === 404 && /network \S+ not found/i.test(text))
    return new EngineError('no_such_network', message, { cause: error });
  if (status === 404 && /no such image/i.test(text)) return new EngineError('no_such_image', message, { cause: error });
  if (/failed to mount local volume|error while mounting volume/.test(text))
    return new EngineError('mount_refused', message, { cause: error });
  if (/could not select device driver/.test(text)) return new EngineError('no_gpu_support', message, { cause: error });
  if (GPU_REFUSED.some((words) => words.test(text))) return new EngineError('gpu_refused', message, { cause: error });
  if (status === undefined) return new EngineError('unavailable', message, { cause: error });
  return new EngineError('refused', message, { cause: error });
}

/**
 * Reads a stream to its end; an abort is an end too. Uses events: for a silent log an iterator would hold more memory
 * than the connection does.
 */
function drain(stream: Readable, signal: AbortSignal, onData: (data: Buffer) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const over = (error?: unknown): void => {
      if (signal.aborted || stream.readableEnded) resolve();
      else reject(error ?? new Error('the engine cut its answer off'));
    };
    stream.on('data', (data: Buffer) => {
      try {
        onData(data);
      } catch (error) {
        reject(error);
        stream.destroy();
      }
    });
    stream.on('end', resolve);
    stream.on('error', over);
    stream.on('close', () => over());
    if (stream.destroyed) over();
  });
}

function parseEvent(line: string): EngineEvent | undefined {
  if (line.trim() === '') return undefined;
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
  } catch {
    return undefined;
  }
  const event = parsed as {
    Action?: unknown;
    Actor?: { ID?: unknown; Attributes?: Record<string, string> };
    timeNano?: unknown;
  };
  const action = event.Action;
  if (action !== 'die' && action !== 'oom' && action !== 'destroy') return undefined;
  if (typeof event.Actor?.ID !== 'string') return undefined;
  const labels = event.Actor.Attributes ?? {};
  const code = Number(action === 'die' ? (labels['exitCode'] ?? Number.NaN) : Number.NaN);
  return {
    action,
    dockerId: event.Actor.ID,
    labels,
    atMs: typeof event.timeNano === 'number' ? event.timeNano / 1e6 : Date.now(),
    exitCode: Number.isInteger(code) ? code : undefined,
  };
}
