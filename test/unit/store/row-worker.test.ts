import { expect, onTestFinished, test } from 'vitest';
import { RowWorker } from '#scheduler/stores/store/row-worker.ts';
import type { RowWorkerOptions } from '#scheduler/stores/store/row-worker.ts';
import { waitFor } from '../../helpers/programs.ts';

/** A worker over so many rows, each worked on until the test says so. */
function aWorker(rows: number, over: Partial<RowWorkerOptions<number>> = {}) {
  const state = { left: rows, claims: [] as number[], ends: new Map<number, () => void>(), full: 0, failed: 0 };
  const worker = new RowWorker<number>({
    places: 3,
    lookMs: 60_000,
    claim: (most) => {
      state.claims.push(most);
      const taken = Array.from({ length: Math.min(most, state.left) }, () => (state.left -= 1));
      return Promise.resolve(taken);
    },
    work: (row) => new Promise((resolve) => state.ends.set(row, resolve)),
    onFull: () => (state.full += 1),
    onFailed: () => (state.failed += 1),
    ...over,
  });
  const end = (row: number): void => {
    state.ends.get(row)?.();
    state.ends.delete(row);
  };
  onTestFinished(async () => {
    const stopped = worker.stop();
    for (const row of state.ends.keys()) end(row);
    await stopped;
  });
  return { worker, state, end };
}

test('it takes as many rows as it has places, and the next one when a place is free', async () => {
  const { worker, state, end } = aWorker(5);
  worker.start();
  await waitFor(() => state.ends.size === 3, 'three are under way');
  expect([state.claims, state.full]).toEqual([[3], 1]);
  end(4);
  await waitFor(() => state.ends.size === 3, 'a fourth is under way');
  expect(state.claims).toEqual([3, 1]);
  worker.wake();
  end(3);
  await waitFor(() => state.left === 0, 'the last one is claimed');
  expect(Math.max(...state.claims.slice(1))).toBe(1);
});

test('it looks when it is woken, at once or later, and goes on after a claim that failed', async () => {
  let fails = true;
  const { worker, state } = aWorker(0, {
    claim: (most) => {
      state.claims.push(most);
      return fails ? Promise.reject(new Error('away')) : Promise.resolve([]);
    },
  });
  worker.start();
  await waitFor(() => state.failed === 1, 'the claim failed');
  fails = false;
  worker.wake();
  await waitFor(() => state.claims.length === 2, 'it looks again');
  worker.wake(5);
  await waitFor(() => state.claims.length === 3, 'it looks later');
  expect(state.failed).toBe(1);
});

test('its stop waits for the work under way, and claims nothing more', async () => {
  const { worker, state, end } = aWorker(4);
  worker.start();
  await waitFor(() => state.ends.size === 3, 'three are under way');
  let isStopped = false;
  const stopped = worker.stop().then(() => (isStopped = true));
  end(3);
  end(2);
  await new Promise((resolve) => setImmediate(resolve));
  expect(isStopped).toBe(false);
  end(1);
  await stopped;
  expect(state.left).toBe(1);
});
