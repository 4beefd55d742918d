// Rights of limited tokens on routes. test/integration/tokens.test.ts has what each scope may call.
import { expect, test } from 'vitest';
import { grantsOf } from '#scheduler/api/http/rest/route.ts';
import { restRoutes } from '#scheduler/api/http/rest/routes.ts';

const ROUTES = restRoutes({} as never);

test('every route that reads says itself which limited tokens may call it', () => {
  const silent = ROUTES.filter(({ method, grants }) => method === 'GET' && grants === undefined);
  expect(silent.map(({ path }) => path)).toEqual([]);
});

test('a route that says nothing is closed to limited tokens', () => {
  expect(grantsOf({})).toEqual({});
});

test('no limited token gets an address of bytes, or where webhooks go', () => {
  const leading = ROUTES.filter(({ path }) =>
    /url\b(?!.*deployment)|upload|^\/(?:object|output|secret|webhook)/.test(path),
  );
  const open = leading.filter((route) => Object.keys(grantsOf(route)).length > 0);
  expect(leading.length).toBeGreaterThan(10);
  // The addresses at which deployments are called.
  expect(open.map(({ path }) => path)).toEqual(['/deployment/{deploymentId}/url', '/stub/{stubId}/url']);
});
