// The session of a browser: begun by the code of a link or by a pasted token, shown, and ended. What a request needs of
// a session, both halves, is read here alone.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { timestampOf } from '#shared/api/fields.ts';
import { BeginSession } from '#shared/api/rest/session.ts';
import type { BegunSession, ConsoleSession } from '#shared/api/rest/session.ts';
import { AppError } from '#shared/errors.ts';
import type { ConsoleSessions, FoundSession, Halves } from '../../../workspaces/identity/console-sessions.ts';
import type { Authenticator, Senders } from '../auth.ts';
import { actorOf } from '../../../workspaces/events/audit.ts';
import { factsOf } from '../origin.ts';
import { cookieOf } from '../streams/head.ts';
import type { ConsolePlace } from './address.ts';
import { bodyOf } from './bodies.ts';
import { countSignIn } from './passage.ts';
import type { ConsoleRates } from './passage.ts';

/** Header with the half that the page keeps. */
const KEY_HEADER = 'x-longshore-console';

export interface SessionParts {
  readonly sessions: Pick<ConsoleSessions, 'find' | 'look' | 'enter' | 'begin' | 'end'>;
  readonly place: ConsolePlace;
  readonly authenticator: Authenticator;
  readonly rates?: ConsoleRates;
}

const unauthorized = (text: string): AppError => new AppError('unauthorized', text);
const NO_SESSION = 'Unauthorized: this browser is not signed in, or its session is over';

/** The two halves of a request's session; undefined: one is missing. */
function halvesOf(request: FastifyRequest, place: ConsolePlace): Halves | undefined {
  const cookie = cookieOf(request.headers.cookie, place.cookieName(request));
  const key = request.headers[KEY_HEADER];
  return cookie === undefined || typeof key !== 'string' ? undefined : { cookie, key };
}

/** Senders by their sessions: no token is read. */
export function sessionSenders({ sessions, place, authenticator }: SessionParts): Senders {
  const by = async (request: FastifyRequest, how: 'find' | 'look'): Promise<FoundSession | null> => {
    const halves = halvesOf(request, place);
    return halves === undefined ? null : sessions[how](halves);
  };
  return {
    find: async (request) => {
      const found = await by(request, 'find');
      // Each wrong secret costs a read of the database, as a bad token does. So refusals of an address are bounded.
      if (found === null && halvesOf(request, place) !== undefined) authenticator.refused?.(request.ip);
      return found?.caller ?? null;
    },
    look: async (request) => (await by(request, 'look'))?.caller ?? null,
  };
}

export function registerSession(scope: FastifyInstance, parts: SessionParts): void {
  const { sessions, place, authenticator, rates } = parts;
  const body = bodyOf(BeginSession);

  const begun = async (request: FastifyRequest) => {
    const { code, token } = body.read(request);
    if ((code === undefined) === (token === undefined))
      throw new AppError('invalid_body', 'give code or token, and not both');
    if (code !== undefined) {
      const entered = await sessions.enter(code, factsOf(request));
      if (entered !== undefined) return entered;
      authenticator.refused?.(request.ip);
      throw unauthorized('this link was used, or is older than 10 minutes: `longshore console` prints a new one');
    }
    const caller = await authenticator.authenticate((token ?? '').trim());
    if (caller === null) {
      authenticator.refused?.(request.ip);
      throw unauthorized('no such token: it is misspelt, switched off, or of another installation');
    }
    if (caller.type === 'container' || caller.isLast === true)
      throw unauthorized('a token of a container, or for one use, cannot sign a browser in');
    await countSignIn(rates, caller);
    const opened = await sessions.begin(caller, factsOf(request));
    if (opened === undefined) throw unauthorized(NO_SESSION);
    return opened;
  };

  const found = async (request: FastifyRequest): Promise<FoundSession> => {
    const halves = halvesOf(request, place);
    const session = halves === undefined ? null : await sessions.find(halves);
    if (session !== null) return session;
    if (halves !== undefined) authenticator.refused?.(request.ip);
    throw unauthorized(NO_SESSION);
  };

  const shown = (request: FastifyRequest, { session }: Pick<FoundSession, 'session'>): ConsoleSession => ({
    id: session.id,
    created_at: timestampOf(session.createdAtMs),
    expires_at: timestampOf(session.expiresAtMs),
    ends_at: timestampOf(session.endsAtMs),
    address: session.address,
    is_clear: place.isClear(request),
  });

  scope.post('/session', {
    onRequest: body.admit,
    handler: async (request, reply): Promise<FastifyReply> => {
      const opened = await begun(request);
      const answer: BegunSession = { ...shown(request, opened), key: opened.halves.key };
      return reply.header('set-cookie', place.cookie(request, opened.halves.cookie)).send(answer);
    },
  });
  scope.get('/session', async (request) => shown(request, await found(request)));
  scope.delete('/session', async (request, reply) => {
    const { session, caller } = await found(request);
    await sessions.end(caller.workspaceId, session.id, actorOf(caller, factsOf(request)));
    return (
      reply
        .header('set-cookie', place.cookie(request, undefined))
        // Cookies of the whole domain would go with "cookies": those of applications, too.
        .header('clear-site-data', '"cache", "storage"')
        .send()
    );
  });
}
