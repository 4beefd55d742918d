/**
 * How containers end: stopped, found exited or gone, or released before their start; with the removal and the record of
 * the end. Called by execute.ts, one action a container at a time. Must stay true: an attempt never outlives its
 * container; `gone` is written after everything is removed; only our own containers are touched.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { sleep, withDeadline } from '#shared/backoff.ts';
import type { EndMemory, RuntimeContainer } from '../containers/runtime.ts';
import { shortIdOf } from '../containers/spec.ts';
import { isSupervised } from '../containers/supervised.ts';
import type { OutsideEnd } from './exits.ts';
import { attemptsEnd, BY_SIGNAL, exitMessage, exitReason, outsideEnd } from './exits.ts';
import type { JournalEntry } from './journal.ts';
import type { Action } from './plan.ts';
import { climbStopLadder } from './stop-ladder.ts';
import type { ExecutorParts, ExecutorContext } from './executor-context.ts';

/** Wait for the end of an exited container's log. */
const LOG_END_MS = 2000;
/** Wait for the engine's second answer on the end of a killed container, whose tasks wait too. */
const LOOK_AGAIN_MS = 2000;
/** Wait for the engine's note of a signal. */
const NOTED_MS = 200;
/** The exit code of SIGKILL. */
const KILLED = 137;

export class Ends {
  readonly #context: ExecutorContext;
  readonly #parts: ExecutorParts;

  constructor(context: ExecutorContext) {
    this.#context = context;
    this.#parts = context.parts;
  }

  /** Stops the container; the next round handles its exit. */
  async stop(action: Extract<Action, { kind: 'stop' }>, signal: AbortSignal): Promise<void> {
    const { runtime, agentState, slots, metrics, log } = this.#parts;
    const { containerId, dockerId, graceMs } = action;
    const from = performance.now();
    if (!agentState.ending.has(containerId))
      agentState.ending.set(containerId, { graceMs, reason: action.reason || 'killed' });
    slots.get(containerId)?.stopAccepting();
    agentState.changed(containerId);
    const wasReady =
      agentState.journal.get(containerId)?.ready !== undefined || slots.get(containerId)?.ready !== undefined;
    const result = await climbStopLadder({
      runtime,
      agentState,
      log,
      containerId,
      dockerId,
      graceMs,
      wasReady,
      signal,
    });
    if (result === 'given_up') return;
    if (result === 'stuck') {
      this.#context.setStuck(containerId, true);
      log.error({ containerId }, 'container does not die');
      return;
    }
    this.#context.setStuck(containerId, false);
    metrics.stopDuration.observe({ result }, (performance.now() - from) / 1000);
  }

