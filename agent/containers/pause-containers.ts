/**
 * Pause containers: small containers of our own, each with a network namespace that one workload joins. Settings,
 * labels and the image's name call them holders. The network is most of the cost of a cold start, so some wait ready.
 * A pause container sets the filter of its namespace (network-filter.ts) and then gives up every right to change it;
 * the workload never has one. Called by reconcile/. Must stay true: a workload joins no namespace whose filter was not
 * set; a pause container serves one workload and goes with it; an unused pause container is removed.
 */
import { createHash, randomBytes } from 'node:crypto';
import { backoffMs, withDeadline } from '#shared/backoff.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { Filtered } from './address-updates.ts';
import { AddressUpdates, setRules } from './address-updates.ts';
import { openFilesByContainer, openFilesOf } from './helpers.ts';
import { Limiter } from './limiter.ts';
import { PAUSE_IMAGE, ensurePauseImage } from './pause-image.ts';
import type { FilterTable, NetworkChoice, RulesInput } from './network-filter.ts';
import { changedRules, closedUpdate, filterRules, frameRules } from './network-filter.ts';
import type { ContainerRuntime, NetworkFacts, RuntimeContainer } from './runtime.ts';
import { EngineError, LABELS } from './runtime.ts';

/** Addresses of this machine, and of the name servers that it asks. */
export interface MachineAddresses {
  readonly own: readonly string[];
  readonly nameServers: readonly string[];
}

const READY_DEADLINE_MS = 30_000;
/** New pause containers are made after this time without a start: making them must not compete with starts. */
const REFILL_QUIET_MS = 250;
/** Removals in the background: an engine that ends none of them still has places for other calls. */
const REMOVALS_AT_ONCE = 4;
const MEMORY_BYTES = 32 * 1024 * 1024;
const CPU_MILLICORES = 1000;
/**
 * The init of a pause container: sets the rules, prints that together with the engine's limit of open files, and waits
 * without capabilities and without root.
 */
const SCRIPT =
  'printf %s "$RULES" | nft -f - && echo "ready $(ulimit -Hn)" && exec su -s /usr/bin/sleep holder 2147483647';
/** The same with rules for frames, which name the container's own address. */
const BUILD_SCRIPT = `while read -r address name rest; do case "$address" in *:*) ;; *) [ "$name" = "$HOSTNAME" ] && self="$address" ;; esac; done </etc/hosts; RULES="define self = $self
$RULES"; ${SCRIPT}`;
/** Capabilities for `nft`, and to stop being root. */
const CAPABILITIES = ['NET_ADMIN', 'SETUID', 'SETGID'];
export interface PauseContainer {
  readonly dockerId: string;
  /** The network setting of a container that joins this pause container. */
  readonly network: string;
  /** Hard limit of open files that the engine gives a container; undefined: not known. */
  readonly openFiles: number | undefined;
}

interface Kept extends PauseContainer, Filtered {
  /** A key of the filter's text: a pause container with other rules cannot be used. */
  readonly key: string;
}

/** A filter as a pause container sets it. */
interface Filter {
  readonly rules: string;
  readonly closed: string;
  readonly tables: readonly FilterTable[];
  readonly script: string;
}

export interface PauseContainersParts {
  readonly runtime: ContainerRuntime;
  readonly log: Log;
  readonly network: string;
  /** Number of pause containers that wait; 0: each is made when needed. */
  readonly size: number;
  readonly labels: () => Readonly<Record<string, string>>;
  readonly addresses: () => MachineAddresses;
  readonly openAddresses: readonly string[];
  readonly closedRanges: readonly string[];
  /** Makes the filter's text; `filterRules` by default. */
  readonly rules?: typeof filterRules;
}

/** The network of most containers. */
const OPEN: NetworkChoice = { allowList: [] };

/** The assignment that a pause container serves. */
const ownerOf = (containerId: string, epoch: number): string => `${containerId} ${epoch}`;

