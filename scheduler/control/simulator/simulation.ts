// A trace under a policy, in made-up time. The scheduler's planner places containers, and its autoscaler decides
// how many there are. Starts and tasks take the time that the trace says. Pure: nothing reads a clock.
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Sharing, WorkspaceShare } from '../../domain/shares.ts';
import { CPU_MARKET, DEFAULT_SHARE, DEFAULT_SHARING } from '../../domain/shares.ts';
import type { PlacementMachine } from '../plan/filter.ts';
import type { ClassFacts, Wanted } from '../plan/fit-class.ts';
import { Heap } from '../plan/heap.ts';
import type { Holding } from '../plan/ledger.ts';
import type { MarketState } from '../plan/markets.ts';
import { amountIn, capacityOf } from '../plan/markets.ts';
import type { Choice } from '../plan/place.ts';
import type { PossibleVictim } from '../plan/reclaim.ts';
import { Planner } from '../plan/planner.ts';
import { claimOf } from '../plan/share-report.ts';
import { MOST_PREEMPTIONS } from '../../tasks/state.ts';
import type { MarketResult, Sample, Series, WaitsResult } from './figures.ts';
import { rounded, sampleOf, Samples, SAMPLE_MS, Waits } from './figures.ts';
import { PLAIN_MACHINE } from './plain.ts';
import { SimulatedQueue } from './simulated-queue.ts';
import type { SimulatedContainer, SimulatedTask } from './simulated-queue.ts';
import type { DeployLine, MachineLine, TaskLine, TraceLine } from './trace.ts';
import { MOST_MACHINES, TraceError } from './trace.ts';

/** Sharing as the planner is told of it. */
export const POLICIES = {
  arrival: { ...DEFAULT_SHARING, order: 'arrival', reserveAfterSeconds: null, reclaimAfterSeconds: null },
  share: { ...DEFAULT_SHARING, reserveAfterSeconds: null, reclaimAfterSeconds: null },
  'share+reserve': { ...DEFAULT_SHARING, reclaimAfterSeconds: null },
  'share+reserve+reclaim': DEFAULT_SHARING,
} as const satisfies Record<string, Sharing>;
export type Policy = keyof typeof POLICIES;
export const isPolicy = (text: string): text is Policy => Object.hasOwn(POLICIES, text);

export interface WorkspaceResult {
  readonly workspace: string;
  readonly tasks: number;
  readonly finished: number;
  /** Tasks that still waited at the end. */
  readonly unserved: number;
  /** Tasks that began again, because their machine was lost. */
  readonly begun_again: number;
  /** Containers that ended for others, and seconds that their tasks had run in vain. */
  readonly preempted: number;
  readonly lost_seconds: number;
  /** A task that still waited at the end counts with its wait until then. */
  readonly wait_seconds: WaitsResult;
  /** GPUs that it held, by time. */
  readonly gpu_seconds: number;
  /** The part of it in which a task ran. */
  readonly busy_gpu_seconds: number;
  /** Cores that containers without a GPU held, by time. */
  readonly core_seconds: number;
}

export interface PolicyResult {
  readonly policy: Policy;
  readonly containers: number;
  /** Machines that were reserved for a container that needed much. */
  readonly reservations: number;
  readonly markets: readonly MarketResult[];
  /** The largest users first. */
  readonly workspaces: readonly WorkspaceResult[];
  /** All workspaces together. */
  readonly all: Omit<WorkspaceResult, 'workspace'>;
}

export interface Simulated {
  readonly result: PolicyResult;
  readonly series: Series;
  /** Waits by workspace. */
  readonly waits: ReadonlyMap<string, Waits>;
}

export const MOST_WAITING = 5_000_000;
export const MOST_DEPLOYMENTS = 20_000;
export const MOST_WORKSPACES = 10_000;

/** Counts of a workspace. */
class Account {
  readonly waits = new Waits();
  tasks = 0;
  finished = 0;
  unserved = 0;
  begunAgain = 0;
  preempted = 0;
  lostMs = 0;
  gpuMs = 0;
  busyGpuMs = 0;
  coreMs = 0;
  share: WorkspaceShare = DEFAULT_SHARE;
}

