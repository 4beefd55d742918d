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
import { compressed } from './compressed.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** True: the route is served through the passage, too. */
    passage?: boolean;
  }
}

/** Requests of one session in a minute, and of all sessions of a token. */
export const CONSOLE_PER_MINUTE = 300;
const TOKEN_PER_MINUTE = 1_200;
/** Sign-ins by one token in a minute: each is a row and a line of the audit trail. */
export const SIGN_INS_PER_MINUTE = 30;

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

/** Refuses what may not pass, and compresses what does. Call before the surfaces are registered. */
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
  app.addHook('onSend', (request, reply, payload, done) => {
    if (isThrough(request)) compressed(request, reply, payload, done);
    else done(null, payload);
  });
}

/** Finds senders by their sessions where a request came through the passage, and by their tokens elsewhere. */
export const sendersOf = (byToken: Senders, bySession: Senders): Senders => ({
  find: (request) => (isThrough(request) ? bySession : byToken).find(request),
  look: (request) => (isThrough(request) ? bySession : byToken).look(request),
});

/** Rates; undefined: there is no bound. */
export type ConsoleRates = Pick<Rates, 'take'> | undefined;

/** Counts a request in the rates of its session and token. @throws AppError `rate_limited` */
export async function countSession(rates: ConsoleRates, { console: by, tokenId }: Caller): Promise<void> {
  await count(
    rates,
    by?.sessionId ?? '',
    CONSOLE_PER_MINUTE,
    `this session may send ${CONSOLE_PER_MINUTE} requests a minute`,
  );
  await count(
    rates,
    tokenId,
    TOKEN_PER_MINUTE,
    `the sessions of this token may send ${TOKEN_PER_MINUTE} requests a minute`,
  );
}

/** Counts a sign-in by a token. @throws AppError `rate_limited` */
export const countSignIn = (rates: ConsoleRates, { tokenId }: Pick<Caller, 'tokenId'>): Promise<void> =>
  count(rates, `in:${tokenId}`, SIGN_INS_PER_MINUTE, `a token may sign in ${SIGN_INS_PER_MINUTE} times a minute`);

async function count(rates: ConsoleRates, of: string, perMinute: number, rule: string): Promise<void> {
  const seconds = await rates?.take(of, 'console', perMinute);
  if (seconds === undefined) return;
  throw new AppError('rate_limited', `${rule}: wait ${seconds} s`, { details: { retryAfterSeconds: seconds } });
}
