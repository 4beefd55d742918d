/**
 * The state that the loop decides on and the executor changes: the scheduler's desired state, the journal, the engine's
 * containers, and the work in progress. Also the only place that defines how a container is reported.
 */
import { isDeepStrictEqual } from 'node:util';
import type { ContainerPhase } from '#shared/domain/status.ts';
import { Listeners } from '#shared/listeners.ts';
import type {
  Assignment__Output,
  ContainerSpec__Output,
  ObservedContainer,
  StartPhase,
  VolumeMount__Output,
} from '#shared/protocol/generated/messages.ts';
import type { RuntimeContainer } from '../containers/runtime.ts';
import { LABELS } from '../containers/runtime.ts';
import type { SlotChange } from '../slots/container-facts.ts';
import { cutText } from '../slots/failure-text.ts';
import type { LeaseOwner } from '../devices/leases.ts';
import type { Journal, JournalEntry } from './journal.ts';
import type { Known, PlanInput, Seen, Wanted, Work } from './plan.ts';

/** Bound on final reports of forgotten containers: only the newest can still be unsent. */
const MAX_FORGOTTEN = 256;

interface SeenFacts extends Seen {
  readonly container: RuntimeContainer;
  /** Monotonic time of this knowledge, so that an older listing does not undo it. */
  learntMs: number;
}

/** Content of the permission to create a container: in memory alone, and only until the container is gone. */
export interface Permission {
  readonly secrets: Readonly<Record<string, string>>;
  readonly containerToken: string;
  /** Keys of its buckets, by mount path; they are no variables of the container. */
  readonly bucketKeys: readonly {
    readonly mountPath: string;
    readonly accessKey: string;
    readonly secretKey: string;
  }[];
}

export type Note = { readonly reason: string; readonly message: string };

export interface RunningContainer {
  readonly containerId: string;
  readonly dockerId: string;
  readonly shortId: string;
  readonly gpuUuids: readonly string[];
}

export class AgentState {
  readonly journal: Journal;
  /** Desired assignments by container id; undefined until the session's first snapshot. */
  #wanted: Map<string, Assignment__Output> | undefined;
  readonly #outOfMemory = new Set<string>();
  /** Containers to which the engine sent a signal, by its events. */
  readonly #signalled = new Set<string>();
  readonly #seen = new Map<string, SeenFacts>();
  /** Engine ids of removed containers, so that a listing in progress does not bring them back. */
  readonly #removed = new Map<string, number>();
  readonly attended = new Set<string>();
  readonly acked = new Set<string>();
  /** Assignments whose container may be created. */
  readonly proceeded = new Map<string, Permission>();
  readonly refused = new Set<string>();
  /** All containers end with the agent: no assignment is taken. */
  isLeaving = false;
  readonly busy = new Map<string, { readonly work: Work; readonly abort: AbortController }>();
  readonly ending = new Map<string, { readonly graceMs: number; readonly reason: string }>();
  /** Why a container is failing, known before its exit. */
  readonly notes = new Map<string, Note>();
  /** Progress text of the pull that a container waits for. */
  readonly pulling = new Map<string, string>();
  /** For containers with runner processes that do not serve yet, or that are retired. */
  readonly #slotChanges = new Map<string, SlotChange>();
  readonly #startPhases = new Map<string, readonly StartPhase[]>();
  readonly #forgotten = new Map<string, ObservedContainer>();
  readonly #exitWaiters = new Map<string, (() => void)[]>();
  readonly #orphanGraceMs: number;
  readonly #changed = new Listeners<[string]>();

  constructor(journal: Journal, orphanGraceMs: number) {
    this.journal = journal;
    this.#orphanGraceMs = orphanGraceMs;
  }

  /** Told when a container changed. */
  onChange(listener: (containerId: string) => void): void {
    this.#changed.add(listener);
  }

  /** A container changed: it is reported, and the loop runs a round. */
  changed(containerId: string): void {
    this.#changed.tell(containerId);
  }

  // ---- wanted -------------------------------------------------------------------------------------------------------

  /** A session began or ended: acknowledgements start anew, and nothing is concluded until its first snapshot. */
  newSession(): void {
    this.#wanted = undefined;
    this.acked.clear();
    this.proceeded.clear();
    this.refused.clear();
  }