  async finish(action: Extract<Action, { kind: 'finish' }>): Promise<void> {
    const { runtime, agentState, slots, gateway, log } = this.#parts;
    const { containerId } = action;
    const entry = agentState.journal.get(containerId);
    const found = agentState.seenOf(containerId, action.epoch);
    if (entry === undefined || found === undefined) return;
    this.#context.disarm(containerId);
    const rebooted = entry.bootId !== this.#parts.bootId;
    // Nobody followed a container that ended while no agent ran. The end is reported only when its secrets are known,
    // so that they can be hidden.
    this.#context.resumeOutput(entry, found.dockerId);
    await withDeadline(
      this.#context.output.opened(containerId),
      LOG_END_MS,
      () => new Error('the engine has not said yet what must be hidden in its output'),
    );
    const isOrdered = agentState.notes.has(containerId) || agentState.ending.has(containerId) || rebooted;
    const seen = isOrdered ? found : { ...found, oomKilled: await this.#ranOutOfMemory(found) };
    const isOwn = (isOrdered && agentState.ending.get(containerId)?.reason !== 'lost') || seen.oomKilled;
    const outside = isOwn ? undefined : await this.#outsideEnd(entry, seen);
    const supervised = isSupervised(entry.kind);
    const exitFacts = {
      seen,
      ready: entry.ready !== undefined,
      isSupervised: supervised,
      note: agentState.notes.get(containerId),
      ending: agentState.ending.get(containerId)?.reason,
      rebooted,
      outside,
    };
    // An image without our Python shows only in the output of its init.
    if (entry.ready === undefined && (seen.exitCode === 127 || seen.exitCode === 126))
      await this.#context.output.awaitEnd(containerId, LOG_END_MS);
    const noPython = this.#context.output.takeNoPython(containerId) && slots.get(containerId)?.everGreeted !== true;
    const failed = noPython ? this.#withoutPython(entry, supervised) : undefined;
    const { reason, message } = failed ?? { reason: exitReason(exitFacts), message: exitMessage(exitFacts) };
    const exit = {
      exitCode: seen.exitCode,
      oomKilled: seen.oomKilled,
      reason,
      message,
      finishedAtMs: seen.finishedAtMs || Date.now(),
    };
    await agentState.journal.change(containerId, { exit });
    agentState.changed(containerId);
    gateway.end(containerId);
    const { exitCode, oomKilled } = seen;
    const isTold = await slots.end(containerId, { ...attemptsEnd(reason, message, exitFacts), exitCode, oomKilled });
    await this.#context.output.awaitEnd(containerId, LOG_END_MS);
    await runtime.remove(seen.dockerId);
    agentState.forgetSeen(seen.dockerId);
    log.info({ containerId, exitCode: seen.exitCode, oomKilled: seen.oomKilled, reason }, 'container ended');
    await this.gone(entry, exit, isTold);
  }

  /** A container's first program did not exist. */
  #withoutPython({ image }: JournalEntry, supervised: boolean): { readonly reason: string; readonly message: string } {
    if (!supervised) return { reason: 'image_error', message: `image ${image} has no python3` };
    this.#parts.pythonBase.distrust();
    return { reason: 'start_failed', message: 'the Python of supervisors was not there; it is made again' };
  }

