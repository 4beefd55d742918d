// Routes of the interface that are not built yet. Once the caller is known, they
// answer 501 with a sentence, so that clients can tell them from unknown paths.
import { AppError } from '#shared/errors.ts';
import { restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

interface NotBuilt {
  /** Begin of the refusal's sentence. */
  readonly what: string;
  readonly routes: readonly string[];
}

const NOT_BUILT: readonly NotBuilt[] = [
  { what: 'databases are', routes: ['GET /database/{ws}', 'POST /database/{ws}'] },
  {
    what: 'stacks are',
    routes: ['GET /stack/{ws}', 'POST /stack/{ws}', 'PUT /stack/{ws}/{stackId}', 'DELETE /stack/{ws}/{stackId}'],
  },
  {
    what: 'webhooks are',
    routes: [
      'GET /webhook/{ws}',
      'POST /webhook/{ws}',
      'PUT /webhook/{ws}/{webhookId}',
      'DELETE /webhook/{ws}/{webhookId}',
      'POST /webhook/{ws}/{webhookId}/rotate',
      'POST /webhook/{ws}/{webhookId}/test',
    ],
  },
  { what: 'events are', routes: ['GET /events/{ws}/history', 'GET /events/{ws}/stream'] },
  { what: 'live streams are', routes: ['GET /task/{ws}/{taskId}/subscribe', 'GET /logs/{ws}/stream'] },
];

export const notBuiltRoutes: readonly RestRoute[] = NOT_BUILT.flatMap(({ what, routes }) =>
  routes.map((http) =>
    restRoute({
      http,
      summary: `Not built yet: ${what} to come`,
      status: 501,
      ...(http.startsWith('GET') ? {} : { scope: 'full' as const }),
      errors: ['not_implemented'],
      handle: () => Promise.reject(new AppError('not_implemented', `${what} not built yet in this version`)),
    }),
  ),
);
