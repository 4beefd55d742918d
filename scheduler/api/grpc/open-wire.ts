// The calls of published clients, made from the services of the surfaces. Loaded with the first connection.
import { randomBytes } from 'node:crypto';
import type { Authenticator } from '../http/auth.ts';
import { mayTrustLoopback } from '../http/auth.ts';
import type { GatewayCalls } from '../http/gateway-calls.ts';
import type { SseStreams } from '../http/sse.ts';
import type { SurfaceParts } from '../http/surface-parts.ts';
import type { UnroutedOperation } from '../operations/operation.ts';
import { callOriginReader } from './origin.ts';
import { allRpcs, refusedRpcs } from './rpcs.ts';
import type { Connections } from './wire.ts';
import { Wire } from './wire.ts';

export { unroutedOperations } from './operations/index.ts';

export function openWire({
  parts,
  operations,
  listenUrl,
  ...rest
}: {
  readonly parts: Pick<SurfaceParts, 'settings' | 'clock' | 'log'>;
  readonly operations: readonly UnroutedOperation[];
  readonly calls: GatewayCalls;
  readonly authenticator: Authenticator;
  readonly listenUrl: () => string | null;
  readonly streams: Pick<SseStreams, 'leave' | 'take'>;
  readonly pieceWithinMs?: number;
} & Connections): Wire {
  const { settings, clock, log } = parts;
  const { externalUrl } = settings;
  const prefix = randomBytes(6).toString('hex');
  let count = 0;
  const newId = (): string => `${prefix}-g${(++count).toString(36)}`;
  const originOf = callOriginReader({ externalUrl, listenUrl, trustsLoopback: mayTrustLoopback(settings), newId });
  const served = allRpcs(operations);
  return new Wire({ ...rest, rpcs: [...served, ...refusedRpcs(served)], originOf, clock, log });
}
