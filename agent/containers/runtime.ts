// The port to the container engine: the calls the executor makes, not all of Docker. `docker.ts` is the real one.
import type { Readable } from 'node:stream';
import type { PullProgress } from '../images/pull-stream.ts';

/** Labels of everything the agent makes. `machine` is the owner: nothing without our machine's id is ever touched. */
export const LABELS = {
  managed: 'io.longshore.managed',
  machine: 'io.longshore.machine',
  assignment: 'io.longshore.assignment',
  epoch: 'io.longshore.epoch',
  container: 'io.longshore.container',
  deployment: 'io.longshore.deployment',
  workspace: 'io.longshore.workspace',
  /** On holders, which are nobody's container until one joins them. */
  holder: 'io.longshore.holder',
  /** UUIDs of the GPUs that it was given, with commas between them. */
  gpus: 'io.longshore.gpus',
  /** What the journal says of it, in case that is lost. */
  facts: 'io.longshore.facts',
} as const;

export interface EngineInfo {
  readonly version: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly rootDir: string;
  readonly storageDriver: string;
  /** Whether images and roots of containers are containerd's, and its socket (empty: it is a part of the engine's process). */
  readonly containerd: { readonly hasImages: boolean; readonly address: string };
  /** Version and driver, for people. */
  readonly cgroup: string;
  /** Which limits of containers it can set. */
  readonly limits: { readonly memory: boolean; readonly swap: boolean; readonly cpu: boolean; readonly pids: boolean };
  readonly userNamespaces: boolean;
  readonly rootless: boolean;
  /** Containers get labels of SELinux and are confined by them. */
  readonly selinux: boolean;
  /** Containers outlive a restart of it. */
  readonly liveRestore: boolean;
  /** It has a runtime for NVIDIA's devices. */
  readonly nvidia: boolean;
  /** The Container Device Interface: directories of specifications that the engine reads (none: it is off), and its devices where it tells them. */
  readonly cdi: { readonly dirs: readonly string[]; readonly devices: readonly string[] | undefined };
}

export interface RuntimeContainer {
  readonly dockerId: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly state: 'created' | 'running' | 'exited';
  /** What it was made with: a network's name, `none`, or `container:<id>`. */
  readonly network: string;
  /** What follows is known from an inspection only. */
  readonly exitCode: number;
  readonly oomKilled: boolean;
  readonly startedAtMs: number;
  readonly finishedAtMs: number;
  readonly error: string;
  /** GPUs that it was given: by an inspection what the engine passes, else what its label says. */
  readonly gpuUuids: readonly string[];
  /** All of them came by CDI; known from an inspection only. */
  readonly hasCdi?: boolean;
}

export interface Mount {
  readonly kind: 'bind' | 'volume';
  readonly target: string;
  readonly readOnly: boolean;
  /** bind: the host's path. */
  readonly source: string;
  /** volume: one of the engine's own driver, by name, made with these options where there is none. */
  readonly volume?: {
    readonly name: string;
    readonly type: string;
    readonly device: string;
    readonly o: string;
    readonly labels: Readonly<Record<string, string>>;
  };
}

/** The engine's way to pass GPUs: as devices that its runtime knows, or by NVIDIA's hook. */
export type GpuDriver = 'cdi' | 'nvidia';

/** GPUs that the engine is to pass. */
export interface GpuRequest {
  readonly driver: GpuDriver;
  readonly uuids: readonly string[];
  /** Parts of NVIDIA's driver that come with them by the hook, in NVIDIA's words (`compute`, `video`, …); by CDI all parts come. */
  readonly capabilities: readonly string[];
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
  /** Processes and threads at most; absent: the limit of our own helpers. */
  readonly pids?: number;
  /** Bytes that may be written to its root, where the engine can enforce them; absent: no limit. */
  readonly rootBytes?: number;
  /** Shared memory; absent: the engine's default. */
  readonly shmBytes?: number;
  /** Open files, at most; absent: the engine's default. */
  readonly openFiles?: number;
  /** An init that reaps and passes on signals; false: none. */
  readonly init?: boolean;
  /** Its root cannot be written. */
  readonly readOnlyRoot?: boolean;
  readonly gpus?: GpuRequest;
  /** Only for helper containers of our own: a workload gets none. */
  readonly capabilities?: readonly string[];
}

export interface NetworkFacts {
  /** The device on this host; empty: not known. */
  readonly bridge: string;
  /** This machine's addresses on it. */
  readonly gateways: readonly string[];
  /** Ranges from which its containers have their addresses. */
  readonly subnets: readonly string[];
}

export interface ImageFacts {
  readonly id: string;
  /** `sha256:…` under which registries have it, or would have it. */
  readonly digests: readonly string[];
  /** Made or loaded here: no registry has it under its name. */
  readonly isLocal: boolean;
  readonly bytes: number;
}

/** Lives in memory, for one call. */
export interface RegistryAuth {
  readonly serverAddress: string;
  readonly username: string;
  readonly password: string;
  readonly identityToken: string;
}

export interface PullOptions {
  readonly auth: RegistryAuth | undefined;
  /** A pull that says nothing for so long is given up. */
  readonly silenceMs: number;
  readonly signal: AbortSignal;
  readonly onProgress: (progress: PullProgress) => void;
}

