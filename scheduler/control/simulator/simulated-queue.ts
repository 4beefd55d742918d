// A deployment in a simulation: its tasks, its containers, and what the autoscaler is told of it. The autoscaler's own
// functions decide how many containers there are.
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { CLOSED_BREAKER } from '../autoscaler/breaker.ts';
import { decideScale, MOST_UNPLACED, spareContainers, wantedContainers } from '../autoscaler/decide.ts';
import type { ScaleBounds, ScaleContainer, ScaleDecision, ScaleInput } from '../autoscaler/decide.ts';
import { largestWanted, nextLeaves, rememberWanted } from '../autoscaler/window.ts';
import type { WantedWindow } from '../autoscaler/window.ts';
import type { Wanted } from '../plan/fit-class.ts';
import { PLAIN_WANTED } from './plain.ts';
import { drawMs, Random } from './random.ts';
import type { DeployLine } from './trace.ts';

/** A task that runs. */
export interface SimulatedTask {
  readonly atMs: number;
  readonly runMs: number;
  beganAtMs: number;
  /** How often its container ended for others. */
  preempted: number;
}

export interface SimulatedContainer extends ScaleContainer {
  readonly queue: SimulatedQueue;
  readonly wanted: Wanted;
  readonly spec: DeployLine;
  state: 'PENDING' | 'STARTING' | 'RUNNING' | 'DRAINING' | 'STOPPED';
  attempts: number;
  isAwaited: boolean;
  idleSinceMs: number;
  /** Position in the list of its queue. */
  at: number;
  machineId: MachineId | null;
  gpuUuids: readonly string[];
  placedAtMs: number;
  readyAtMs: number;
  /** End of its notice, if it leaves. */
  noticeEndsMs: number;
  busyMs: number;
  busySinceMs: number;
  readonly tasks: Set<SimulatedTask>;
}

/** Tasks that wait, the oldest first. */
class Waiting {
  #atMs: number[] = [];
  #runMs: number[] = [];
  #first = 0;
  /** Tasks that lost their container, and go first. */
  readonly #again: SimulatedTask[] = [];

  get size(): number {
    return this.#atMs.length - this.#first + this.#again.length;
  }

  push(atMs: number, runMs: number): void {
    this.#atMs.push(atMs);
    this.#runMs.push(runMs);
  }

  putBack(task: SimulatedTask): void {
    this.#again.push(task);
  }

  /** @returns the task that goes next, and whether it ran before; undefined: none waits */
  take(): { readonly task: SimulatedTask; readonly again: boolean } | undefined {
    const lost = this.#again.shift();
    if (lost !== undefined) return { task: lost, again: true };
    const [atMs, runMs] = [this.#atMs[this.#first], this.#runMs[this.#first]];
    if (atMs === undefined || runMs === undefined) return undefined;
    this.#first += 1;
    if (this.#first > MOST_GONE && 2 * this.#first > this.#atMs.length) {
      this.#atMs = this.#atMs.slice(this.#first);
      this.#runMs = this.#runMs.slice(this.#first);
      this.#first = 0;
    }
    return { task: { atMs, runMs, beganAtMs: atMs, preempted: 0 }, again: false };
  }
}

/** Tasks that left the line and are still in its arrays, at most, beside as many as wait. */
const MOST_GONE = 1024;

const NO_WINDOW: WantedWindow = [];

export class SimulatedQueue {
  readonly name: QueueName;
  readonly workspaceId: WorkspaceId;
  readonly waiting = new Waiting();
  readonly containers: SimulatedContainer[] = [];
  running = 0;
  /** Containers without a place. */
  pending = 0;
  /** When it decides again though nothing changes; Infinity: it need not. */
  decidesAtMs = Infinity;
  /** Whether reservations may wait for containers of it. */
  mayBeAwaited = false;
  readonly #starts: Random;
  readonly #runs: Random;
  #free: SimulatedContainer[] = [];
  #window = NO_WINDOW;
  /** No container may end before that time. */
  #endsFromMs = 0;
  #spec: DeployLine;
  #bounds: ScaleBounds;
  #template: Omit<Wanted, 'id' | 'createdAtMs'>;

  constructor(spec: DeployLine, seed: number) {
    this.name = spec.deployment as QueueName;
    this.workspaceId = spec.workspace as WorkspaceId;
    this.#starts = new Random(seed, 'start', this.name);
    this.#runs = new Random(seed, 'run', this.name);
    this.#spec = spec;
    this.#template = templateOf(spec);
    this.#bounds = boundsOf(spec);
  }

  get spec(): DeployLine {
    return this.#spec;
  }

  setSpec(spec: DeployLine): void {
    this.#spec = spec;
    this.#template = templateOf(spec);
    this.#bounds = boundsOf(spec);
    this.mayEnd();
  }

  get isIdle(): boolean {
    return this.containers.length === 0 && this.waiting.size === 0 && this.#spec.minContainers === 0;
  }

