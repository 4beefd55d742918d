/**
 * Performs the plan's actions: a map from action to function, exhaustive by type. Called by the loop, one action a
 * container at a time. A failing action is noted on its container and stops no other. Starts are in starts.ts, ends in
 * ends.ts; reports of runners between the two are here.
 */
import { Listeners } from '#shared/listeners.ts';
import type { Rule } from '../slots/budget.ts';
import type { ReadyFacts } from '../slots/container-facts.ts';
import { cutText } from '../slots/failure-text.ts';
import { Ends } from './ends.ts';
import { DISK_LIMIT, PROTOCOL_VIOLATION } from './exits.ts';
import type { Action } from './plan.ts';
import { Starts } from './starts.ts';
import type { ExecutorParts } from './executor-context.ts';
import { ExecutorContext } from './executor-context.ts';

/** Time for a runner that reported `failed` to exit by itself. */
const FAILED_EXIT_MS = 3000;
/** Short, because the container continues to write meanwhile. */
const OVER_DISK_GRACE_MS = 1000;
const FAULT_GRACE_MS = 5000;
import { reportedPhases } from './start-clock.ts';

export class Executor {
  readonly #parts: ExecutorParts;
  readonly #context: ExecutorContext;
  readonly #starts: Starts;
  readonly #imageUsed = new Listeners<[string, string]>();
  readonly #leaseRefused = new Listeners<[]>();
  readonly #do: {
    readonly [K in Action['kind']]: (action: Extract<Action, { kind: K }>, signal: AbortSignal) => Promise<void>;
  };

  constructor(parts: ExecutorParts) {
    this.#parts = parts;
    this.#context = new ExecutorContext(parts);
    const ends = new Ends(this.#context);
    const starts = new Starts(this.#context, ends, () => this.#leaseRefused.tell());
    this.#starts = starts;
    this.#do = {
      interrupt: async (action) => parts.agentState.busy.get(action.containerId)?.abort.abort(),
      stop: (action, signal) => ends.stop(action, signal),
      finish: (action) => ends.finish(action),
      vanished: (action) => ends.vanished(action),
      release: (action) => ends.release(action),
      forget: (action) => ends.forget(action),
      'confirm-gone': (action) => ends.confirmGone(action),
      'remove-stray': (action) => ends.removeStray(action),
      adopt: (action) => starts.adopt(action),
      accept: (action) => starts.accept(action),
      start: (action, signal) => starts.start(action, signal),
    };
  }

  /** Told of the image of a container that became ready, and of the Python version that its stub names. */
  onImageUsed(listener: (image: string, pythonVersion: string) => void): void {
    this.#imageUsed.add(listener);
  }

  /** Told when an assignment names a device that it cannot have. */
  onLeaseRefused(listener: () => void): void {
    this.#leaseRefused.add(listener);
  }

  run(action: Action, signal: AbortSignal): Promise<void> {
    const perform = this.#do[action.kind] as (action: Action, signal: AbortSignal) => Promise<void>;
    return perform(action, signal);
  }

  /** Opens the sockets of containers that run by the journal, while the engine lists its own; before any action. */
  openAhead(): Promise<void> {
    return this.#starts.openAhead();
  }

  /** Leaves containers as they are: timers off, logs no longer followed. */
  close(): Promise<void> {
    return this.#context.close();
  }

  ready(containerId: string, ready: ReadyFacts): void {
    const { agentState, metrics, log } = this.#parts;
    this.#context.disarm(containerId);
    void agentState.journal
      .change(containerId, { ready })
      .catch((error: unknown) => log.error({ err: error }, 'journal write failed'));
    const times = this.#context.clock.end(containerId);
    if (times !== undefined) {
      agentState.started(containerId, reportedPhases(times));
      const { cache, totalMs, phases } = times;
      metrics.startDuration.observe({ phase: 'ready', cache }, totalMs / 1000);
      for (const [phase, ms] of Object.entries(phases)) metrics.startDuration.observe({ phase, cache }, ms / 1000);
    }
    const inTenths = (ms: number): number => Math.round(ms * 10) / 10;
    const phases = Object.entries(times?.phases ?? {}).map(([phase, ms]) => [phase, inTenths(ms)] as const);
    const durationMs = times === undefined ? undefined : inTenths(times.totalMs);
    log.info({ containerId, durationMs, phases: Object.fromEntries(phases), ...ready }, 'container ready');
    const entry = agentState.journal.get(containerId);
    if (entry !== undefined)
      this.#imageUsed.tell(entry.image, agentState.specOf(containerId, entry.epoch)?.pythonVersion ?? '');
    agentState.changed(containerId);
  }

  /** The container's runner has dialled. */
  greeted(containerId: string): void {
    this.#context.clock.mark(containerId, 'hello');
  }

  failed(containerId: string, message: string): void {
    const { agentState, logs } = this.#parts;
    const note = (): void => {
      // The message goes into the journal and to everyone who lists containers: secrets in an exception's text are
      // hidden as in logs.
      agentState.notes.set(containerId, { reason: 'user_error', message: cutText(logs.shown(containerId, message)) });
      agentState.changed(containerId);
    };
    note();
    if (logs.isHeld(containerId)) {
      const entry = agentState.journal.get(containerId);
      if (entry?.dockerId !== undefined) this.#context.resumeOutput(entry, entry.dockerId);
      void this.#context.output.opened(containerId).then(() => {
        if (agentState.notes.has(containerId)) note();
      });
    }
    this.#context.arm(containerId, FAILED_EXIT_MS, 'user_error', 1000);
  }

  /**
   * Ends a container that sent the agent messages that no runner sends. The sockets close now, and nothing of it is
   * awaited.
   */
  violated(containerId: string, rule: Rule, message: string): void {
    const { agentState, slots, gateway, logs, metrics, log } = this.#parts;
    if (agentState.journal.get(containerId) === undefined) return;
    slots.get(containerId)?.close();
    gateway.end(containerId);
    if (agentState.notes.get(containerId)?.reason === PROTOCOL_VIOLATION) return;
    metrics.protocolViolations.inc({ rule });
    log.warn({ containerId, rule }, 'container ends because of what it sent to the agent');
    logs.say(containerId, message);
    agentState.notes.set(containerId, { reason: PROTOCOL_VIOLATION, message });
    this.end(containerId, PROTOCOL_VIOLATION, 0);
  }

  /** Ends a container whose devices do not work any more; its replacement starts where they do. */
  fault(containerId: string, message: string): void {
    const { agentState, log } = this.#parts;
    if (agentState.notes.has(containerId) || agentState.journal.get(containerId) === undefined) return;
    log.warn({ containerId, message }, 'container ends with its GPU');
    agentState.notes.set(containerId, { reason: 'gpu_fault', message });
    this.end(containerId, 'gpu_fault', FAULT_GRACE_MS);
  }

  /** Ends a container one of whose mounts is broken for good. */
  mountLost(containerId: string, message: string): void {
    const { agentState, log, logs } = this.#parts;
    if (agentState.notes.has(containerId) || agentState.journal.get(containerId)?.dockerId === undefined) return;
    log.warn({ containerId, message }, 'container ends with its mount');
    agentState.notes.set(containerId, { reason: 'mount_error', message });
    logs.say(containerId, message);
    this.end(containerId, 'mount_error', FAULT_GRACE_MS);
  }

  /** Ends a container that has written more than its disk limit. */
  overDisk(containerId: string, message: string): void {
    const { agentState, log, logs } = this.#parts;
    if (agentState.notes.has(containerId) || agentState.journal.get(containerId) === undefined) return;
    log.warn({ containerId, message }, 'container ends at its disk limit');
    agentState.notes.set(containerId, { reason: DISK_LIMIT, message });
    logs.say(containerId, message);
    this.end(containerId, DISK_LIMIT, OVER_DISK_GRACE_MS);
  }

  /** Ends a container by the agent's own decision. */
  end(containerId: string, reason: string, graceMs: number): void {
    this.#context.end(containerId, reason, graceMs);
  }
}
