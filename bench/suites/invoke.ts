// `warm` (G1) and `throughput` (G2): a call that finds a running container, beside a queued call that people build by
// hand (B1). Each side gets one load per round, after a short one that is thrown away.
import { load } from '../load.ts';
import type { LoadResult, LoadTarget } from '../load.ts';
import type { Figures } from '../measure.ts';
import { meanOf, measureOf } from '../measure.ts';
import type { DeployedApp, Product } from '../product.ts';
import { countTasks, untilStored } from '../records.ts';
import { inTurn } from '../rounds.ts';
import type { RoundFigures } from '../rounds.ts';
import type { Workplace } from '../workplace.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FULL_SECONDS = 4;
const QUICK_SECONDS = 2;
const WARM_UP_SECONDS = 1;
/** Warm-up before the first round of sustained figures: on few cores V8 compiles either side for that long. */
const HOT_SECONDS = 6;
/** A shared machine is slow for seconds at a time: sides that take turns so often meet that alike. */
const TURNS = 5;
const TURN_SECONDS = 2;
const CONNECTIONS = 64;

export type LoadContext = Pick<SuiteContext, 'place' | 'isQuick'>;

/** G1: one connection, the hello example as it is. */
export async function warm(context: SuiteContext): Promise<SuiteResult> {
  const product = await context.product();
  const target = await targetOf(product, await product.deploy('examples/hello/app.py:handler'));
  const baseline = await context.queueBaseline();
  const round = inTurn(
    () => loneLoad(context, baseline),
    () => loneLoad(context, target),
  );
  const rounds = await context.runRounds('warm', round);
  return { measures: ['p50', 'p99'].map((name) => measureOf('warm', name, 'ms', rounds, context.slack)), rounds };
}

/** Calls one after the other, for some seconds. */
export function loneLoad({ place, isQuick }: LoadContext, target: LoadTarget): Promise<Figures> {
  const seconds = isQuick ? QUICK_SECONDS : FULL_SECONDS;
  return measured(place, target, { connections: 1, seconds, warmUpSeconds: WARM_UP_SECONDS });
}

/**
 * G2: 64 connections, and a handler that takes as many calls at a time as the baseline's worker does. Beside it runs a
 * handler of eight processes with a call each. Every request must have left a record.
 */
export async function throughput(context: SuiteContext): Promise<SuiteResult> {
  const product = await context.product();
  const own = await sustainedApp(context.place, product, 'handler');
  const forked = await sustainedApp(context.place, product, 'forked');
  const baseline = await context.queueBaseline();
  if (!context.isQuick) {
    await load(baseline, CONNECTIONS, { seconds: HOT_SECONDS });
    await own.heat();
    await forked.heat();
  }
  const turn = inTurn(
    () => measured(context.place, baseline, TURN),
    async () => ({ ...(await own.turn()), 'rate forked': (await forked.turn())['rate'] ?? 0 }),
  );
  const rounds = await context.runRounds('throughput', async (isBaselineFirst) => {
    const turns: RoundFigures[] = [];
    for (let done = 0; done < turnsOf(context.isQuick); done += 1)
      turns.push(await turn(isBaselineFirst === (done % 2 === 0)));
    const bare = meanOf(turns.map(({ baseline: figures }) => figures ?? {}));
    return {
      baseline: { ...bare, 'rate forked': bare['rate'] ?? 0 },
      product: meanOf(turns.map(({ product: figures }) => figures)),
    };
  });
  await untilStored(product.dataDir);
  // The warm containers are stopped, because other suites need their cores.
  for (const { app } of [own, forked]) await product.client.gateway('POST', `/deployments/${app.deploymentId}/stop`);
  return {
    measures: [
      measureOf('throughput', 'rate', '/s', rounds, context.slack),
      measureOf('throughput', 'p50', 'ms', rounds, context.slack),
      measureOf('throughput', 'p99', 'ms', rounds, context.slack),
      measureOf('throughput', 'rate forked', '/s', rounds, context.slack),
    ],
    rounds,
    checkStopped: async (dataDir) => {
      const checks = [await own.check(dataDir), await forked.check(dataDir)];
      return {
        suite: 'throughput',
        name: 'every task recorded',
        isRight: checks.every(({ isRight }) => isRight),
        text: checks.map(({ text }) => text).join('; forked: '),
      };
    },
  };
}

/** Turns of one side in one round. */
export const turnsOf = (isQuick: boolean): number => (isQuick ? 1 : TURNS);

export interface SustainedApp {
  readonly app: DeployedApp;
  readonly heat: () => Promise<void>;
  readonly turn: () => Promise<Figures>;
  /** Check for when the product's files can be read. */
  readonly check: (dataDir: string) => Promise<{ readonly isRight: boolean; readonly text: string }>;
}

/** A handler of the throughput app under load, with the count of its requests. */
export async function sustainedApp(place: Workplace, product: Product, handler: string): Promise<SustainedApp> {
  const app = await product.deploy(`bench/apps/throughput/app.py:${handler}`);
  const target = await targetOf(product, app);
  // The call in `targetOf`.
  const counts = { answered: 1, sent: 1 };
  const count: CountRequests = (answered, sent) => {
    counts.answered += answered;
    counts.sent += sent;
  };
  return {
    app,
    heat: async () => {
      const { answered, sent } = await load(target, CONNECTIONS, { seconds: HOT_SECONDS });
      count(answered, sent);
    },
    turn: () => measured(place, target, TURN, count),
    check: async (dataDir) => {
      const stored = await countTasks(dataDir, app.stubId);
      // The end of a load cuts off the requests under way. Such a request
      // has a record in any state, or none when it never got so far.
      const isRight = stored.complete >= counts.answered && stored.all <= counts.sent;
      const text = `${counts.answered} of ${counts.sent} requests answered; ${stored.complete} complete records of ${stored.all}`;
      return { isRight, text };
    },
  };
}

/** Calls once, so that a container is there, and takes its answer for the measure of all others. */
export async function targetOf(product: Product, app: DeployedApp): Promise<LoadTarget> {
  const body = '{"name":"bench"}';
  const headers = { authorization: `Bearer ${product.client.context.token}` };
  const answer = await product.client.call(app.url, { method: 'POST', body, timeoutMs: 120_000 });
  const expected = answer.body.toString('utf8');
  const isRight = answer.status === 200 && /^\{"greeting":\s*"Hello, bench!"\}$/.test(expected);
  if (!isRight) throw new Error(`${app.url} answered ${answer.status}: ${expected.slice(0, 300)}`);
  return { url: app.url, headers, body, expected };
}

type CountRequests = (answered: number, sent: number) => void;

interface Measured {
  readonly connections: number;
  readonly seconds: number;
  readonly warmUpSeconds?: number;
}

/** A turn of one side, which the turns before have warmed. */
const TURN: Measured = { connections: CONNECTIONS, seconds: TURN_SECONDS };

/** A load of so many seconds, and its cost. @param warmUpSeconds - of the same load first, thrown away */
async function measured(
  place: Workplace,
  target: LoadTarget,
  { connections, seconds, warmUpSeconds = 0 }: Measured,
  count: CountRequests = () => undefined,
): Promise<Figures> {
  place.signal.throwIfAborted();
  const run = async (length: number): Promise<LoadResult> => {
    const result = await load(target, connections, { seconds: length });
    count(result.answered, result.sent);
    return result;
  };
  if (warmUpSeconds > 0) await run(warmUpSeconds);
  return place.cpuOf(() => run(seconds));
}
