import { describe, expect, test, vi } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Hub } from '#scheduler/workspaces/events/hub.ts';
import type { HubParts, HubSource, Reader, Taken } from '#scheduler/workspaces/events/hub.ts';

interface Row {
  readonly seq: number;
  readonly kind: string;
}
type Filter = string | undefined;

/** Rows in memory, as a table has them; counts what is asked of it. */
class Table implements HubSource<Row, Filter> {
  readonly rows: Row[] = [];
  readonly asked = { tails: 0, next: 0, after: 0, frames: 0 };
  failures = 0;
  /** Pages wait for it. */
  gate: Promise<void> = Promise.resolve();

  add(count: number, kind = 'a'): void {
    for (let n = 0; n < count; n += 1) this.rows.push({ seq: (this.rows.at(-1)?.seq ?? 0) + 1, kind });
  }
  startOf(_workspaceId: WorkspaceId, tail: number, most: number): number {
    return Math.max(0, tail - most);
  }

  tails(ids: readonly WorkspaceId[]): Promise<ReadonlyMap<WorkspaceId, number>> {
    this.asked.tails += 1;
    return Promise.resolve(new Map(ids.map((id) => [id, this.rows.at(-1)?.seq ?? 0])));
  }
  next(_id: WorkspaceId, afterSeq: number, limit: number): Promise<readonly Row[]> {
    this.asked.next += 1;
    return Promise.resolve(this.rows.filter(({ seq }) => seq > afterSeq).slice(0, limit));
  }
  async after(_id: WorkspaceId, filter: Filter, afterSeq: number, untilSeq: number, limit: number) {
    this.asked.after += 1;
    await this.gate;
    if (this.failures > 0) {
      this.failures -= 1;
      throw new Error('away');
    }
    const rows = this.rows
      .filter((row) => row.seq > afterSeq && row.seq <= untilSeq && this.passes(row, filter))
      .slice(0, limit);
    return { rows, nextSeq: rows.length === limit ? (rows.at(-1)?.seq ?? 0) + 1 : untilSeq + 1 };
  }
  passes(row: Row, filter: Filter): boolean {
    return filter === undefined || row.kind === filter;
  }
  frameOf(row: Row): Buffer {
    this.asked.frames += 1;
    return Buffer.from(String(row.seq));
  }
  sizeOf(): number {
    return 100;
  }
}

class Caller implements Reader<Row> {
  readonly got: number[] = [];
  tails = 0;
  error: unknown;
  /** Rows that it takes before it is full. */
  room = Infinity;
  /** Rows after which it is over. */
  limit = Infinity;
  take(row: Row, frame: () => Buffer): Taken {
    expect(String(frame())).toBe(String(row.seq));
    this.got.push(row.seq);
    this.room -= 1;
    if (this.got.length >= this.limit) return 'over';
    return this.room > 0 ? 'more' : 'full';
  }
  atTail(): void {
    this.tails += 1;
  }
  failed(error: unknown): void {
    this.error = error;
  }
}

const W = newId<WorkspaceId>();
const range = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, at) => from + at);
function aHub(over: Partial<HubParts<Row, Filter>> = {}) {
  const table = new Table();
  const log = createLog({ name: 'test', level: 'silent' });
  const hub = new Hub<Row, Filter>({ source: table, log, ringRows: 100, retryMs: 1, ...over });
  const read = async (from?: number, filter?: Filter, caller = new Caller()) => {
    const subscription = await hub.subscribe(W, filter, from, caller);
    subscription.start();
    return { caller, subscription };
  };
  return { table, hub, read };
}

