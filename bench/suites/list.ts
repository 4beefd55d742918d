// `list`: ListDeployments of twenty, beside a bare Fastify route with a
// token and the same query on the same Postgres (baselines/list-server.ts).
import { ControlPlane } from '../control-plane.ts';
import { load } from '../load.ts';
import type { LoadTarget } from '../load.ts';
import { measureOf } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const DEPLOYMENTS = 20;
const FULL_SECONDS = 4;
const QUICK_SECONDS = 2;
const WARM_UP_SECONDS = 1;

export async function list(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const seconds = context.isQuick ? QUICK_SECONDS : FULL_SECONDS;
  const plane = await ControlPlane.start(place, await context.postgres(), 'list');
  await plane.deploy(DEPLOYMENTS, 'listed');
  const { token, workspaceId, url } = plane.client.context;
  const bare = place.start({
    name: 'list-server',
    file: 'bench/baselines/list-server.ts',
    args: [plane.databaseUrl, token, workspaceId],
    env: place.env,
  });
  const { port } = await bare.ready();
  const measured = async (target: string) => {
    place.signal.throwIfAborted();
    const read = await targetOf(target, token);
    await load(read, 1, { seconds: WARM_UP_SECONDS });
    return (await load(read, 1, { seconds })).figures;
  };
  const rounds = await context.runRounds(
    'list',
    inTurn(
      () => measured(`http://127.0.0.1:${String(port)}/`),
      () => measured(`${url}/api/v1/gateway/deployments`),
    ),
  );
  return { measures: ['p50', 'p99'].map((name) => measureOf('list', name, 'ms', rounds, slack)), rounds };
}

/** A load on the URL that expects its first answer again; that answer must list all deployments. */
async function targetOf(url: string, token: string): Promise<LoadTarget> {
  const headers = { authorization: `Bearer ${token}` };
  const answer = await fetch(url, { headers });
  const expected = await answer.text();
  const { deployments } = JSON.parse(expected) as { readonly deployments: readonly unknown[] };
  if (deployments.length !== DEPLOYMENTS)
    throw new Error(`${url} answered ${answer.status}: ${expected.slice(0, 300)}`);
  return { method: 'GET', url, headers, expected };
}
