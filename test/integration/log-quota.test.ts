// Log lines as agents send them, and their daily quota: counted by the database over replicas
// and restarts, and reported once where lines are dropped.
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newContainerId } from '#shared/domain/ids.ts';
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { LogBatch__Output, LogRecord__Output } from '#shared/protocol/generated/messages.ts';
import { ContainerRegistry } from '#scheduler/fleet/containers/container-registry.ts';
import { LogQuota } from '#scheduler/fleet/logs/log-quota.ts';
import { LogSink } from '#scheduler/fleet/logs/log-sink.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { readLogLines } from '#scheduler/stores/store/queries/logs.ts';
import { getOrCreatePool } from '#scheduler/stores/store/queries/pools.ts';
import { workspaceUse } from '#scheduler/stores/store/queries/quotas.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { KINDS, aDb, aStub, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

type Json = Readonly<Record<string, unknown>>;

const MACHINE = 'm-1' as MachineId;
/** Text of a line of 1,000 bytes, including the cost of a line beside its text. */
const LINE = 'x'.repeat(936);

const aRecord = (containerId: ContainerId, line: string): LogRecord__Output => ({
  containerId,
  taskId: '',
  stream: 'stdout',
  line,
  timestampMs: Date.now(),
  afterMs: [],
});
const aBatch = (records: LogRecord__Output[], seq = 1, sender = ''): LogBatch__Output => ({ seq, records, sender });

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let clock: TestClock;
  beforeAll(async () => {
    opened = await aDb(kind);
    clock = new TestClock();
  });
  afterAll(() => opened.stop());

  function aReplica(limit: number, over: { readonly db?: Db; readonly isTold?: boolean } = {}) {
    const { db } = { db: opened.db, ...over };
    let dropped = 0;
    const quota = new LogQuota({ limitOf: () => limit, clock, onDropped: () => void (dropped += 1) });
    let statements = 0;
    const counting = {
      query: <R>(sql: string, params?: readonly unknown[]) => ((statements += 1), db.query<R>(sql, params)),
    };
    const sink = new LogSink({
      db: counting,
      containers: new ContainerRegistry({ db, log: silent, clock }),
      quota,
      ...(over.isTold === true ? { told: { db, events: new EventWriter() } } : {}),
    });
    const write = (containerId: ContainerId, lines: number, text = LINE) =>
      sink.append(MACHINE, aBatch(Array.from({ length: lines }, () => aRecord(containerId, text))));
    /** Writes a record of joined lines. */
    const writeJoined = (containerId: ContainerId, line: string, afterMs: number[]) =>
      sink.append(
        MACHINE,
        aBatch([{ ...aRecord(containerId, line), stream: 'stderr', timestampMs: 1_000_000, afterMs }]),
      );
    return { sink, write, writeJoined, dropped: () => dropped, statements: () => statements };
  }
  async function aContainer(
    machineId = MACHINE,
  ): Promise<{ readonly id: ContainerId; readonly workspaceId: WorkspaceId }> {
    const workspace = await aWorkspace(opened.db);
    const stub = await aStub(opened.db, workspace.id);
    const id = newContainerId('endpoint', stub.id);
    await opened.db.query(
      `insert into containers (id, workspace_id, stub_id, state, machine_id, spec, slots) values ($1, $2, $3, 'STOPPED', $4, '{}', 1)`,
      [id, workspace.id, stub.id, machineId],
    );
    return { id, workspaceId: workspace.id };
  }
  const linesOf = (workspaceId: WorkspaceId) =>
    readLogLines(opened.db, { workspaceId }, { afterId: 0 }, undefined, 100);

  /** A machine that has joined. */
  async function aMachine(): Promise<MachineId> {
    const id = randomUUID().slice(0, 8) as MachineId;
    const pool = await getOrCreatePool(opened.db, { name: 'default', workspaceId: null });
    await opened.db.query('insert into machines (id, pool_id) values ($1, $2::bigint)', [id, pool.id]);
    return id;
  }

  test('a batch is written once, however often it comes and whichever replica gets it', async () => {
    const machineId = await aMachine();
    const { id, workspaceId } = await aContainer(machineId);
    const [one, other] = [aReplica(2_000), aReplica(2_000)];
    const [first, next] = [randomUUID(), randomUUID()];
    const send = (to: typeof one, sender: string, seq: number, line: string) =>
      to.sink.append(machineId, aBatch([aRecord(id, line)], seq, sender));
    await send(one, first, 1, 'a');
    await send(one, first, 2, 'b');
    await Promise.all([send(one, first, 3, 'c'), send(other, first, 3, 'c'), send(other, first, 3, 'c')]);
    await send(other, first, 2, 'b');
    // Batches without a number, and those of the next process of the agent.
    await send(other, '', 1, 'd');
    await send(other, next, 1, 'e');
    await send(one, next, 1, 'e');
    await send(one, next, 2, 'f');
    expect((await linesOf(workspaceId)).map(({ line }) => line)).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
    // Repeated lines take no room of the quota: 6 lines of 65 bytes are written, and 24 more have room.
    for (let seq = 3; seq < 3 + 40; seq += 1) await send(one, next, 2, 'f');
    for (let seq = 3; seq < 3 + 24; seq += 1) await send(one, next, seq, 'g');
    expect(await linesOf(workspaceId)).toHaveLength(30);
    expect(one.dropped()).toBe(0);
  });

  test('lines above the quota are dropped and counted, one line of the container says so, and no statement is made for them', async () => {
    const [flooding, calm] = [await aContainer(), await aContainer()];
    const one = aReplica(10_000);
    await one.write(flooding.id, 15);
    const kept = await linesOf(flooding.workspaceId);
    expect(kept.map(({ line }) => line.slice(0, 40))).toEqual([
      ...Array.from({ length: 10 }, () => LINE.slice(0, 40)),
      'longshore: this workspace has written it',
    ]);
    expect(kept.at(-1)).toMatchObject({
      stream: 'stderr',
      line: expect.stringMatching(/10000 bytes.*bytes\.logs_per_day.*workspace limits/),
    });
    expect(one.dropped()).toBe(5);
    const before = one.statements();
    await one.write(flooding.id, 1_000);
    expect(one.statements()).toBe(before);
    expect(await linesOf(flooding.workspaceId)).toHaveLength(11);
    await one.write(calm.id, 3);
    expect(await linesOf(calm.workspaceId)).toHaveLength(3);
    // The next day.
    clock.aheadMs += 86_400_000;
    await one.write(flooding.id, 2);
    expect(await linesOf(flooding.workspaceId)).toHaveLength(13);
  });

  test('lines that are dropped are an event of their container, once a day, and only where the notice is written', async () => {
    const [flooding, calm] = [await aContainer(), await aContainer()];
    const one = aReplica(10_000, { isTold: true });
    await one.write(calm.id, 3);
    await one.write(flooding.id, 15);
    await one.write(flooding.id, 15);
    const { rows } = await opened.db.query<Json>(
      'select type, container_id, stub_id, machine_id, data from events where workspace_id = any ($1)',
      [[flooding.workspaceId, calm.workspaceId]],
    );
    expect(rows).toEqual([
      {
        type: 'container.event',
        container_id: flooding.id,
        stub_id: expect.any(String) as string,
        machine_id: MACHINE,
        data: expect.objectContaining({
          id: 'logs.dropped',
          domain: 'logs',
          reason: 'quota',
          message: expect.stringContaining('bytes.logs_per_day') as string,
          attrs: { limit: 'bytes.logs_per_day' },
        }) as object,
      },
    ]);
    expect((await linesOf(flooding.workspaceId)).at(-1)?.line).toContain('bytes.logs_per_day');
  });

  test('replicas and restarts share one count, exact but for the batch that reaches the bound', async () => {
    const { id, workspaceId } = await aContainer();
    const [here, there] = [aReplica(20_000), aReplica(20_000)];
    for (const lines of [8, 2]) {
      await here.write(id, lines);
      await there.write(id, lines);
    }
    expect((await workspaceUse(opened.db, workspaceId, clock.nowMs())).logBytesToday).toBe(20_000);
    // This replica last heard of 18,000 bytes.
    await here.write(id, 50);
    await there.write(id, 50);
    const restarted = aReplica(20_000);
    await restarted.write(id, 1);
    await restarted.write(id, 50);
    const lines = (await linesOf(workspaceId)).filter(({ line }) => line === LINE);
    expect(lines).toHaveLength(23);
  });

  test('lines that the database did not take are not counted, and come again', async () => {
    const { id, workspaceId } = await aContainer();
    let fails = true;
    const db = {
      ...opened.db,
      query: <R>(sql: string, params?: readonly unknown[]) =>
        fails && sql.includes('log_lines') ? Promise.reject(new Error('away')) : opened.db.query<R>(sql, params),
    } as Db;
    const one = aReplica(10_000, { db });
    for (let tries = 0; tries < 5; tries += 1) await expect(one.write(id, 8)).rejects.toThrow('away');
    fails = false;
    await one.write(id, 8);
    expect(one.dropped()).toBe(0);
    expect(await linesOf(workspaceId)).toHaveLength(8);
  });

  test('a record of several lines is stored as these lines, in one row', async () => {
    const { id, workspaceId } = await aContainer();
    const one = aReplica(10_000);
    await one.writeJoined(id, 'a\n\nc', [0, 5, 7]);
    expect(await linesOf(workspaceId)).toMatchObject([
      { line: 'a', atMs: 1_000_000, stream: 'stderr', containerId: id },
      { line: '', atMs: 1_000_005 },
      { line: 'c', atMs: 1_000_007 },
    ]);
    const { rows } = await opened.db.query('select line_count from log_lines where container_id = $1', [id]);
    expect(rows).toEqual([{ line_count: 3 }]);
    expect((await workspaceUse(opened.db, workspaceId, clock.nowMs())).logBytesToday).toBe(3 * 64 + 2);
  });

  test('a record whose text and times do not belong together is one line', async () => {
    const { id, workspaceId } = await aContainer();
    const one = aReplica(10_000);
    await one.writeJoined(id, 'a\nb', [0, 5, 7]);
    await one.writeJoined(id, 'c\nd', [0, 1e9]);
    await one.writeJoined(id, 'e', []);
    const kept = await linesOf(workspaceId);
    expect(kept.map(({ line, atMs }) => [line, atMs])).toEqual(['a\nb', 'c\nd', 'e'].map((line) => [line, 1_000_000]));
  });

  test('of joined lines the quota admits as many as there is room for', async () => {
    const { id, workspaceId } = await aContainer();
    const one = aReplica(1_000);
    const text = 'y'.repeat(36);
    const twenty = Array.from({ length: 20 }, () => text);
    await one.writeJoined(id, twenty.slice(0, 4).join('\n'), [0, 1, 2, 3]);
    await one.writeJoined(id, twenty.join('\n'), [...twenty.keys()]);
    const kept = await linesOf(workspaceId);
    expect(kept.slice(0, 10).map(({ line, atMs }) => [line, atMs])).toEqual(
      [0, 1, 2, 3, 0, 1, 2, 3, 4, 5].map((ms) => [text, 1_000_000 + ms]),
    );
    expect(kept).toHaveLength(11);
    expect(kept.at(-1)?.line).toContain('bytes.logs_per_day');
    expect(one.dropped()).toBe(14);
  });
});
