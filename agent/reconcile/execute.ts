/**
 * Does what the plan says: a map from action to function, exhaustive by type. Called by the loop, one action a container at a time. A failing action is noted on
 * its container and stops no other. Must stay true: the journal is written before the step it announces; an attempt never outlives its container; whatever is
 * created here is removed here.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '#shared/log.ts';
import type { Assignment__Output, ControlFromAgent } from '#shared/protocol/generated/messages.ts';
import type { Archives } from '../code/archives.ts';
import type { Views } from '../code/views.ts';
import type { Images } from '../containers/images.ts';
import { Limiter } from '../containers/limiter.ts';
import type { LogBuffer } from '../containers/log-buffer.ts';
import type { ContainerRuntime, CreateContainer, RuntimeContainer } from '../containers/runtime.ts';
import { EngineError, LABELS } from '../containers/runtime.ts';
import type { HostFacts } from '../containers/spec.ts';
import { checkAssignment, createContainerOf, shortIdOf } from '../containers/spec.ts';
import type { ReadyFacts } from '../slots/container-slots.ts';
import type { SlotTable } from '../slots/slots.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import type { VolumeDirectories } from '../volumes/directories.ts';
import type { Books } from './books.ts';
import { exitReason, exitMessage } from './exits.ts';
import type { JournalEntry } from './journal.ts';
import type { Action } from './plan.ts';
import { ContainerOutput } from './output.ts';
import { abortable, startFailure } from './starting.ts';
import { climbStopLadder } from './stop-ladder.ts';

const DEFAULT_START_TIMEOUT_MS = 15 * 60_000;
/** How long the log of an exited container may take to its end. */
const LOG_END_MS = 2000;
/** An exit is expected from a runner that said `failed`; else it is ended. */
const FAILED_EXIT_MS = 3000;

export interface ExecutorParts {
  readonly runtime: ContainerRuntime;
  readonly images: Images;
  readonly archives: Archives;
  readonly views: Views;
  readonly volumes: VolumeDirectories;
  readonly slots: SlotTable;
  readonly books: Books;
  readonly logs: LogBuffer;
  readonly metrics: AgentMetrics;
  readonly log: Log;
  readonly stateDir: string;
  readonly bootId: string;
  readonly startsAtOnce: number;
  readonly host: () => HostFacts;
  readonly imageOf: (image: string, pythonVersion: string) => string;
  readonly send: (message: ControlFromAgent) => void;
  readonly onImageUsed: (image: string) => void;
}

interface Prepared {
  readonly lower: string;
  readonly image: 'present' | 'pulled';
}

export class Executor {
  readonly #parts: ExecutorParts;
  readonly #starts: Limiter;
  readonly #preparing = new Map<string, Promise<Prepared>>();
  readonly #startTimers = new Map<string, NodeJS.Timeout>();
  readonly #output: ContainerOutput;
  readonly #acceptedAt = new Map<string, number>();
  readonly #stuck = new Set<string>();

