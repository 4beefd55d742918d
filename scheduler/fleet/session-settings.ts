// Times and bounds of the links of agents. Pure.

/** Bounds on connections that have shown no credential, and on those of a machine. */
export interface StrangerBounds {
  /** Beyond it, the oldest one of the address that has most of them is closed. */
  readonly most: number;
  /** Bound for a single address; a whole fleet may be behind one. Beyond it, its oldest one is closed. */
  readonly mostOfAddress: number;
  /** Time for the TLS handshake, and from then on for a credential. */
  readonly handshakeWithinMs: number;
  readonly knownWithinMs: number;
  /** Bytes that one may send, and all together, before they are known. */
  readonly mostBytes: number;
  readonly mostBytesTogether: number;
  /** Connections of a machine for gRPC: beyond it, its oldest one is closed. An agent has one. */
  readonly mostOfMachine: number;
}

export interface SessionSettings {
  readonly pingIntervalMs: number;
  readonly pongWithinMs: number;
  readonly heartbeatIntervalMs: number;
  readonly fullEveryMs: number;
  readonly stopGraceMs: number;
  /** Time within which a stream must say hello before it is closed. */
  readonly helloWithinMs: number;
  readonly strangers: StrangerBounds;
}

export const SESSION_SETTINGS: SessionSettings = {
  pingIntervalMs: 2_000,
  pongWithinMs: 2_000,
  heartbeatIntervalMs: 10_000,
  fullEveryMs: 30_000,
  stopGraceMs: 30_000,
  helloWithinMs: 10_000,
  strangers: {
    most: 6144,
    mostOfAddress: 4096,
    handshakeWithinMs: 10_000,
    knownWithinMs: 10_000,
    mostBytes: 3 * 1024 * 1024,
    mostBytesTogether: 256 * 1024 * 1024,
    mostOfMachine: 16,
  },
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
