// A few kill rounds of each kind, as `npm run chaos` runs fifty: every accepted task ends once, none is lost, and no handler's own records contradict that.
import { describe, expect, test } from 'vitest';
import { killRounds } from '../../bench/chaos/rounds.ts';
import type { ChaosOptions } from '../../bench/chaos/options.ts';
import { openWorkplace } from '../../bench/workplace.ts';

const ROUNDS = 2;
/** What a dead process had fetched and not sent comes back late. */
const SETTLE_MS = 200_000;
const TEST_MS = 330_000;

async function rounds(options: Pick<ChaosOptions, 'stores' | 'kill'>): Promise<void> {
  const place = await openWorkplace(new AbortController().signal);
  const said: string[] = [];
  try {
    const whole = { ...options, rounds: ROUNDS, settleMs: SETTLE_MS, jsonPath: '', keepLogsIn: undefined };
    const outcome = await killRounds(whole, place, { say: (line) => void said.push(line) });
    expect(outcome.findings, said.join('\n')).toEqual([]);
    expect(outcome.accepted).toBeGreaterThan(20);
    expect(outcome.runs).toBeGreaterThan(20);
  } finally {
    expect(await place.close()).toEqual([]);
  }
}

describe('kill -9 under load loses no accepted task and runs none beyond its attempts', { timeout: TEST_MS }, () => {
  test('of the scheduler, on embedded stores', () => rounds({ stores: 'embedded', kill: 'scheduler' }));
  test('of the scheduler, on Postgres and Redis servers', () => rounds({ stores: 'servers', kill: 'scheduler' }));
  test('of the Redis child', () => rounds({ stores: 'embedded', kill: 'redis' }));
});
