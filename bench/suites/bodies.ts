// `bodies`: large bodies of a web application, down and up, through scheduler, agent and runner. The baseline is a
// direct connection to a container that serves the same application. Both sides have one caller, this process, on the
// same cores.
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import type { Product } from '../product.ts';
import { inTurn } from '../rounds.ts';
import { WebClient } from '../streams-client.ts';
import type { WebTarget } from '../streams-client.ts';
import { DAEMONS, MIB, growthDuring, stopAll, streamedApp, withoutBaseline } from './streamed-app.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const SIZES = { full: { bytes: 1024 * MIB, times: 3 }, quick: { bytes: 256 * MIB, times: 1 } } as const;
type Sizes = (typeof SIZES)[keyof typeof SIZES];

const DIRECTIONS = ['download', 'upload'] as const;

export async function bodies(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const sizes = context.isQuick ? SIZES.quick : SIZES.full;
  const { product, app, ours, direct } = await streamedApp(context, (target) => warmUp(target, sizes.bytes));
  const measure = (target: WebTarget) => () => measured(product, target, sizes, place.signal);
  const rounds = await context.runRounds('bodies', inTurn(measure(direct), measure(ours)));
  await stopAll(product, [app]);
  const alone = withoutBaseline(rounds);
  return {
    measures: DIRECTIONS.flatMap((name) => [
      measureOf('bodies', name, 'MB/s', rounds, slack),
      ...DAEMONS.map((daemon) => measureOf('bodies', `${name} ${daemon} grows`, 'MiB', alone, slack)),
    ]),
    rounds,
  };
}

/** A whole body each way: every process compiles and learns the sizes of buffers while bytes pass. */
async function warmUp(target: WebTarget, bytes: number): Promise<void> {
  const client = new WebClient(target);
  for (const direction of DIRECTIONS) await client[direction](bytes);
  client.close();
}

/** Speeds are those of all bodies of the round together, on one connection. */
async function measured(product: Product, target: WebTarget, sizes: Sizes, signal: AbortSignal): Promise<Figures> {
  const figures: Record<string, number> = {};
  const client = new WebClient(target);
  try {
    for (const direction of DIRECTIONS) {
      const { value: seconds, grown } = await growthDuring(product, async () => {
        let sum = 0;
        for (let time = 0; time < sizes.times; time += 1) {
          signal.throwIfAborted();
          sum += await client[direction](sizes.bytes);
        }
        return sum;
      });
      figures[direction] = (sizes.bytes * sizes.times) / 1e6 / seconds;
      for (const daemon of DAEMONS) figures[`${direction} ${daemon} grows`] = grown[daemon];
    }
  } finally {
    client.close();
  }
  return figures;
}
