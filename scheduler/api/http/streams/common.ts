// Streamed calls to deployments and those to single containers share these parts.
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Refusal } from '../invoke/refusal.ts';
import { isCoded } from './head.ts';
import type { HeaderList } from './head.ts';
import type { StreamMetrics } from './metrics.ts';
import { upgradeOf } from './upgrades.ts';
import type { OpenCall, OpenCalls } from './open-calls.ts';

/** Seconds after which a caller of a stopping scheduler may come again. */
export const COME_AGAIN_SECONDS = 5;

export const STOPPING = new Refusal(503, 'error', 'this scheduler is stopping: call again');
const TWO_HOSTS = new Refusal(400, 'error', 'Host is there more than once');
const CODED = new Refusal(
  501,
  'error',
  'Transfer-Encoding may be chunked alone: Content-Encoding is for other codings',
);

export const NO_SUCH_UPGRADE = new Refusal(
  501,
  'error',
  'of upgrades only WebSockets pass: other protocols reach a port by `longshore container port-forward`',
);

/**
 * Whether a program of a pod or sandbox would be asked for a protocol that does not pass. HTTP/2, which clients offer
 * by themselves, is none: the request is answered as it is.
 */
export const asksForOtherUpgrade = ({ raw }: FastifyRequest): boolean => {
  const { upgrade, connection = '' } = raw.headers;
  if (upgrade === undefined || !/(?:^|,)\s*upgrade\s*(?:,|$)/i.test(connection)) return false;
  return upgradeOf(raw) === undefined && upgrade.toLowerCase() !== 'h2c';
};

/** Why a request is not passed on as it is; undefined: it may be. Source: RFC 9112 §3.2, §6.1. */
export function unreadable({ raw }: FastifyRequest): Refusal | undefined {
  // The platform reads the first, and an application may read another.
  if ((raw.headersDistinct['host']?.length ?? 0) > 1) return TWO_HOSTS;
  return isCoded(raw) ? CODED : undefined;
}

/** Headers that the platform has set for an answer so far. */
export const headersOf = (reply: FastifyReply): HeaderList =>
  Object.entries(reply.getHeaders()).map(([name, value]) => [name, String(value)]);

/** Counts a call among those under way. @returns a function for its end, which counts once */
export function underWay(
  call: OpenCall,
  { openCalls, streamMetrics }: { readonly openCalls: OpenCalls; readonly streamMetrics: StreamMetrics },
  onOver: () => void,
): () => void {
  const { protocol } = call;
  streamMetrics.active.inc({ protocol });
  const closed = openCalls.add(call);
  let isOver = false;
  return () => {
    if (isOver) return;
    isOver = true;
    streamMetrics.active.dec({ protocol });
    closed();
    onOver();
  };
}
