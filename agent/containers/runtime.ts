// The port to the container engine: the calls that the executor makes, not all of Docker. engine/docker.ts
// implements it.
import type { Readable } from 'node:stream';
import type { PullProgress } from './pull-stream.ts';

/** Labels of everything the agent makes. `machine` is the owner: objects without our machine's id are never touched. */
export const LABELS = {
  managed: 'io.longshore.managed',
  machine: 'io.longshore.machine',
  assignment: 'io.longshore.assignment',
  epoch: 'io.longshore.epoch',
  container: 'io.longshore.container',
  deployment: 'io.longshore.deployment',
  workspace: 'io.longshore.workspace',
  /** Name of the image, for people: containers are created by its id. */
  image: 'io.longshore.image',
  /** Marks pause containers, which belong to no workload until one joins them. */
  pauseContainer: 'io.longshore.holder',
  /** A key of the addresses that a pause container's filter closed when it was made. */
  closed: 'io.longshore.closed',
  /** UUIDs of the container's GPUs, separated by commas. */
  gpus: 'io.longshore.gpus',
  /** Marks a copy of the base image's Python with the image's id. */
  pythonBase: 'io.longshore.python-base',
  /** A copy of the journal's entry, in case the journal is lost. */
  facts: 'io.longshore.facts',
} as const;

export interface EngineInfo {
  readonly version: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly rootDir: string;
  readonly storageDriver: string;
  /**
   * Whether images and roots of containers are containerd's, and its socket (empty: containerd is part of the engine's
   * process).
   */
  readonly containerd: { readonly hasImages: boolean; readonly address: string };
  /** Version and driver of control groups, for people. */
  readonly cgroup: string;
  /** Limits of containers that the engine can set. */
  readonly limits: { readonly memory: boolean; readonly swap: boolean; readonly cpu: boolean; readonly pids: boolean };
  readonly userNamespaces: boolean;
  readonly rootless: boolean;
  /** The engine labels containers for SELinux, which confines them. */
  readonly selinux: boolean;
  /** Containers outlive a restart of the engine. */
  readonly liveRestore: boolean;
  /** The engine has a runtime for NVIDIA's devices. */
  readonly nvidia: boolean;
  /**
   * The Container Device Interface: directories of specifications that the engine reads (none: CDI is off), and its
   * devices where the engine reports them.
   */
  readonly cdi: { readonly dirs: readonly string[]; readonly devices: readonly string[] | undefined };
}

export interface RuntimeContainer {
  readonly dockerId: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly state: 'created' | 'running' | 'exited';
  /** The network it was created with: a name, `none`, or `container:<id>`. */
  readonly network: string;
  /** Only an inspection gives this field and those below. */
  readonly exitCode: number;
  readonly oomKilled: boolean;
  readonly startedAtMs: number;
  readonly finishedAtMs: number;
  readonly error: string;
  /** UUIDs of the container's GPUs: an inspection gives those that the engine passes, a listing those of the label. */
  readonly gpuUuids: readonly string[];
  /** Whether all GPUs came by CDI; only an inspection tells. */
  readonly hasCdi?: boolean;
}

export interface Mount {
  readonly kind: 'bind' | 'volume';
  readonly target: string;
  readonly readOnly: boolean;
  /** Path on the host, for `bind`. */
  readonly source: string;
  /**
   * For `volume`: a volume of the engine's own driver, by name, created with these options where absent; without
   * options it lies on the engine's disk.
   */
  readonly volume?: {
    readonly name: string;
    readonly options: { readonly type: string; readonly device: string; readonly o: string } | undefined;
    readonly labels: Readonly<Record<string, string>>;
  };
}

/** The engine's way to pass GPUs: as devices that its runtime knows, or by NVIDIA's hook. */
export type GpuDriver = 'cdi' | 'nvidia';

/** The variable by which NVIDIA's runtime and hook know the GPUs of a container; `void`: none. */
export const VISIBLE_DEVICES = 'NVIDIA_VISIBLE_DEVICES';

/** GPUs that the engine has to pass. */
export interface GpuRequest {
  readonly driver: GpuDriver;
  readonly uuids: readonly string[];
  /**
   * Parts of NVIDIA's driver that come with the GPUs by the hook, in NVIDIA's terms (`compute`, `video`, …); CDI always
   * brings all parts.
   */
  readonly capabilities: readonly string[];
}