  want(assignments: readonly Assignment__Output[], full: boolean): void {
    const wanted = full || this.#wanted === undefined ? new Map<string, Assignment__Output>() : this.#wanted;
    for (const assignment of assignments) {
      const before = wanted.get(assignment.containerId);
      if (before === undefined || before.epoch <= assignment.epoch) wanted.set(assignment.containerId, assignment);
    }
    this.#wanted = wanted;
    this.refused.clear();
  }

  assignmentOf(containerId: string): Assignment__Output | undefined {
    return this.#wanted?.get(containerId);
  }

  /**
   * Notice of a container that leaves for another one; 0: it stays; undefined: nothing is known of it in this session
   * yet.
   */
  noticeMsOf(containerId: string): number | undefined {
    const assignment = this.#wanted?.get(containerId);
    return assignment?.epoch === this.journal.get(containerId)?.epoch ? assignment?.interruptMs : undefined;
  }

  specOf(containerId: string, epoch: number): ContainerSpec__Output | undefined {
    const assignment = this.#wanted?.get(containerId);
    return assignment?.epoch === epoch ? (assignment.spec ?? undefined) : undefined;
  }

  // ---- seen ---------------------------------------------------------------------------------------------------------

  /** Takes in one inspection, or the result of our own call. */
  learn(container: RuntimeContainer): void {
    const nowMs = performance.now();
    const containerId = container.labels[LABELS.container];
    if (containerId === undefined || this.#removed.has(container.dockerId)) return;
    const before = this.#seen.get(container.dockerId);
    // An exit is final: containers are not started twice.
    if (before?.state === 'exited' && container.state !== 'exited') return;
    // Unchanged containers, the usual case at rest, keep their object, so that listings leave no garbage behind.
    if (before !== undefined && container.state !== 'exited' && isDeepStrictEqual(before.container, container)) {
      before.learntMs = nowMs;
      return;
    }
    this.#seen.set(container.dockerId, {
      dockerId: container.dockerId,
      containerId,
      assignmentId: container.labels[LABELS.assignment] ?? '',
      epoch: Number(container.labels[LABELS.epoch] ?? 0),
      state: container.state,
      orphanSinceMs: before?.orphanSinceMs ?? nowMs,
      container,
      learntMs: nowMs,
    });
    if (before?.state !== container.state) this.changed(containerId);
    if (container.state === 'exited') this.#tellExit(container.dockerId);
  }

  /**
   * The engine reported the end. No inspection follows, since the engine answers only when it has dismantled the
   * container's network.
   */
  died(dockerId: string, exitCode: number, atMs: number): void {
    const seen = this.#seen.get(dockerId);
    if (seen === undefined || seen.state === 'exited') return;
    const oomKilled = this.#outOfMemory.has(dockerId);
    const finishedAtMs = Math.round(atMs);
    this.learn({ ...seen.container, state: 'exited', exitCode, oomKilled, finishedAtMs });
  }

  /** The kernel killed a process of the container for lack of memory; the container's end may follow. */
  ranOutOfMemory(dockerId: string): void {
    if (this.#seen.has(dockerId)) this.#outOfMemory.add(dockerId);
  }

  /** The engine sent the container a signal: for this agent, for somebody else, or because the engine stops. */
  signalled(dockerId: string): void {
    if (this.#seen.has(dockerId)) this.#signalled.add(dockerId);
  }

  wasSignalled(dockerId: string): boolean {
    return this.#signalled.has(dockerId);
  }

  /** Whether the engine reported a process that was killed for lack of memory. */
  lackedMemory(dockerId: string): boolean {
    return this.#outOfMemory.has(dockerId);
  }

  /**
   * Takes in a whole listing, begun at `sinceMs` (monotonic): containers that it lacks are gone, unless they became
   * known later.
   */
  learnAll(containers: readonly RuntimeContainer[], sinceMs: number): void {
    const listed = new Set(containers.map((one) => one.dockerId));
    for (const [dockerId, seen] of this.#seen)
      if (!listed.has(dockerId) && seen.learntMs < sinceMs) this.forgetSeen(dockerId);
    this.learnSome(containers, sinceMs);
    for (const [dockerId, atMs] of this.#removed) if (atMs < sinceMs) this.#removed.delete(dockerId);
  }

  /** Takes in a part of the engine's containers. @param sinceMs - begin of the question: later knowledge stays */
  learnSome(containers: readonly RuntimeContainer[], sinceMs: number): void {
    for (const container of containers) {
      const before = this.#seen.get(container.dockerId);
      if (before === undefined || before.learntMs < sinceMs) this.learn(container);
    }
  }

  /** The engine does not have the container any more. */
  forgetSeen(dockerId: string): void {
    const seen = this.#seen.get(dockerId);
    this.#removed.set(dockerId, performance.now());
    this.#seen.delete(dockerId);
    this.#outOfMemory.delete(dockerId);
    this.#signalled.delete(dockerId);
    if (seen !== undefined) this.changed(seen.containerId);
    this.#tellExit(dockerId);
  }

  seenOf(containerId: string, epoch: number): RuntimeContainer | undefined {
    for (const seen of this.#seen.values())
      if (seen.containerId === containerId && seen.epoch === epoch) return seen.container;
    return undefined;
  }

  /** GPUs of a container that the engine has. */
  devicesOf(dockerId: string): readonly string[] {
    return this.#seen.get(dockerId)?.container.gpuUuids ?? [];
  }

  hasSeen(dockerId: string): boolean {
    return this.#seen.has(dockerId);
  }

  isOver(dockerId: string): boolean {
    const seen = this.#seen.get(dockerId);
    return seen === undefined || seen.state === 'exited';
  }

  /** Calls back when the container has exited or is gone. @returns a function that withdraws the call */
  onceOver(dockerId: string, callback: () => void): () => void {
    const waiters = this.#exitWaiters.get(dockerId) ?? [];
    waiters.push(callback);
    this.#exitWaiters.set(dockerId, waiters);
    return () => {
      const rest = (this.#exitWaiters.get(dockerId) ?? []).filter((one) => one !== callback);
      if (rest.length === 0) this.#exitWaiters.delete(dockerId);
      else this.#exitWaiters.set(dockerId, rest);
    };
  }

  #tellExit(dockerId: string): void {
    const waiters = this.#exitWaiters.get(dockerId);
    this.#exitWaiters.delete(dockerId);
    waiters?.forEach((waiter) => waiter());
  }

  // ---- out ----------------------------------------------------------------------------------------------------------

  planInput(): PlanInput {
    const wanted =
      this.#wanted === undefined
        ? undefined
        : new Map<string, Wanted>([...this.#wanted].map(([id, assignment]) => [id, assignment]));
    const known = new Map<string, Known>();
    for (const entry of this.journal.all()) known.set(entry.containerId, entry);
    const busy = new Map([...this.busy].map(([id, { work }]) => [id, work]));
    return {
      wanted,
      known,
      seen: [...this.#seen.values()],
      attended: this.attended,
      acked: this.acked,
      proceeded: this.proceeded,
      refused: this.refused,
      ending: this.ending,
      busy,
      orphanGraceMs: this.#orphanGraceMs,
    };
  }

  /** Containers with GPUs: those of the journal, and those that only the engine has. */
  gpuLeaseOwners(): LeaseOwner[] {
    const leaseOwners: LeaseOwner[] = [];
    const known = new Set<string>();
    for (const { containerId, epoch, stage, gpuUuids = [], dockerId, deploymentId } of this.journal.all()) {
      if (stage === 'gone' || gpuUuids.length === 0) continue;
      known.add(`${containerId} ${epoch}`);
      leaseOwners.push({ containerId, epoch, dockerId, gpuUuids, deploymentId });
    }
    for (const { containerId, epoch, dockerId, container } of this.#seen.values())
      if (container.gpuUuids.length > 0 && !known.has(`${containerId} ${epoch}`))
        leaseOwners.push({ containerId, epoch, dockerId, gpuUuids: container.gpuUuids });
    return leaseOwners;
  }

  /** Containers with GPUs that run and are listened to. */
  runningWithGpu(): { readonly containerId: string; readonly dockerId: string }[] {
    return this.gpuLeaseOwners().flatMap(({ containerId, dockerId }) =>
      dockerId !== undefined &&
      this.attended.has(containerId) &&
      !this.isOver(dockerId) &&
      !this.ending.has(containerId)
        ? [{ containerId, dockerId }]
        : [],
    );
  }

  /** Containers that hold resources here. */
  liveCount(): number {
    let live = 0;
    for (const entry of this.journal.all()) if (entry.stage === 'creating' || entry.stage === 'created') live += 1;
    return live;
  }

  /** Containers that run, as the engine knows them. */
  running(): readonly RunningContainer[] {
    const running = [];
    for (const { containerId, dockerId, shortId, stage, exit, gpuUuids = [] } of this.journal.all())
      if (stage === 'created' && exit === undefined && dockerId !== undefined)
        running.push({ containerId, dockerId, shortId, gpuUuids });
    return running;
  }

  /** Volumes of running containers, one entry per mount, for desired containers. */
  volumesMounted(): readonly VolumeMount__Output[] {
    const live = [...this.journal.all()].filter(({ stage, exit }) => stage === 'created' && exit === undefined);
    return live.flatMap(({ containerId, epoch }) => this.specOf(containerId, epoch)?.volumes ?? []);
  }

  noteSlots(containerId: string, change: SlotChange): void {
    if (change.restarting + change.retired > 0) this.#slotChanges.set(containerId, change);
    else this.#slotChanges.delete(containerId);
    this.changed(containerId);
  }

  /** Keeps the steps of a start, which are reported while the container is there. */
  started(containerId: string, phases: readonly StartPhase[]): void {
    this.#startPhases.set(containerId, phases);
  }

  observed(entry: JournalEntry): ObservedContainer {
    const note = this.notes.get(entry.containerId);
    const base: ObservedContainer = {
      containerId: entry.containerId,
      assignmentId: entry.assignmentId,
      epoch: entry.epoch,
      phase: this.phaseOf(entry),
      startedAtMs: entry.startedAtMs ?? 0,
      reason: entry.exit?.reason ?? note?.reason ?? '',
      // The texts of registries may be long.
      message: cutText(entry.exit?.message ?? note?.message ?? this.pulling.get(entry.containerId) ?? ''),
      cpuMillicores: entry.cpuMillicores,
      memoryBytes: entry.memoryBytes,
      gpuUuids: [...entry.gpuUuids],
    };
    const { restarting, retired } = this.#slotChanges.get(entry.containerId) ?? { restarting: 0, retired: 0 };
    if (entry.ready !== undefined)
      Object.assign(base, {
        slots: entry.ready.slots + retired,
        mode: entry.ready.mode,
        onStartMs: entry.ready.onStartMs,
        restartingSlots: restarting,
        startPhases: [...(this.#startPhases.get(entry.containerId) ?? [])],
      });
    if (entry.exit !== undefined)
      Object.assign(base, {
        exitCode: entry.exit.exitCode,
        oomKilled: entry.exit.oomKilled,
        finishedAtMs: entry.exit.finishedAtMs,
      });
    return base;
  }

  phaseOf(entry: JournalEntry): ContainerPhase {
    if (entry.stage === 'gone') return 'removed';
    if (entry.exit !== undefined) return 'exited';
    if (this.busy.get(entry.containerId)?.work === 'stop' || this.notes.has(entry.containerId)) return 'stopping';
    if (entry.stage === 'accepted') return this.pulling.has(entry.containerId) ? 'pulling' : 'accepted';
    if (entry.stage === 'creating') return this.pulling.has(entry.containerId) ? 'pulling' : 'creating';
    return entry.ready === undefined ? 'starting' : 'running';
  }

  /** Removes the container from the state; the report of its end may still have to be sent. */
  async forget(containerId: string): Promise<void> {
    const entry = this.journal.get(containerId);
    if (entry === undefined) return;
    this.#forgotten.set(containerId, this.observed(entry));
    this.#slotChanges.delete(containerId);
    this.#startPhases.delete(containerId);
    this.acked.delete(entry.assignmentId);
    this.proceeded.delete(entry.assignmentId);
    const [oldest] = this.#forgotten.keys();
    if (this.#forgotten.size > MAX_FORGOTTEN && oldest !== undefined) this.#forgotten.delete(oldest);
    await this.journal.delete(containerId);
  }

  observedOf(containerId: string): ObservedContainer | undefined {
    const entry = this.journal.get(containerId);
    return entry === undefined ? this.#forgotten.get(containerId) : this.observed(entry);
  }

  observedAll(): ObservedContainer[] {
    return [...this.journal.all()].map((entry) => this.observed(entry));
  }
}
