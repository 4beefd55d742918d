// Times of the links of agents. Pure.

export interface SessionSettings {
  readonly pingIntervalMs: number;
  readonly pongWithinMs: number;
  readonly heartbeatIntervalMs: number;
  readonly fullEveryMs: number;
  readonly stopGraceMs: number;
  /** Time within which a stream must say hello before it is closed. */
  readonly helloWithinMs: number;
}

export const SESSION_SETTINGS: SessionSettings = {
  pingIntervalMs: 2_000,
  pongWithinMs: 2_000,
  heartbeatIntervalMs: 10_000,
  fullEveryMs: 30_000,
  stopGraceMs: 30_000,
  helloWithinMs: 10_000,
};

/**
 * Intervals of pings and heartbeats. Few machines are pinged often; many share
 * the scheduler's capacity of 500 pings and 50 heartbeats a second. Pure.
 * @param machines - the number that is linked, or may dial again any moment
 */
export function paced(settings: SessionSettings, machines: number): SessionSettings {
  const perSecond = (rate: number): number => Math.ceil((machines / rate) * 1000);
  return {
    ...settings,
    pingIntervalMs: Math.max(settings.pingIntervalMs, perSecond(500)),
    heartbeatIntervalMs: Math.max(settings.heartbeatIntervalMs, perSecond(50)),
  };
}
