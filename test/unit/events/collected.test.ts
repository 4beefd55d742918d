// Events that are collected and written in batches: none waits for the database, and their number is bounded.
import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { CollectedEvents } from '#scheduler/workspaces/events/collected.ts';
import type { CollectedEventsParts } from '#scheduler/workspaces/events/collected.ts';
import type { EventGiven } from '#scheduler/workspaces/events/writer.ts';

const event = (nth: number): EventGiven => ({
  workspaceId: newId() as WorkspaceId,
  type: 'llm.route',
  atMs: nth,
  data: { nth },
});

/** @param before - what each transaction waits for */
function collecting(before: () => Promise<void>, more: Partial<CollectedEventsParts> = {}) {
  const batches: number[][] = [];
  const writer: CollectedEventsParts['writer'] = {
    transaction: async (_db, run) => {
      await before();
      const batch: number[] = [];
      const value = await run({} as never, ({ data }) => batch.push(Number(data['nth'])));
      batches.push(batch);
      return value;
    },
  };
  const events = new CollectedEvents({
    db: {} as never,
    writer,
    log: pino({ level: 'silent' }),
    collectMs: 3_600_000,
    ...more,
  });
  return { events, batches };
}

const numbers = (count: number): number[] => Array.from({ length: count }, (_, at) => at);

describe('collected events', () => {
  test('are written in their order, by batches, also those that come meanwhile', async () => {
    const { events, batches } = collecting(() => Promise.resolve());
    for (const nth of numbers(600)) events.tell(event(nth));
    const stopping = events.stop();
    events.tell(event(600));
    await stopping;
    expect(batches.map((batch) => batch.length)).toEqual([500, 101]);
    expect(batches.flat()).toEqual(numbers(601));
  });

  test('are dropped above their bound while the database does not answer', async () => {
    const answers = Promise.withResolvers<void>();
    const { events, batches } = collecting(() => answers.promise, { mostWaiting: 10 });
    for (const nth of numbers(25)) events.tell(event(nth));
    answers.resolve();
    await events.stop();
    expect(batches.flat()).toEqual(numbers(10));
    events.tell(event(99));
    await events.stop();
    expect(batches.flat().at(-1)).toBe(99);
  });

  test('of a batch that is refused are dropped, and later ones written', async () => {
    let fails = true;
    const { events, batches } = collecting(() => (fails ? Promise.reject(new Error('away')) : Promise.resolve()));
    events.tell(event(1));
    await events.stop();
    fails = false;
    events.tell(event(2));
    await events.stop();
    expect(batches).toEqual([[2]]);
  });
});
