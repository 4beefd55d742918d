// Events and their numbers, on both kinds of stores.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { MAX_EVENT_BATCH } from '#scheduler/stores/store/queries/events.ts';
import { EventWriter, newEventId } from '#scheduler/workspaces/events/writer.ts';
import type { EventGiven } from '#scheduler/workspaces/events/writer.ts';
import { aDb, aStub, aWorkspace, KINDS, storedEvents } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const anEvent = (workspaceId: WorkspaceId, data: Record<string, unknown> = {}): EventGiven => ({
  workspaceId,
  type: 'deployment.started',
  atMs: Date.now(),
  data,
});

describe.each(KINDS)('events on %s', (kind) => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb(kind);
  });
  afterAll(() => opened.stop());

  const eventsOf = (workspaceId: WorkspaceId) => storedEvents(opened.db, workspaceId);

  test('are there with their change or not at all, and are told after the commit', async () => {
    const { db } = opened;
    const { id } = await aWorkspace(db);
    const writer = new EventWriter();
    const told: [WorkspaceId, number][] = [];
    writer.onWritten((workspaceId, seq) => told.push([workspaceId, seq]));
    const failed = writer.transaction(db, async (tx, emit) => {
      await tx.query('update workspaces set name = $2 where id = $1', [id, 'changed']);
      emit(anEvent(id));
      throw new Error('no');
    });
    await expect(failed).rejects.toThrow('no');
    expect([await eventsOf(id), told]).toEqual([[], []]);
    await writer.transaction(db, async (tx, emit) => {
      emit(anEvent(id, { n: 1 }));
      emit(anEvent(id, { n: 2 }));
      await tx.query('update workspaces set name = $2 where id = $1', [id, 'changed']);
    });
    expect((await eventsOf(id)).map(({ seq, data }) => [seq, data])).toEqual([
      [1, { n: 1 }],
      [2, { n: 2 }],
    ]);
    expect(told).toEqual([[id, 2]]);
  });

  test('go in as many statements as necessary, in order for each workspace', async () => {
    const { db } = opened;
    const [first, second] = [await aWorkspace(db), await aWorkspace(db)];
    const writer = new EventWriter();
    const told: [WorkspaceId, number][] = [];
    writer.onWritten((workspaceId, seq) => told.push([workspaceId, seq]));
    await writer.transaction(db, (_tx, emit) => {
      for (let n = 0; n < MAX_EVENT_BATCH; n += 1) for (const { id } of [first, second]) emit(anEvent(id, { n }));
      emit(anEvent(first.id, { n: MAX_EVENT_BATCH }));
      return Promise.resolve();
    });
    for (const [{ id }, count] of [[first, MAX_EVENT_BATCH + 1] as const, [second, MAX_EVENT_BATCH] as const]) {
      const found = (await eventsOf(id)).map(({ seq, data }) => [seq, data['n']]);
      expect(found).toEqual(Array.from({ length: count }, (_, n) => [n + 1, n]));
    }
    expect(new Map(told)).toEqual(
      new Map([
        [first.id, MAX_EVENT_BATCH + 1],
        [second.id, MAX_EVENT_BATCH],
      ]),
    );
    expect(told).toHaveLength(2);
  });

  test('have numbers in the order of commits: a reader never finds a smaller one later', async () => {
    const { db } = opened;
    const [first, second] = [await aWorkspace(db), await aWorkspace(db)];
    const writer = new EventWriter();
    let isOver = false;
    const reads = (async () => {
      const seen: number[] = [];
      while (!isOver) {
        const rows = (await eventsOf(first.id)).map(({ seq }) => seq);
        // Everything that was there before is there, and whatever is new comes behind it.
        expect(rows.slice(0, seen.length)).toEqual(seen);
        seen.splice(0, seen.length, ...rows);
      }
    })();
    await Promise.all(
      Array.from({ length: 40 }, (_, at) => {
        const both = [anEvent(first.id), anEvent(second.id), anEvent(first.id)];
        return writer.transaction(db, async (tx, emit) => {
          await tx.query('select 1');
          for (const event of at % 2 === 0 ? both : both.toReversed()) emit(event);
        });
      }),
    );
    isOver = true;
    await reads;
    expect((await eventsOf(first.id)).map(({ seq }) => seq)).toEqual(Array.from({ length: 80 }, (_, at) => at + 1));
    expect(await eventsOf(second.id)).toHaveLength(40);
  });

  test('of a task are written once; app and type come from the stub; odd text is kept', async () => {
    const { db } = opened;
    const { id } = await aWorkspace(db);
    const stub = await aStub(db, id);
    const writer = new EventWriter();
    const event = {
      ...anEvent(id, { text: 'a\0b\ud800c' }),
      id: newEventId(1_700_000_000_000),
      taskId: newId<TaskId>(),
      stubId: stub.id,
    };
    for (let turn = 0; turn < 2; turn += 1) await writer.append(db, [event]);
    const [written, ...others] = await eventsOf(id);
    expect(others).toEqual([]);
    expect(written).toMatchObject({
      id: event.id,
      appId: stub.appId,
      stubType: stub.type,
      data: { text: 'a\ufffdb\ufffdc' },
    });
    expect(event.id).toMatch(/^6553f100[0-9a-f]{16}$/);
  });
});
