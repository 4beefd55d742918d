/**
 * The consequences of probes: which devices need one, how a result changes a device, and which conditions the machine
 * reports. Owned by gpus.ts. Must stay true: a probe that does not end keeps its device out of service, and no second
 * one starts there.
 */
import type { Log } from '#shared/log.ts';
import type { Conditions } from '../telemetry/conditions.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import type { DeviceTable } from './device-table.ts';
import { awaitsProbe } from './health.ts';
import type { ProbeOutcome } from './probe-outcome.ts';
import { isUnusable } from './probe-outcome.ts';
import type { Candidate } from './probe-plan.ts';
import { Prober } from './prober.ts';

/** Bound on the engine's message in a reason. */
const MAX_WHY = 300;

export interface ProbesParts {
  readonly table: DeviceTable;
  /** Devices of containers. */
  readonly held: () => ReadonlySet<string>;
  /** Runs a CUDA program on that device alone. */
  readonly probe: (uuid: string, signal: AbortSignal) => Promise<ProbeOutcome>;
  readonly conditions: Pick<Conditions, 'set'>;
  readonly metrics: AgentMetrics;
  readonly log: Log;
  /** Called with a result. @param changed - a device is in another state, or has another reason */
  readonly onResult: (changed: boolean) => void;
}

export class Probes {
  readonly #parts: ProbesParts;
  readonly prober: Prober;
  /** Devices whose probe does not end. */
  readonly #stuck = new Set<string>();
  /** Why no program reaches a GPU of this host, by the tried device. */
  readonly #unusable = new Map<string, string>();
  /** Devices that waited for their first probe at the previous look. */
  #waited: ReadonlySet<string> = new Set();

  constructor(parts: ProbesParts) {
    this.#parts = parts;
    this.prober = new Prober({
      candidates: () => this.#candidates(),
      probe: parts.probe,
      onOutcome: (uuid, outcome, tries) => this.#onOutcome(uuid, outcome, tries),
      metrics: parts.metrics,
      log: parts.log,
    });
  }

  isStuck(uuid: string): boolean {
    return this.#stuck.has(uuid);
  }

  /**
   * Called when the tool has answered: after a reset, a new driver or a return of the device an earlier result no
   * longer counts.
   */
  looked(): void {
    const { table } = this.#parts;
    const waiting = new Set(table.all().flatMap(({ uuid, health }) => (health.state === 'unprobed' ? [uuid] : [])));
    for (const uuid of waiting) if (!this.#waited.has(uuid)) this.prober.again(uuid);
    this.#waited = waiting;
    const isThere = (uuid: string): boolean => table.get(uuid) !== undefined;
    this.prober.forget(isThere);
    for (const uuid of this.#stuck) if (!isThere(uuid)) this.#stuck.delete(uuid);
    for (const uuid of this.#unusable.keys()) if (!isThere(uuid)) this.#unusable.delete(uuid);
    this.prober.check();
  }

  tellConditions(): void {
    const { table, conditions } = this.#parts;
    const waits = table.all().find(({ uuid, health }) => health.state === 'unprobed' && this.#unusable.has(uuid));
    const words = this.#unusable.get(waits?.uuid ?? '') ?? '';
    conditions.set('GpusUnusable', words !== '', words);
  }

  #candidates(): Candidate[] {
    const { table } = this.#parts;
    const held = this.#parts.held();
    return table.all().flatMap(({ uuid, health, excluded }) => {
      if (excluded) return [];
      if (!awaitsProbe(health) && !this.#stuck.has(uuid)) return [];
      const isHeld = held.has(uuid) || table.sharers(uuid).some((one) => held.has(one));
      return [{ uuid, isHeld, isBroken: health.state === 'unhealthy' }];
    });
  }

  #onOutcome(uuid: string, outcome: ProbeOutcome, tries: number): void {
    const { table, conditions, onResult } = this.#parts;
    const before = table.fingerprint();
    const why = outcome.text.slice(0, MAX_WHY);
    if (outcome.kind === 'stuck') {
      this.#stuck.add(uuid);
      table.quarantine(uuid, [], `probe_failed: ${why}`);
    } else if (outcome.kind !== 'unable') this.#stuck.delete(uuid);
    if (isUnusable(outcome, tries)) this.#unusable.set(uuid, why);
    else this.#unusable.delete(uuid);
    if (outcome.kind === 'absent') {
      // Releases carry the probe. A copy without it was set up by hand: new devices serve without a probe, as before,
      // and a device with an error stays out.
      conditions.set('GpuProbeMissing', true, why);
      const isNew = table.get(uuid)?.health.state === 'unprobed';
      table.event(uuid, { kind: isNew ? 'probed' : 'not_probed', why: '' });
    } else if (outcome.kind === 'passed' || outcome.kind === 'failed') {
      conditions.set('GpuProbeMissing', false);
      table.event(uuid, { kind: 'probed', why });
    } else if (outcome.kind !== 'stuck') table.event(uuid, { kind: 'not_probed', why });
    onResult(table.fingerprint() !== before);
  }
}
