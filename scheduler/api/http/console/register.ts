// Everything below `/console/`: the session of a browser, and the one passage by which its pages reach the REST API.
// Invariants: the session's cookie is read here alone. A request through the passage counts as one of the session's
// token, with its rights, limits and audit. On an address of the console's own nothing else answers. Decision 0640.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import type { Rates } from '../../../workspaces/identity/rates.ts';
import { problemOf, sendProblem } from '../error-map.ts';
import { closeUnread } from '../polite-close.ts';
import { bindRest, REST_BASE } from '../rest/rest.ts';
import type { RestParts } from '../rest/rest.ts';
import type { RestRoute } from '../rest/route.ts';
import type { ConsoleFiles } from '../../ops/console-files.ts';
import { CONSOLE_BASE } from './address.ts';
import { registerPages } from './pages.ts';
import { registerSession, sessionSenders } from './session.ts';
import type { SessionParts } from './session.ts';

/** Requests of one session in a minute. */
export const CONSOLE_PER_MINUTE = 300;

export interface ConsoleParts extends SessionParts, Pick<RestParts, 'workspaceExists' | 'streams' | 'log'> {
  readonly routes: readonly RestRoute[];
  readonly files: ConsoleFiles;
  /** Rates; absent: not bounded. */
  readonly rates?: Pick<Rates, 'take'>;
}

const HEADERS = {
  'cache-control': 'no-store',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
} as const;

/** Answers nothing but the console on an address of its own. Call before other surfaces are registered. */
export function keepApart(app: FastifyInstance, { place }: Pick<ConsoleParts, 'place'>): void {
  if (place.base === undefined) return;
  app.addHook('onRequest', (request, _reply, done) => {
    const [path = ''] = request.url.split('?', 1);
    const isAnswered = !place.isItsOwn(request) || path === '/' || isBelow(path, CONSOLE_BASE);
    done(isAnswered ? undefined : new AppError('misdirected', 'this address is for the console alone: /console/'));
  });
}

const isBelow = (path: string, base: string): boolean => path === base || path.startsWith(`${base}/`);

/** Registers the console below the base of `scope`, which is `/console`. */
export function registerConsole(scope: FastifyInstance, parts: ConsoleParts): void {
  const { place, routes, rates, ...rest } = parts;
  scope.setErrorHandler((error, request, reply) => refuse(error, request, reply, parts));
  scope.addHook('onRequest', async (request, reply) => {
    reply.headers(HEADERS);
    place.mustBeHere(request);
  });
  registerPages(scope, parts);
  void scope.register((own, _options, done) => {
    own.addHook('onRequest', async (request) => place.mustBeOwnPage(request));
    registerSession(own, parts);
    void own.register(
      (passage, _none, bound) => {
        const through = routes.filter(({ byTokenOnly = false }) => !byTokenOnly);
        bindRest(passage, through, {
          ...rest,
          senders: sessionSenders(parts),
          mayAsk: async ({ console: by }) => {
            const seconds = await rates?.take(by?.sessionId ?? '', 'console', CONSOLE_PER_MINUTE);
            if (seconds === undefined) return;
            const text = `this session may send ${CONSOLE_PER_MINUTE} requests a minute: wait ${seconds} s`;
            throw new AppError('rate_limited', text, { details: { retryAfterSeconds: seconds } });
          },
        });
        bound();
      },
      { prefix: REST_BASE },
    );
    done();
  });
}

function refuse(
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
  { log }: Pick<ConsoleParts, 'log'>,
): FastifyReply {
  const problem = problemOf(error);
  closeUnread(request, reply);
  if (problem.status >= 500) log.error({ err: error, requestId: request.id }, 'request of the console failed');
  return sendProblem(reply, request.id, problem);
}