describe('live readers', () => {
  test('get what comes from now on, read once and written out once for all of them', async () => {
    const { table, hub, read } = aHub();
    table.add(10);
    const readers = await Promise.all(range(1, 50).map(() => read()));
    await vi.waitFor(() => expect(table.asked.next).toBeGreaterThanOrEqual(2));
    const before = table.asked.next;
    table.add(5);
    hub.wake(W, 15);
    await vi.waitFor(() => expect(readers.map(({ caller }) => caller.got)).toEqual(readers.map(() => range(11, 15))));
    expect(table.asked.next).toBe(before + 1);
    expect(table.asked).toMatchObject({ after: 0, frames: 5 });
  });

  test('the known tail is read once for all who ask, and not again while there are readers', async () => {
    const { table, hub, read } = aHub();
    table.add(3);
    const asked = await Promise.all(range(1, 50).map(() => hub.knownTail(W)));
    expect([new Set(asked), table.asked.tails]).toEqual([new Set([3]), 1]);
    const { subscription } = await read(4);
    const { tails } = table.asked;
    expect([await hub.knownTail(W), table.asked.tails]).toEqual([3, tails]);
    subscription.end();
  });

  test('who come back get what they missed from memory where it is there, and in order', async () => {
    const { table, hub, read } = aHub();
    table.add(90);
    const { caller } = await read(51);
    table.add(3);
    hub.wake(W, 93);
    await vi.waitFor(() => expect(caller.got).toEqual(range(51, 93)));
    expect(table.asked.after).toBe(0);
  });

  test('who are further behind read pages of their own, filtered, and then live on', async () => {
    const { table, hub, read } = aHub();
    table.add(900);
    table.add(1, 'b');
    table.add(600);
    const all = await read(1);
    const some = await read(1, 'b');
    await vi.waitFor(() => expect(all.caller.got).toEqual(range(1, 1501)));
    await vi.waitFor(() => expect(some.caller.got).toEqual([901]));
    table.add(2, 'b');
    hub.wake(W);
    await vi.waitFor(() => expect(all.caller.got).toEqual(range(1, 1503)));
    expect(some.caller.got).toEqual([901, 1502, 1503]);
  });

  test('who take no more keep their place, delay nobody, and go on from there', async () => {
    const { table, hub, read } = aHub();
    const slow = new Caller();
    slow.room = 3;
    const stuck = await read(1, undefined, slow);
    const other = await read(1);
    table.add(1000);
    hub.wake(W);
    await vi.waitFor(() => expect(other.caller.got).toEqual(range(1, 1000)));
    expect(slow.got).toEqual([1, 2, 3]);
    slow.room = 10;
    stuck.subscription.resume();
    await vi.waitFor(() => expect(slow.got).toEqual(range(1, 13)));
    // The rest of its page is not kept for it.
    table.add(1);
    hub.wake(W);
    slow.room = Infinity;
    stuck.subscription.resume();
    await vi.waitFor(() => expect(slow.got).toEqual(range(1, 1001)));
  });

  test('hear when they have everything, and end when they have enough', async () => {
    const { table, hub, read } = aHub();
    table.add(5);
    const few = new Caller();
    few.limit = 2;
    await read(1, undefined, few);
    const all = await read(1);
    await vi.waitFor(() => expect(all.caller.tails).toBeGreaterThan(0));
    expect([few.got, all.caller.got]).toEqual([[1, 2], range(1, 5)]);
    expect(hub.size).toBe(1);
    all.subscription.end();
    expect(hub.size).toBe(0);
    table.add(1);
    hub.wake(W);
    expect(all.caller.got).toEqual(range(1, 5));
  });

  test('find rows that no message told of', async () => {
    const { table, hub, read } = aHub({ sweepMs: 10 });
    const { caller } = await read();
    await vi.waitFor(() => expect(table.asked.next).toBe(1));
    table.add(2);
    expect(caller.got).toEqual([]);
    hub.start();
    await vi.waitFor(() => expect(caller.got).toEqual([1, 2]));
    hub.stop();
  });

  test('read on after a failure, and are told when their pages stay away', async () => {
    const { table, read } = aHub();
    table.add(700);
    table.failures = 3;
    const { caller } = await read(1);
    await vi.waitFor(() => expect(caller.got).toEqual(range(1, 700)));
    table.failures = Infinity;
    const lost = await read(1);
    await vi.waitFor(() => expect(lost.caller.error).toEqual(new Error('away')));
  });

  test('read at most four pages of a workspace at once', async () => {
    const { table, read } = aHub();
    table.add(700);
    let open = (): void => undefined;
    table.gate = new Promise((resolve) => (open = resolve));
    const readers = await Promise.all(range(1, 20).map(() => read(1)));
    await vi.waitFor(() => expect(table.asked.after).toBe(4));
    open();
    for (const { caller } of readers) await vi.waitFor(() => expect(caller.got).toEqual(range(1, 700)));
  });
});