type Event =
  | { readonly kind: 'ready'; readonly container: SimulatedContainer }
  | { readonly kind: 'ends'; readonly container: SimulatedContainer; readonly task: SimulatedTask }
  | { readonly kind: 'decide'; readonly queue: SimulatedQueue }
  | { readonly kind: 'place' }
  | { readonly kind: 'notice'; readonly container: SimulatedContainer }
  | { readonly kind: 'tasks'; readonly queue: SimulatedQueue; readonly line: TaskLine; readonly number: number };
type Due = Event & { readonly atMs: number; readonly turn: number };

/** Least time between two looks for containers that end for others. */
const RECLAIM_EVERY_MS = 1000;

const NO_FACTS: ClassFacts = {
  quota: { gpus: null, cpuMillicores: null },
  volumeHomes: new Set(),
  image: null,
};

export class Simulation {
  readonly #policy: Policy;
  readonly #seed: number;
  readonly #planner = new Planner();
  readonly #events = new Heap<Due>((a, b) => a.atMs < b.atMs || (a.atMs === b.atMs && a.turn < b.turn));
  readonly #queues = new Map<string, SimulatedQueue>();
  readonly #accounts = new Map<string, Account>();
  readonly #byId = new Map<ContainerId, SimulatedContainer>();
  readonly #machines = new Map<MachineId, Set<SimulatedContainer>>();
  /** Queues that have or want containers. */
  readonly #active = new Set<SimulatedQueue>();
  /** Queues of which something changed since they decided. */
  readonly #changed = new Set<SimulatedQueue>();
  readonly #samples = new Samples();
  #sampled: readonly Sample[] | undefined;
  #hasGpus = false;
  /** Whether the planner may place something though no queue changed. */
  #isToPlace = false;
  /** When the planner looks at reservations and victims again; Infinity: it need not. */
  #placesAtMs = Infinity;
  /** When victims are looked for again at the earliest. */
  #reclaimsAtMs = 0;
  /** Containers that may end for others. */
  readonly #interruptible = new Set<SimulatedContainer>();
  #nowMs = 0;
  #sampleAtMs = SAMPLE_MS;
  #turn = 0;
  #made = 0;
  #reserved = 0;
  #waiting = 0;

  constructor(policy: Policy, seed: number) {
    this.#policy = policy;
    this.#seed = seed;
    this.#planner.setSharing(POLICIES[policy]);
  }

