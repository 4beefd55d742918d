// The sender of a request: the credential as presented, and whether the caller is on this host with nothing in between.
import type { FastifyRequest } from 'fastify';
import type { Caller } from '../../workspaces/identity/caller.ts';
import type { Refusals } from '../../workspaces/identity/refusals.ts';

/**
 * Finds the caller of a token; null: none, unknown, switched off or used up. A
 * known token is answered synchronously, so that the invoke path waits for nothing.
 */
export interface Authenticator {
  authenticate(token: string): Caller | null | Promise<Caller | null>;
  /**
   * The caller that `authenticate` would find, without using a one-use token
   * up. Called before a body is read. Absent: `authenticate` is called instead.
   */
  look?(token: string): Caller | null | Promise<Caller | null>;
  /**
   * Called with the sender's address for each token that was refused; absent: refusals are not counted.
   * @throws AppError `rate_limited`
   */
  refused?(address: string): void;
  /**
   * Called before an operator's secret is compared, and refuses a sender who guessed wrong too often.
   * @param secret - one of a few names
   * @throws AppError `rate_limited`
   */
  mayGuess?(secret: string, address: string): void;
  /** Called after the sender presented a wrong secret. @throws AppError `rate_limited` */
  guessed?(secret: string, address: string): void;
}

/** The caller of a token, as far as it can be known without using the token up. */
export const lookAt = (
  authenticator: Pick<Authenticator, 'authenticate' | 'look'>,
  token: string,
): Caller | null | Promise<Caller | null> =>
  authenticator.look === undefined ? authenticator.authenticate(token) : authenticator.look(token);

/** The limits of a token, for comparison. */
const limitsOf = ({ confined }: Pick<Caller, 'confined'>): string => JSON.stringify(confined ?? {});

/** Finds the caller of a stream again, by what its request sent. */
export type Look = () => Caller | null | Promise<Caller | null>;

/**
 * Whether the credential of an open stream still counts as it did when the stream was opened for that caller. A
 * database that is away says nothing about it: the next look counts.
 */
export async function countsStill(look: Look, caller: Pick<Caller, 'confined'>): Promise<boolean> {
  try {
    const now = await look();
    return now !== null && limitsOf(now) === limitsOf(caller);
  } catch {
    return true;
  }
}

/**
 * Finds the callers of tokens, and bounds the refusals of an address
 * before it is told to wait; `refusals` undefined: no bound.
 */
export function boundedAuthenticator(
  tokens: Pick<Authenticator, 'authenticate' | 'look'>,
  refusals: Pick<Refusals, 'refused' | 'mayGuess' | 'guessed'> | undefined,
): Authenticator {
  const authenticate = (token: string): Caller | null | Promise<Caller | null> => tokens.authenticate(token);
  const look = (token: string): Caller | null | Promise<Caller | null> => lookAt(tokens, token);
  if (refusals === undefined) return { authenticate, look };
  return {
    authenticate,
    look,
    refused: (address) => refusals.refused(address),
    mayGuess: (secret, address) => refusals.mayGuess(secret, address),
    guessed: (secret, address) => refusals.guessed(secret, address),
  };
}

/**
 * The token of `Authorization: Bearer …` (also without `Bearer`),
 * else of `?auth_token=` where the surface takes that; null: none.
 */
export function tokenOf(authorization: string | undefined, query?: Readonly<Record<string, unknown>>): string | null {
  if (authorization !== undefined && authorization !== '') {
    const bearer = authorization.length > 7 && authorization.slice(0, 7).toLowerCase() === 'bearer ';
    const token = bearer ? authorization.slice(7).trim() : authorization.trim();
    return token === '' ? null : token;
  }
  const fallback = query?.['auth_token'];
  return typeof fallback === 'string' && fallback !== '' ? fallback : null;
}

/** Finds the senders of requests, by whatever credential a surface takes. */
export interface Senders {
  /** The caller; null: no credential, or none that counts. A one-use token is used up. */
  find(request: FastifyRequest): Caller | null | Promise<Caller | null>;
  /** Looks for the caller again while an answer lasts. Uses nothing up. */
  look(request: FastifyRequest): Caller | null | Promise<Caller | null>;
}

/** Senders by their tokens, in a header or the query. Refused tokens are counted. */
export function senders(authenticator: Authenticator): Senders {
  const sent = ({ headers, query }: FastifyRequest): string | null =>
    tokenOf(headers.authorization, query as Readonly<Record<string, unknown>>);
  return {
    find: async (request) => {
      const token = sent(request);
      if (token === null) return null;
      const caller = await authenticator.authenticate(token);
      if (caller === null) authenticator.refused?.(request.ip);
      return caller;
    },
    look: (request) => {
      const token = sent(request);
      return token === null ? null : lookAt(authenticator, token);
    },
  };
}

/** Headers that show a proxy in between. */
const OF_PROXIES = [
  'forwarded',
  'via',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-forwarded-port',
  'x-real-ip',
  'true-client-ip',
  'cf-connecting-ip',
] as const;

const LOOPBACK = /^(?:127\.|::1$|::ffff:127\.)/;

/**
 * Whether a request from loopback counts as this host's own. Where
 * a proxy may stand in front, all requests come from loopback.
 */
export const mayTrustLoopback = (settings: {
  /** `LONGSHORE_EXTERNAL_URL` */
  readonly externalUrl: string | null;
  /** `LONGSHORE_TRUSTED_PROXIES` */
  readonly trustedProxies?: readonly string[];
}): boolean => settings.externalUrl === null && (settings.trustedProxies ?? []).length === 0;

/**
 * True when the request comes from this host itself, and from no web
 * page: a page may reach loopback under a name of its own.
 */
export function isLoopback(request: Pick<FastifyRequest, 'socket' | 'headers'>): boolean {
  const address = request.socket.remoteAddress;
  if (address === undefined || !LOOPBACK.test(address)) return false;
  // `none` in this header: a person typed the address.
  const site = request.headers['sec-fetch-site'];
  if (site !== undefined && site !== 'none') return false;
  return request.headers.origin === undefined && !isProxied(request);
}

/** Whether a header shows a proxy in between. */
export const isProxied = ({ headers }: Pick<FastifyRequest, 'headers'>): boolean =>
  OF_PROXIES.some((name) => headers[name] !== undefined);
