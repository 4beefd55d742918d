// The passage of the web console: `/console/api/v1/…` is served by the routes of `/api/v1/…`, which find its sender by
// the session instead of a token. The address is rewritten before routing, so that no route is bound twice.
// Invariants: only a request through the passage has its cookie read. It reaches routes that say so, and no others. It
// comes from a page of the console, at an address of the console. Source: decisions 0640, 0656.
import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { Rates } from '../../../workspaces/identity/rates.ts';
import type { Senders } from '../auth.ts';
import { CONSOLE_BASE } from './address.ts';
import type { ConsolePlace } from './address.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** True: the route is served through the passage, too. */
    passage?: boolean;
  }
}

/** Requests of one session in a minute. */
export const CONSOLE_PER_MINUTE = 300;

/** Headers of every answer of the console. */
export const CONSOLE_HEADERS = {
  'cache-control': 'no-store',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
} as const;

const THROUGH = `${CONSOLE_BASE}/api/v1/`;
const passed = new WeakSet<IncomingMessage>();

/** The address by which a request is routed; one through the passage is marked. Called once, before routing. */
export function routeThrough(request: IncomingMessage, url: string): string {
  if (!url.startsWith(THROUGH)) return url;
  passed.add(request);
  return url.slice(CONSOLE_BASE.length);
}

/** Whether a request came through the passage. */
export const isThrough = ({ raw }: Pick<FastifyRequest, 'raw'>): boolean => passed.has(raw);

/** Refuses what may not pass. Call before the surfaces are registered. */
export function guardPassage(app: FastifyInstance, place: ConsolePlace): void {
  app.addHook('onRequest', (request, reply, done) => {
    if (!isThrough(request)) return done();
    reply.headers(CONSOLE_HEADERS);
    try {
      place.mustBeHere(request);
      place.mustBeOwnPage(request);
    } catch (error) {
      return done(error as Error);
    }
    const { passage = false } = request.routeOptions.config;
    done(passage ? undefined : new AppError('not_found', 'Not Found'));
  });
}

/** Finds senders by their sessions where a request came through the passage, and by their tokens elsewhere. */
export const sendersOf = (byToken: Senders, bySession: Senders): Senders => ({
  find: (request) => (isThrough(request) ? bySession : byToken).find(request),
  look: (request) => (isThrough(request) ? bySession : byToken).look(request),
});

/** Counts a request in the rate of its session. @throws AppError `rate_limited` */
export async function countSession(rates: Pick<Rates, 'take'> | undefined, { console: by }: Caller): Promise<void> {
  const seconds = await rates?.take(by?.sessionId ?? '', 'console', CONSOLE_PER_MINUTE);
  if (seconds === undefined) return;
  const text = `this session may send ${CONSOLE_PER_MINUTE} requests a minute: wait ${seconds} s`;
  throw new AppError('rate_limited', text, { details: { retryAfterSeconds: seconds } });
}