/** What the engine did not do, in words that say whose fault it is. */
export type EngineFailure =
  | 'conflict'
  | 'no_such_image'
  | 'no_such_network'
  | 'mount_refused'
  /** The host has no container toolkit for its GPUs. */
  | 'no_gpu_support'
  /** The toolkit could not pass a GPU. */
  | 'gpu_refused'
  | 'unavailable'
  /** A helper container did not end by its deadline, and was removed. */
  | 'overdue'
  | 'refused';

export class EngineError extends Error {
  override readonly name = 'EngineError';
  readonly failure: EngineFailure;
  constructor(failure: EngineFailure, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.failure = failure;
  }
}

/** The engine or its toolkit could not pass GPUs: a fault of the machine. */
export const isGpuRefusal = (error: unknown): boolean =>
  error instanceof EngineError && (error.failure === 'no_gpu_support' || error.failure === 'gpu_refused');

/** What the engine says as it happens; what it forgets to say, a listing finds. */
export interface EngineEvent {
  readonly action: 'die' | 'oom' | 'destroy';
  readonly dockerId: string;
  readonly labels: Readonly<Record<string, string>>;
  /** The engine's clock. */
  readonly atMs: number;
  /** Of `die`. */
  readonly exitCode: number | undefined;
}

export interface ContainerRuntime {
  ping(): Promise<void>;
  info(): Promise<EngineInfo>;
  /** Containers with all of these labels, in any state; exited ones with how they ended. */
  list(labels: Readonly<Record<string, string>>): Promise<RuntimeContainer[]>;
  /** Undefined when there is none. */
  inspect(nameOrId: string): Promise<RuntimeContainer | undefined>;
  /** Of its first process, on the host; undefined when it does not run. */
  pidOf(dockerId: string): Promise<number | undefined>;
  /** The folder of what it wrote to its root, on the host; empty where the engine has none to tell; undefined when there is no such container. */
  rootPath(dockerId: string): Promise<string | undefined>;
  /** Lengths of the files that it wrote to its root; undefined when there is no such container. The engine walks over them. */
  writtenBytes(dockerId: string): Promise<number | undefined>;
  /** Whether a container's root can be given a limit. @throws EngineError when the engine does not answer */
  canLimitRoots(image: string, labels: Readonly<Record<string, string>>): Promise<boolean>;
  /** The variables that a container was made with; undefined when there is no such container. */
  environment(dockerId: string): Promise<Readonly<Record<string, string>> | undefined>;
  /** @throws EngineError */
  create(spec: CreateContainer): Promise<string>;
  start(dockerId: string): Promise<void>;
  /** One that is not running is success. */
  signal(dockerId: string, signal: 'SIGTERM' | 'SIGKILL'): Promise<void>;
  /** By force; one that is not there is success. */
  remove(dockerId: string): Promise<void>;
  removeVolume(name: string): Promise<void>;
  listVolumes(labels: Readonly<Record<string, string>>): Promise<string[]>;
  /** Undefined when the engine has none under that name. */
  image(reference: string): Promise<ImageFacts | undefined>;
  /** Names of the images here, by tag and by digest. */
  listImages(): Promise<string[]>;
  /** Loads an image's file system from a tar stream. */
  importImage(reference: string, tar: Readable): Promise<void>;
  /** A bridge of ours whose containers cannot talk to each other. */
  ensureNetwork(name: string): Promise<NetworkFacts>;
  /** @returns undefined: there is none of this name. @throws EngineError when its containers could talk to each other */
  lookAtNetwork(name: string): Promise<NetworkFacts | undefined>;
  /** Of every container here, whoever made it. */
  imageIdsInUse(): Promise<ReadonlySet<string>>;
  /** Takes the name away, and the image with its last name; never by force. @returns false when something uses it */
  removeImage(reference: string): Promise<boolean>;
  /** What its registry has under that name now. @throws Error with the engine's words */
  registryDigest(reference: string, auth: RegistryAuth | undefined, deadlineMs: number): Promise<string>;
  /** Pulls; a stream that ends early or holds an error line is a failure. @returns the digest that the engine says it pulled @throws Error with the engine's words */
  pull(reference: string, options: PullOptions): Promise<string>;
  /** Removes it when nothing uses it. */
  removeNetwork(name: string): Promise<void>;
  /** What reaches fd 1 and 2, line by line, until the container ends. */
  followLogs(
    dockerId: string,
    since: string,
    onLine: (stream: 'stdout' | 'stderr', line: string, position: string) => void,
    signal: AbortSignal,
  ): Promise<void>;
  /** Events of our containers until the signal, with those that the engine still knows since a moment of its clock; returns when the stream ends. */
  watch(sinceMs: number, onEvent: (event: EngineEvent) => void, signal: AbortSignal): Promise<void>;
  /** Runs a program in a container. @returns its exit code and what it printed, up to a bound */
  exec(
    dockerId: string,
    command: readonly string[],
    deadlineMs: number,
  ): Promise<{ readonly exitCode: number; readonly output: string }>;
  /** Runs a short helper container to its end and removes it. @param onLine - told what it printed, after its end @returns its exit code */
  runOnce(spec: CreateContainer, deadlineMs: number, onLine?: (line: string) => void): Promise<number>;
}