export class PauseContainers {
  readonly #parts: PauseContainersParts;
  readonly #waiting: Kept[] = [];
  readonly #serving = new Map<string, Kept>();
  /**
   * Names of pause containers in creation, and ids of those in removal until a listing lacks them: no sweep removes
   * them as strays.
   */
  readonly #making = new Set<string>();
  readonly #leaving = new Set<string>();
  #imageId: string = PAUSE_IMAGE;
  #bridge: NetworkFacts = { bridge: '', gateways: [], subnets: [] };
  #timer: NodeJS.Timeout | undefined;
  #filling: Promise<void> | undefined;
  #failures = 0;
  #openFiles: number | undefined;
  #askingOpenFiles: Promise<void> | undefined;
  #closed = false;
  readonly #removing = new Set<Promise<void>>();
  readonly #removals = new Limiter(REMOVALS_AT_ONCE);
  readonly #updates: AddressUpdates;
  readonly #failed = new Listeners<[unknown]>();
  readonly #lostOf = new Listeners<[string]>();

  constructor(parts: PauseContainersParts) {
    this.#parts = parts;
    this.#updates = new AddressUpdates({
      runtime: parts.runtime,
      log: parts.log,
      closedNow: () => this.#closedNow(),
      serving: () => [...this.#serving.values()],
      update: ({ tables }) => closedUpdate(this.#rulesInput(OPEN), tables),
    });
  }

  /** Told when a pause container could not be made ahead. */
  onFailed(listener: (error: unknown) => void): void {
    this.#failed.add(listener);
  }

  /** Told when the pause container of a workload has ended: the workload has no network any more. */
  onLost(listener: (containerId: string) => void): void {
    this.#lostOf.add(listener);
  }

  /**
   * Ensures image and network, adopts pause containers whose workloads run, and begins to remove all others of ours. An
   * engine that cannot remove one holds nothing up; a sweep tries again after a failure.
   * @param containers - everything of ours that the engine has
   */
  async open(containers: readonly RuntimeContainer[]): Promise<void> {
    const { runtime, network } = this.#parts;
    this.#imageId = await ensurePauseImage(runtime);
    this.#bridge = await runtime.ensureNetwork(network);
    const joined = joinedPauseContainers(containers);
    const closedOf = new Map(containers.map((one) => [one.dockerId, one.labels[LABELS.closed]]));
    for (const container of containers) {
      const pauseId = pauseIdOf(container);
      const containerId = container.labels[LABELS.container];
      if (pauseId === undefined || containerId === undefined) continue;
      const owner = ownerOf(containerId, Number(container.labels[LABELS.epoch] ?? 0));
      const closed = closedOf.get(pauseId) ?? '';
      const kept = { dockerId: pauseId, network: container.network, openFiles: undefined, key: '', closed };
      this.#serving.set(owner, { ...kept, tables: ['inet'] });
    }
    for (const one of containers) if (isPauseContainer(one) && !joined.has(one.dockerId)) this.#remove(one);
  }

  /** Begins to fill the pool, and to watch this machine's addresses. */
  start(): void {
    this.#updates.start();
    this.#refillLater();
  }

  /**
   * Limit of open files for workloads without a pause container, as measured by the newest pause container. Before the
   * first one a helper container measures it, once.
   * @returns undefined when the limit could not be measured; the engine's default holds
   */
  async openFiles(): Promise<number | undefined> {
    if (this.#openFiles !== undefined) return this.#openFiles;
    this.#askingOpenFiles ??= this.#askOpenFiles().finally(() => (this.#askingOpenFiles = undefined));
    await this.#askingOpenFiles;
    return this.#openFiles;
  }

  async #askOpenFiles(): Promise<void> {
    const { runtime, labels, log } = this.#parts;
    try {
      this.#openFiles = await openFilesByContainer(runtime, labels());
    } catch (error) {
      log.warn({ err: error }, 'the limit of open files is not known: containers have the default of the engine');
    }
  }

