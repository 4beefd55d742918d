// The port to the container engine: the calls the executor makes, not all of Docker. `docker.ts` is the real one.

/** Labels of everything the agent makes. `machine` is the owner: nothing without our machine's id is ever touched. */
export const LABELS = {
  managed: 'io.longshore.managed',
  machine: 'io.longshore.machine',
  assignment: 'io.longshore.assignment',
  epoch: 'io.longshore.epoch',
  container: 'io.longshore.container',
  deployment: 'io.longshore.deployment',
  workspace: 'io.longshore.workspace',
} as const;

export interface EngineInfo {
  readonly version: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly rootDir: string;
}

export interface RuntimeContainer {
  readonly dockerId: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly state: 'created' | 'running' | 'exited';
  /** What follows is known from an inspection only. */
  readonly exitCode: number;
  readonly oomKilled: boolean;
  readonly startedAtMs: number;
  readonly finishedAtMs: number;
  readonly error: string;
}

export interface Mount {
  readonly kind: 'bind' | 'overlay';
  readonly target: string;
  readonly readOnly: boolean;
  /** bind: the host's path. */
  readonly source: string;
  /** overlay: the volume's name and its options. */
  readonly volume?: {
    readonly name: string;
    readonly options: string;
    readonly labels: Readonly<Record<string, string>>;
  };
}

export interface CreateContainer {
  readonly name: string;
  readonly image: string;
  readonly entrypoint: readonly string[];
  readonly workingDir: string;
  readonly user?: string;
  readonly env: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  readonly mounts: readonly Mount[];
  readonly network: string;
  readonly memoryBytes: number;
  readonly cpuMillicores: number;
  /** Only for helper containers of our own: a workload gets none. */
  readonly capabilities?: readonly string[];
}

/** What the engine did not do, in words that say whose fault it is. */
export type EngineFailure = 'conflict' | 'no_such_image' | 'mount_refused' | 'unavailable' | 'refused';

export class EngineError extends Error {
  override readonly name = 'EngineError';
  readonly failure: EngineFailure;
  constructor(failure: EngineFailure, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.failure = failure;
  }
}

/** Hints from the engine: worth an inspection, never the truth. */
export interface EngineEvent {
  readonly action: 'die' | 'oom' | 'destroy';
  readonly dockerId: string;
  readonly labels: Readonly<Record<string, string>>;
}

export interface ContainerRuntime {
  ping(): Promise<void>;
  info(): Promise<EngineInfo>;
  /** Containers with all of these labels, in any state; exited ones with how they ended. */
  list(labels: Readonly<Record<string, string>>): Promise<RuntimeContainer[]>;
  /** Undefined when there is none. */
  inspect(nameOrId: string): Promise<RuntimeContainer | undefined>;
  /** @throws EngineError */
  create(spec: CreateContainer): Promise<string>;
  start(dockerId: string): Promise<void>;
  /** One that is not running is success. */
  signal(dockerId: string, signal: 'SIGTERM' | 'SIGKILL'): Promise<void>;
  /** By force; one that is not there is success. */
  remove(dockerId: string): Promise<void>;
  removeVolume(name: string): Promise<void>;
  listVolumes(labels: Readonly<Record<string, string>>): Promise<string[]>;
  hasImage(reference: string): Promise<boolean>;
  listImages(): Promise<string[]>;
  /** Pulls; a stream that ends early or holds an error line is a failure. @throws Error with the engine's words */
  pull(reference: string, signal: AbortSignal): Promise<void>;
  ensureNetwork(name: string): Promise<void>;
  /** Removes it when nothing uses it. */
  removeNetwork(name: string): Promise<void>;
  /** What reaches fd 1 and 2, line by line, until the container ends. */
  followLogs(
    dockerId: string,
    sinceMs: number,
    onLine: (stream: 'stdout' | 'stderr', line: string) => void,
    signal: AbortSignal,
  ): Promise<void>;
  /** Events of our containers until the signal; returns when the stream ends. */
  watch(onEvent: (event: EngineEvent) => void, signal: AbortSignal): Promise<void>;
  /** Runs a short helper container to its end and removes it. @returns its exit code */
  runOnce(spec: CreateContainer, deadlineMs: number): Promise<number>;
}
