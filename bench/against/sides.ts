// Three installations beside each other: the base, the base once more, and this checkout. Each suite gives a
// measurement that any of them can make. The side that goes first changes from round to round.
import type { PrivatePostgres } from '../../test/helpers/postgres.ts';
import type { Figures } from '../measure.ts';
import { meanOf } from '../measure.ts';
import type { AgainstSuite } from '../options.ts';
import { startProduct } from '../product.ts';
import type { Product } from '../product.ts';
import type { Release } from '../release.ts';
import type { MeasureRound } from '../rounds.ts';
import { percentile } from '../stats.ts';
import { coldCallMs, startsOf, untilGone } from '../suites/cold.ts';
import { loneLoad, sustainedApp, targetOf, turnsOf } from '../suites/invoke.ts';
import { sizesOf, startPlacement } from '../suites/placement.ts';
import { idleOf, startPlane } from '../suites/planes.ts';
import { callsOf, oneReactionMs } from '../suites/reaction.ts';
import { SATURATED_FIGURES, saturatedRound, startSaturated } from '../suites/saturation.ts';
import { startMs } from '../suites/start.ts';
import type { Workplace } from '../workplace.ts';

export const SIDES = ['base', 'again', 'ours'] as const;
export type SideName = (typeof SIDES)[number];
type Sides<T> = Readonly<Record<SideName, T>>;

export interface AgainstContext {
  readonly place: Workplace;
  readonly isQuick: boolean;
  readonly releases: Sides<Release>;
  /** Each is started when first asked for, and shared by the suites. */
  readonly products: () => Promise<Sides<Product>>;
  readonly postgres: () => Promise<PrivatePostgres>;
}

/** A measurement of one side in one round. */
export type MeasureSide = (side: SideName) => Promise<Figures>;

/** A suite's comparison: the figures with their units, and the turns of each side in one round. */
export interface Contest {
  readonly figures: Readonly<Record<string, string>>;
  readonly turns: number;
  readonly measure: MeasureSide;
  /** Called before each round. Absent: nothing is made anew. */
  readonly renew?: () => Promise<void>;
}

export const CONTESTS: Readonly<Record<AgainstSuite, (context: AgainstContext) => Promise<Contest>>> = {
  warm: async (context) => {
    const products = await context.products();
    const targets = await ofEach(async (side) => {
      const product = products[side];
      return targetOf(product, await product.deploy('examples/hello/app.py:handler'));
    });
    return {
      figures: { p50: 'ms', p99: 'ms' },
      turns: 1,
      renew: async () => {
        await renewDaemons(products);
        for (const side of SIDES) await loneLoad(context, targets[side]);
      },
      measure: (side) => loneLoad(context, targets[side]),
    };
  },
  throughput: async (context) => {
    const products = await context.products();
    const apps = await ofEach(async (side) => ({
      own: await sustainedApp(context.place, products[side], 'handler'),
      forked: await sustainedApp(context.place, products[side], 'forked'),
    }));
    return {
      figures: { rate: '/s', p50: 'ms', p99: 'ms', 'rate forked': '/s' },
      turns: turnsOf(context.isQuick),
      renew: async () => {
        await renewDaemons(products);
        if (context.isQuick) return;
        for (const side of SIDES) {
          await apps[side].own.heat();
          await apps[side].forked.heat();
        }
      },
      measure: async (side) => ({
        ...(await apps[side].own.turn()),
        'rate forked': (await apps[side].forked.turn())['rate'] ?? 0,
      }),
    };
  },
  cold: async (context) => {
    const { place } = context;
    const products = await context.products();
    const apps = await ofEach(async (side) => {
      const app = await products[side].deploy('bench/apps/cold/app.py:handler');
      const target = await targetOf(products[side], app);
      await untilGone(place, app);
      return { app, target };
    });
    return {
      figures: { p50: 'ms' },
      turns: startsOf(context.isQuick),
      measure: async (side) => ({ p50: await coldCallMs(place, apps[side].target, apps[side].app) }),
    };
  },
  start: async (context) => {
    const products = await context.products();
    for (const side of SIDES) await products[side].stop();
    const measure = (side: SideName): Promise<Figures> =>
      startMs(context.place, products[side].env, context.releases[side]);
    // Each side's first start is thrown away: it cleans up after the others' load.
    for (const side of SIDES) await measure(side);
    return { figures: { p50: 'ms' }, turns: 1, measure };
  },
  reaction: async (context) => {
    const { place, isQuick, releases } = context;
    const postgres = await context.postgres();
    const planes = await ofEach(async (side) => {
      const at = await startPlane(place, postgres, `reaction${side}`, idleOf(isQuick), releases[side]);
      const [app] = await at.plane.deploy(1, 'called');
      if (app === undefined) throw new Error('nothing was deployed');
      await oneReactionMs(place, at, app);
      return { at, app };
    });
    return {
      figures: { p50: 'ms', p99: 'ms' },
      turns: 1,
      measure: async (side) => {
        const took: number[] = [];
        while (took.length < callsOf(isQuick)) took.push(await oneReactionMs(place, planes[side].at, planes[side].app));
        return { p50: percentile(took, 50), p99: percentile(took, 99) };
      },
    };
  },
  saturation: async (context) => {
    const { place, isQuick, releases } = context;
    const postgres = await context.postgres();
    const pairs = await ofEach((side) => startSaturated(place, postgres, `saturation${side}`, releases[side]));
    return { figures: SATURATED_FIGURES, turns: 1, measure: (side) => saturatedRound(pairs[side], isQuick) };
  },
  placement: async (context) => {
    const { place, isQuick, releases } = context;
    const postgres = await context.postgres();
    const machines = sizesOf(isQuick).fewer;
    const rates = await ofEach((side) =>
      startPlacement({ place, postgres, name: `placement${side}`, machines, isQuick, release: releases[side] }),
    );
    return {
      figures: { rate: '/s' },
      turns: turnsOf(isQuick),
      measure: async (side) => ({ rate: await rates[side]() }),
    };
  },
};

/** Makes the sides one after the other, so that each is alone on the machine while it starts. */
export async function ofEach<T>(make: (side: SideName) => Promise<T>): Promise<Sides<T>> {
  return { base: await make('base'), again: await make('again'), ours: await make('ours') };
}

export function startSides(place: Workplace, releases: Sides<Release>): Promise<Sides<Product>> {
  return ofEach((side) => startProduct(place, { name: side, release: releases[side], isAllOfRelease: true }));
}

/**
 * Starts new processes of both daemons on every side; containers go on. Two processes of
 * one program differ by several per cent for as long as they live (how the engine compiled
 * them, where their memory lies). A single process therefore says little of its program.
 */
async function renewDaemons(products: Sides<Product>): Promise<void> {
  for (const side of SIDES) {
    const product = products[side];
    await product.killAgent();
    await product.killScheduler();
    await product.restartScheduler(true);
    await product.restartAgent(true);
  }
}

/** Every side has the contest's turns in a round; each turn begins with another side than the one before. */
export function inRotation({ turns, measure, renew }: Contest, signal: AbortSignal): MeasureRound {
  let first = 0;
  return async () => {
    await renew?.();
    const done: Record<SideName, Figures[]> = { base: [], again: [], ours: [] };
    for (let turn = 0; turn < turns; turn += 1) {
      for (let next = 0; next < SIDES.length; next += 1) {
        signal.throwIfAborted();
        const side = SIDES[(first + next) % SIDES.length] as SideName;
        done[side].push(await measure(side));
      }
      first += 1;
    }
    return { baseline: meanOf(done.base), again: meanOf(done.again), product: meanOf(done.ours) };
  };
}
