import { expect, test, vi } from 'vitest';
import { repeat } from '#shared/backoff.ts';

test('a round that fails is told and the next one comes; none starts before the one before has ended, and none after the abort', async () => {
  const abort = new AbortController();
  const failures: unknown[] = [];
  let rounds = 0;
  let atOnce = 0;
  let most = 0;
  let ticks = 0;
  const another = repeat(
    1,
    abort.signal,
    () => (ticks += 1),
    () => undefined,
  );
  const round = async (): Promise<void> => {
    rounds += 1;
    atOnce += 1;
    most = Math.max(most, atOnce);
    // A round lasts for several rounds of another loop.
    const from = ticks;
    await vi.waitFor(() => expect(ticks).toBeGreaterThan(from + 2), { interval: 1, timeout: 20_000 });
    atOnce -= 1;
    if (rounds === 2) throw new Error('the second');
    if (rounds === 4) abort.abort();
  };
  await repeat(1, abort.signal, round, (error) => failures.push(error));
  await another;
  expect({ rounds, most, failures: failures.map(String) }).toEqual({
    rounds: 4,
    most: 1,
    failures: ['Error: the second'],
  });
});
