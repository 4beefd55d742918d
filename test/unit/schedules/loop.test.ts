import { setImmediate as turn } from 'node:timers/promises';
import { pino } from 'pino';
import { describe, expect, test, vi } from 'vitest';
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
    did: [] as string[],
    reads: 0,
    held: Promise.resolve(),
  };
  const query = async <R>() => {
    state.reads += 1;
    await state.held;
    return { rows: rows as R[], rowCount: rows.length };
  };
  const did = (what: string) => () => {
    state.did.push(what);
    return Promise.resolve();
  };
  const loop = new Schedules({
    db: { query } as unknown as Db,
    targets: { onChange: () => () => false },
    leader: { isLeader: () => true, onChange: () => () => false },
    alarms: { listen: () => void state.did.push('listen'), setAll: did('setAll'), close: did('close') },
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
    await expect(loop.check('d0' as DeploymentId)).resolves.toBeUndefined();
  });
});

test('what a round under way opens is closed when it stops', async () => {
  let release = (): void => undefined;
  const { loop, state } = aLoop(1, { lookEveryMs: 1 });
  state.held = new Promise<void>((resolve) => (release = resolve));
  loop.start();
  await vi.waitFor(() => expect(state.reads).toBe(1), { interval: 1 });
  const stopped = loop.stop();
  release();
  await stopped;
  expect(state.did).toContain('listen');
  expect(state.did.at(-1)).toBe('close');
});
