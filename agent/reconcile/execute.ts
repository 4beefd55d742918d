/**
 * Does what the plan says: a map from action to function, exhaustive by type. Called by the loop, one action a container at a time. A failing action is noted on
 * its container and stops no other. How containers begin is in starts.ts, how they end in ends.ts; here also what their runners say between the two.
 */
import type { Rule } from '../slots/budget.ts';
import type { ReadyFacts } from '../slots/container-slots.ts';
import { cutText } from '../slots/words.ts';
import { Ends } from './ends.ts';
import { DISK_LIMIT, PROTOCOL_VIOLATION } from './exits.ts';
import type { Action } from './plan.ts';
import { Starts } from './starts.ts';
import type { ExecutorParts } from './workbench.ts';
import { Workbench } from './workbench.ts';

/** An exit is expected from a runner that said `failed`; else it is ended. */
const FAILED_EXIT_MS = 3000;
/** It writes on meanwhile. */
const OVER_DISK_GRACE_MS = 1000;
const FAULT_GRACE_MS = 5000;

export class Executor {
  readonly #parts: ExecutorParts;
  readonly #bench: Workbench;
  readonly #starts: Starts;
  readonly #do: {
    readonly [K in Action['kind']]: (action: Extract<Action, { kind: K }>, signal: AbortSignal) => Promise<void>;
  };

  constructor(parts: ExecutorParts) {
    this.#parts = parts;
    this.#bench = new Workbench(parts);
    const ends = new Ends(this.#bench);
    const starts = new Starts(this.#bench, ends);
    this.#starts = starts;
    this.#do = {
      interrupt: async (action) => parts.books.busy.get(action.containerId)?.abort.abort(),
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

  run(action: Action, signal: AbortSignal): Promise<void> {
    const perform = this.#do[action.kind] as (action: Action, signal: AbortSignal) => Promise<void>;
    return perform(action, signal);
  }

  /** Opens the sockets of what the journal has running, while the engine is asked whether it does; before any action. */
  openAhead(): Promise<void> {
    return this.#starts.openAhead();
  }

  /** Lets containers be: timers off, logs no longer followed. */
  close(): Promise<void> {
    return this.#bench.close();
  }

  ready(containerId: string, ready: ReadyFacts): void {
    const { books, metrics, log } = this.#parts;
    this.#bench.disarm(containerId);
    void books.journal
      .change(containerId, { ready })
      .catch((error: unknown) => log.error({ err: error }, 'journal write failed'));
    const times = this.#bench.clock.end(containerId);
    if (times !== undefined) {
      const { cache, totalMs, phases } = times;
      metrics.startDuration.observe({ phase: 'ready', cache }, totalMs / 1000);
      for (const [phase, ms] of Object.entries(phases)) metrics.startDuration.observe({ phase, cache }, ms / 1000);
    }
    const inTenths = (ms: number): number => Math.round(ms * 10) / 10;
    const phases = Object.entries(times?.phases ?? {}).map(([phase, ms]) => [phase, inTenths(ms)] as const);
    const durationMs = times === undefined ? undefined : inTenths(times.totalMs);
    log.info({ containerId, durationMs, phases: Object.fromEntries(phases), ...ready }, 'container ready');
    const entry = books.journal.get(containerId);
    if (entry !== undefined) this.#parts.onImageUsed(entry.image);
    books.changed(containerId);
  }

  /** Its runner has dialled. */
  greeted(containerId: string): void {
    this.#bench.clock.mark(containerId, 'hello');
  }

  failed(containerId: string, message: string): void {
    const { books, logs } = this.#parts;
    const note = (): void => {
      // It goes into the journal and to whoever lists containers: what an exception quotes is hidden as in logs.
      books.notes.set(containerId, { reason: 'user_error', message: cutText(logs.shown(containerId, message)) });
      books.changed(containerId);
    };
    note();
    if (logs.isHeld(containerId)) {
      const entry = books.journal.get(containerId);
      if (entry?.dockerId !== undefined) this.#bench.resumeOutput(entry, entry.dockerId);
      void this.#bench.output.opened(containerId).then(() => {
        if (books.notes.has(containerId)) note();
      });
    }
    this.#bench.arm(containerId, FAILED_EXIT_MS, 'user_error', 1000);
  }

  /** The container sent the agent what no runner sends. Its sockets are closed already or close now; nothing of it is waited for. */
  violated(containerId: string, rule: Rule, message: string): void {
    const { books, slots, gateway, logs, metrics, log } = this.#parts;
    if (books.journal.get(containerId) === undefined) return;
    slots.get(containerId)?.close();
    gateway.end(containerId);
    if (books.notes.get(containerId)?.reason === PROTOCOL_VIOLATION) return;
    metrics.protocolViolations.inc({ rule });
    log.warn({ containerId, rule }, 'container ends because of what it sent to the agent');
    logs.add(containerId, { taskId: '', stream: 'stderr', line: `longshore: ${message}`, timestampMs: Date.now() });
    books.notes.set(containerId, { reason: PROTOCOL_VIOLATION, message });
    this.end(containerId, PROTOCOL_VIOLATION, 0);
  }

  /** Its devices do not serve any more: it ends, and another one takes its place where they do. */
  fault(containerId: string, message: string): void {
    const { books, log } = this.#parts;
    if (books.notes.has(containerId) || books.journal.get(containerId) === undefined) return;
    log.warn({ containerId, message }, 'container ends with its GPU');
    books.notes.set(containerId, { reason: 'gpu_fault', message });
    this.end(containerId, 'gpu_fault', FAULT_GRACE_MS);
  }

  /** The container has written more than it may. */
  overDisk(containerId: string, message: string): void {
    const { books, log, logs } = this.#parts;
    if (books.notes.has(containerId) || books.journal.get(containerId) === undefined) return;
    log.warn({ containerId, message }, 'container ends at its disk limit');
    books.notes.set(containerId, { reason: DISK_LIMIT, message });
    logs.add(containerId, { taskId: '', stream: 'stderr', line: `longshore: ${message}`, timestampMs: Date.now() });
    this.end(containerId, DISK_LIMIT, OVER_DISK_GRACE_MS);
  }

  /** Ends a container on the agent's own account. */
  end(containerId: string, reason: string, graceMs: number): void {
    this.#bench.end(containerId, reason, graceMs);
  }
}
