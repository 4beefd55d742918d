/**
 * The container engine behind our port, through dockerode (its only import). Every call has a deadline and at most 16 run at once; the engine's status numbers
 * are translated here and known nowhere else.
 */
import type { Readable } from 'node:stream';
import Docker from 'dockerode';
import { withDeadline } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import { LogDemultiplexer } from './lines.ts';
import { connectionOptions, createOptions } from './docker-options.ts';
import { Limiter } from './limiter.ts';
import { readPullStream } from './pull-stream.ts';
import type { ContainerRuntime, CreateContainer, EngineEvent, EngineInfo, RuntimeContainer } from './runtime.ts';
import { EngineError, LABELS } from './runtime.ts';

const CALL_DEADLINE_MS = 30_000;
const CALLS_AT_ONCE = 16;
/** A pull that says nothing for this long is dead. */
const PULL_SILENCE_MS = 120_000;

export class DockerRuntime implements ContainerRuntime {
  readonly #docker: Docker;
  readonly #limit = new Limiter(CALLS_AT_ONCE);
  readonly #onCall: (operation: string, result: 'ok' | 'error', seconds: number) => void;

  constructor(
    host: string | undefined,
    onCall: (operation: string, result: 'ok' | 'error', seconds: number) => void = () => undefined,
  ) {
    this.#docker = new Docker(connectionOptions(host));
    this.#onCall = onCall;
  }

  async ping(): Promise<void> {
    await this.#call('ping', () => this.#docker.ping(), 5000);
  }