export interface CreateContainer {
  readonly name: string;
  /**
   * The engine's id of the image, or its name. With containerd's images each listing looks up the name of each
   * container again; an id spares that.
   */
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
  /** Bound on processes and threads; absent: the limit of our own helpers. */
  readonly pids?: number;
  /** Bytes that may be written to the root, where the engine can enforce a limit; absent: no limit. */
  readonly rootBytes?: number;
  /** Bytes of shared memory; absent: the engine's default. */
  readonly shmBytes?: number;
  /** Bound on open files; absent: the engine's default. */
  readonly openFiles?: number;
  /** An init that reaps processes and passes signals on; false: none. */
  readonly init?: boolean;
  /** The root is read-only. */
  readonly readOnlyRoot?: boolean;
  readonly gpus?: GpuRequest;
  /** Capabilities of our own helper containers, and of pods and sandboxes; other workloads have none. */
  readonly capabilities?: readonly string[];
}

export interface NetworkFacts {
  /** The bridge device on this host; empty: not known. */
  readonly bridge: string;
  /** This machine's addresses on the bridge. */
  readonly gateways: readonly string[];
  /** Ranges from which containers of the network have their addresses. */
  readonly subnets: readonly string[];
}

export interface ImageFacts {
  readonly id: string;
  /** Digests (`sha256:…`) under which registries have the image, or would have it. */
  readonly digests: readonly string[];
  /** Names with a tag. */
  readonly tags?: readonly string[];
  /** Built or loaded here: no registry has the image under its name. */
  readonly isLocal: boolean;
  readonly bytes: number;
  /** The workspace for which an agent built it, by its label; empty: no build of ours. */
  readonly builtFor: string;
  /** Why no container and no build may have it, behind its name: its configuration is too large. Absent: they may. */
  readonly configProblem?: string;
}

/** Credentials for one call, kept in memory only. */
export interface RegistryAuth {
  readonly serverAddress: string;
  readonly username: string;
  readonly password: string;
  readonly identityToken: string;
}

export interface PushOptions {
  readonly auth: RegistryAuth;
  /** A push without any progress message for this long is given up. */
  readonly silenceMs: number;
  readonly signal: AbortSignal;
  readonly onProgress: (doneBytes: number, totalBytes: number) => void;
}

export interface PullOptions {
  /** True: the operator named the registry, so no guard stands before it. */
  readonly isOperators?: boolean | undefined;
  readonly auth: RegistryAuth | undefined;
  /** A pull without any progress message for this long is given up. */
  readonly silenceMs: number;
  readonly signal: AbortSignal;
  readonly onProgress: (progress: PullProgress) => void;
  /** Bound on the bytes of all layers, as the registry sends them; absent: none. */
  readonly maxBytes?: number;
}

/** Facts of an image's own configuration. */
export interface ImageConfig {
  readonly labels: Readonly<Record<string, string>>;
  /** Instructions that a build on the image would run. */
  readonly onBuild: readonly string[];
  /** Variables of its containers: `NAME=value`. */
  readonly env: readonly string[];
  /** User and directory of its containers; empty: the engine's default. */
  readonly user: string;
  readonly workingDir: string;
  /** The shell of its builds, with its flags; empty: the engine's default. */
  readonly shell: readonly string[];
  /** The program of its containers, with its arguments; empty: it names none. */
  readonly program: readonly string[];
  /** `amd64`, `arm64`, …; empty: it does not say. */
  readonly architecture: string;
  /** As in `ImageFacts`. */
  readonly configProblem?: string;
}

export interface BuildOptions {
  /** The name that the image gets; absent: none. */
  readonly tag?: string;
  /** As in `CreateContainer`. */
  readonly network: string;
  readonly memoryBytes: number;
  readonly cpuMillicores: number;
  /** Variables of steps whose Dockerfile declares them. */
  readonly args: Readonly<Record<string, string>>;
  readonly noCache: boolean;
  /** Ends the build; the engine removes the container of its step. */
  readonly signal: AbortSignal;
  /** Called with the builder's output as it comes, in parts of any length. */
  readonly onText: (text: string) => void;
  /** Called with the id, or a part of it, of each layer that the builder makes or has. */
  readonly onLayer: (imageId: string) => void;
}

export type BuildResult =
  | { readonly kind: 'built'; readonly imageId: string }
  /** The engine's own words. */
  | { readonly kind: 'failed'; readonly message: string };

/** Failures of the engine, named so that the party at fault is clear. */
export type EngineFailure =
  | 'conflict'
  | 'no_such_image'
  | 'no_such_network'
  | 'mount_refused'
  /** The host has no container toolkit for its GPUs. */
  | 'no_gpu_support'
  /** The toolkit could not pass a GPU. */
  | 'gpu_refused'
  /** The image needs a newer GPU driver than this host has. */
  | 'gpu_requirement'
  | 'unavailable'
  /** A helper container missed its deadline, and was removed. */
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

