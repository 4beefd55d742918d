/**
 * The machine under an agent that is killed again and again, and the invariants of that machine. The machine is a host
 * of its own with stand-ins for GPUs. No container runs twice, no device has two containers, every lease has its
 * container. Nothing of ours is left over, and nothing of others is touched. The watch reads the engine and the agent's
 * journal on disk, and trusts no running agent.
 */
import { mkdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type Docker from 'dockerode';
import { repeat, sleep } from '#shared/backoff.ts';
import { LABELS } from '#agent/containers/runtime.ts';
import type { JournalEntry } from '#agent/reconcile/journal.ts';
import { FakeNvidia, aGpu, gpuHost } from '../../test/helpers/gpus.ts';
import { SimulatedNetwork, whyNoHosts } from '../../test/helpers/hosts/network.ts';
import { UsageError } from '../options.ts';
import { causes } from '../program.ts';
import type { Workplace } from '../workplace.ts';
import { Patience, contradictions, unpaired } from './leases.ts';
import type { Lease, SeenContainer } from './leases.ts';

/** GPUs of a host: fewer than the containers that ask for one, so that each returned GPU is wanted at once. */
const GPUS = 5;
/** Pause containers that every start of an agent makes ahead, and that are strays for the next agent. */
const HOLDERS = 2;
/** Orphan grace, short enough that orphans are gone within an audit's wait. */
const ORPHAN_S = 10;
const LOOK_EVERY_MS = 250;
const POLL_MS = 20;
/** Time for the next agent that lives long enough to repair a cut-off start or end; kills may be seconds apart. */
const PATIENCE_MS = 60_000;
/**
 * Time from the end of all work to a machine without a container of ours: keep-warm, stop ladders, the orphans' grace.
 */
const EMPTY_MS = 90_000;

export interface GpuHost {
  readonly engine: Docker;
  /** Settings of the agent. */
  readonly settings: Readonly<Record<string, string>>;
}

/**
 * Starts network namespaces, each with an engine that passes GPUs; they go with the workplace.
 * @throws UsageError where there can be none
 */
export async function startGpuHosts(place: Workplace, count: number, gpusEach = GPUS): Promise<readonly GpuHost[]> {
  if (whyNoHosts !== undefined) throw new UsageError(whyNoHosts);
  const { reference } = await place.engine.baseImage();
  const network = await SimulatedNetwork.up(count, reference, gpuHost);
  place.later(() => network.down());
  return network.hosts.map((host, index) => {
    const directory = join(host.directory, 'gpu');
    mkdirSync(directory);
    const gpus = Array.from({ length: gpusEach }, (_, at) => aGpu(index * gpusEach + at));
    const nvidia = new FakeNvidia(directory, { gpus });
    return {
      engine: host.docker,
      settings: {
        DOCKER_HOST: `unix://${host.socket}`,
        LONGSHORE_NVIDIA_SMI: nvidia.tool,
        LONGSHORE_AGENT_HOLDERS: String(HOLDERS),
        LONGSHORE_AGENT_ORPHAN_SECONDS: String(ORPHAN_S),
      },
    };
  });
}

/** Machine that the watch looks at. */
export interface Watched {
  readonly engine: Docker;
  readonly image: string;
  readonly machineId: string;
  /** Journal in the agent's state directory. */
  readonly journalPath: string;
  readonly network: string;
  /**
   * Time that leftovers of a kill may stay, and time until the
   * machine must be empty. Defaults: those of the kill rounds.
   */
  readonly patienceMs?: number;
  readonly emptyMs?: number;
}

interface Stranger {
  readonly id: string;
  readonly what: string;
  readonly startedAt: string;
}

export class MachineWatch {
  readonly #watched: Watched;
  readonly #patience: Patience;
  readonly #ends = new AbortController();
  readonly #findings = new Set<string>();
  readonly #devicesOf = new Map<string, readonly string[]>();
  /** Number of devices by the engine's id, for every container ever seen. */
  readonly #everSeen = new Map<string, number>();
  readonly #strangers: Stranger[] = [];
  readonly #containerIds = new Set<string>();
  #looking: Promise<void> = Promise.resolve();
  #looks = 0;
  #running: ReadonlySet<string> = new Set();
  #turns = 0;

  private constructor(watched: Watched) {
    this.#watched = watched;
    this.#patience = new Patience(watched.patienceMs ?? PATIENCE_MS);
  }

  /**
   * Starts two strangers (a container of no machine, and one of
   * another machine) and looks at the machine until it ends.
   */
  static async start(watched: Watched): Promise<MachineWatch> {
    const watch = new MachineWatch(watched);
    await watch.#addStrangers();
    const failed = (error: unknown): void => void watch.#findings.add(`not_seen: ${causes(error)}`);
    watch.#looking = repeat(LOOK_EVERY_MS, watch.#ends.signal, () => watch.check(), failed);
    return watch;
  }

  get findings(): readonly string[] {
    return [...this.#findings];
  }

  /** Every container ever seen, by the product's id. */
  get containerIds(): ReadonlySet<string> {
    return this.#containerIds;
  }

  /** Counts up to now. */
  get counts(): {
    readonly looks: number;
    readonly containers: number;
    readonly leases: number;
    readonly gpus: number;
  } {
    const given = [...this.#everSeen.values()];
    const leases = given.filter((gpus) => gpus > 0).length;
    return { looks: this.#looks, containers: given.length, leases, gpus: given.reduce((sum, one) => sum + one, 0) };
  }

  /** Resolves when so many more containers have begun or ended, or after `withinMs`. */
  async untilTurns(count: number, withinMs: number, signal: AbortSignal): Promise<void> {
    const wanted = this.#turns + count;
    const deadlineMs = performance.now() + withinMs;
    while (this.#turns < wanted && performance.now() < deadlineMs && (await sleep(POLL_MS, signal)));
  }

  /** Looks once now. @returns containers of the machine, in any state, and leases */
  async check(): Promise<{ readonly seen: readonly SeenContainer[]; readonly leases: readonly Lease[] }> {
    const before = await this.#readLeases();
    const seen = await this.#list();
    const after = await this.#readLeases();
    this.#looks += 1;
    const running = new Set(seen.filter((one) => one.running).map(({ dockerId }) => dockerId));
    this.#turns += running.symmetricDifference(this.#running).size;
    this.#running = running;
    const look = { before, seen, after };
    for (const text of contradictions(look)) this.#findings.add(text);
    for (const text of this.#patience.overdue(unpaired(look), performance.now())) this.#findings.add(text);
    return { seen, leases: after };
  }

  /** Stops looking, for a caller that gives up before the end. */
  async end(): Promise<void> {
    this.#ends.abort();
    await this.#looking;
  }

  /** Checks a machine without demand: in the end nothing of the agent's may be there, and no device may be leased. */
  async untilEmpty(): Promise<void> {
    await this.end();
    const deadlineMs = performance.now() + (this.#watched.emptyMs ?? EMPTY_MS);
    let left = await this.check();
    while (left.seen.length + left.leases.length > 0 && performance.now() < deadlineMs) {
      await sleep(LOOK_EVERY_MS);
      left = await this.check();
    }
    for (const { dockerId, containerId } of left.seen)
      this.#findings.add(`orphan: ${containerId} (${dockerId}) is left`);
    for (const { containerId, gpus } of left.leases)
      this.#findings.add(`lease_left: ${containerId} is in the journal, with ${gpus.join(', ') || 'no GPU'}`);
  }

  /**
   * Checks a machine whose agent has ended with its containers: no pause container,
   * volume or network may be left. Then checks the strangers and removes them.
   */
  async untilGone(): Promise<void> {
    const { engine, machineId, network } = this.#watched;
    const label = [`${LABELS.machine}=${machineId}`];
    for (const one of await engine.listContainers({ all: true, filters: { label } }))
      this.#findings.add(`left_behind: ${one.Names.join()} (${one.State}) is there after the agent's end`);
    for (const { Name } of (await engine.listVolumes({ filters: { label } })).Volumes ?? [])
      this.#findings.add(`left_behind: volume ${Name}`);
    for (const { Name } of await engine.listNetworks({ filters: { name: [network] } }))
      if (Name === network) this.#findings.add(`left_behind: network ${Name}`);
    for (const { id, what, startedAt } of this.#strangers) {
      const container = engine.getContainer(id);
      const state = (await ifThere(container.inspect()))?.State;
      if (state?.Running !== true || state.StartedAt !== startedAt)
        this.#findings.add(`stranger_touched: a container that was ${what} does not run on as it did`);
      await ifThere(container.remove({ force: true, v: true }));
    }
  }

  async #addStrangers(): Promise<void> {
    const { engine, image } = this.#watched;
    for (const [what, labels] of [
      ['nobody’s', {}],
      [
        'another machine’s',
        { [LABELS.managed]: '1', [LABELS.machine]: 'ffffffff', [LABELS.container]: 'c', [LABELS.epoch]: '1' },
      ],
    ] as const) {
      const made = await engine.createContainer({
        Image: image,
        Cmd: ['sleep', '86400'],
        Labels: labels,
        HostConfig: { Init: true, NetworkMode: 'none' },
      });
      await made.start();
      this.#strangers.push({ id: made.id, what, startedAt: (await made.inspect()).State.StartedAt });
    }
  }

  async #list(): Promise<readonly SeenContainer[]> {
    const { engine, machineId } = this.#watched;
    const listed = await engine.listContainers({ all: true, filters: { label: [`${LABELS.machine}=${machineId}`] } });
    const seen: SeenContainer[] = [];
    for (const { Id, Labels, State } of listed) {
      const containerId = Labels[LABELS.container];
      if (containerId === undefined) continue;
      const gpus = await this.#devices(Id);
      if (gpus === undefined) continue;
      this.#everSeen.set(Id, gpus.length);
      this.#containerIds.add(containerId);
      const epoch = Number(Labels[LABELS.epoch]);
      seen.push({ dockerId: Id.slice(0, 12), containerId, epoch, running: State === 'running', gpus });
    }
    return seen;
  }

  /**
   * GPUs that the engine was asked to pass, fixed for the container's life; undefined: the container is gone by now.
   */
  async #devices(id: string): Promise<readonly string[] | undefined> {
    const known = this.#devicesOf.get(id);
    if (known !== undefined) return known;
    const facts = await ifThere(this.#watched.engine.getContainer(id).inspect());
    if (facts === undefined) return undefined;
    const gpus = (facts.HostConfig.DeviceRequests ?? []).flatMap(({ DeviceIDs }) => DeviceIDs ?? []);
    this.#devicesOf.set(id, gpus);
    return gpus;
  }

  async #readLeases(): Promise<readonly Lease[]> {
    const { entries } = JSON.parse(await readFile(this.#watched.journalPath, 'utf8')) as {
      readonly entries: readonly JournalEntry[];
    };
    return entries
      .filter(({ stage }) => stage !== 'gone')
      .map(({ containerId, epoch, stage, gpuUuids }) => ({
        containerId,
        epoch,
        started: stage === 'created',
        gpus: gpuUuids,
      }));
  }
}

async function ifThere<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    const status = error instanceof Error && 'statusCode' in error ? error.statusCode : undefined;
    if (status === 404) return undefined;
    throw error;
  }
}
