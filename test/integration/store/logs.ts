// Lines of logs, on the database of `store.test.ts`.
import { beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { AppId, DeploymentId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Db } from '../../../scheduler/stores/store/db.ts';
import { LogReader } from '../../../scheduler/fleet/logs/log-reads.ts';
import type { LogFilter } from '../../../scheduler/fleet/logs/log-service.ts';
import type { Queryable } from '../../../scheduler/stores/store/db.ts';
import { insertLogLines } from '../../../scheduler/stores/store/queries/logs.ts';
import { aContainerId, aStub, aWorkspace } from '../store-fixture.ts';
import type { KINDS } from '../store-fixture.ts';

/** @param of - the database, which is open when the tests run */
export function logTests(of: () => Db, kind: (typeof KINDS)[number]): void {
  describe('log lines', () => {
    let db: Db;
    beforeAll(() => {
      db = of();
    });

    test('log lines are read by container, task, stub, deployment, app or machine, the last ones first cut, in order', async () => {
      const workspaceId = newId<WorkspaceId>();
      const containerId = aContainerId();
      const taskId = newId<TaskId>();
      const stubId = newId<StubId>();
      const deploymentId = newId<DeploymentId>();
      const lines = Array.from({ length: 10 }, (_value, index) => ({
        workspaceId,
        stubId,
        deploymentId,
        containerId,
        taskId: index < 5 ? taskId : null,
        stream: index % 2 === 0 ? ('stdout' as const) : ('stderr' as const),
        line: `Line ${index}\0`,
        atMs: 1_800_000_000_000 + index,
      }));
      await insertLogLines(db, lines);
      const reader = new LogReader(db);
      const linesOf = async ({ owner = workspaceId, ...filter }: Partial<LogFilter> & { owner?: WorkspaceId }) =>
        (await reader.read(owner, { limit: 100, page: 0, ...filter })).lines;
      const read = async (filter: Partial<LogFilter> & { owner?: WorkspaceId }): Promise<string[]> =>
        (await linesOf(filter)).map((row) => row.line.slice(0, 6));
      expect(await read({ containerId, limit: 3 })).toEqual(['Line 7', 'Line 8', 'Line 9']);
      expect(await read({ containerId, limit: 3, page: 1 })).toEqual(['Line 4', 'Line 5', 'Line 6']);
      expect(await read({ taskId })).toEqual(['Line 0', 'Line 1', 'Line 2', 'Line 3', 'Line 4']);
      expect(await read({ stubId, deploymentId, query: 'LINE 3' })).toEqual(['Line 3']);
      expect(await read({ containerId, owner: newId<WorkspaceId>() })).toEqual([]);
      const [first] = await linesOf({ containerId, limit: 10 });
      expect(first).toMatchObject({ stream: 'stdout', atMs: 1_800_000_000_000, taskId });
      expect(await read({ containerId, afterSeq: first?.seq ?? 0, limit: 2 })).toEqual(['Line 1', 'Line 2']);
      // Filters by the stub's app and the container's machine.
      expect([await read({ appId: newId<AppId>() }), await read({ machineId: 'm-1' })]).toEqual([[], []]);
      const owner = await aWorkspace(db);
      const stub = await aStub(db, owner.id);
      const onMachine = aContainerId();
      await db.query(
        `insert into containers (id, workspace_id, stub_id, state, machine_id, spec, slots) values ($1, $2, $3, 'STOPPED', 'm-1', '{}', 1)`,
        [onMachine, owner.id, stub.id],
      );
      const theirs = { ...lines[0], workspaceId: owner.id, stubId: stub.id, deploymentId: null, taskId: null };
      await insertLogLines(db, [
        { ...theirs, containerId: onMachine, stream: 'stdout', line: 'On it.', atMs: 1_900_000_000_000 },
        { ...theirs, containerId: aContainerId(), stream: 'stdout', line: 'Other.', atMs: 1_900_000_000_001 },
      ]);
      const ofOwner = { owner: owner.id };
      expect(await read({ ...ofOwner, appId: stub.appId })).toEqual(['On it.', 'Other.']);
      expect(await read({ ...ofOwner, machineId: 'm-1' })).toEqual(['On it.']);
      expect(await read({ appId: stub.appId })).toEqual([]);
    });

    test('a search looks at 50 000 lines in statements of few, and goes on from there', async () => {
      const [mine, others] = [newId<WorkspaceId>(), newId<WorkspaceId>()];
      const many = (workspaceId: WorkspaceId, count: number, word: string): Promise<unknown> =>
        db.query(
          `insert into log_lines (workspace_id, stub_id, container_id, stream, line, at)
           select $1, 's', 'c', 'stdout', $2 || n, now() from generate_series(1, $3::int) n`,
          [workspaceId, word, count],
        );
      await many(mine, 3, 'Needle ');
      await many(others, 1_000, 'Needle ');
      await many(mine, 50_500, 'hay ');
      const statements: string[] = [];
      const of = (workspaceId: string): Queryable => ({
        query: (sql, params) => {
          statements.push(sql);
          return db.reads.of(workspaceId).query(sql, params);
        },
      });
      const reader = new LogReader({ kind: db.kind, reads: { ...db.reads, of } });
      const ask = (filter: Partial<LogFilter>) => reader.read(mine, { limit: 2, page: 0, query: 'NEEDLE', ...filter });
      const first = await ask({});
      expect(first.lines).toEqual([]);
      expect(statements.length).toBeLessThan(70);
      const second = await ask({ beforeSeq: first.nextSeq ?? 0 });
      expect(second.lines.map(({ line }) => line)).toEqual(['Needle 2', 'Needle 3']);
      const third = await ask({ beforeSeq: second.nextSeq ?? 0 });
      expect([third.lines.map(({ line }) => line), third.nextSeq]).toEqual([['Needle 1'], undefined]);
      // Readers that follow the log page forward.
      const from = await ask({ afterSeq: 0, limit: 3 });
      expect(from.lines).toHaveLength(3);
      const rest = await ask({ afterSeq: from.nextSeq ?? 0 });
      expect(rest.lines).toEqual([]);
      expect((await ask({ afterSeq: rest.nextSeq ?? 0 })).nextSeq).toBeUndefined();
      // The answer gives no hint of another workspace's lines, however many there are.
      const stranger = await reader.read(newId<WorkspaceId>(), { limit: 2, page: 0, containerId: 'c' });
      expect(stranger).toEqual({ lines: [], isFull: false, nextSeq: undefined });
      // A window in the past that lies before everything ends at once.
      statements.length = 0;
      expect((await ask({ fromMs: Date.now() + 2 * 60 * 60_000 })).nextSeq).toBeUndefined();
      expect(statements).toHaveLength(2);
    });

    if (kind === 'pglite') {
      test('a hundred statements of the platform pass a tenant’s read, and then it has its turn', async () => {
        const order: string[] = [];
        const begun = Promise.withResolvers<void>();
        const gate = Promise.withResolvers<void>();
        const holding = db.transaction(async () => {
          begun.resolve();
          await gate.promise;
        });
        await begun.promise;
        const read = db.reads
          .of('w')
          .query('select 1')
          .then(() => order.push('read'));
        const platform = Array.from({ length: 150 }, () => db.query('select 1').then(() => order.push('platform')));
        gate.resolve();
        await Promise.all([holding, read, ...platform]);
        expect(order.indexOf('read')).toBe(100);
      });
    } else {
      test('a tenant’s read waits for no transaction of the platform', async () => {
        const gate = Promise.withResolvers<void>();
        const holding = db.transaction(() => gate.promise);
        expect((await db.reads.of('w').query('select 1 as one')).rows).toEqual([{ one: 1 }]);
        gate.resolve();
        await holding;
      });
    }

    test('one search of a workspace runs at a time; four wait, and the sixth is told so', async () => {
      const workspaceId = newId<WorkspaceId>();
      const gate = Promise.withResolvers<void>();
      let [running, most] = [0, 0];
      const of = (): Queryable => ({
        query: async () => {
          running += 1;
          most = Math.max(most, running);
          await gate.promise;
          running -= 1;
          return { rows: [], rowCount: 0 };
        },
      });
      const reader = new LogReader({ kind: db.kind, reads: { ...db.reads, of } });
      const search = () => reader.read(workspaceId, { limit: 1, page: 0, query: 'x' });
      const five = Array.from({ length: 5 }, search);
      await expect(search()).rejects.toMatchObject({ code: 'rate_limited' });
      gate.resolve();
      await Promise.all(five);
      expect(most).toBe(1);
    });
  });
}