  /**
   * Whether the container ran out of memory. The engine may learn of that only after the end that it caused, so a kill
   * without the flag is inspected once more.
   */
  async #ranOutOfMemory({ dockerId, exitCode, oomKilled }: RuntimeContainer): Promise<boolean> {
    if (oomKilled || exitCode !== KILLED) return oomKilled;
    const { runtime, agentState } = this.#parts;
    const again = await withDeadline(
      runtime.inspect(dockerId),
      LOOK_AGAIN_MS,
      () => new Error('the engine did not answer'),
    ).catch(() => undefined);
    return again?.oomKilled === true || agentState.lackedMemory(dockerId);
  }

  /** Whether an end that was not ordered came from outside the container. */
  async #outsideEnd(entry: JournalEntry, found: RuntimeContainer): Promise<OutsideEnd | undefined> {
    const { runtime, agentState } = this.#parts;
    const { dockerId, exitCode } = found;
    // The engine has no event for the end of a container that it could not start.
    if (entry.startedAtMs === undefined && found.startedAtMs === 0) return undefined;
    const ask = (): Promise<EndMemory | undefined> => runtime.endMemory(dockerId).catch(() => undefined);
    let memory = await ask();
    // The engine may note the signal a moment after the end that it caused.
    if (memory === 'own' && BY_SIGNAL.has(exitCode) && (await sleep(NOTED_MS))) memory = await ask();
    const liveRestore = memory === 'new_engine' && (await runtime.info().catch(() => undefined))?.liveRestore === true;
    return outsideEnd({ memory, signalled: agentState.wasSignalled(dockerId), liveRestore, exitCode });
  }

  async vanished(action: Extract<Action, { kind: 'vanished' }>): Promise<void> {
    const { agentState, slots } = this.#parts;
    const entry = agentState.journal.get(action.containerId);
    if (entry === undefined) return;
    const ordered = agentState.ending.get(action.containerId)?.reason;
    await slots.end(action.containerId, { kind: 'vanished', exitCode: 137, oomKilled: false });
    await this.gone(entry, {
      exitCode: 137,
      oomKilled: false,
      reason: ordered ?? 'lost',
      message: ordered === undefined ? 'the container engine has it no more' : '',
      finishedAtMs: Date.now(),
    });
  }

  async release(action: Extract<Action, { kind: 'release' }>): Promise<void> {
    const { agentState } = this.#parts;
    const entry = agentState.journal.get(action.containerId);
    if (entry === undefined) return;
    await this.gone(entry, {
      exitCode: 0,
      oomKilled: false,
      reason: action.reason || 'killed',
      message: '',
      finishedAtMs: Date.now(),
    });
  }

  async forget(action: Extract<Action, { kind: 'forget' }>): Promise<void> {
    await this.#parts.agentState.forget(action.containerId);
  }

  async confirmGone(action: Extract<Action, { kind: 'confirm-gone' }>): Promise<void> {
    const { agentState, bootId } = this.#parts;
    const { containerId, assignmentId, epoch } = action;
    await agentState.journal.put({
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
      stopAfterDisconnectMs: 0,
      secretNames: [],
      bootId,
      cpuMillicores: 0,
      memoryBytes: 0,
      gpuUuids: [],
      kind: '',
      exit: { exitCode: 0, oomKilled: false, reason: action.reason || 'killed', message: '', finishedAtMs: Date.now() },
    });
    agentState.changed(containerId);
  }

  async removeStray(action: Extract<Action, { kind: 'remove-stray' }>): Promise<void> {
    const { runtime, agentState, metrics, log, views } = this.#parts;
    const devices = agentState.devicesOf(action.dockerId);
    await runtime.remove(action.dockerId);
    await this.#parts.gpus.release(devices, action.dockerId);
    agentState.forgetSeen(action.dockerId);
    metrics.orphansRemoved.inc({ kind: action.why });
    log.warn({ containerId: action.containerId, why: action.why }, 'stray container removed');
    if (agentState.journal.get(action.containerId) === undefined)
      await runtime.removeVolume(views.volumeName(action.containerId));
  }

  /**
   * Removes every remainder of a container, then records and reports it as gone.
   * @param isTold - the log says already how it ended, in a line of a task
   */
  async gone(entry: JournalEntry, exit: NonNullable<JournalEntry['exit']>, isTold = false): Promise<void> {
    const { agentState, slots, gateway, archives, runtime, views, pauseContainers, logs, metrics, stateDir, log } =
      this.#parts;
    const { containerId, shortId } = entry;
    const key = `${containerId} ${entry.epoch}`;
    // A pull that nothing else needs ends, too.
    this.#context.needs.get(key)?.abort();
    this.#context.needs.delete(key);
    await this.#context.preparing.get(key)?.catch(() => undefined);
    this.#context.preparing.delete(key);
    this.#context.openedAhead.delete(containerId);
    this.#context.disarm(containerId);
    this.#context.output.forget(containerId);
    this.#context.clock.forget(containerId);
    gateway.end(containerId);
    this.#parts.supervisors.end(containerId);
    await slots.end(containerId, { kind: 'stopped', exitCode: exit.exitCode, oomKilled: exit.oomKilled });
    agentState.attended.delete(containerId);
    pauseContainers.release(containerId, entry.epoch);
    if (entry.codeSha256 !== '') archives.release(entry.codeSha256, shortId);
    try {
      await runtime.removeVolume(views.volumeName(containerId));
      await Promise.all([views.remove(shortId), rm(join(stateDir, 's', shortId), { recursive: true, force: true })]);
    } catch (error) {
      // The sweep of the next start removes the rest; the container itself is gone, and that is reported.
      log.warn({ containerId, err: error }, 'something of a container could not be removed');
    }
    logs.giveUp(containerId);
    // The log already has a failure that the runner reported; an end that only the agent saw must be found there too.
    if (exit.message !== '' && !isTold && !agentState.notes.has(containerId)) logs.say(containerId, exit.message);
    await this.#parts.gpus.release(entry.gpuUuids, agentState.journal.get(containerId)?.dockerId);
    agentState.notes.delete(containerId);
    agentState.ending.delete(containerId);
    this.#context.setStuck(containerId, false);
    logs.forget(containerId);
    metrics.exits.inc({ reason: exit.reason });
    await agentState.journal.change(containerId, { stage: 'gone', exit });
    agentState.changed(containerId);
  }

  /** Removes a container that was created and must not start, with its view. */
  async drop(entry: JournalEntry): Promise<void> {
    const { runtime, agentState, views } = this.#parts;
    const left = agentState.seenOf(entry.containerId, entry.epoch);
    if (left !== undefined) {
      await runtime.remove(left.dockerId);
      agentState.forgetSeen(left.dockerId);
    }
    await runtime.removeVolume(views.volumeName(entry.containerId));
  }
}
