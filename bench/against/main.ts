// `npm run bench -- --against COMMIT`: this checkout beside another commit of its own, both built as releases,
// alternating in one run. The other commit runs twice, so that its difference from itself is known.
import { join } from 'node:path';
import { startPostgres } from '../control-plane.ts';
import { machineFacts, machineText } from '../machine.ts';
import { AGAINST_SUITES } from '../options.ts';
import type { BenchOptions } from '../options.ts';
import type { Output } from '../output.ts';
import { writeBenchRelease } from '../release.ts';
import { runRounds } from '../rounds.ts';
import { alignColumns, short, spread } from '../table.ts';
import type { Workplace } from '../workplace.ts';
import { buildCommit, resolveCommit } from './commit.ts';
import { CONTESTS, inRotation, startSides } from './sides.ts';
import type { AgainstContext } from './sides.ts';
import { VERDICT_ROUNDS, differenceOf } from './verdict.ts';
import type { Difference } from './verdict.ts';

const HEAD = ['benchmark', 'base', 'longshore', 'ratio', 'base against itself', ''];
const VERDICTS = { worse: 'WORSE', better: 'better', no_difference: '', too_few_rounds: '-' } as const;

/** @returns the exit code: 1 with `--gate` when a figure is worse, or a benchmark has no round that counts */
export async function benchAgainst(
  options: BenchOptions & { readonly against: string },
  place: Workplace,
  output: Output,
): Promise<number> {
  const { isQuick, rounds, maxOutside } = options;
  const suites = AGAINST_SUITES.filter((suite) => options.suites.includes(suite));
  const hash = await resolveCommit(options.against);
  const facts = machineFacts(await place.engine.version());
  output.say(machineText(facts));
  output.say(`building ${hash.slice(0, 12)} and this checkout`);
  const base = await buildCommit(place, hash);
  const ours = await writeBenchRelease(join(place.directory, 'r'), {});
  const startedAt = new Date().toISOString();
  output.json('run', { startedAt, machine: facts, against: hash, suites, isQuick, rounds, maxOutside });

  const releases = { base: base.release, again: base.release, ours };
  const context: AgainstContext = {
    place,
    isQuick,
    releases,
    products: once(() => startSides(place, releases)),
    postgres: once(() => startPostgres(place)),
  };
  const differences: Difference[] = [];
  const unquiet: string[] = [];
  for (const suite of suites) {
    output.say(`${suite}:`);
    const contest = await CONTESTS[suite](context);
    const done = await runRounds(inRotation(contest, place.signal), {
      rounds,
      maxOutside,
      watch: (work) => place.watch(work),
      onRound: (round) => output.round(suite, round),
      signal: place.signal,
    });
    for (const [figure, unit] of Object.entries(contest.figures)) {
      const difference = differenceOf(suite, figure, unit, done);
      if (difference === undefined) unquiet.push(suite);
      else differences.push(difference);
    }
  }
  for (const difference of differences) output.json('difference', difference);
  output.say('');
  output.say(`base: ${base.name}`);
  output.say(alignColumns([HEAD, ...differences.map(rowOf)]));
  for (const suite of new Set(unquiet))
    output.say(`${suite}: no round counts, others used more than ${maxOutside * 100} % of the machine in each`);
  if (differences.some(({ verdict }) => verdict === 'worse'))
    output.say('WORSE: the median of the ratios is beyond what the base differed from itself in any round.');
  if (differences.some(({ verdict }) => verdict === 'too_few_rounds'))
    output.say(`-: a verdict needs ${VERDICT_ROUNDS} rounds that count.`);
  output.say(`Written to ${options.jsonPath}.`);
  if (!options.isGate) return 0;
  return unquiet.length > 0 || differences.some(({ verdict }) => verdict === 'worse') ? 1 : 0;
}

function rowOf(difference: Difference): string[] {
  const { suite, figure, unit, base, ours, ratio, itself, verdict } = difference;
  return [
    `${suite} ${figure}`,
    spread(base, unit),
    spread(ours, unit),
    spread(ratio, 'x'),
    `${short(itself.min)} .. ${short(itself.max)} x`,
    VERDICTS[verdict],
  ];
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => (made ??= make());
}
