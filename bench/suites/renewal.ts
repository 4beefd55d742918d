// `renewal`: the longest that a scheduler answers nothing while it renews the locks and leases of all its attempts,
// beside one with a fifth as many. Both hold their attempts at the same number of machines, and nothing else happens. A
// round lasts longer than the renewals of all attempts, which begin every 30 s.
import { HeldFleet } from '../held-fleet.ts';
import { measureOf } from '../measure.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FULL = { machines: 100, fewer: 100, more: 500 } as const;
const QUICK = { machines: 10, fewer: 100, more: 500 } as const;
const ROUND_MS = 45_000;

export async function renewal(context: SuiteContext): Promise<SuiteResult> {
  const { slack } = context;
  const { machines, fewer, more } = context.isQuick ? QUICK : FULL;
  const held = (name: string, inFlight: number): Promise<HeldFleet> =>
    HeldFleet.start(context, name, { machines, inFlight, slots: more });
  const few = await held('renewalfew', fewer);
  const many = await held('renewalmany', more);
  const rounds = await context.runRounds('renewal', async () => {
    const [baseline, product] = await Promise.all([few.longestBlockMs(ROUND_MS), many.longestBlockMs(ROUND_MS)]);
    return { baseline: { block: baseline }, product: { block: product } };
  });
  return { measures: [measureOf('renewal', 'block', 'ms', rounds, slack)], rounds };
}
