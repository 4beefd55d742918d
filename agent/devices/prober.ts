/**
 * Runs probes of GPUs when they are due, and reports their outcomes. Owned by gpus.ts. A probe is a small CUDA program
 * in a container of ours (probe-container.ts). Must stay true: only the probed device waits for a probe. probe-plan.ts
 * decides which probes are due.
 */
import { withDeadline } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import type { StoredDevices } from './store.ts';
import type { ProbeOutcome } from './probe-outcome.ts';
import type { Candidate, ProbeNotes } from './probe-plan.ts';
import { NO_NOTES, notesAfterFault, notesAfterProbe, planProbes } from './probe-plan.ts';

/** Wait of a stop for the removal of probe containers; the next start removes the others. */
const STOP_MS = 5000;
/** Bound on one probe, longer than the summed deadlines of its engine calls. */
const PROBE_MS = 15 * 60_000;

export interface ProberParts {
  readonly candidates: () => readonly Candidate[];
  /** Runs a probe to its end, within its deadline. */
  readonly probe: (uuid: string, signal: AbortSignal) => Promise<ProbeOutcome>;
  /** @param tries - outcomes of that kind in a row */
  readonly onOutcome: (uuid: string, outcome: ProbeOutcome, tries: number) => void;
  readonly metrics: Pick<AgentMetrics, 'gpuCudaProbes' | 'gpuCudaProbeDuration'>;
  readonly log: Log;
}

/** A clock that all processes of a boot share. */
const sinceBootMs = (): number => Number(process.hrtime.bigint() / 1_000_000n);

export class Prober {
  readonly #parts: ProberParts;
  readonly #abort = new AbortController();
  readonly #notes = new Map<string, ProbeNotes>();
  readonly #running = new Map<string, Promise<void>>();
  /** When the last probe of a device ended, on the clock of `performance`. */
  readonly #endedAtMs = new Map<string, number>();
  #started = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: ProberParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#started = true;
    this.check();
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    clearTimeout(this.#timer);
    await withDeadline(Promise.all(this.#running.values()), STOP_MS, () => new Error('late')).catch(() => undefined);
  }

  /** Restores the rests of an earlier agent process in this boot: a restart shortens no rest. */
  restore(rests: StoredDevices['rests'] = {}): void {
    for (const [uuid, rest] of Object.entries(rests)) this.#notes.set(uuid, { ...NO_NOTES, ...rest });
  }

  stored(): StoredDevices['rests'] {
    return Object.fromEntries(
      [...this.#notes]
        .filter(([, { faults }]) => faults > 0)
        .map(([uuid, { faults, restUntilMs }]) => [uuid, { faults, restUntilMs }]),
    );
  }

  /** Plans anew: a device may have become due. */
  check(): void {
    if (!this.#started || this.#abort.signal.aborted) return;
    const candidates = this.#parts.candidates();
    const nowMs = sinceBootMs();
    const { start, lookAtMs } = planProbes(
      candidates,
      (uuid) => this.#notes.get(uuid) ?? NO_NOTES,
      new Set(this.#running.keys()),
      nowMs,
    );
    for (const uuid of start) this.#running.set(uuid, this.#run(uuid));
    clearTimeout(this.#timer);
    this.#timer = lookAtMs === undefined ? undefined : setTimeout(() => this.check(), Math.max(10, lookAtMs - nowMs));
  }

  /** Notes an error of the device for which the driver may name no recovery. */
  faulted(uuid: string): void {
    this.#notes.set(uuid, notesAfterFault(this.#notes.get(uuid) ?? NO_NOTES, sinceBootMs()));
  }

  get running(): readonly string[] {
    return [...this.#running.keys()];
  }

  endedAtMs(uuid: string): number | undefined {
    return this.#endedAtMs.get(uuid);
  }

  /** Makes the device's next probe due now, because a condition outside has changed. */
  again(uuid: string): void {
    const notes = this.#notes.get(uuid);
    if (notes !== undefined) this.#notes.set(uuid, { ...notes, tries: 0, notBeforeMs: 0 });
  }

  forget(isThere: (uuid: string) => boolean): void {
    for (const known of [this.#notes, this.#endedAtMs])
      for (const uuid of known.keys()) if (!isThere(uuid)) known.delete(uuid);
  }

  async #run(uuid: string): Promise<void> {
    const { probe, onOutcome, metrics, log } = this.#parts;
    const from = performance.now();
    const { restUntilMs } = this.#notes.get(uuid) ?? NO_NOTES;
    // A microtask later, the caller has noted that the probe runs.
    await Promise.resolve();
    const given = new AbortController();
    const late = (): Error => {
      given.abort();
      return new Error(`the probe did not end in ${PROBE_MS / 60_000} minutes`);
    };
    const signal = AbortSignal.any([this.#abort.signal, given.signal]);
    const outcome = await withDeadline(probe(uuid, signal), PROBE_MS, late).catch((error: unknown): ProbeOutcome => ({
      kind: 'unable',
      text: messageOf(error),
    }));
    this.#running.delete(uuid);
    this.#endedAtMs.set(uuid, performance.now());
    if (this.#abort.signal.aborted) return;
    const durationMs = Math.round(performance.now() - from);
    const before = this.#notes.get(uuid) ?? NO_NOTES;
    if (outcome.kind === 'passed' && before.restUntilMs !== restUntilMs) {
      log.info({ gpuUuid: uuid }, 'a GPU had an error while its probe ran: the probe does not count');
      this.check();
      return;
    }
    const notes = notesAfterProbe(before, outcome.kind, sinceBootMs());
    this.#notes.set(uuid, notes);
    metrics.gpuCudaProbes.inc({ result: outcome.kind });
    metrics.gpuCudaProbeDuration.observe(durationMs / 1000);
    const facts = { gpuUuid: uuid, result: outcome.kind, durationMs, why: outcome.text };
    if (outcome.kind === 'passed') log.info(facts, 'a GPU passed its probe');
    else if (notes.tries === 1)
      log[outcome.kind === 'failed' || outcome.kind === 'stuck' ? 'error' : 'warn'](
        facts,
        'a GPU did not pass its probe',
      );
    else log.info({ ...facts, tries: notes.tries }, 'a GPU did not pass its probe again');
    onOutcome(uuid, outcome, notes.tries);
    this.check();
  }
}
