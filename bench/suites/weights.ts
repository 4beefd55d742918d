// `weights`: from a POST to the answer of a handler without a container, which reads the weights of a model whole. The
// weights are on a cache volume that an earlier container filled. The baseline downloads them in every start, from an
// HTTP server of the run on this machine: the fastest network there is. `fill` is the start that fills the cache.
import { WeightsServer } from '../../test/helpers/weights-server.ts';
import type { LoadTarget } from '../load.ts';
import { measureOf } from '../measure.ts';
import { startProduct } from '../product.ts';
import { coldCallMs, untilGone } from './cold.ts';
import type { Check, SuiteContext, SuiteResult } from './suite.ts';

const MIB = 1024 * 1024;
const FULL_MIB = [256, 1024] as const;
const QUICK_MIB = [64, 256] as const;

export async function weights(context: SuiteContext): Promise<SuiteResult> {
  const { place, isQuick, slack } = context;
  const sizes = isQuick ? QUICK_MIB : FULL_MIB;
  const server = await WeightsServer.start();
  place.later(() => server.stop());
  const agentSettings = { LONGSHORE_AGENT_OPEN_ADDRESSES: server.address };
  const product = await startProduct(place, { name: 'w', agentSettings });
  const app = await product.deploy('bench/apps/weights/app.py:handler');
  const target = (mib: number, name: string, cached: boolean): LoadTarget => ({
    url: app.url,
    headers: { authorization: `Bearer ${product.client.context.token}` },
    body: JSON.stringify({ url: server.url(mib), name, cached }),
    expected: JSON.stringify({ bytes: mib * MIB }),
  });
  const startMs = (mib: number, name: string, cached: boolean): Promise<number> =>
    coldCallMs(place, target(mib, name, cached), app);

  // The first start of all fetches code and compiles the runner.
  await startMs(1, 'warm-up', true);
  await untilGone(place, app);
  let round = 0;
  let expected = server.requests;
  const rounds = await context.runRounds('weights', async (isBaselineFirst) => {
    round += 1;
    const baseline: Record<string, number> = {};
    const ours: Record<string, number> = {};
    for (const mib of sizes) {
      const without = async (): Promise<void> => {
        baseline[`${mib} MiB`] = await startMs(mib, 'own', false);
        baseline[`${mib} MiB fill`] = baseline[`${mib} MiB`] ?? Number.NaN;
      };
      if (isBaselineFirst) await without();
      const name = `${mib}-${round}`;
      ours[`${mib} MiB fill`] = await startMs(mib, name, true);
      ours[`${mib} MiB`] = await startMs(mib, name, true);
      if (!isBaselineFirst) await without();
      expected += 2;
    }
    return { baseline, product: ours };
  });
  const check: Check = {
    suite: 'weights',
    name: 'a filled cache reads nothing from the network',
    isRight: server.requests === expected,
    text: `${server.requests} downloads, ${expected} expected`,
  };
  await product.stop();
  return {
    measures: sizes.flatMap((mib) =>
      [`${mib} MiB`, `${mib} MiB fill`].map((name) => measureOf('weights', name, 'ms', rounds, slack)),
    ),
    rounds,
    checks: [check],
  };
}
