import type { Log } from '#shared/log.ts';
import type { Conditions } from './conditions.ts';
import type { AgentMetrics } from './metrics.ts';

const WARN_MS = 5_000;
const BLOCK_MS = 30_000;
/** Bound on the round trip: a slower answer says too little about the moment when it was written. */
const MOST_RTT_MS = 4_000;

export interface ClockWatchParts {
  readonly metrics: Pick<AgentMetrics, 'clockSkew' | 'heartbeatRtt'>;
  readonly conditions: Pick<Conditions, 'set'>;
  readonly log: Log;
}

/**
 * Distance of this machine's clock from the scheduler's, measured by answers to heartbeats. Above 5 s it is logged;
 * above 30 s a condition keeps new containers away. The agent times nothing by that clock; certificates, tokens and
 * times shown to users depend on it.
 */
export class ClockWatch {
  readonly #parts: ClockWatchParts;
  #warned = false;

  constructor(parts: ClockWatchParts) {
    this.#parts = parts;
  }

  /** @param rttMs - monotonic time from the question to the answer with `serverTimeMs` */
  heard(serverTimeMs: number, rttMs: number, nowMs: number): void {
    const { metrics } = this.#parts;
    if (serverTimeMs <= 0) return;
    metrics.heartbeatRtt.observe(rttMs / 1000);
    if (rttMs <= MOST_RTT_MS) this.#judge(nowMs - rttMs / 2 - serverTimeMs);
  }

  /** Judges by an unrequested message: as exact as its transit was short. */
  told(serverTimeMs: number, nowMs: number): void {
    if (serverTimeMs > 0) this.#judge(nowMs - serverTimeMs);
  }

  #judge(aheadMs: number): void {
    const { metrics, conditions, log } = this.#parts;
    metrics.clockSkew.set(aheadMs / 1000);
    conditions.set('ClockSkew', Math.abs(aheadMs) > BLOCK_MS);
    const warn = Math.abs(aheadMs) > WARN_MS;
    if (warn && !this.#warned)
      log.warn(
        { aheadSeconds: Math.round(aheadMs / 100) / 10 },
        "this machine's clock is not the scheduler's: set it (NTP)",
      );
    this.#warned = warn;
  }
}
