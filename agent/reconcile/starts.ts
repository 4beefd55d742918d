/**
 * How containers begin: accepted, prepared, created and started, or adopted when they already run. Called by
 * execute.ts, one action a container at a time. Must stay true: the journal is written before the step it announces;
 * nothing is created before its permission; everything that a failed start has made is removed.
 */
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { pinnedTo } from '#shared/domain/image-reference.ts';
import { AppError } from '#shared/errors.ts';
import { ENGINE_CANNOT_START } from '#shared/domain/conditions.ts';
import type { Assignment__Output } from '#shared/protocol/generated/messages.ts';
import type { PauseContainer } from '../containers/pause-containers.ts';
import { Limiter } from '../containers/limiter.ts';
import type { CreateContainer, RuntimeContainer } from '../containers/runtime.ts';
import { EngineError, LABELS, isGpuRefusal } from '../containers/runtime.ts';
import { checkAssignment, createContainerOf, shortIdOf } from '../containers/spec.ts';
import { hasCredential, isSupervised, kindOf } from '../containers/supervised.ts';
import type { Permission } from './agent-state.ts';
import type { Ends } from './ends.ts';
import type { JournalEntry } from './journal.ts';
import type { Action } from './plan.ts';
import { NFS_PREFIX } from '../volumes/nfs.ts';
import { factsLabel } from './rebuild.ts';
import { abortable, architectureProblem, checkGpuDriver, startFailure } from './starting.ts';
import type { ExecutorParts, Prepared, ExecutorContext } from './executor-context.ts';

const DEFAULT_START_TIMEOUT_MS = 15 * 60_000;
/** Adopted containers whose sockets are opened in one turn of the event loop. */
const OPENED_IN_A_TURN = 20;
const RESUMED_IN_A_TURN = 20;

export class Starts {
  readonly #context: ExecutorContext;
  readonly #parts: ExecutorParts;
  readonly #ends: Ends;
  readonly #starts: Limiter;
  readonly #toResume: { readonly entry: JournalEntry; readonly dockerId: string }[] = [];

  readonly #onLeaseRefused: () => void;

  constructor(context: ExecutorContext, ends: Ends, onLeaseRefused: () => void) {
    this.#onLeaseRefused = onLeaseRefused;
    this.#context = context;
    this.#parts = context.parts;
    this.#ends = ends;
    this.#starts = new Limiter(context.parts.startsAtOnce);
  }

  async accept(action: Extract<Action, { kind: 'accept' }>): Promise<void> {
    const { agentState, send, imageOf, bootId } = this.#parts;
    const { containerId, assignmentId, epoch } = action;
    // Reads the memory of its GPUs where that was not read a moment ago; the assignment may change meanwhile.
    if (agentState.journal.get(containerId)?.assignmentId !== assignmentId)
      await this.#parts.gpus.beforeLease(agentState.assignmentOf(containerId)?.spec?.gpuUuids ?? []);
    const assignment = agentState.assignmentOf(containerId);
    if (assignment === undefined || assignment.assignmentId !== assignmentId) return;
    const ack = { assignmentId, containerId, epoch };
    const problem = checkAssignment(assignment);
    if (problem !== undefined || assignment.spec === null) {
      agentState.refused.add(assignmentId);
      send({ refuse: { ...ack, reason: 'invalid_spec', message: problem ?? 'spec is missing' } });
      return;
    }
    const { spec } = assignment;
    // An assignment that was taken before goes on; a new one goes to a machine with room.
    const closed = this.#whyClosed();
    if (closed !== undefined && agentState.journal.get(containerId)?.assignmentId !== assignmentId) {
      agentState.refused.add(assignmentId);
      send({ refuse: { ...ack, ...closed } });
      return;
    }
    const before = agentState.journal.get(containerId);
    if (before?.assignmentId !== assignmentId || before.epoch !== epoch) {
      // The lease is journaled in this turn, so that no other assignment can get the same device in between.
      const refusal = this.#parts.gpus.refusal({ containerId, epoch, gpuUuids: spec.gpuUuids });
      if (refusal !== undefined) {
        agentState.refused.add(assignmentId);
        this.#parts.log.error({ containerId, ...refusal }, 'assignment refused because of its GPUs');
        send({ refuse: { ...ack, ...refusal } });
        this.#onLeaseRefused();
        return;
      }
      agentState.notes.delete(containerId);
      agentState.ending.delete(containerId);
      this.#context.clock.begin(containerId);
      await agentState.journal.put({
        containerId,
        assignmentId,
        epoch,
        stage: 'accepted',
        shortId: shortIdOf(containerId, epoch),
        image: pinnedTo(imageOf(spec.image, spec.pythonVersion), spec.imageDigest),
        codeSha256: spec.code?.sha256 ?? '',
        deploymentId: spec.deploymentId,
        workers: spec.workers,
        concurrentRequests: spec.concurrentRequests,
        timeoutMs: spec.timeoutMs,
        startTimeoutMs: spec.startTimeoutMs,
        stopAfterDisconnectMs: spec.stopAfterDisconnectMs,
        secretNames: spec.secretNames,
        bootId,
        cpuMillicores: spec.cpuMillicores,
        memoryBytes: spec.memoryBytes,
        gpuUuids: spec.gpuUuids,
        kind: kindOf(spec),
      });
    }
    agentState.acked.add(assignmentId);
    send({ ack });
    // Preparation needs no permission and starts now; a failure shows when its result is awaited.
    this.#prepare(assignment).catch(() => undefined);
  }