  async info(): Promise<EngineInfo> {
    const info = (await this.#call('info', () => this.#docker.info())) as {
      ServerVersion: string;
      NCPU: number;
      MemTotal: number;
      DockerRootDir: string;
    };
    return {
      version: info.ServerVersion,
      cores: info.NCPU,
      memoryBytes: info.MemTotal,
      rootDir: info.DockerRootDir,
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
          exitCode: 0,
          oomKilled: false,
          startedAtMs: 0,
          finishedAtMs: 0,
          error: '',
        };
      }),
    );
    return all.filter((one) => one !== undefined);
  }

  async inspect(nameOrId: string): Promise<RuntimeContainer | undefined> {
    try {
      const facts = await this.#call('inspect', (abortSignal) =>
        this.#docker.getContainer(nameOrId).inspect({ abortSignal }),
      );
      return {
        dockerId: facts.Id,
        name: facts.Name.replace(/^\//, ''),
        labels: facts.Config.Labels ?? {},
        state: stateOf(facts.State.Status),
        exitCode: facts.State.ExitCode,
        oomKilled: facts.State.OOMKilled,
        startedAtMs: timeOf(facts.State.StartedAt),
        finishedAtMs: timeOf(facts.State.FinishedAt),
        error: facts.State.Error,
      };
    } catch (error) {
      if (statusOf(error) === 404) return undefined;
      throw error;
    }
  }

  async create(spec: CreateContainer): Promise<string> {
    try {
      const made = await this.#call('create', (abortSignal) =>
        this.#docker.createContainer({ ...createOptions(spec), abortSignal }),
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
      // 404: no such container; 409: it does not run. Both are what was wanted.
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

  async hasImage(reference: string): Promise<boolean> {
    try {
      await this.#call('inspect_image', () => this.#docker.getImage(reference).inspect());
      return true;
    } catch (error) {
      if (statusOf(error) === 404) return false;
      throw translate(error, `cannot look for image ${reference}`);
    }
  }

  async listImages(): Promise<string[]> {
    const images = await this.#call('list_images', () => this.#docker.listImages());
    return images.flatMap((image) => image.RepoTags ?? []).filter((tag) => tag !== '<none>:<none>');
  }

  async pull(reference: string, signal: AbortSignal): Promise<void> {
    const tagged = /(@|:[^/]*$)/.test(reference) ? reference : `${reference}:latest`;
    const stream = (await this.#call(
      'pull',
      () => this.#docker.createImage({ fromImage: tagged, abortSignal: signal }),
      PULL_SILENCE_MS,
    )) as unknown as Readable;
    await readPullStream(stream, PULL_SILENCE_MS, signal);
  }

  async ensureNetwork(name: string): Promise<void> {
    try {
      await this.#call('inspect_network', () => this.#docker.getNetwork(name).inspect());
      return;
    } catch (error) {
      if (statusOf(error) !== 404) throw translate(error, `cannot look for network ${name}`);
    }
    try {
      await this.#call('create_network', () =>
        this.#docker.createNetwork({
          Name: name,
          CheckDuplicate: true,
          Driver: 'bridge',
          // Containers of different workspaces share the bridge: no traffic between them.
          Options: { 'com.docker.network.bridge.enable_icc': 'false' },
          Labels: { [LABELS.managed]: '1' },
        }),
      );
    } catch (error) {
      // Another agent of this host made it in between.
      if (statusOf(error) !== 409) throw translate(error, `cannot create network ${name}`);
    }
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
    sinceMs: number,
    onLine: (stream: 'stdout' | 'stderr', line: string) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const stream = (await this.#docker.getContainer(dockerId).logs({
      follow: true,
      stdout: true,
      stderr: true,
      since: Math.ceil(sinceMs / 1000),
      abortSignal: signal,
    })) as unknown as Readable;
    const demultiplexer = new LogDemultiplexer(onLine);
    await drain(stream, signal, (data) => demultiplexer.push(data));
    demultiplexer.end();
  }

  async watch(onEvent: (event: EngineEvent) => void, signal: AbortSignal): Promise<void> {
    const stream = (await this.#docker.getEvents({
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

  async runOnce(spec: CreateContainer, deadlineMs: number): Promise<number> {
    const dockerId = await this.create(spec);
    try {
      await this.start(dockerId);
      const result = (await this.#call(
        'wait',
        (abortSignal) => this.#docker.getContainer(dockerId).wait({ abortSignal }),
        deadlineMs,
      )) as { StatusCode: number };
      return result.StatusCode;
    } finally {
      await this.remove(dockerId);
    }
  }

  /** Runs one call inside the limit and its deadline, and counts it. */
  async #call<T>(
    operation: string,
    call: (abortSignal: AbortSignal) => Promise<T>,
    deadlineMs = CALL_DEADLINE_MS,
  ): Promise<T> {
    return this.#limit.run(async () => {
      const from = performance.now();
      const abort = new AbortController();
      try {
        const result = await withDeadline(
          call(abort.signal),
          deadlineMs,
          () => new EngineError('unavailable', `the container engine did not answer ${operation} in ${deadlineMs} ms`),
        );
        this.#onCall(operation, 'ok', (performance.now() - from) / 1000);
        return result;
      } catch (error) {
        // The request must not hang on after its deadline.
        abort.abort();
        this.#onCall(operation, (statusOf(error) ?? 500) < 500 ? 'ok' : 'error', (performance.now() - from) / 1000);
        throw error;
      }
    });
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

function translate(error: unknown, what: string): EngineError {
  if (error instanceof EngineError) return error;
  const status = statusOf(error);
  const text = messageOf(error)
    .replace(/^\(HTTP code \d+\) [^-]*- /, '')
    .trim();
  const message = `${what}: ${text}`;
  if (status === 409) return new EngineError('conflict', message, { cause: error });
  if (status === 404 && /no such image/i.test(text)) return new EngineError('no_such_image', message, { cause: error });
  if (/failed to mount local volume|error while mounting volume/.test(text))
    return new EngineError('mount_refused', message, { cause: error });
  if (status === undefined) return new EngineError('unavailable', message, { cause: error });
  return new EngineError('refused', message, { cause: error });
}

/** Reads a stream to its end; an abort is an end too. */
async function drain(stream: Readable, signal: AbortSignal, onData: (data: Buffer) => void): Promise<void> {
  try {
    for await (const data of stream) onData(data as Buffer);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

function parseEvent(line: string): EngineEvent | undefined {
  if (line.trim() === '') return undefined;
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
  } catch {
    return undefined;
  }
  const event = parsed as { Action?: unknown; Actor?: { ID?: unknown; Attributes?: Record<string, string> } };
  const action = event.Action;
  if (action !== 'die' && action !== 'oom' && action !== 'destroy') return undefined;
  if (typeof event.Actor?.ID !== 'string') return undefined;
  return { action, dockerId: event.Actor.ID, labels: event.Actor.Attributes ?? {} };
}
