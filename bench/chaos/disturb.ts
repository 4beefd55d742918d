// The rounds of a kind: of two schedulers with simulated machines, or of both daemons with real containers.
import type { Workplace } from '../workplace.ts';
import type { ChaosOptions } from './options.ts';
import { isPairKind } from './options.ts';
import { pairRounds } from './pair-rounds.ts';
import { killRounds } from './rounds.ts';
import type { ChaosOutcome, ChaosReport } from './rounds.ts';

export function disturb(options: ChaosOptions, place: Workplace, report: ChaosReport): Promise<ChaosOutcome> {
  const { kind } = options;
  return isPairKind(kind)
    ? pairRounds({ ...options, kind }, place, report)
    : killRounds({ ...options, kind }, place, report);
}
