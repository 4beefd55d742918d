// A few of the rounds of `npm run chaos`, for tests; a failure shows the run's output.
import { expect } from 'vitest';
import { disturb } from '../../bench/chaos/disturb.ts';
import type { ChaosOptions } from '../../bench/chaos/options.ts';
import { openWorkplace } from '../../bench/workplace.ts';

/** Tasks that a dead process had fetched and not sent come back late. */
const SETTLE_MS = 200_000;
const ABSENCE_MS = 15_000;
export const KILL_TEST_MS = 330_000;

type Asked = Pick<ChaosOptions, 'kind'> & Partial<Pick<ChaosOptions, 'stores' | 'absenceMs' | 'preempts'>>;

/** Disturbs so often, then audits every task. @param options - by default of servers, and an absence of 15 s */
export async function killsAreSurvived(options: Asked, count: number): Promise<void> {
  const place = await openWorkplace(new AbortController().signal);
  const said: string[] = [];
  try {
    const whole: ChaosOptions = {
      stores: 'servers',
      absenceMs: ABSENCE_MS,
      preempts: false,
      ...options,
      rounds: count,
      mustServe: false,
      settleMs: SETTLE_MS,
      jsonPath: '',
      keepLogsIn: undefined,
    };
    const outcome = await disturb(whole, place, {
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