  readonly #do: {
    readonly [K in Action['kind']]: (action: Extract<Action, { kind: K }>, signal: AbortSignal) => Promise<void>;
  } = {
    interrupt: async (action) => this.#parts.books.busy.get(action.containerId)?.abort.abort(),
    stop: (action, signal) => this.#stop(action, signal),
    finish: (action) => this.#finish(action),
    vanished: (action) => this.#vanished(action),
    release: (action) => this.#release(action),
    forget: (action) => this.#forget(action),
    'confirm-gone': (action) => this.#confirmGone(action),
    'remove-stray': (action) => this.#removeStray(action),
    adopt: (action) => this.#adopt(action),
    accept: (action) => this.#accept(action),
    start: (action, signal) => this.#start(action, signal),
  };

  constructor(parts: ExecutorParts) {
    this.#parts = parts;
    this.#starts = new Limiter(parts.startsAtOnce);
    this.#output = new ContainerOutput(parts);
  }

  /** Whether something does not die. */
  get stuck(): boolean {
    return this.#stuck.size > 0;
  }

  run(action: Action, signal: AbortSignal): Promise<void> {
    const perform = this.#do[action.kind] as (action: Action, signal: AbortSignal) => Promise<void>;
    return perform(action, signal);
  }

  /** Lets containers be: timers off, logs no longer followed. */
  async close(): Promise<void> {
    for (const timer of this.#startTimers.values()) clearTimeout(timer);
    await this.#output.close();
  }

  // ---- what containers say -----------------------------------------------------------------------------------------------------

  ready(containerId: string, ready: ReadyFacts): void {
    const { books, metrics, log } = this.#parts;
    clearTimeout(this.#startTimers.get(containerId));
    this.#startTimers.delete(containerId);
    void books.journal
      .change(containerId, { ready })
      .catch((error: unknown) => log.error({ err: error }, 'journal write failed'));
    const acceptedAt = this.#acceptedAt.get(containerId);
    this.#acceptedAt.delete(containerId);
    const durationMs = acceptedAt === undefined ? undefined : Math.round(performance.now() - acceptedAt);
    if (durationMs !== undefined) metrics.startDuration.observe({ phase: 'ready', cache: 'hit' }, durationMs / 1000);
    log.info({ containerId, durationMs, ...ready }, 'container ready');
    const entry = books.journal.get(containerId);
    if (entry !== undefined) this.#parts.onImageUsed(entry.image);
    books.changed(containerId);
  }

  failed(containerId: string, message: string): void {
    const { books } = this.#parts;
    books.notes.set(containerId, { reason: 'user_error', message });
    books.changed(containerId);
    this.#arm(containerId, FAILED_EXIT_MS, 'user_error', 1000);
  }

  /** Ends a container on the agent's own account. */
  end(containerId: string, reason: string, graceMs: number): void {
    const { books } = this.#parts;
    if (books.ending.has(containerId) || books.journal.get(containerId) === undefined) return;
    books.ending.set(containerId, { graceMs, reason });
    books.changed(containerId);
  }

  #arm(containerId: string, ms: number, reason: string, graceMs: number): void {
    clearTimeout(this.#startTimers.get(containerId));
    const timer = setTimeout(() => this.end(containerId, reason, graceMs), Math.min(ms, 0x7fffffff));
    timer.unref();
    this.#startTimers.set(containerId, timer);
  }

  // ---- starting ----------------------------------------------------------------------------------------------------------------

  async #accept(action: Extract<Action, { kind: 'accept' }>): Promise<void> {
    const { books, send, imageOf, bootId } = this.#parts;
    const { containerId, assignmentId, epoch } = action;
    const assignment = books.assignmentOf(containerId);
    if (assignment === undefined || assignment.assignmentId !== assignmentId) return;
    const ack = { assignmentId, containerId, epoch };
    const problem = checkAssignment(assignment);
    if (problem !== undefined || assignment.spec === null) {
      books.refused.add(assignmentId);
      send({ refuse: { ...ack, reason: 'invalid_spec', message: problem ?? 'spec is missing' } });
      return;
    }
    const { spec } = assignment;
    const before = books.journal.get(containerId);
    if (before?.assignmentId !== assignmentId || before.epoch !== epoch) {
      books.notes.delete(containerId);
      books.ending.delete(containerId);
      this.#acceptedAt.set(containerId, performance.now());
      await books.journal.put({
        containerId,
        assignmentId,
        epoch,
        stage: 'accepted',
        shortId: shortIdOf(containerId, epoch),
        image: imageOf(spec.image, spec.pythonVersion),
        codeSha256: spec.code?.sha256 ?? '',
        deploymentId: spec.deploymentId,
        workers: spec.workers,
        concurrentRequests: spec.concurrentRequests,
        timeoutMs: spec.timeoutMs,
        startTimeoutMs: spec.startTimeoutMs,
        bootId,
        cpuMillicores: spec.cpuMillicores,
        memoryBytes: spec.memoryBytes,
        gpuUuids: spec.gpuUuids,
      });
    }
    books.acked.add(assignmentId);
    send({ ack });
    // What needs no permission starts now; a failure shows when its result is wanted.
    this.#prepare(assignment).catch(() => undefined);
  }

  #prepare(assignment: Assignment__Output): Promise<Prepared> {
    const { containerId, epoch, spec } = assignment;
    const key = `${containerId} ${epoch}`;
    const running = this.#preparing.get(key);
    if (running !== undefined) return running;
    const { archives, images, books, slots, imageOf, stateDir } = this.#parts;
    const shortId = shortIdOf(containerId, epoch);
    const image = imageOf(spec?.image ?? '', spec?.pythonVersion ?? '');
    const prepared = Promise.all([
      archives.acquire(spec?.code ?? undefined, shortId),
      images
        .ensure(image, () => {
          books.pulling.add(containerId);
          books.changed(containerId);
        })
        .finally(() => {
          if (books.pulling.delete(containerId)) books.changed(containerId);
        }),
      slots.add({
        containerId,
        workers: spec?.workers ?? 1,
        concurrentRequests: spec?.concurrentRequests ?? 1,
        timeoutMs: spec?.timeoutMs ?? 0,
        socketPath: join(stateDir, 's', shortId, 'agent.sock'),
        ready: undefined,
      }),
    ]).then(([lower, found]) => ({ lower, image: found }));
    this.#preparing.set(key, prepared);
    return prepared;
  }

  async #start(action: Extract<Action, { kind: 'start' }>, signal: AbortSignal): Promise<void> {
    const { books, log } = this.#parts;
    const { containerId } = action;
    const assignment = books.assignmentOf(containerId);
    const entry = books.journal.get(containerId);
    if (assignment?.epoch !== action.epoch || entry === undefined) return;
    try {
      await this.#starts.run(() => this.#startNow(assignment, entry, signal));
    } catch (error) {
      if (signal.aborted) return;
      const note = startFailure(error);
      log.warn({ containerId, err: error, reason: note.reason }, 'container could not be started');
      const left = books.seenOf(containerId, action.epoch);
      if (left !== undefined) {
        await this.#parts.runtime.remove(left.dockerId);
        books.forgetSeen(left.dockerId);
      }
      await this.#gone(entry, { ...note, exitCode: 1, oomKilled: false, finishedAtMs: Date.now() });
    } finally {
      this.#preparing.delete(`${containerId} ${action.epoch}`);
    }
  }

  async #startNow(assignment: Assignment__Output, entry: JournalEntry, signal: AbortSignal): Promise<void> {
    const { books, views, volumes, host, metrics, stateDir, log } = this.#parts;
    const { containerId } = entry;
    const { spec } = assignment;
    if (spec === null) throw new Error('spec is missing');
    if (signal.aborted) return;
    const acceptedAt = this.#acceptedAt.get(containerId) ?? performance.now();
    const [prepared] = await Promise.all([
      abortable(this.#prepare(assignment), signal),
      books.journal.change(containerId, { stage: 'creating' }),
    ]);
    if (prepared === undefined || signal.aborted) return;
    const cache = prepared.image === 'present' ? 'hit' : 'miss';
    const preparedAt = performance.now();
    metrics.startDuration.observe({ phase: 'prepare', cache }, (preparedAt - acceptedAt) / 1000);
    const build = async (): Promise<CreateContainer> =>
      createContainerOf(entry, spec, entry.image, host(), {
        code: await views.make(containerId, entry.shortId, prepared.lower),
        socketDir: join(stateDir, 's', entry.shortId),
        volumes: await volumes.mounts(spec.workspaceId, spec.volumes, prepared.lower),
      });
    let dockerId: string | undefined;
    try {
      dockerId = await this.#createAndStart(await build(), entry, signal);
    } catch (error) {
      if (!(error instanceof EngineError) || error.failure !== 'mount_refused' || views.mode === 'copy') throw error;
      log.warn({ err: error }, 'the engine refuses overlay volumes; code is copied from now on');
      views.refuseOverlay();
      await this.#dropContainer(entry);
      dockerId = await this.#createAndStart(await build(), entry, signal);
    }
    if (dockerId === undefined) {
      await this.#dropContainer(entry);
      return;
    }
    const startedAtMs = Date.now();
    books.attended.add(containerId);
    metrics.startDuration.observe({ phase: 'create', cache }, (performance.now() - preparedAt) / 1000);
    this.#arm(containerId, spec.startTimeoutMs || DEFAULT_START_TIMEOUT_MS, 'start_timeout', 2000);
    this.#output.follow(containerId, dockerId, 0);
    await books.journal.change(containerId, { stage: 'created', dockerId, startedAtMs });
    books.changed(containerId);
  }

  /**
   * Creates under the assignment's own name; whatever else bears it is adopted, removed or respected by its labels.
   * @returns the engine's id; undefined when the signal came before the start, which then does not happen
   */
  async #createAndStart(
    create: CreateContainer,
    entry: JournalEntry,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const { runtime, books, host } = this.#parts;
    let dockerId: string;
    try {
      dockerId = await runtime.create(create);
    } catch (error) {
      if (!(error instanceof EngineError) || error.failure !== 'conflict') throw error;
      const there = await runtime.inspect(create.name);
      if (there !== undefined && there.labels[LABELS.machine] !== host().machineId) throw error;
      if (there?.state === 'running' && there.labels[LABELS.assignment] === entry.assignmentId) {
        books.learn(there, Date.now());
        return there.dockerId;
      }
      if (there !== undefined) await runtime.remove(there.dockerId);
      dockerId = await runtime.create(create);
    }
    const made: RuntimeContainer = {
      dockerId,
      name: create.name,
      labels: create.labels,
      state: 'created',
      exitCode: 0,
      oomKilled: false,
      startedAtMs: 0,
      finishedAtMs: 0,
      error: '',
    };
    books.learn(made, Date.now());
    if (signal.aborted) return undefined;
    await runtime.start(dockerId);
    books.learn({ ...made, state: 'running', startedAtMs: Date.now() }, Date.now());
    return dockerId;
  }

  async #adopt(action: Extract<Action, { kind: 'adopt' }>): Promise<void> {
    const { books, slots, archives, stateDir, log, bootId, imageOf } = this.#parts;
    const { containerId, epoch, dockerId } = action;
    let entry = books.journal.get(containerId);
    if (entry === undefined || entry.stage !== 'created') {
      const spec = books.specOf(containerId, epoch);
      if (entry === undefined && spec === undefined) return;
      entry = {
        ...(entry ?? {
          containerId,
          assignmentId: action.assignmentId,
          epoch,
          shortId: shortIdOf(containerId, epoch),
          image: imageOf(spec?.image ?? '', spec?.pythonVersion ?? ''),
          codeSha256: spec?.code?.sha256 ?? '',
          deploymentId: spec?.deploymentId ?? '',
          workers: spec?.workers ?? 1,
          concurrentRequests: spec?.concurrentRequests ?? 1,
          timeoutMs: spec?.timeoutMs ?? 0,
          startTimeoutMs: spec?.startTimeoutMs ?? 0,
          bootId,
          cpuMillicores: spec?.cpuMillicores ?? 0,
          memoryBytes: spec?.memoryBytes ?? 0,
          gpuUuids: spec?.gpuUuids ?? [],
        }),
        stage: 'created',
        dockerId,
        startedAtMs: entry?.startedAtMs ?? Date.now(),
      };
      await books.journal.put(entry);
    }
    if (entry.codeSha256 !== '') archives.hold(entry.codeSha256, entry.shortId);
    await slots.add({
      containerId,
      workers: entry.workers,
      concurrentRequests: entry.concurrentRequests,
      timeoutMs: entry.timeoutMs,
      socketPath: join(stateDir, 's', entry.shortId, 'agent.sock'),
      ready: entry.ready,
    });
    books.attended.add(containerId);
    if (entry.ready === undefined)
      this.#arm(containerId, entry.startTimeoutMs || DEFAULT_START_TIMEOUT_MS, 'start_timeout', 2000);
    // What was printed while no agent ran is lost to us rather than told twice.
    this.#output.follow(containerId, dockerId, Date.now());
    log.info({ containerId }, 'running container adopted');
    books.changed(containerId);
  }

  // ---- ending ------------------------------------------------------------------------------------------------------------------

  /** The exit itself is the next round's. */
  async #stop(action: Extract<Action, { kind: 'stop' }>, signal: AbortSignal): Promise<void> {
    const { runtime, books, slots, metrics, log } = this.#parts;
    const { containerId, dockerId, graceMs } = action;
    const from = performance.now();
    if (!books.ending.has(containerId)) books.ending.set(containerId, { graceMs, reason: action.reason || 'killed' });
    slots.get(containerId)?.stopAccepting();
    books.changed(containerId);
    const wasReady = books.journal.get(containerId)?.ready !== undefined || slots.get(containerId)?.ready !== undefined;
    const result = await climbStopLadder({ runtime, books, log, containerId, dockerId, graceMs, wasReady, signal });
    if (result === 'given_up') return;
    if (result === 'stuck') {
      this.#stuck.add(containerId);
      log.error({ containerId }, 'container does not die');
      return;
    }
    this.#stuck.delete(containerId);
    metrics.stopDuration.observe({ result }, (performance.now() - from) / 1000);
  }

  async #finish(action: Extract<Action, { kind: 'finish' }>): Promise<void> {
    const { runtime, books, slots, log } = this.#parts;
    const { containerId } = action;
    const entry = books.journal.get(containerId);
    const seen = books.seenOf(containerId, action.epoch);
    if (entry === undefined || seen === undefined) return;
    clearTimeout(this.#startTimers.get(containerId));
    this.#startTimers.delete(containerId);
    const rebooted = entry.bootId !== this.#parts.bootId;
    const exitFacts = {
      seen,
      ready: entry.ready !== undefined,
      note: books.notes.get(containerId),
      ending: books.ending.get(containerId)?.reason,
      rebooted,
    };
    // An image without our Python shows only in what its init printed.
    if (entry.ready === undefined && (seen.exitCode === 127 || seen.exitCode === 126))
      await this.#output.settle(containerId, LOG_END_MS);
    const noPython = this.#output.takeNoPython(containerId) && slots.get(containerId)?.everGreeted !== true;
    const reason = noPython ? 'image_error' : exitReason(exitFacts);
    const message = noPython ? `image ${entry.image} has no python3` : exitMessage(exitFacts);
    const exit = {
      exitCode: seen.exitCode,
      oomKilled: seen.oomKilled,
      reason,
      message,
      finishedAtMs: seen.finishedAtMs || Date.now(),
    };
    await books.journal.change(containerId, { exit });
    books.changed(containerId);
    const kind = exitFacts.ending === undefined && !rebooted ? 'exited' : 'stopped';
    await slots.end(containerId, { kind, exitCode: seen.exitCode, oomKilled: seen.oomKilled });
    await this.#output.settle(containerId, LOG_END_MS);
    await runtime.remove(seen.dockerId);
    books.forgetSeen(seen.dockerId);
    log.info({ containerId, exitCode: seen.exitCode, oomKilled: seen.oomKilled, reason }, 'container ended');
    await this.#gone(entry, exit);
  }

  async #vanished(action: Extract<Action, { kind: 'vanished' }>): Promise<void> {
    const { books, slots } = this.#parts;
    const entry = books.journal.get(action.containerId);
    if (entry === undefined) return;
    const ordered = books.ending.get(action.containerId)?.reason;
    await slots.end(action.containerId, { kind: 'vanished', exitCode: 137, oomKilled: false });
    await this.#gone(entry, {
      exitCode: 137,
      oomKilled: false,
      reason: ordered ?? 'lost',
      message: ordered === undefined ? 'the container engine has it no more' : '',
      finishedAtMs: Date.now(),
    });
  }

  async #release(action: Extract<Action, { kind: 'release' }>): Promise<void> {
    const { books } = this.#parts;
    const entry = books.journal.get(action.containerId);
    if (entry === undefined) return;
    await this.#gone(entry, {
      exitCode: 0,
      oomKilled: false,
      reason: action.reason || 'killed',
      message: '',
      finishedAtMs: Date.now(),
    });
  }

  async #forget(action: Extract<Action, { kind: 'forget' }>): Promise<void> {
    await this.#parts.books.forget(action.containerId);
  }

  async #confirmGone(action: Extract<Action, { kind: 'confirm-gone' }>): Promise<void> {
    const { books, bootId } = this.#parts;
    const { containerId, assignmentId, epoch } = action;
    await books.journal.put({
      containerId,
      assignmentId,
      epoch,
      stage: 'gone',
      shortId: shortIdOf(containerId, epoch),
      image: '',
      codeSha256: '',
      deploymentId: '',
      workers: 1,
      concurrentRequests: 1,
      timeoutMs: 0,
      startTimeoutMs: 0,
      bootId,
      exit: { exitCode: 0, oomKilled: false, reason: action.reason || 'killed', message: '', finishedAtMs: Date.now() },
    });
    books.changed(containerId);
  }

  async #removeStray(action: Extract<Action, { kind: 'remove-stray' }>): Promise<void> {
    const { runtime, books, metrics, log, views } = this.#parts;
    await runtime.remove(action.dockerId);
    books.forgetSeen(action.dockerId);
    metrics.orphansRemoved.inc({ kind: action.why });
    log.warn({ containerId: action.containerId, why: action.why }, 'stray container removed');
    if (books.journal.get(action.containerId) === undefined)
      await runtime.removeVolume(views.volumeName(action.containerId));
  }

  /** Removes what is left of a container, and notes and reports that nothing is. */
  async #gone(entry: JournalEntry, exit: NonNullable<JournalEntry['exit']>): Promise<void> {
    const { books, slots, archives, runtime, views, logs, metrics, stateDir, log } = this.#parts;
    const { containerId, shortId } = entry;
    const key = `${containerId} ${entry.epoch}`;
    await this.#preparing.get(key)?.catch(() => undefined);
    this.#preparing.delete(key);
    clearTimeout(this.#startTimers.get(containerId));
    this.#startTimers.delete(containerId);
    this.#output.forget(containerId);
    this.#acceptedAt.delete(containerId);
    await slots.end(containerId, { kind: 'stopped', exitCode: exit.exitCode, oomKilled: exit.oomKilled });
    books.attended.delete(containerId);
    if (entry.codeSha256 !== '') archives.release(entry.codeSha256, shortId);
    try {
      await runtime.removeVolume(views.volumeName(containerId));
      await Promise.all([views.remove(shortId), rm(join(stateDir, 's', shortId), { recursive: true, force: true })]);
    } catch (error) {
      // The sweep of the next start takes what is left; the container itself is gone, and that is what is reported.
      log.warn({ containerId, err: error }, 'something of a container could not be removed');
    }
    // What its runner said of a failure is in its log already; an end that only we saw must be found there too.
    if (exit.message !== '' && !books.notes.has(containerId))
      logs.add(containerId, {
        taskId: '',
        stream: 'stderr',
        line: `longshore: ${exit.message}`,
        timestampMs: Date.now(),
      });
    books.notes.delete(containerId);
    books.ending.delete(containerId);
    this.#stuck.delete(containerId);
    logs.forget(containerId);
    metrics.exits.inc({ reason: exit.reason });
    await books.journal.change(containerId, { stage: 'gone', exit });
    books.changed(containerId);
  }

  async #dropContainer(entry: JournalEntry): Promise<void> {
    const { runtime, books, views } = this.#parts;
    const left = books.seenOf(entry.containerId, entry.epoch);
    if (left !== undefined) {
      await runtime.remove(left.dockerId);
      books.forgetSeen(left.dockerId);
    }
    await runtime.removeVolume(views.volumeName(entry.containerId));
  }
}
