import type { Log } from '#shared/log.ts';
import type { Conditions } from './conditions.ts';
import type { AgentMetrics } from './metrics.ts';

const WARN_MS = 5_000;
const BLOCK_MS = 30_000;
/** An answer that took longer says too little about the moment it was written. */
const MOST_RTT_MS = 4_000;

export interface ClockWatchParts {
  readonly metrics: Pick<AgentMetrics, 'clockSkew' | 'heartbeatRtt'>;
  readonly conditions: Pick<Conditions, 'set'>;
  readonly log: Log;
}

/**
 * How far this machine's clock is from the scheduler's, by what it answers to heartbeats: above 5 s said in the log, above 30 s a condition that keeps new containers
 * away. Nothing here is timed by that clock; certificates, tokens and what users see are.
 */
export class ClockWatch {
  readonly #parts: ClockWatchParts;
  #warned = false;

  constructor(parts: ClockWatchParts) {
    this.#parts = parts;
  }

  /** @param rttMs - by the monotonic clock, from the question to the answer that carried `serverTimeMs` */
  heard(serverTimeMs: number, rttMs: number, nowMs: number): void {
    const { metrics } = this.#parts;
    if (serverTimeMs <= 0) return;
    metrics.heartbeatRtt.observe(rttMs / 1000);
    if (rttMs <= MOST_RTT_MS) this.#judge(nowMs - rttMs / 2 - serverTimeMs);
  }

  /** By a message that nobody asked for: as exact as its way was short. */
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
