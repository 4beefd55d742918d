// Terminals of the web console: a shell in a container, in a document of its own. The page asks for a ticket with both
// halves of its session. The WebSocket brings the ticket as a subprotocol, never in an address, and the cookie.
// Invariants: only a page of this origin opens one. It ends with its session and its token.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { WebSocket } from 'ws';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { Places } from '#shared/places.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Access } from '../../../fleet/inside/access.ts';
import type { Inside } from '../../../fleet/inside/inside.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { ConsoleSessions, FoundSession } from '../../../workspaces/identity/console-sessions.ts';
import type { TerminalTickets, Ticket } from '../../../workspaces/identity/terminal-tickets.ts';
import { TICKET_MS } from '../../../workspaces/identity/terminal-tickets.ts';
import type { Authenticator } from '../auth.ts';
import { shellRequestOf } from '../containers/program-request.ts';
import type { ProgramRequest } from '../containers/program-request.ts';
import { serveProgram } from '../containers/program-socket.ts';
import { refuse } from '../containers/sockets.ts';
import type { ContainerSockets } from '../containers/sockets.ts';
import { mustReach } from '../containers/visitors.ts';
import { cookieOf } from '../streams/head.ts';
import type { ConsolePlace } from './address.ts';
import { bodyOf } from './bodies.ts';

export interface TerminalParts {
  readonly tickets: Pick<TerminalTickets, 'give' | 'take'>;
  readonly sessions: Pick<ConsoleSessions, 'lookById'>;
  readonly access: Pick<Access, 'find' | 'reach'>;
  readonly inside: Pick<Inside, 'open'>;
  readonly sockets: Pick<ContainerSockets, 'check' | 'accept'>;
  readonly authenticator: Pick<Authenticator, 'refused'>;
  readonly place: ConsolePlace;
  readonly log: Log;
  /** The caller by its session. @throws AppError `unauthorized`, `rate_limited` */
  readonly callerOf: (request: FastifyRequest) => Promise<Caller>;
}

/** Base of the addresses: the passage alone reads the cookie. */
const TERMINALS = '/api/terminals';
/** The subprotocol that is spoken; the second one that the page offers is the ticket. */
const PROTOCOL = 'longshore-terminal';
/** Terminals of browsers that a workspace has at a scheduler. */
const MOST_OF_WORKSPACE = 32;
/** Interval of looks at the session and its token. */
const LOOK_MS = 1_000;
const RUNNING_WITHIN_MS = 60_000;

const AskedTicket = Type.Object({ container_id: Type.String() });

export function registerTerminals(scope: FastifyInstance, parts: TerminalParts): void {
  const { tickets, access, callerOf, sockets } = parts;
  const places = new Places<WorkspaceId>(MOST_OF_WORKSPACE);
  const body = bodyOf(AskedTicket);

  scope.post(TERMINALS, {
    onRequest: body.admit,
    handler: async (request) => {
      const caller = await callerOf(request);
      mustReach(caller);
      const { container_id: containerId } = body.read(request);
      if (containerId === '') throw new AppError('invalid_body', 'container_id must name a container');
      await access.find(containerId, { workspaceId: homeOf(caller) });
      const ticket = await tickets.give({ sessionId: caller.console?.sessionId ?? '', containerId });
      return { ticket, expires_in_seconds: TICKET_MS / 1000 };
    },
  });

  scope.get(TERMINALS, async (request, reply) => {
    sockets.check(request);
    // A browser names the origin of each WebSocket. Another one than ours was refused before.
    if (request.headers.origin === undefined)
      throw new AppError('foreign_page', 'only pages of the console may open a terminal');
    const asked = shellRequestOf(request.query as Readonly<Record<string, unknown>>);
    const { ticket, look, caller } = await visitOf(request, parts);
    const giveBack = places.take(caller.workspaceId);
    if (giveBack === undefined) {
      const text = `this workspace has ${MOST_OF_WORKSPACE} terminals of browsers here: close some`;
      throw new AppError('too_many_connections', text, { details: { retryAfterSeconds: 5 } });
    }
    let isOpen = false;
    const visitor = {
      caller,
      workspaceId: homeOf(caller),
      isValid: async () => mayStill(await look()),
      lookMs: LOOK_MS,
    };
    sockets.accept(request, reply, visitor, (webSocket) => {
      isOpen = true;
      webSocket.once('close', giveBack);
      serve(webSocket, asked, ticket, visitor.workspaceId, parts).catch((error: unknown) => {
        parts.log.error({ err: error, requestId: request.id }, 'a terminal of the console failed');
        webSocket.close(1011, 'internal');
      });
    });
    if (!isOpen) giveBack();
    return reply;
  });
}

const homeOf = ({ isAdmin, workspaceId }: Caller): WorkspaceId | null => (isAdmin ? null : workspaceId);

function mayStill(found: FoundSession | null): boolean {
  if (found === null) return false;
  try {
    mustReach(found.caller);
    return true;
  } catch {
    return false;
  }
}

/** The session and the ticket of a handshake. Uses the ticket up. @throws AppError `unauthorized` */
async function visitOf(request: FastifyRequest, { tickets, sessions, place, authenticator }: TerminalParts) {
  const [protocol, sent = ''] = (request.headers['sec-websocket-protocol'] ?? '').split(',').map((one) => one.trim());
  const ticket = protocol === PROTOCOL ? await tickets.take(sent) : undefined;
  const cookie = cookieOf(request.headers.cookie, place.cookieName(request)) ?? '';
  const look = async (): Promise<FoundSession | null> =>
    ticket === undefined ? null : sessions.lookById(cookie, ticket.sessionId);
  const found = await look();
  if (ticket === undefined || found === null) {
    authenticator.refused?.(request.ip);
    throw new AppError('unauthorized', 'this ticket was used, is older than 30 s, or is of another session');
  }
  mustReach(found.caller);
  return { ticket, look, caller: found.caller };
}

/** Pages hear of a refusal in a message: a browser shows them nothing of a handshake that failed. */
async function serve(
  webSocket: WebSocket,
  asked: ProgramRequest,
  { containerId }: Ticket,
  workspaceId: WorkspaceId | null,
  { access, inside }: TerminalParts,
): Promise<void> {
  const gone = new AbortController();
  webSocket.once('close', () => gone.abort());
  try {
    const reaching = { workspaceId, withinMs: RUNNING_WITHIN_MS, signal: gone.signal };
    const container = await access.reach(containerId, reaching);
    await serveProgram(asked, { webSocket, inside, container, hasStreamByte: false });
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    refuse(webSocket, error);
  }
}