  /** Takes a line, which is not older than the ones before. @throws TraceError: it does not fit what was said before */
  accept(line: TraceLine): void {
    if (line.atMs > this.#nowMs) this.#advance(line.atMs);
    switch (line.kind) {
      case 'machine':
        return this.#addMachines(line);
      case 'gone':
        return this.#loseMachine(line.machine);
      case 'deploy':
        return this.#deploy(line);
      case 'limit':
        return this.#setShare(line.workspace, line.share);
      case 'task':
        return this.#arrive(this.#queueOf(line.deployment), line, 0);
      case 'end':
        return undefined;
    }
  }

  /** Ends the simulation now. */
  finish(): Simulated {
    this.#advance(this.#nowMs);
    for (const queue of this.#queues.values()) {
      const account = this.#accountOf(queue.workspaceId);
      for (let next = queue.waiting.take(); next !== undefined; next = queue.waiting.take()) {
        account.unserved += 1;
        if (!next.again) account.waits.add(this.#nowMs - next.task.atMs);
      }
    }
    for (const container of this.#byId.values()) this.#count(container);
    this.#samples.end();
    const workspaces = [...this.#accounts]
      .map(([workspace, account]) => ({ workspace, ...resultOf(account) }))
      .toSorted((a, b) => b.gpu_seconds - a.gpu_seconds || b.core_seconds - a.core_seconds || b.tasks - a.tasks);
    return {
      result: {
        policy: this.#policy,
        containers: this.#made,
        reservations: this.#reserved,
        markets: this.#samples.markets(),
        workspaces,
        all: resultOf(sumOf(this.#accounts.values())),
      },
      series: this.#samples.series(),
      waits: new Map([...this.#accounts].map(([workspace, { waits }]) => [workspace, waits])),
    };
  }

  // ---- time ---------------------------------------------------------------------------------------------------------

  #advance(toMs: number): void {
    this.#settle();
    for (let due = this.#events.first(); due !== undefined && due.atMs <= toMs; due = this.#events.first()) {
      const { atMs } = due;
      this.#sampleUntil(atMs);
      this.#nowMs = atMs;
      for (let next: Due | undefined = due; next?.atMs === atMs; next = this.#events.first()) {
        this.#events.pop();
        this.#happens(next);
      }
      this.#settle();
    }
    this.#sampleUntil(toMs);
    this.#nowMs = toMs;
  }

  #at(atMs: number, event: Event): void {
    this.#turn += 1;
    this.#events.push({ ...event, atMs, turn: this.#turn });
  }

  #happens(due: Due): void {
    switch (due.kind) {
      case 'ready':
        return this.#ready(due.container);
      case 'ends':
        return this.#taskEnds(due.container, due.task);
      case 'decide':
        if (due.queue.decidesAtMs !== due.atMs) return undefined;
        due.queue.decidesAtMs = Infinity;
        this.#changed.add(due.queue);
        return undefined;
      case 'place':
        if (this.#placesAtMs !== due.atMs) return undefined;
        this.#placesAtMs = Infinity;
        this.#isToPlace = true;
        return undefined;
      case 'notice':
        return this.#noticeIsOver(due.container);
      case 'tasks':
        return this.#arrive(due.queue, due.line, due.number);
    }
  }

  /** Lets queues decide and containers be placed until nothing changes any more. */
  #settle(): void {
    while (this.#changed.size > 0 || this.#isToPlace) {
      this.#sampled = undefined;
      this.#isToPlace = false;
      const changed = [...this.#changed];
      this.#changed.clear();
      for (const queue of changed) this.#decide(queue);
      this.#place();
    }
  }

  // ---- machines and shares ------------------------------------------------------------------------------------------

  #addMachines(line: MachineLine): void {
    for (let number = 1; number <= line.count; number += 1) {
      const name = line.count === 1 ? line.machine : `${line.machine}-${number}`;
      const id = name as MachineId;
      if (this.#machines.has(id)) throw new TraceError(`machine ${name} is there already`);
      if (this.#machines.size >= MOST_MACHINES) throw new TraceError(`there are more than ${MOST_MACHINES} machines`);
      this.#machines.set(id, new Set());
      this.#planner.setMachine(machineOf(id, line));
    }
    this.#hasGpus ||= line.gpus > 0;
    this.#machinesChanged();
  }

  #loseMachine(name: string): void {
    const id = name as MachineId;
    const there = this.#machines.get(id);
    if (there === undefined) throw new TraceError(`there is no machine ${name}`);
    this.#machines.delete(id);
    this.#planner.deleteMachine(id);
    for (const container of there) {
      const { queue } = container;
      this.#accountOf(queue.workspaceId).begunAgain += container.tasks.size;
      this.#giveBack(container);
      this.#endsContainer(container);
      this.#changed.add(queue);
    }
    this.#machinesChanged();
  }

  #machinesChanged(): void {
    this.#sampled = undefined;
    for (const queue of this.#active) this.#changed.add(queue);
  }

  #setShare(workspace: string, share: WorkspaceShare): void {
    const account = this.#accountOf(workspace);
    account.share = share;
    this.#planner.setShare(workspace as WorkspaceId, share);
    this.#planner.limitsChanged(workspace as WorkspaceId);
    this.#machinesChanged();
  }

  #accountOf(workspace: string): Account {
    let account = this.#accounts.get(workspace);
    if (account === undefined) {
      if (this.#accounts.size >= MOST_WORKSPACES)
        throw new TraceError(`there are more than ${MOST_WORKSPACES} workspaces`);
      this.#accounts.set(workspace, (account = new Account()));
    }
    return account;
  }

  // ---- tasks --------------------------------------------------------------------------------------------------------

  #deploy(line: DeployLine): void {
    const known = this.#queues.get(line.deployment);
    if (known === undefined) {
      if (this.#queues.size >= MOST_DEPLOYMENTS)
        throw new TraceError(`there are more than ${MOST_DEPLOYMENTS} deployments`);
      this.#accountOf(line.workspace);
      this.#queues.set(line.deployment, new SimulatedQueue(line, this.#seed));
    } else {
      if (known.spec.workspace !== line.workspace)
        throw new TraceError(
          `workspace of deployment ${line.deployment} is ${known.spec.workspace}, and cannot change`,
        );
      known.setSpec(line);
    }
    this.#touch(this.#queueOf(line.deployment));
  }

  #queueOf(deployment: string): SimulatedQueue {
    const queue = this.#queues.get(deployment);
    if (queue === undefined) throw new TraceError(`there is no deployment ${deployment} yet`);
    return queue;
  }

  #touch(queue: SimulatedQueue): void {
    this.#active.add(queue);
    this.#changed.add(queue);
  }

  /** A task of the line comes, and those of the line that come at the same time. */
  #arrive(queue: SimulatedQueue, line: TaskLine, first: number): void {
    const { runMs, count, overMs, atMs } = line;
    if (runMs === undefined && queue.spec.runSeconds === undefined)
      throw new TraceError(`seconds must be there, because deployment ${line.deployment} has no run_seconds`);
    const account = this.#accountOf(queue.workspaceId);
    for (let number = first; number < count; number += 1) {
      const comesAtMs = atMs + Math.floor((overMs * number) / count);
      if (comesAtMs > this.#nowMs) {
        this.#at(comesAtMs, { kind: 'tasks', queue, line, number });
        break;
      }
      if (this.#waiting >= MOST_WAITING) throw new TraceError(`more than ${MOST_WAITING} tasks wait at once`);
      this.#waiting += 1;
      account.tasks += 1;
      queue.waiting.push(this.#nowMs, runMs ?? queue.drawRunMs());
    }
    this.#serve(queue);
    this.#touch(queue);
  }

  /** Gives tasks that wait to containers that may take some. */
  #serve(queue: SimulatedQueue): void {
    while (queue.waiting.size > 0) {
      const container = queue.takeFree();
      if (container === undefined) return;
      while (container.attempts < container.spec.tasksPerContainer) {
        const next = queue.waiting.take();
        if (next === undefined) break;
        this.#begin(container, next.task, next.again);
      }
      if (container.attempts < container.spec.tasksPerContainer) queue.frees(container);
    }
  }

  #begin(container: SimulatedContainer, task: SimulatedTask, again: boolean): void {
    this.#waiting -= 1;
    container.queue.running += 1;
    if (container.attempts === 0) container.busySinceMs = this.#nowMs;
    container.attempts += 1;
    container.tasks.add(task);
    task.beganAtMs = this.#nowMs;
    if (!again) this.#accountOf(container.queue.workspaceId).waits.add(this.#nowMs - task.atMs);
    this.#at(this.#nowMs + task.runMs, { kind: 'ends', container, task });
  }

  #taskEnds(container: SimulatedContainer, task: SimulatedTask): void {
    if (!container.tasks.delete(task)) return;
    const { queue } = container;
    queue.running -= 1;
    container.attempts -= 1;
    this.#accountOf(queue.workspaceId).finished += 1;
    if (container.attempts === 0) {
      container.busyMs += this.#nowMs - container.busySinceMs;
      container.idleSinceMs = this.#nowMs;
      queue.idles(this.#nowMs);
    }
    const isLeaving = container.state === 'DRAINING';
    if (container.spec.oneTask || (isLeaving && container.attempts === 0)) this.#endsContainer(container);
    else if (!isLeaving) {
      queue.frees(container);
      this.#serve(queue);
    }
    this.#changed.add(queue);
  }

  // ---- containers ---------------------------------------------------------------------------------------------------

  #decide(queue: SimulatedQueue): void {
    if (queue.isIdle) this.#active.delete(queue);
    const { reservations, leaving } = this.#planner;
    const isAwaiting = reservations.size > 0 || leaving.size > 0;
    if (isAwaiting || queue.mayBeAwaited) {
      queue.mayBeAwaited = isAwaiting;
      queue.mayEnd();
      for (const one of queue.containers) {
        const { id, machineId, attempts } = one;
        one.isAwaited =
          machineId !== null && attempts === 0 && (reservations.isAwaited(id, machineId) || leaving.isAwaited(id));
      }
    }
    const decision = queue.decide(this.#nowMs);
    if (decision === undefined) return;
    if (decision.kind === 'start') {
      for (let count = Math.min(decision.count, decision.unplaced); count > 0; count -= 1) this.#start(queue);
      return;
    }
    if (decision.kind === 'stop')
      for (const id of decision.containers) {
        const container = this.#byId.get(id);
        if (container !== undefined) this.#endsContainer(container);
      }
    const { againAtMs = Infinity } = decision;
    if (againAtMs >= queue.decidesAtMs || againAtMs === Infinity) return;
    queue.decidesAtMs = Math.max(againAtMs, this.#nowMs + 1);
    this.#at(queue.decidesAtMs, { kind: 'decide', queue });
  }

  #start(queue: SimulatedQueue): void {
    this.#made += 1;
    const container = queue.start(`c-${this.#made}` as ContainerId, this.#nowMs);
    this.#byId.set(container.id, container);
    this.#planner.add(container.wanted);
  }

  #place(): void {
    const planner = this.#planner;
    if (POLICIES[this.#policy].reserveAfterSeconds !== null) this.#reserve();
    for (let step = planner.next(); step !== undefined; step = planner.next()) {
      if (step.kind === 'ask') for (const one of step.classes) planner.know(one, NO_FACTS);
      else if (step.kind === 'chosen') this.#takePlace(step.item.wanted, step.choice);
    }
    if (POLICIES[this.#policy].reclaimAfterSeconds !== null) this.#reclaim();
  }

  /** Lets the planner keep machines for containers that need much. */
  #reserve(): void {
    const againAtMs = this.#planner.reserve(this.#nowMs) ?? Infinity;
    for (const one of this.#planner.reservations.made) {
      this.#reserved += 1;
      // Idle containers there that are only kept warm end.
      for (const { queue } of this.#machines.get(one.machineId) ?? []) this.#changed.add(queue);
    }
    this.#placeAgain(againAtMs);
  }

  #placeAgain(atMs: number): void {
    if (atMs === Infinity || atMs >= this.#placesAtMs) return;
    this.#placesAtMs = Math.max(atMs, this.#nowMs + 1);
    this.#at(this.#placesAtMs, { kind: 'place' });
  }

  /** Lets the planner choose containers that end for others. */
  #reclaim(): void {
    if (this.#nowMs < this.#reclaimsAtMs) return;
    if (this.#planner.classes().next().done === true && this.#planner.leaving.size === 0) return;
    const candidates: PossibleVictim[] = [];
    for (const { id, readyAtMs, tasks } of this.#interruptible)
      if (![...tasks].some(({ preempted }) => preempted >= MOST_PREEMPTIONS))
        candidates.push({ id, sinceMs: readyAtMs });
    for (const queue of this.#active)
      for (const id of queue.spare(this.#nowMs))
        candidates.push({ id, sinceMs: this.#byId.get(id)?.readyAtMs ?? 0, isWarm: true });
    if (candidates.length === 0 && this.#planner.leaving.size === 0) return;
    this.#reclaimsAtMs = this.#nowMs + RECLAIM_EVERY_MS;
    this.#placeAgain(this.#reclaimsAtMs);
    const facts = { nowMs: this.#nowMs, candidates, growing: [] };
    const { told, spared } = this.#planner.reclaim(facts);
    for (const { id, isWarm } of told) {
      const container = this.#byId.get(id);
      if (container === undefined) continue;
      // The queue decides that it ends.
      if (isWarm === true) this.#changed.add(container.queue);
      else this.#preempt(container);
    }
    for (const id of spared) this.#stays(id);
  }

  /** The container was told to leave, and takes tasks again. */
  #stays(id: ContainerId): void {
    const container = this.#byId.get(id);
    if (container?.state !== 'DRAINING') return;
    const { queue } = container;
    container.noticeEndsMs = Infinity;
    queue.putBack(container);
    queue.mayEnd();
    this.#interruptible.add(container);
    const holding = this.#planner.ledger.get(id);
    if (holding !== undefined) {
      const { endsAtMs: _, ...rest } = holding;
      this.#planner.hold(id, rest);
    }
    this.#serve(queue);
    this.#changed.add(queue);
  }

  /** The container takes no more tasks, and ends with its last one or after the notice. */
  #preempt(container: SimulatedContainer): void {
    const { queue } = container;
    this.#interruptible.delete(container);
    this.#accountOf(queue.workspaceId).preempted += 1;
    queue.drop(container);
    container.state = 'DRAINING';
    this.#changed.add(queue);
    if (container.attempts === 0) return this.#endsContainer(container);
    const endsAtMs = this.#nowMs + DEFAULT_SHARING.noticeSeconds * 1000;
    container.noticeEndsMs = endsAtMs;
    this.#holds(container, { endsAtMs });
    return this.#at(endsAtMs, { kind: 'notice', container });
  }

  /** Tells the planner more about what the container holds. */
  #holds({ id }: SimulatedContainer, more: Pick<Holding, 'interruptible' | 'endsAtMs'>): void {
    const holding = this.#planner.ledger.get(id);
    if (holding !== undefined) this.#planner.hold(id, { ...holding, ...more });
  }

  /** Tasks that have not ended are given back. */
  #noticeIsOver(container: SimulatedContainer): void {
    // The container may have been told to stay, and to leave once more.
    if (container.state !== 'DRAINING' || this.#nowMs < container.noticeEndsMs) return;
    const account = this.#accountOf(container.queue.workspaceId);
    for (const task of container.tasks) {
      task.preempted += 1;
      account.lostMs += this.#nowMs - task.beganAtMs;
    }
    this.#giveBack(container);
    this.#endsContainer(container);
    this.#changed.add(container.queue);
  }

  #giveBack({ queue, tasks }: SimulatedContainer): void {
    for (const task of tasks) {
      queue.waiting.putBack(task);
      queue.running -= 1;
      this.#waiting += 1;
    }
  }

  #takePlace(wanted: Wanted, choice: Choice): void {
    this.#planner.take(wanted, choice);
    const container = this.#byId.get(wanted.id);
    if (container === undefined) return;
    const { queue, spec } = container;
    queue.pending -= 1;
    container.state = 'STARTING';
    container.machineId = choice.machineId;
    container.gpuUuids = choice.gpuUuids;
    container.placedAtMs = this.#nowMs;
    if (spec.interruptible) this.#holds(container, { interruptible: true });
    this.#machines.get(choice.machineId)?.add(container);
    this.#changed.add(queue);
    this.#at(this.#nowMs + queue.drawStartMs(spec), { kind: 'ready', container });
  }

  #ready(container: SimulatedContainer): void {
    if (container.state !== 'STARTING') return;
    const { queue } = container;
    container.state = 'RUNNING';
    container.idleSinceMs = this.#nowMs;
    container.readyAtMs = this.#nowMs;
    if (container.spec.interruptible) this.#interruptible.add(container);
    queue.frees(container);
    this.#serve(queue);
    this.#changed.add(queue);
  }

  #endsContainer(container: SimulatedContainer): void {
    const { id, queue, wanted, machineId, gpuUuids } = container;
    if (container.state === 'PENDING') this.#planner.remove(id);
    else this.#count(container);
    queue.drop(container);
    container.state = 'STOPPED';
    this.#interruptible.delete(container);
    container.tasks.clear();
    this.#byId.delete(id);
    if (machineId === null) return;
    this.#planner.release(id, queue.workspaceId);
    this.#machines.get(machineId)?.delete(container);
    const machine = this.#planner.machine(machineId);
    if (machine === undefined) return;
    this.#planner.setMachine({
      ...machine,
      freeCpuMillicores: machine.freeCpuMillicores + wanted.cpuMillicores,
      freeMemoryBytes: machine.freeMemoryBytes + wanted.memoryBytes,
      gpus:
        gpuUuids.length === 0
          ? machine.gpus
          : machine.gpus.map((gpu) =>
              gpuUuids.includes(gpu.uuid) ? { ...gpu, free: true, leasedAtMs: container.placedAtMs } : gpu,
            ),
    });
  }

  /** Counts what a container held until now. */
  #count(container: SimulatedContainer): void {
    if (container.state === 'PENDING') return;
    const { wanted, placedAtMs, busySinceMs, attempts } = container;
    const account = this.#accountOf(wanted.workspaceId);
    const heldMs = this.#nowMs - placedAtMs;
    const busyMs = container.busyMs + (attempts > 0 ? this.#nowMs - busySinceMs : 0);
    account.gpuMs += heldMs * wanted.gpuCount;
    account.busyGpuMs += busyMs * wanted.gpuCount;
    if (wanted.gpuCount === 0) account.coreMs += (heldMs * wanted.cpuMillicores) / 1000;
  }

  // ---- samples ------------------------------------------------------------------------------------------------------

  /** Looks at what workspaces hold, until that time and before something happens then. */
  #sampleUntil(untilMs: number): void {
    while (this.#sampleAtMs <= untilMs) {
      this.#sampled ??= this.#sample();
      this.#samples.add(this.#sampleAtMs, this.#sampled, (market) => (market === CPU_MARKET) !== this.#hasGpus);
      this.#sampleAtMs += SAMPLE_MS;
    }
  }

  #sample(): readonly Sample[] {
    const { markets } = this.#planner.ledger;
    /** Amounts that workspaces ask for beyond what they hold. */
    const missing = new Map<MarketState, Map<string, number>>();
    for (const queue of this.#active) {
      const { spec, containers, pending } = queue;
      const more = queue.wanted - (containers.length - pending);
      const { gpus, cpuMillicores, memoryBytes } = spec;
      const market = markets.of({ gpu: spec.gpu, gpuCount: gpus, cpuMillicores, memoryBytes });
      if (more <= 0 || market === undefined) continue;
      let byWorkspace = missing.get(market);
      if (byWorkspace === undefined) missing.set(market, (byWorkspace = new Map()));
      const amount = more * amountIn(market.name, { gpus, cpuMillicores });
      byWorkspace.set(spec.workspace, (byWorkspace.get(spec.workspace) ?? 0) + amount);
    }
    return [...markets.all].flatMap((market) => {
      if (capacityOf(market) === 0) return [];
      const claims = [...markets.tenants].flatMap((tenant) => {
        const { workspaceId } = tenant;
        const used = amountIn(market.name, markets.useOf(tenant, market));
        const more = missing.get(market)?.get(workspaceId) ?? 0;
        return used + more > 0 ? [{ workspace: workspaceId, used, ...claimOf(market.name, tenant, used, more) }] : [];
      });
      return [sampleOf(market.name, capacityOf(market), claims)];
    });
  }
}

const COUNTS = [
  ...(['tasks', 'finished', 'unserved', 'begunAgain', 'preempted', 'lostMs'] as const),
  ...(['gpuMs', 'busyGpuMs', 'coreMs'] as const),
];

function sumOf(accounts: Iterable<Account>): Account {
  const sum = new Account();
  for (const one of accounts) {
    sum.waits.addAll(one.waits);
    for (const name of COUNTS) sum[name] += one[name];
  }
  return sum;
}

const resultOf = (account: Account): Omit<WorkspaceResult, 'workspace'> => ({
  tasks: account.tasks,
  finished: account.finished,
  unserved: account.unserved,
  begun_again: account.begunAgain,
  preempted: account.preempted,
  lost_seconds: rounded(account.lostMs / 1000, 1),
  wait_seconds: account.waits.result(),
  gpu_seconds: rounded(account.gpuMs / 1000, 1),
  busy_gpu_seconds: rounded(account.busyGpuMs / 1000, 1),
  core_seconds: rounded(account.coreMs / 1000, 1),
});

const machineOf = (machineId: MachineId, line: MachineLine): PlacementMachine => ({
  ...PLAIN_MACHINE,
  machineId,
  poolName: line.pool,
  freeCpuMillicores: line.cpuMillicores,
  freeMemoryBytes: line.memoryBytes,
  totalCpuMillicores: line.cpuMillicores,
  totalMemoryBytes: line.memoryBytes,
  gpus: Array.from({ length: line.gpus }, (_none, index) => ({
    uuid: `${machineId}/${index}`,
    model: line.gpu,
    memoryBytes: line.gpuMemoryBytes,
    free: true,
    healthy: true,
    numaNode: index >> 2,
    leasedAtMs: 0,
  })),
});
