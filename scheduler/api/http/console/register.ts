// Everything below `/console/` but the passage: the session of a browser, calls, terminals, the pages and their files.
// On an address of the console's own nothing else answers. Source: decisions 0640, 0644.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Authenticator } from '../auth.ts';
import { problemOf, sendProblem } from '../error-map.ts';
import { closeUnread } from '../polite-close.ts';
import type { ConsoleFiles } from '../../ops/console-files.ts';
import { CONSOLE_BASE } from './address.ts';
import { registerCalls } from './calls.ts';
import type { ConsoleCallParts } from './calls.ts';
import { registerPages } from './pages.ts';
import { CONSOLE_HEADERS, isThrough } from './passage.ts';
import { registerSession } from './session.ts';
import type { SessionParts } from './session.ts';
import { registerTerminals } from './terminal.ts';
import type { TerminalParts } from './terminal.ts';

export interface ConsoleParts extends SessionParts, ConsoleCallParts, TerminalParts {
  readonly files: ConsoleFiles;
  readonly sessions: SessionParts['sessions'] & TerminalParts['sessions'];
  readonly authenticator: Authenticator;
  readonly log: Log;
}

/** Answers nothing but the console on an address of its own. Call before other surfaces are registered. */
export function keepApart(app: FastifyInstance, { place }: Pick<ConsoleParts, 'place'>): void {
  if (place.base === undefined) return;
  app.addHook('onRequest', (request, _reply, done) => {
    const [path = ''] = request.url.split('?', 1);
    const isConsole = path === '/' || isBelow(path, CONSOLE_BASE) || isThrough(request);
    const isAnswered = isConsole || !place.isItsOwn(request);
    done(isAnswered ? undefined : new AppError('misdirected', 'this address is for the console alone: /console/'));
  });
}

const isBelow = (path: string, base: string): boolean => path === base || path.startsWith(`${base}/`);

/** Registers the console below the base of `scope`, which is `/console`. */
export function registerConsole(scope: FastifyInstance, parts: ConsoleParts): void {
  const { place } = parts;
  scope.setErrorHandler((error, request, reply) => refuse(error, request, reply, parts));
  scope.addHook('onRequest', async (request, reply) => {
    reply.headers(CONSOLE_HEADERS);
    place.mustBeHere(request);
  });
  registerPages(scope, parts);
  void scope.register((own, _options, done) => {
    own.addHook('onRequest', async (request) => place.mustBeOwnPage(request));
    registerSession(own, parts);
    registerCalls(own, parts);
    registerTerminals(own, parts);
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