  /** Why this machine takes no assignments now; undefined: it takes them. */
  #whyClosed(): { readonly reason: string; readonly message: string } | undefined {
    const { agentState, conditions } = this.#parts;
    if (agentState.isLeaving) return { reason: 'stopping', message: 'the agent stops, and its containers with it' };
    if (conditions.names.includes('DiskPressure'))
      return { reason: 'disk_pressure', message: 'the machine has too little free disk' };
    if (conditions.names.includes('EngineCannotStart'))
      return { reason: ENGINE_CANNOT_START, message: 'the container engine of the machine starts no container' };
    return undefined;
  }

  #prepare(assignment: Assignment__Output): Promise<Prepared> {
    const { containerId, epoch, spec } = assignment;
    const key = `${containerId} ${epoch}`;
    const running = this.#context.preparing.get(key);
    if (running !== undefined) return running;
    const { archives, images, agentState, slots, gpuDrivers, imageOf, stateDir } = this.#parts;
    const needed = this.#context.needs.get(key) ?? new AbortController();
    this.#context.needs.set(key, needed);
    const kind = spec === null ? '' : kindOf(spec);
    const shortId = shortIdOf(containerId, epoch);
    const image = pinnedTo(imageOf(spec?.image ?? '', spec?.pythonVersion ?? ''), spec?.imageDigest ?? '');
    const prepared = Promise.all([
      archives.acquire(spec?.code ?? undefined, shortId),
      images
        .ensure(
          image,
          (text) => {
            if (!agentState.pulling.has(containerId)) this.#parts.logs.say(containerId, text);
            this.#context.clock.missed(containerId);
            agentState.pulling.set(containerId, text);
            agentState.changed(containerId);
          },
          spec?.workspaceId,
          needed.signal,
        )
        .finally(() => {
          if (agentState.pulling.delete(containerId)) agentState.changed(containerId);
        })
        .then(({ id }) => this.#configured(kind, image, id)),
      slots.add({
        containerId,
        workers: spec?.workers ?? 1,
        concurrentRequests: spec?.concurrentRequests ?? 1,
        timeoutMs: spec?.timeoutMs ?? 0,
        socketPath: join(stateDir, 's', shortId, 'agent.sock'),
        ready: undefined,
      }),
      this.#addSockets({ containerId, epoch, shortId, kind }),
      (spec?.gpuUuids ?? []).length > 0 ? gpuDrivers.check() : undefined,
    ]).then(([lower, image]) => ({ lower, ...image }));
    this.#context.preparing.set(key, prepared);
    return prepared;
  }

  /** The sockets beside that of runner processes. */
  async #addSockets(
    entry: Pick<JournalEntry, 'containerId' | 'epoch' | 'shortId' | 'kind' | 'hasSupervisor'>,
  ): Promise<void> {
    const { gateway, supervisors, stateDir } = this.#parts;
    const { containerId, epoch, shortId, kind, hasSupervisor = false } = entry;
    await Promise.all([
      hasCredential(kind)
        ? gateway.add({ containerId, epoch }, join(stateDir, 's', shortId, 'gateway.sock'))
        : undefined,
      isSupervised(kind) || hasSupervisor ? supervisors.add(containerId, shortId, isSupervised(kind)) : undefined,
    ]);
  }

  /** The image's configuration, and what a supervisor needs that is a container's first program. */
  async #configured(kind: string, image: string, imageId: string): Promise<Omit<Prepared, 'lower'>> {
    const { runtime, pythonBase } = this.#parts;
    const supervised = isSupervised(kind);
    const [base, config] = await Promise.all([
      supervised ? pythonBase.mount() : undefined,
      runtime.imageConfig(imageId),
    ]);
    if (config === undefined) throw new EngineError('no_such_image', `image ${image} is not there any more`);
    const problem = supervised ? await architectureProblem(image, config.architecture) : undefined;
    if (problem !== undefined) throw new AppError('image_error', problem);
    return { imageId, config, base };
  }

  async start(action: Extract<Action, { kind: 'start' }>, signal: AbortSignal): Promise<void> {
    const { agentState, log } = this.#parts;
    const { containerId } = action;
    const assignment = agentState.assignmentOf(containerId);
    const entry = agentState.journal.get(containerId);
    if (assignment?.epoch !== action.epoch || entry === undefined) return;
    const networkVersion = assignment.spec?.networkVersion ?? 0;
    // The permission is read now: a session that ends while an image is pulled takes its permissions with it.
    const permission = agentState.proceeded.get(entry.assignmentId);
    try {
      this.#context.clock.mark(containerId, 'proceed');
      // A start that waits for an image takes no place from one that could begin.
      const [prepared] = await Promise.all([
        abortable(this.#prepare(assignment), signal),
        agentState.journal.change(containerId, {
          stage: 'creating',
          // The filter is made by the rules of this assignment.
          ...(networkVersion === 0 ? {} : { networkVersion }),
        }),
      ]);
      if (prepared === undefined || signal.aborted) return;
      this.#context.clock.mark(containerId, 'prepare');
      await this.#starts.run(() => this.#startNow(assignment, entry, prepared, permission, signal));
    } catch (error) {
      if (signal.aborted) return;
      const note = await this.#judge(error);
      log.warn({ containerId, err: error, reason: note.reason }, 'container could not be started');
      const left = agentState.seenOf(containerId, action.epoch);
      if (left !== undefined) {
        await this.#parts.runtime.remove(left.dockerId);
        agentState.forgetSeen(left.dockerId);
      }
      await this.#ends.gone(entry, { ...note, exitCode: 1, oomKilled: false, finishedAtMs: Date.now() });
    } finally {
      this.#context.preparing.delete(`${containerId} ${action.epoch}`);
    }
  }

  /**
   * Finds the party at fault for a failed start. A failure that every container would have is the machine's: its
   * containers may start elsewhere.
   */
  async #judge(error: unknown): Promise<{ readonly reason: string; readonly message: string }> {
    const note = startFailure(error);
    const words = note.reason === 'start_failed' ? await this.#parts.engineTrials.blamed(error) : undefined;
    return words === undefined ? note : { reason: ENGINE_CANNOT_START, message: words };
  }

  async #startNow(
    assignment: Assignment__Output,
    entry: JournalEntry,
    prepared: Prepared,
    permission: Permission | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { agentState, views, volumes, gpuDrivers, host, stateDir, log } = this.#parts;
    const { clock } = this.#context;
    const { containerId } = entry;
    const { spec } = assignment;
    if (spec === null) throw new Error('spec is missing');
    if (signal.aborted) return;
    const secrets = permission?.secrets ?? {};
    const containerToken = permission?.containerToken ?? '';
    const bucketKeys = new Map((permission?.bucketKeys ?? []).map((keys) => [keys.mountPath, keys]));
    clock.mark(containerId, 'turn');
    const takePauseContainer = async (): Promise<PauseContainer | undefined> =>
      // The network of a sandbox may open later, so it has one that lets nothing out.
      spec.blockNetwork && kindOf(spec) !== 'sandbox'
        ? undefined
        : this.#parts.pauseContainers.take(containerId, entry.epoch, spec);
    this.#parts.logs.hide(containerId, [...Object.values(secrets), containerToken]);
    let pauseContainer = await takePauseContainer();
    clock.mark(containerId, 'holder');
    if (spec.gpuUuids.length > 0) checkGpuDriver(prepared.config.env, this.#parts.gpus.driver);
    let gpuDriver = gpuDrivers.driverFor(spec.gpuUuids);
    const build = async (): Promise<CreateContainer> => {
      const paths = {
        code: await views.make(containerId, entry.shortId, prepared.lower),
        socketDir: join(stateDir, 's', entry.shortId),
        volumes: await volumes.mounts(spec.workspaceId, spec.volumes, prepared.lower, { containerId, bucketKeys }),
        base: prepared.base,
      };
      clock.mark(containerId, 'mounts');
      return createContainerOf(
        entry,
        { ...spec, containerToken, env: { ...spec.env, ...secrets } },
        {
          id: prepared.imageId,
          reference: entry.image,
          config: prepared.config,
          isBase: this.#parts.isBaseImage(entry.image),
        },
        {
          ...host(),
          gpuDriver,
          openFiles: pauseContainer?.openFiles ?? (await this.#parts.pauseContainers.openFiles()),
        },
        paths,
        pauseContainer,
      );
    };
    let dockerId: string | undefined;
    try {
      dockerId = await this.#createAndStart(await build(), entry, signal);
    } catch (error) {
      // The engine's message names the volume that it could not mount.
      const overlayRefused =
        error instanceof EngineError &&
        error.failure === 'mount_refused' &&
        views.mode !== 'copy' &&
        !error.message.includes(NFS_PREFIX);
      const otherDriver = isGpuRefusal(error) ? gpuDrivers.refused(gpuDriver) : undefined;
      const pauseContainerGone =
        pauseContainer !== undefined && !(await this.#parts.pauseContainers.runs(pauseContainer));
      if (!overlayRefused && !pauseContainerGone && otherDriver === undefined) throw error;
      if (otherDriver !== undefined) {
        log.warn({ err: error, containerId, gpuDriver }, `GPUs are refused by CDI; tried by NVIDIA's hook`);
        gpuDriver = otherDriver;
      }
      if (overlayRefused) {
        log.warn({ err: error }, 'the engine refuses overlay volumes; code is copied from now on');
        views.refuseOverlay();
      }
      // A pause container that waited may have been removed outside the agent.
      if (pauseContainerGone) pauseContainer = await takePauseContainer();
      await this.#ends.drop(entry);
      dockerId = await this.#createAndStart(await build(), entry, signal);
    }
    if (dockerId === undefined) {
      await this.#ends.drop(entry);
      return;
    }
    const startedAtMs = Date.now();
    agentState.attended.add(containerId);
    this.#context.arm(containerId, spec.startTimeoutMs || DEFAULT_START_TIMEOUT_MS, 'start_timeout', 2000);
    this.#context.output.follow(containerId, dockerId, 'start');
    await agentState.journal.change(containerId, { stage: 'created', dockerId, startedAtMs });
    agentState.changed(containerId);
  }

  /**
   * Creates the container under the assignment's own name; a container that already has the name is adopted, removed or
   * respected by its labels.
   * @returns the engine's id; undefined when the signal came first, and the container is not started
   */
  async #createAndStart(
    wanted: CreateContainer,
    entry: JournalEntry,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const { runtime, agentState, host } = this.#parts;
    const create = { ...wanted, labels: { ...wanted.labels, [LABELS.facts]: factsLabel(entry) } };
    let dockerId: string;
    try {
      dockerId = await runtime.create(create);
    } catch (error) {
      if (!(error instanceof EngineError) || error.failure !== 'conflict') throw error;
      const there = await runtime.inspect(create.name);
      if (there !== undefined && there.labels[LABELS.machine] !== host().machineId) throw error;
      if (there?.state === 'running' && there.labels[LABELS.assignment] === entry.assignmentId) {
        agentState.learn(there);
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
      network: create.network,
      exitCode: 0,
      oomKilled: false,
      startedAtMs: 0,
      finishedAtMs: 0,
      error: '',
      gpuUuids: create.gpus?.uuids ?? [],
    };
    agentState.learn(made);
    // The journal knows the device's container before any process of it can exist.
    if (made.gpuUuids.length > 0) await agentState.journal.change(entry.containerId, { dockerId });
    if (signal.aborted) return undefined;
    this.#context.clock.mark(entry.containerId, 'create');
    await runtime.start(dockerId);
    this.#context.clock.mark(entry.containerId, 'start');
    agentState.learn({ ...made, state: 'running', startedAtMs: Date.now() });
    return dockerId;
  }

  async adopt(action: Extract<Action, { kind: 'adopt' }>): Promise<void> {
    const { agentState, archives, log, bootId, imageOf } = this.#parts;
    const { containerId, epoch, dockerId } = action;
    let entry = agentState.journal.get(containerId);
    if (entry === undefined || entry.stage !== 'created') {
      const spec = agentState.specOf(containerId, epoch);
      if (entry === undefined && spec === undefined) return;
      entry = {
        ...(entry ?? {
          containerId,
          assignmentId: action.assignmentId,
          epoch,
          shortId: shortIdOf(containerId, epoch),
          image: pinnedTo(imageOf(spec?.image ?? '', spec?.pythonVersion ?? ''), spec?.imageDigest ?? ''),
          codeSha256: spec?.code?.sha256 ?? '',
          deploymentId: spec?.deploymentId ?? '',
          workers: spec?.workers ?? 1,
          concurrentRequests: spec?.concurrentRequests ?? 1,
          timeoutMs: spec?.timeoutMs ?? 0,
          startTimeoutMs: spec?.startTimeoutMs ?? 0,
          secretNames: spec?.secretNames ?? [],
          stopAfterDisconnectMs: spec?.stopAfterDisconnectMs ?? 0,
          bootId,
          cpuMillicores: spec?.cpuMillicores ?? 0,
          memoryBytes: spec?.memoryBytes ?? 0,
          gpuUuids: agentState.seenOf(containerId, epoch)?.gpuUuids ?? spec?.gpuUuids ?? [],
          kind: spec === undefined ? '' : kindOf(spec),
        }),
        stage: 'created',
        dockerId,
        startedAtMs: entry?.startedAtMs ?? Date.now(),
      };
      await agentState.journal.put(entry);
    }
    // Lines are held back before the first of them can arrive.
    this.#parts.logs.holdBack(containerId);
    if (entry.codeSha256 !== '') archives.hold(entry.codeSha256, entry.shortId);
    if (!this.#context.openedAhead.delete(containerId)) await this.#open(entry);
    agentState.attended.add(containerId);
    if (entry.ready === undefined)
      this.#context.arm(containerId, entry.startTimeoutMs || DEFAULT_START_TIMEOUT_MS, 'start_timeout', 2000);
    log.debug({ containerId }, 'running container adopted');
    this.#resumeLater(entry, dockerId);
    agentState.changed(containerId);
  }

  /** Follows the output once all running containers are adopted: a starting agent may have hundreds. */
  #resumeLater(entry: JournalEntry, dockerId: string): void {
    this.#toResume.push({ entry, dockerId });
    if (this.#toResume.length === 1) void this.#resumeAll();
  }

  async #resumeAll(): Promise<void> {
    const { agentState } = this.#parts;
    for (let done = 0; done < this.#toResume.length; done += 1) {
      if (done % RESUMED_IN_A_TURN === 0) await setImmediate();
      const one = this.#toResume[done];
      // The container may have ended meanwhile, and another be in its place.
      if (one !== undefined && agentState.hasSeen(one.dockerId) && agentState.attended.has(one.entry.containerId))
        this.#context.resumeOutput(one.entry, one.dockerId);
    }
    this.#toResume.length = 0;
  }

  /**
   * Opens the sockets of all containers that run by the journal, while the engine lists its containers, which takes as
   * long. A container that the listing lacks is removed with its sockets. A socket that cannot be opened is tried again
   * at the adoption.
   */
  async openAhead(): Promise<void> {
    const { agentState, logs } = this.#parts;
    const running = [...agentState.journal.all()].filter(
      ({ stage, exit }) => stage === 'created' && exit === undefined,
    );
    // A runner may send lines before the engine has named the secrets to hide in them.
    for (const { containerId } of running) logs.holdBack(containerId);
    for (let from = 0; from < running.length; from += OPENED_IN_A_TURN) {
      // The pause lets the query to the engine go out, and its answer come in.
      await setImmediate();
      const some = running.slice(from, from + OPENED_IN_A_TURN);
      const opened = await Promise.allSettled(some.map((entry) => this.#open(entry)));
      for (const [at, { containerId }] of some.entries())
        if (opened[at]?.status === 'fulfilled') this.#context.openedAhead.add(containerId);
    }
  }

  /** Opens the sockets of a container that already runs. */
  async #open(entry: JournalEntry): Promise<void> {
    const { slots, stateDir } = this.#parts;
    const { containerId, workers, concurrentRequests, timeoutMs, ready } = entry;
    await Promise.all([
      slots.add({
        containerId,
        workers,
        concurrentRequests,
        timeoutMs,
        socketPath: join(stateDir, 's', entry.shortId, 'agent.sock'),
        ready,
        adopted: true,
      }),
      this.#addSockets(entry),
    ]);
  }
}
