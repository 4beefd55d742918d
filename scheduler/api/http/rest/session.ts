import { timestampOf } from '#shared/api/fields.ts';
import { ConsoleLink, SessionList, SessionRecord } from '#shared/api/rest/session.ts';
import { AppError } from '#shared/errors.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { confinementProblem } from '../../../workspaces/identity/confinement.ts';
import type { ConsoleSessions } from '../../../workspaces/identity/console-sessions.ts';
import { isForSessions, refusalOf } from '../../operations/operation.ts';
import type { Operation } from '../../operations/operation.ts';
import type { RestRequest } from './route.ts';
import { actorBehind } from '../origin.ts';
import { NOT_LIMITED, grantsOf, mayCall, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface SessionRouteParts {
  readonly directory: Pick<Directory, 'workspace'>;
  readonly consoleSessions: Pick<ConsoleSessions, 'link' | 'list' | 'end'>;
  /** The gateway's operations, which a caller may call, too. */
  readonly operations: readonly Operation[];
  /** Start of the console's address, as the caller reaches it; null: it is switched off. */
  readonly consoleBaseOf: (request: RestRequest['http']) => string | null;
  /** Where everything else is, if the console has an address of its own. */
  readonly apartBaseOf: (request: RestRequest['http']) => string | null;
  /** Facts about the installation, for `GET /session`. */
  readonly installation: {
    readonly version: string;
    readonly externalUrl: string | null;
    readonly invokeDomain: string | null;
  };
}

/** Every kind of token may see what it may do, and sign a browser in. */
const ANY_TOKEN = { grants: { scopes: ['invoke', 'read'], confinesToApp: true } } as const;

/**
 * Routes that tell a caller what it is and may do; links that sign a browser in to the web console.
 * @param all - the routes of the API, asked when a request comes
 */
export const sessionRoutes = (parts: SessionRouteParts, all: () => readonly RestRoute[]): readonly RestRoute[] => [
  restRoute({
    http: 'GET /session',
    ...ANY_TOKEN,
    summary: 'The token, its workspace, and the routes that it may call',
    answer: SessionRecord,
    errors: ['workspace_not_found'],
    handle: async ({ caller, http }): Promise<SessionRecord> => {
      const workspace = await parts.directory.workspace(caller.workspaceId);
      if (workspace === undefined) throw new AppError('workspace_not_found', 'workspace not found');
      const { version, externalUrl, invokeDomain } = parts.installation;
      return {
        token: {
          id: caller.tokenId,
          name: caller.name ?? '',
          token_type: caller.type,
          scopes: [...(caller.confined?.scopes ?? [])],
          app_id: caller.confined?.appId ?? null,
          expires_at: timestampOf(caller.expiresAtMs ?? null),
        },
        workspace: { id: workspace.id, name: workspace.name },
        is_admin: caller.isAdmin,
        via: caller.console === undefined ? 'token' : 'console',
        rights: [
          ...all()
            .filter((route) => isAllowed(caller, route))
            .map(({ method, path }) => `${method} ${path}`),
          ...parts.operations
            .filter((operation) => mayCallGateway(caller, operation))
            .map(({ method, path }) => `${method} /gateway${path}`),
        ],
        version,
        domains: {
          external_url: externalUrl,
          invoke_domain: invokeDomain,
          console_url: parts.consoleBaseOf(http),
          api_url: parts.apartBaseOf(http),
        },
      };
    },
  }),
  restRoute({
    http: 'POST /console/link',
    ...ANY_TOKEN,
    byTokenOnly: true,
    summary: 'Make a link that signs a browser in to the web console, once within 10 minutes',
    status: 201,
    answer: ConsoleLink,
    errors: ['not_found'],
    handle: async ({ caller, http }) => {
      const base = parts.consoleBaseOf(http);
      if (base === null) throw new AppError('not_found', 'this scheduler has no web console: LONGSHORE_CONSOLE is off');
      if (caller.isLast === true) {
        throw new AppError('bad_request', 'a token for one use cannot sign a browser in: this request used it up');
      }
      const link = await parts.consoleSessions.link(caller);
      if (link === undefined) throw new AppError('unauthorized', 'Unauthorized');
      // A fragment reaches no server, so the code is in no log and no Referer.
      return { url: `${base}/console/enter#${link.code}`, expires_at: timestampOf(link.expiresAtMs) };
    },
  }),
  restRoute({
    http: 'GET /console/sessions/{ws}',
    grants: NOT_LIMITED,
    scope: 'full',
    summary: 'Browsers that are signed in to the web console by tokens of the workspace, those used last first',
    answer: SessionList,
    handle: async ({ caller, workspaceId }) => ({
      data: (await parts.consoleSessions.list(workspaceId)).map((session) => ({
        id: session.id,
        token_id: session.tokenId,
        token_name: session.tokenName,
        address: session.address,
        created_at: timestampOf(session.createdAtMs),
        used_at: timestampOf(session.usedAtMs),
        expires_at: timestampOf(session.expiresAtMs),
        ends_at: timestampOf(session.endsAtMs),
        current: session.id === caller.console?.sessionId,
      })),
      next: '',
    }),
  }),
  restRoute({
    http: 'DELETE /console/sessions/{ws}/{sessionId}',
    scope: 'full',
    summary: 'Sign a browser out of the web console, at once',
    errors: ['not_found'],
    handle: async (request) => {
      const { workspaceId, params } = request;
      if (!(await parts.consoleSessions.end(workspaceId, params['sessionId'] ?? '', actorBehind(request))))
        throw new AppError('not_found', 'there is no session of that id, or it is over');
      return undefined;
    },
  }),
];

const isAllowed = (caller: Caller, route: RestRoute): boolean =>
  mayCall(caller, route) &&
  confinementProblem(caller, grantsOf(route)) === undefined &&
  !(route.byTokenOnly === true && caller.console !== undefined);

const mayCallGateway = (caller: Caller, operation: Operation): boolean =>
  refusalOf(operation, caller) === null && (caller.console === undefined || isForSessions(operation));
