// A few of the rounds of `npm run chaos`, for tests; a failure shows the run's output.
import { expect } from 'vitest';
import { rollbackRounds } from '../../bench/chaos/rollback.ts';
import { killRounds } from '../../bench/chaos/rounds.ts';
import type { ChaosOptions } from '../../bench/chaos/options.ts';
import { openWorkplace } from '../../bench/workplace.ts';

/** Tasks that a dead process had fetched and not sent come back late. */
const SETTLE_MS = 200_000;
export const KILL_TEST_MS = 330_000;

/** Kills so often, then audits every task. */
export async function killsAreSurvived(options: Pick<ChaosOptions, 'stores' | 'kill'>, count: number): Promise<void> {
  const place = await openWorkplace(new AbortController().signal);
  const said: string[] = [];
  try {
    const whole = { ...options, rounds: count, settleMs: SETTLE_MS, jsonPath: '', keepLogsIn: undefined };
    const outcome = await (options.kill === 'redis-rollback' ? rollbackRounds : killRounds)(whole, place, {
      say: (line) => void said.push(line),
      json: () => undefined,
    });
    expect(outcome.findings, said.join('\n')).toEqual([]);
    expect(outcome.accepted).toBeGreaterThan(20);
    expect(outcome.runs).toBeGreaterThan(20);
  } finally {
    expect(await place.close()).toEqual([]);
  }
}