  /** Number of containers that it asks for. */
  get wanted(): number {
    return wantedContainers(this.#bounds, this.waiting.size + this.running);
  }

  /** Milliseconds that a task runs which names no time. */
  drawRunMs(): number {
    return drawMs(this.#spec.runSeconds ?? 0, this.#runs);
  }

  drawStartMs({ startSeconds }: DeployLine): number {
    return drawMs(startSeconds, this.#starts);
  }

  /** @returns undefined: there is nothing to decide */
  decide(nowMs: number): ScaleDecision | undefined {
    const { wanted, containers } = this;
    const { windowMs } = this.#spec;
    if (windowMs > 0) this.#window = rememberWanted(this.#window, wanted, windowMs, nowMs);
    // The same as the decision would say, without a look at each container: no start fails, and none was lost.
    const [count, room] = [wanted - containers.length, MOST_UNPLACED - this.pending];
    if (count === 0 || (count > 0 && room <= 0)) return undefined;
    if (count > 0) return { kind: 'start', count, unplaced: Math.min(count, room), wanted, probe: false };
    if (nowMs < this.#endsFromMs) return { kind: 'hold', why: 'busy_or_warm', againAtMs: this.#endsFromMs };
    const decision = decideScale(this.#input(), nowMs);
    // Containers that run end in the order in which they became idle, so the others need not be looked at each time.
    const isOrdinary = windowMs === 0 && containers.every(({ state, isAwaited }) => state === 'RUNNING' && !isAwaited);
    if (isOrdinary && decision.kind === 'hold') this.#endsFromMs = decision.againAtMs ?? Infinity;
    return decision;
  }

  #input(): ScaleInput {
    const { windowMs, keepWarmMs, oneTask } = this.#spec;
    const windowEndsMs = nextLeaves(this.#window, windowMs);
    return {
      ...this.#bounds,
      inFlight: this.waiting.size + this.running,
      waiting: this.waiting.size,
      keepWarmMs: oneTask ? 0 : keepWarmMs,
      containers: this.containers,
      breaker: CLOSED_BREAKER,
      wantedInWindow: largestWanted(this.#window),
      ...(windowEndsMs === undefined ? {} : { windowEndsMs }),
    };
  }

  /** Containers that warmth alone keeps. */
  spare(nowMs: number): readonly ContainerId[] {
    return this.containers.length > this.wanted ? spareContainers(this.#input(), nowMs) : [];
  }

  /** A container became idle, from which time on it is kept warm. */
  idles(nowMs: number): void {
    this.#endsFromMs = Math.min(this.#endsFromMs, nowMs + (this.#spec.oneTask ? 0 : this.#spec.keepWarmMs));
  }

  /** Containers may end at another time than before. */
  mayEnd(): void {
    this.#endsFromMs = 0;
  }

  /** Makes a container without a place. */
  start(id: ContainerId, nowMs: number): SimulatedContainer {
    const wanted: Wanted = { ...this.#template, id, createdAtMs: nowMs };
    const container: SimulatedContainer = {
      id,
      queue: this,
      wanted,
      spec: this.#spec,
      state: 'PENDING',
      attempts: 0,
      isAwaited: false,
      idleSinceMs: nowMs,
      createdAtMs: nowMs,
      keepWarmMs: 0,
      warmUp: false,
      returned: false,
      found: false,
      at: this.containers.length,
      machineId: null,
      gpuUuids: [],
      placedAtMs: nowMs,
      readyAtMs: nowMs,
      noticeEndsMs: Infinity,
      busyMs: 0,
      busySinceMs: nowMs,
      tasks: new Set(),
    };
    this.containers.push(container);
    this.pending += 1;
    this.mayEnd();
    return container;
  }

  /** Takes the container out of the list. */
  drop(container: SimulatedContainer): void {
    // A container that leaves is out of the list already.
    if (container.state === 'DRAINING') return;
    if (container.state === 'PENDING') this.pending -= 1;
    container.state = 'STOPPED';
    const last = this.containers.pop();
    if (last === undefined || last === container) return;
    this.containers[container.at] = last;
    last.at = container.at;
  }

  /** Puts a container that was to leave back into the list. */
  putBack(container: SimulatedContainer): void {
    container.state = 'RUNNING';
    container.at = this.containers.length;
    this.containers.push(container);
    this.frees(container);
  }

  /** The container may take a further task. */
  frees(container: SimulatedContainer): void {
    this.#free.push(container);
  }

  /** A container that may take a task; the one that was freed last comes first. */
  takeFree(): SimulatedContainer | undefined {
    for (let one = this.#free.pop(); one !== undefined; one = this.#free.pop())
      if (one.state === 'RUNNING' && one.attempts < one.spec.tasksPerContainer) return one;
    return undefined;
  }
}

const boundsOf = ({ tasksPerContainer, minContainers, maxContainers }: DeployLine): ScaleBounds => ({
  active: true,
  tasksPerContainer,
  minContainers,
  maxContainers,
});

const templateOf = (spec: DeployLine): Omit<Wanted, 'id' | 'createdAtMs'> => ({
  ...PLAIN_WANTED,
  workspaceId: spec.workspace as WorkspaceId,
  queue: spec.deployment as QueueName,
  priority: spec.priority,
  poolName: spec.pool,
  cpuMillicores: spec.cpuMillicores,
  memoryBytes: spec.memoryBytes,
  gpu: spec.gpu,
  gpuCount: spec.gpus,
});