  /** Number of pause containers that wait. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /**
   * A pause container for one workload: a waiting one, else a new one.
   * @throws AppError `network_error` when no pause container could be made ready
   */
  async take(containerId: string, epoch: number, choice: NetworkChoice): Promise<PauseContainer> {
    this.release(containerId, epoch);
    const filter = this.#filter(choice);
    // Waiting pause containers have the rules of an open network.
    const isOpen = choice.blockNetwork !== true && choice.allowList.length === 0;
    const waits = isOpen ? this.#takeWaiting(keyOf(filter.rules)) : undefined;
    const pauseContainer = waits ?? (await this.#make(filter));
    await this.#serve(ownerOf(containerId, epoch), pauseContainer);
    this.#refillLater();
    return pauseContainer;
  }

  /**
   * A pause container for a build, whose steps may have raw sockets.
   * @throws AppError `network_error`, also where the kernel cannot filter frames
   */
  async takeForBuild(buildId: string): Promise<PauseContainer> {
    const filter = this.#filter(OPEN);
    const rules = `${filter.rules}${frameRules(this.#rulesInput(OPEN))}`;
    const pauseContainer = await this.#make({ ...filter, rules, tables: ['inet', 'netdev'], script: BUILD_SCRIPT });
    await this.#serve(ownerOf(buildId, 0), pauseContainer);
    return pauseContainer;
  }

  /**
   * Changes what a running workload may reach. Its filter stays as it is where that fails.
   * @throws AppError `network_error`
   */
  async change(containerId: string, epoch: number, choice: NetworkChoice): Promise<void> {
    const pauseContainer = this.#serving.get(ownerOf(containerId, epoch));
    if (pauseContainer === undefined) throw new AppError('network_error', 'the container has no network of its own');
    const input = this.#rulesInput(choice);
    try {
      await setRules(this.#parts.runtime, pauseContainer.dockerId, changedRules(input));
    } catch (error) {
      throw new AppError('network_error', `cannot change the container's network: ${messageOf(error)}`, {
        cause: error,
      });
    }
    // This machine may have got an address since the text was made.
    pauseContainer.closed = closedKey(input);
    if (pauseContainer.closed !== this.#closedNow()) await this.#updates.look();
  }

  async #serve(owner: string, pauseContainer: Kept): Promise<void> {
    this.#serving.set(owner, pauseContainer);
    // This machine may have got an address since the filter was made.
    if (pauseContainer.closed !== this.#closedNow()) await this.#updates.look();
  }

  #takeWaiting(key: string): Kept | undefined {
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      if (next.key === key) return next;
      // This machine's addresses have changed since the pause container was made.
      this.#remove(next);
    }
    return undefined;
  }

  /** Whether a pause container can still be joined. */
  async runs(pauseContainer: PauseContainer): Promise<boolean> {
    return (await this.#parts.runtime.inspect(pauseContainer.dockerId))?.state === 'running';
  }

  /** The workload is gone: its pause container is removed in the background. */
  release(containerId: string, epoch: number): void {
    const owner = ownerOf(containerId, epoch);
    const pauseContainer = this.#serving.get(owner);
    if (pauseContainer === undefined) return;
    this.#serving.delete(owner);
    this.#remove(pauseContainer);
  }

  /** Called when the engine reports the end of a pause container. A serving pause container must not end. */
  ended(dockerId: string): void {
    for (const [owner, pauseContainer] of this.#serving)
      if (pauseContainer.dockerId === dockerId) this.#lost(owner.slice(0, owner.lastIndexOf(' ')));
  }

  #lost(containerId: string): void {
    this.#parts.log.error({ containerId }, 'the holder of a container has ended: it has no network any more');
    this.#lostOf.tell(containerId);
  }

  /** Compares with a listing of everything of ours: strays are removed, ended pause containers are noticed. */
  tidy(containers: readonly RuntimeContainer[]): void {
    const running = new Set(containers.filter((one) => one.state === 'running').map((one) => one.dockerId));
    const joined = joinedPauseContainers(containers);
    const listed = new Set(containers.map((one) => one.dockerId));
    for (const dockerId of this.#leaving) if (!listed.has(dockerId)) this.#leaving.delete(dockerId);
    const known = new Set([...this.#waiting, ...this.#serving.values()].map((one) => one.dockerId));
    const isOurs = ({ dockerId, name }: RuntimeContainer): boolean =>
      known.has(dockerId) || joined.has(dockerId) || this.#making.has(name) || this.#leaving.has(dockerId);
    for (const one of containers)
      if (isPauseContainer(one) && !isOurs(one)) {
        this.#parts.log.warn({ holder: one.name }, 'stray holder removed');
        this.#remove({ dockerId: one.dockerId });
      }
    for (const one of containers) {
      const containerId = one.labels[LABELS.container];
      const pauseId = pauseIdOf(one);
      if (containerId === undefined || pauseId === undefined || one.state !== 'running') continue;
      if (!running.has(pauseId)) this.#lost(containerId);
    }
    // A pause container that began to wait after the listing began is not in it, so only listed ones are judged.
    for (const pauseContainer of this.#waiting.filter(
      (one) => listed.has(one.dockerId) && !running.has(one.dockerId),
    )) {
      this.#waiting.splice(this.#waiting.indexOf(pauseContainer), 1);
      this.#remove(pauseContainer);
      this.#refillLater();
    }
  }

  /** Removes waiting pause containers; serving ones stay with their workloads. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await Promise.all([this.#filling, this.#updates.stop()]);
    for (const pauseContainer of this.#waiting.splice(0)) this.#remove(pauseContainer);
    await Promise.all(this.#removing);
  }

  #filter(choice: NetworkChoice): Filter {
    const input = this.#rulesInput(choice);
    const rules = (this.#parts.rules ?? filterRules)(input);
    return { rules, closed: closedKey(input), tables: ['inet'], script: SCRIPT };
  }

  #closedNow(): string {
    return closedKey(this.#rulesInput(OPEN));
  }

  #rulesInput({ blockNetwork = false, allowList }: NetworkChoice): RulesInput {
    const { own, nameServers } = this.#parts.addresses();
    return {
      blockNetwork,
      allowList,
      ownAddresses: [...new Set([...own, ...this.#bridge.gateways])].toSorted(),
      bridgeRanges: this.#bridge.subnets,
      closedRanges: this.#parts.closedRanges,
      openAddresses: this.#parts.openAddresses,
      nameServers,
    };
  }

  async #make(filter: Filter): Promise<Kept> {
    try {
      return await this.#makeOnce(filter);
    } catch (error) {
      // A cleanup outside the agent removed the image or the network: both can be made again.
      if (!(error instanceof EngineError) || (error.failure !== 'no_such_image' && error.failure !== 'no_such_network'))
        throw networkError(error);
    }
    try {
      this.#imageId = await ensurePauseImage(this.#parts.runtime);
      this.#bridge = await this.#parts.runtime.ensureNetwork(this.#parts.network);
      return await this.#makeOnce(filter);
    } catch (error) {
      throw networkError(error);
    }
  }

  async #makeOnce({ rules, closed, tables, script }: Filter): Promise<Kept> {
    const { runtime, labels, network } = this.#parts;
    const name = `h-${randomBytes(6).toString('hex')}`;
    this.#making.add(name);
    let dockerId: string | undefined;
    try {
      dockerId = await runtime.create({
        name,
        image: this.#imageId,
        entrypoint: ['sh', '-c', script],
        workingDir: '/',
        env: [`RULES=${rules}`],
        labels: { ...labels(), [LABELS.pauseContainer]: '1', [LABELS.image]: PAUSE_IMAGE, [LABELS.closed]: closed },
        mounts: [],
        network,
        memoryBytes: MEMORY_BYTES,
        cpuMillicores: CPU_MILLICORES,
        capabilities: CAPABILITIES,
        init: false,
      });
      await runtime.start(dockerId);
      const openFiles = await this.#untilReady(dockerId);
      this.#openFiles = openFiles;
      return { dockerId, network: `container:${dockerId}`, openFiles, key: keyOf(rules), closed, tables };
    } catch (error) {
      if (dockerId !== undefined) this.#remove({ dockerId });
      throw error;
    } finally {
      this.#making.delete(name);
    }
  }

  /** @returns the number of files that a container may have open */
  async #untilReady(dockerId: string): Promise<number> {
    const heard = new AbortController();
    let ready: string | undefined;
    const said: string[] = [];
    const following = this.#parts.runtime.followLogs(
      dockerId,
      '',
      (_stream, line) => {
        ready ??= /^ready (\S+)$/.exec(line)?.[1];
        if (ready !== undefined) heard.abort();
        else if (said.length < 5) said.push(line);
      },
      heard.signal,
    );
    try {
      await withDeadline(following, READY_DEADLINE_MS, () => new Error('it did not set its filter in time'));
    } finally {
      heard.abort();
    }
    if (ready === undefined) throw new Error(said.join(' ').slice(0, 500) || 'it ended before its filter was set');
    return openFilesOf(ready);
  }

  #remove({ dockerId }: { readonly dockerId: string }): void {
    this.#leaving.add(dockerId);
    const removing = this.#removals
      .run(() => this.#parts.runtime.remove(dockerId))
      .catch((error: unknown) => {
        this.#leaving.delete(dockerId);
        this.#parts.log.info({ err: error }, 'a holder could not be removed; the sweep will');
      })
      .finally(() => this.#removing.delete(removing));
    this.#removing.add(removing);
  }

  #refillLater(waitMs = REFILL_QUIET_MS): void {
    if (this.#closed || this.#filling !== undefined) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#filling = this.#fill().finally(() => {
        this.#filling = undefined;
        if (!this.#closed && this.#waiting.length < this.#parts.size)
          this.#refillLater(
            this.#failures === 0 ? REFILL_QUIET_MS : backoffMs(this.#failures, { baseMs: 1000, capMs: 60_000 }),
          );
      });
    }, waitMs);
    this.#timer.unref();
  }

  /** Fills one at a time: starts of containers have priority. */
  async #fill(): Promise<void> {
    while (!this.#closed && this.#waiting.length < this.#parts.size) {
      try {
        const pauseContainer = await this.#make(this.#filter(OPEN));
        this.#failures = 0;
        this.#waiting.push(pauseContainer);
      } catch (error) {
        this.#failures += 1;
        this.#failed.tell(error);
        if (this.#failures === 1) this.#parts.log.warn({ err: error }, 'no holder could be made ahead');
        return;
      }
    }
  }
}

const keyOf = (rules: string): string => createHash('sha256').update(rules).digest('hex');

/** A short key of the closed ranges, which stands in a label. */
const closedKey = (input: RulesInput): string => keyOf(closedUpdate(input, ['inet'])).slice(0, 16);

const isPauseContainer = (container: RuntimeContainer): boolean =>
  container.labels[LABELS.pauseContainer] !== undefined;

const pauseIdOf = (container: RuntimeContainer): string | undefined =>
  container.network.startsWith('container:') ? container.network.slice('container:'.length) : undefined;

const joinedPauseContainers = (containers: readonly RuntimeContainer[]): Set<string> =>
  new Set(containers.flatMap((one) => pauseIdOf(one) ?? []));

function networkError(error: unknown): AppError {
  return new AppError('network_error', `cannot prepare the container's network: ${messageOf(error)}`, { cause: error });
}
