import { setImmediate as turn } from 'node:timers/promises';
import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import type { DeploymentId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { Schedules } from '../../../scheduler/tasks/schedules/loop.ts';
import type { SchedulesParts } from '../../../scheduler/tasks/schedules/loop.ts';
import { ScheduleMetrics } from '../../../scheduler/tasks/schedules/metrics.ts';
import type { Db } from '../../../scheduler/stores/store/db.ts';

const T0 = Date.UTC(2026, 0, 10, 12);
const HOUR_MS = 3_600_000;

/** The loop of a leader over as many hourly schedules, at a moment that the test says. */
function aLoop(count: number, over: Partial<SchedulesParts> = {}) {
  const rows = Array.from({ length: count }, (_, n) => ({
    id: `d${n}`,
    schedule: { when: '0 * * * *', timezone: 'UTC' },
    ticked_to: new Date(T0),
    now: new Date(T0),
  }));
  const state = {
    rows,
    nowMs: T0,
    monotonicMs: 0,
    looked: [] as string[],
    failing: (_id: string): boolean => false,
    reads: 0,
  };
  const query = async <R>() => {
    state.reads += 1;
    return { rows: rows as R[], rowCount: rows.length };
  };
  const loop = new Schedules({
    db: { query } as unknown as Db,
    ticker: {
      check: (id) => {
        state.looked.push(id);
        return state.failing(id)
          ? Promise.reject(new Error('a store is away'))
          : Promise.resolve({ nextMs: state.nowMs + HOUR_MS });
      },
    },
    clock: { nowMs: () => state.nowMs, monotonicMs: () => state.monotonicMs },
    log: pino({ level: 'silent' }),
    metrics: new ScheduleMetrics(new Registry()),
    ...over,
  });
  return { loop, state };
}

/** Number of turns of the event loop that other work had meanwhile. */
async function turnsOf(work: Promise<void>): Promise<number> {
  let turns = 0;
  let isOver = false;
  const ended = work.finally(() => (isOver = true));
  while (!isOver) {
    await turn();
    turns += 1;
  }
  await ended;
  return turns;
}

describe('many schedules', () => {
  test('give others their turn while they are read, and take none where nothing changed', async () => {
    const { loop, state } = aLoop(500);
    expect(await turnsOf(loop.round())).toBeGreaterThanOrEqual(10);
    state.monotonicMs += HOUR_MS;
    expect(await turnsOf(loop.round())).toBeLessThanOrEqual(2);
    expect(state.reads).toBe(2);
  });

  test('are looked at when their time has come, whatever of them was read anew', async () => {
    const { loop, state } = aLoop(3);
    await loop.round();
    const [first, second] = state.rows;
    if (first === undefined || second === undefined) throw new Error('there are three');
    first.ticked_to = new Date(T0 + HOUR_MS);
    second.schedule = { when: '30 * * * *', timezone: 'UTC' };
    state.monotonicMs += HOUR_MS;
    state.nowMs = T0 + HOUR_MS / 2;
    await loop.round();
    expect(state.looked).toEqual(['d1']);
    state.nowMs = T0 + HOUR_MS;
    await loop.round();
    expect(state.looked).toEqual(['d1', 'd2']);
    state.nowMs = T0 + 2 * HOUR_MS;
    await loop.round();
    expect(state.looked.toSorted()).toEqual(['d0', 'd1', 'd1', 'd2', 'd2']);
  });
});

describe('looks that fail', () => {
  test('end the round where a store is away, and others are tried in the next one', async () => {
    const { loop, state } = aLoop(20);
    state.failing = () => true;
    state.nowMs = T0 + HOUR_MS;
    await loop.round();
    expect(state.looked).toHaveLength(8);
    await loop.round();
    await loop.round();
    expect(new Set(state.looked).size).toBe(20);
    expect(state.looked).toHaveLength(24);
  });

  test('hold up no other schedule where they alone fail', async () => {
    const { loop, state } = aLoop(20);
    state.failing = (id) => Number(id.slice(1)) < 9;
    state.nowMs = T0 + HOUR_MS;
    await loop.round();
    await loop.round();
    expect(new Set(state.looked).size).toBe(20);
  });
});

describe('the rest between two looks', () => {
  test('ends at the earliest tick, and lasts a second where that is far away or a look failed', async () => {
    const { loop, state } = aLoop(2);
    await loop.round();
    expect(loop.restMs()).toBe(1_000);
    state.nowMs = T0 + HOUR_MS - 40;
    await loop.round();
    expect(loop.restMs()).toBe(40);
    state.nowMs = T0 + HOUR_MS;
    state.failing = () => true;
    await loop.round();
    expect(loop.restMs()).toBe(1_000);
  });

  test('a change of a schedule, and a change of the leader, have them read again', async () => {
    const { loop, state } = aLoop(1);
    await loop.round();
    await loop.round();
    expect(state.reads).toBe(1);
    const change = (id: string) => loop.changed({ deploymentId: id as DeploymentId, target: undefined });
    change('another');
    await loop.round();
    expect(state.reads).toBe(1);
    change('d0');
    await loop.round();
    loop.leads(true);
    await loop.round();
    expect(state.reads).toBe(3);
  });
});
