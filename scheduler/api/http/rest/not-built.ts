// Routes of the interface that are not built yet. Once the caller is known, they
// answer 501 with a sentence, so that clients can tell them from unknown paths.
import { AppError } from '#shared/errors.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

interface NotBuilt {
  /** Begin of the refusal's sentence. */
  readonly what: string;
  readonly routes: readonly string[];
}

const NOT_BUILT: readonly NotBuilt[] = [
  { what: 'databases are', routes: ['GET /database/{ws}', 'POST /database/{ws}'] },
];

export const notBuiltRoutes: readonly RestRoute[] = NOT_BUILT.flatMap(({ what, routes }) =>
  routes.map((http) =>
    restRoute({
      http,
      summary: `Not built yet: ${what} to come`,
      status: 501,
      grants: NOT_LIMITED,
      ...(http.startsWith('GET') ? {} : { scope: 'full' as const }),
      errors: ['not_implemented'],
      handle: () => Promise.reject(new AppError('not_implemented', `${what} not built yet in this version`)),
    }),
  ),
);
