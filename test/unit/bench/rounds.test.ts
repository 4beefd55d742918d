import { expect, test } from 'vitest';
import type { Round } from '../../../bench/measure.ts';
import { inTurn, runRounds } from '../../../bench/rounds.ts';
import type { MeasureRound, RoundRules } from '../../../bench/rounds.ts';

const nothing: MeasureRound = () => Promise.resolve({ baseline: { p50: 1 }, product: { p50: 2 } });

function rules(outside: readonly number[], rest: Partial<RoundRules> = {}): RoundRules & { readonly seen: Round[] } {
  const seen: Round[] = [];
  let at = 0;
  return {
    rounds: 2,
    maxOutside: 0.12,
    watch: async (work) => ({ value: await work(), outside: outside[at++] ?? 0 }),
    onRound: (round) => void seen.push(round),
    signal: new AbortController().signal,
    seen,
    ...rest,
  };
}

test('a disturbed round does not count and is measured again', async () => {
  const made = rules([0, 0.13, 0.12]);
  const rounds = await runRounds(nothing, made);
  expect(rounds.map((round) => round.isKept)).toEqual([true, false, true]);
  expect(made.seen).toEqual(rounds);
});

test('on a machine that is never quiet it ends after twice as many rounds', async () => {
  const rounds = await runRounds(nothing, rules([1, 1, 1, 1, 1, 1]));
  expect(rounds.map((round) => round.isKept)).toEqual([false, false, false, false]);
});

test('the side that goes first changes from round to round', async () => {
  const calls: string[] = [];
  const side = (name: string) => () => {
    calls.push(name);
    return Promise.resolve({ p50: 1 });
  };
  const rounds = await runRounds(inTurn(side('baseline'), side('product')), rules([], { rounds: 3 }));
  expect(calls).toEqual(['baseline', 'product', 'product', 'baseline', 'baseline', 'product']);
  expect(rounds).toHaveLength(3);
});

test('a run that is interrupted begins no other round', async () => {
  const stop = new AbortController();
  const onRound = (): void => stop.abort(new Error('SIGINT'));
  await expect(runRounds(nothing, rules([], { signal: stop.signal, onRound }))).rejects.toThrow('SIGINT');
});