/** Events that the engine sends as they happen; a listing finds those that it omits. */
export interface EngineEvent {
  readonly action: 'kill' | 'die' | 'oom' | 'destroy';
  readonly dockerId: string;
  readonly labels: Readonly<Record<string, string>>;
  /** The engine's clock. */
  readonly atMs: number;
  /** Exit code, for `die` only. */
  readonly exitCode: number | undefined;
}

/**
 * The engine's memory of a container's end. An engine keeps its last 256 events in memory, until it ends.
 * - `own`: the engine saw the end and had sent no signal, or it cannot be known any more.
 * - `signalled`: the engine that answers had sent the container a signal, for somebody or because it stops.
 * - `new_engine`: the engine that answers began after the container did, and ended it or did not see its end.
 */
export type EndMemory = 'own' | 'signalled' | 'new_engine';

/** A path of this machine in a container. */
export interface BindMount {
  readonly dockerId: string;
  readonly source: string;
  readonly target: string;
}

export interface ContainerRuntime {
  ping(): Promise<void>;
  info(): Promise<EngineInfo>;
  /**
   * Containers with all of these labels, in any state; exited ones with their exit data.
   * @param only - `not_running` leaves out running ones, which cost some engines a millisecond each
   */
  list(labels: Readonly<Record<string, string>>, only?: 'not_running'): Promise<RuntimeContainer[]>;
  /** Looks a container up; undefined when there is none. */
  inspect(nameOrId: string): Promise<RuntimeContainer | undefined>;
  /** Process id of the container's first process on the host; undefined when it does not run. */
  pidOf(dockerId: string): Promise<number | undefined>;
  /**
   * The folder of the container's writes to its root, on the host. Empty where the engine has none to tell; undefined
   * when there is no such container.
   */
  rootPath(dockerId: string): Promise<string | undefined>;
  /**
   * Folders on the host of volumes that nobody asked for: the image names them, and the engine makes them. Undefined
   * when there is no such container.
   */
  imageVolumes(dockerId: string): Promise<readonly string[] | undefined>;
  /**
   * Summed lengths of the files that the container wrote to its root; undefined when there is no such container. The
   * engine walks over them.
   */
  writtenBytes(dockerId: string): Promise<number | undefined>;
  /** Whether a container's root can be given a limit. @throws EngineError when the engine does not answer */
  canLimitRoots(image: string, labels: Readonly<Record<string, string>>): Promise<boolean>;
  /** The variables that a container was made with; undefined when there is no such container. */
  environment(dockerId: string): Promise<Readonly<Record<string, string>> | undefined>;
  /** @throws EngineError */
  create(spec: CreateContainer): Promise<string>;
  start(dockerId: string): Promise<void>;
  /** Sends a signal; a container that does not run counts as success. */
  signal(dockerId: string, signal: 'SIGTERM' | 'SIGKILL'): Promise<void>;
  /** Removes by force; an absent container counts as success. */
  remove(dockerId: string): Promise<void>;
  removeVolume(name: string): Promise<void>;
  listVolumes(labels: Readonly<Record<string, string>>): Promise<string[]>;
  /** Looks an image up; undefined when the engine has none under that name. */
  image(reference: string): Promise<ImageFacts | undefined>;
  /** Names of the images here, by tag and by digest. */
  listImages(): Promise<string[]>;
  /**
   * Loads an image's file system from a tar stream.
   * @param changes - instructions of a Dockerfile for its configuration
   */
  importImage(reference: string, tar: Readable, changes?: readonly string[]): Promise<void>;
  /** Makes one image, of a single layer, from a container's file system. @param changes - as of `importImage` */
  flatten(dockerId: string, reference: string, changes: readonly string[]): Promise<void>;
  /** Ensures a bridge of ours whose containers cannot talk to each other. */
  ensureNetwork(name: string): Promise<NetworkFacts>;
  /**
   * @returns undefined when there is no network of this name @throws EngineError when its containers could talk to each
   * other
   */
  lookAtNetwork(name: string): Promise<NetworkFacts | undefined>;
  /** Paths of this machine that a container binds, of every container here. */
  bindMounts(): Promise<readonly BindMount[]>;
  /** Image ids of every container here, for every owner. */
  imageIdsInUse(): Promise<ReadonlySet<string>>;
  /** Removes the name, and with the last name the image; never by force. @returns false when something uses it */
  removeImage(reference: string): Promise<boolean>;
  /** The registry's current digest under that name. @throws Error with the engine's message */
  registryDigest(reference: string, auth: RegistryAuth | undefined, deadlineMs: number): Promise<string>;
  /**
   * Pulls; a stream that ends early or holds an error line is a failure.
   * @returns the digest that the engine reports
   * @throws Error with the engine's message
   */
  pull(reference: string, options: PullOptions): Promise<string>;
  /**
   * Pushes; a stream that ends early or holds an error line is a failure.
   * @returns the digest in the registry
   * @throws Error with the engine's message
   */
  push(repository: string, tag: string, options: PushOptions): Promise<string>;
  /** Looks at an image's configuration; undefined when the engine has no such image. */
  imageConfig(reference: string): Promise<ImageConfig | undefined>;
  /**
   * Builds an image with the engine's own (classic) builder, which enforces limits and joins a network namespace.
   * @param context - a tar file with a `Dockerfile`
   * @throws EngineError when there was no build
   */
  build(context: Readable, options: BuildOptions): Promise<BuildResult>;
  /** Removes images without a name that have the label. @param olderHours - only those made longer ago */
  pruneImages(label: string, olderHours: number): Promise<void>;
  /** Names of images that have the label. */
  imagesWithLabel(label: string): Promise<string[]>;
  /** Id of an image that has the label, with or without a name; undefined: there is none. */
  imageIdWithLabel(label: string): Promise<string | undefined>;
  /** Gives an image a further name. */
  tagImage(imageId: string, name: string, tag?: string): Promise<void>;
  /**
   * Makes an image of what a container wrote, otherwise configured like the image that the container was made of.
   * @returns the new image's id
   */
  commit(dockerId: string, imageId: string, labels: Readonly<Record<string, string>>): Promise<string>;
  /**
   * Makes an image of a container's files, configured like its image: without the container's variables, labels,
   * program and mounts. The container stands still meanwhile.
   * @throws EngineError
   */
  snapshot(dockerId: string, name: string, labels: Readonly<Record<string, string>>): Promise<void>;
  /** Ids of containers, of every owner, with that network setting. */
  containersOn(network: string): Promise<string[]>;
  /** Ids of containers, of every owner, whose names begin so. */
  containersNamed(prefix: string): Promise<string[]>;
  /** Removes the network when nothing uses it. */
  removeNetwork(name: string): Promise<void>;
  /** Follows the output on fd 1 and 2, line by line, until the container ends. */
  followLogs(
    dockerId: string,
    since: string,
    onLine: (stream: 'stdout' | 'stderr', line: string, position: string) => void,
    signal: AbortSignal,
  ): Promise<void>;
  /**
   * Watches events of our containers until the signal, beginning with those that the engine remembers since a moment of
   * its clock. Returns when the stream ends.
   */
  watch(sinceMs: number, onEvent: (event: EngineEvent) => void, signal: AbortSignal): Promise<void>;
  /**
   * Asks the engine what it knows of the end of a container that ran.
   * @throws EngineError
   */
  endMemory(dockerId: string): Promise<EndMemory>;
  /** Watches networks of every owner until the signal. Returns when the stream ends. */
  watchNetworks(onMade: () => void, signal: AbortSignal): Promise<void>;
  /** Starts a program in a container, and does not wait for it. @returns the engine's id of it @throws EngineError */
  execDetached(dockerId: string, command: readonly string[], env: readonly string[]): Promise<string>;
  /** Looks at such a program; undefined: the engine does not know it any more. */
  execState(execId: string): Promise<{ readonly running: boolean; readonly exitCode: number } | undefined>;
  /** Programs that were started so in a container, and run: their arguments. */
  execsOf(dockerId: string): Promise<readonly (readonly string[])[]>;
  /** Runs a program in a container. @returns its exit code and its output, up to a bound */
  exec(
    dockerId: string,
    command: readonly string[],
    deadlineMs: number,
  ): Promise<{ readonly exitCode: number; readonly output: string }>;
  /**
   * Runs a short helper container to its end and removes it.
   * @param onLine - called with its output, after its end
   * @param atEnd - called with the ended container, before it is removed, where its exit code is 0
   * @returns its exit code
   */
  runOnce(
    spec: CreateContainer,
    deadlineMs: number,
    onLine?: (line: string) => void,
    atEnd?: (dockerId: string) => Promise<void>,
  ): Promise<number>;
}
