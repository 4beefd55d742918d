import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { QueryResult } from '../../../scheduler/stores/store/queryable.ts';
import { TenantReadQueue } from '../../../scheduler/stores/store/tenant-reads.ts';

interface Running {
  readonly sql: string;
  readonly end: () => void;
}

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => void vi.useRealTimers());

function aReadQueue(atOnce: number): { reads: TenantReadQueue; running: Running[]; begun: string[] } {
  const running: Running[] = [];
  const begun: string[] = [];
  const reads = new TenantReadQueue(atOnce, (sql) => {
    begun.push(sql);
    return new Promise<QueryResult<unknown>>((resolve) => {
      running.push({ sql, end: () => resolve({ rows: [], rowCount: 0 }) });
    });
  });
  return { reads, running, begun };
}

test('a workspace that asks for much gets every other turn when another one asks, not all of them', async () => {
  const { reads, running, begun } = aReadQueue(1);
  const all = ['a1', 'a2', 'a3', 'a4', 'b1', 'b2'].map((sql) => reads.of(sql.slice(0, 1)).query(sql));
  for (let at = 0; at < all.length; at += 1) {
    await turn();
    running.shift()?.end();
  }
  await Promise.all(all);
  expect(begun).toEqual(['a1', 'a2', 'b1', 'a3', 'b2', 'a4']);
});

test('a workspace has half of the connections, also when nobody else asks', async () => {
  const { reads, running, begun } = aReadQueue(4);
  const all = ['a1', 'a2', 'a3', 'b1'].map((sql) => reads.of(sql.slice(0, 1)).query(sql));
  await turn();
  expect(begun).toEqual(['a1', 'a2', 'b1']);
  running[2]?.end();
  await turn();
  expect(begun).toEqual(['a1', 'a2', 'b1']);
  running[0]?.end();
  await turn();
  expect(begun).toEqual(['a1', 'a2', 'b1', 'a3']);
  for (const one of running) one.end();
  await Promise.all(all);
});

test('the 33rd read that waits of one workspace is refused, another’s is not; a wait ends after 5 s', async () => {
  const { reads, running } = aReadQueue(1);
  const outcomes: string[] = [];
  reads.onRead = (outcome) => void outcomes.push(outcome);
  const first = reads.of('a').query('a');
  const waiting = Array.from({ length: 32 }, () => reads.of('a').query('a'));
  const ended = Promise.allSettled(waiting);
  await expect(reads.of('a').query('a')).rejects.toMatchObject({ code: 'database_busy' });
  const other = reads.of('b').query('b');
  expect(reads.waiting).toBe(33);
  const late = expect(other).rejects.toMatchObject({ code: 'database_timeout' });
  await vi.advanceTimersByTimeAsync(5_000);
  await late;
  expect((await ended).every(({ status }) => status === 'rejected')).toBe(true);
  expect(reads.waiting).toBe(0);
  running[0]?.end();
  await first;
  expect([outcomes.filter((one) => one === 'refused').length, outcomes.at(-1)]).toEqual([34, 'ok']);
});
