// `rest` (G12): the resources of a scheduler that has a thousand deployments and nothing to do, beside the same one
// without any. They are processor time of the scheduler and its Redis together, resident memory, and connections. Both
// are measured over the same seconds: at rest neither disturbs the other.
import { sleep } from '#shared/backoff.ts';
import { ControlPlane } from '../control-plane.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FULL = { deployments: 1000, settleMs: 10_000, windowMs: 6_500 } as const;
const QUICK = { deployments: 100, settleMs: 3_000, windowMs: 4_000 } as const;

export async function rest(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const { deployments, settleMs, windowMs } = context.isQuick ? QUICK : FULL;
  const postgres = await context.postgres();
  const empty = await ControlPlane.start(place, postgres, 'rest_empty');
  const full = await ControlPlane.start(place, postgres, 'rest_full');
  await full.deploy(deployments, 'idle');
  // A restart clears the traces of deploying, which are not a cost of deployments at rest.
  await Promise.all([empty.restart(), full.restart()]);
  await sleep(settleMs);
  const rounds = await context.runRounds('rest', async () => {
    place.signal.throwIfAborted();
    const startedMs = performance.now();
    const before = await Promise.all([empty.usage(), full.usage()]);
    await sleep(windowMs);
    const after = await Promise.all([empty.usage(), full.usage()]);
    const tookMs = performance.now() - startedMs;
    const figures = (side: 0 | 1): Figures => ({
      cpu: ((after[side].cpuMs - before[side].cpuMs) / tookMs) * 100,
      rss: after[side].rssMib,
      connections: after[side].connections,
    });
    return { baseline: figures(0), product: figures(1) };
  });
  return {
    measures: [
      measureOf('rest', 'cpu', '% of a core', rounds, slack),
      measureOf('rest', 'rss', 'MiB', rounds, slack),
      measureOf('rest', 'connections', '', rounds, slack),
    ],
    rounds,
  };
}
