// Statistics of tasks: each end is counted once, with the record, whoever writes it; and the routes that read them.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Value } from 'typebox/value';
import { Overview, TaskStats } from '#shared/api/rest/task-stats.ts';
import { newId } from '#shared/domain/ids.ts';
import type { StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { BINS, BUCKET_MS, unpackBins } from '#scheduler/domain/task-histogram.ts';
import { addTaskStats, taskStats } from '#scheduler/stores/store/queries/task-stats.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import { writeRecords } from '#scheduler/tasks/webhooks/callbacks.ts';
import { aDb, KINDS } from './store-fixture.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Json, Platform, StoreKind } from './verbs-fixture.ts';
import { kitOf } from './verbs-kit.ts';
import { waitFor } from '../helpers/programs.ts';

describe.each(KINDS)('sums of tasks that ended, on %s', (kind) => {
  const workspaceId = newId<WorkspaceId>();
  const stubId = newId<StubId>();
  const nowMs = Date.now();
  const aRecord = (changes: Partial<TaskRecord> = {}): TaskRecord =>
    ({
      taskId: newId<TaskId>(),
      workspaceId,
      stubId,
      deploymentId: null,
      queue: `tq-${stubId}`,
      kind: 'endpoint',
      sync: true,
      status: 'COMPLETE',
      attempt: 1,
      rank: 3,
      containerId: null,
      failureReason: '',
      createdAtMs: nowMs - 30,
      startedAtMs: nowMs - 20,
      endedAtMs: nowMs,
      durationMs: 20,
      deadlineMs: null,
      ...changes,
    }) as TaskRecord;
  const numbers = async (db: Parameters<typeof taskStats>[0]): Promise<unknown> => {
    const toMs = nowMs + 3600_000;
    const bounds = { intervalMs: toMs, bars: 1, mostSums: 100, mostOwners: 10 };
    const [all, own, ...others] = await taskStats(db, { workspaceId, fromMs: 0, toMs, ...bounds });
    const { statuses, counts, calls } = all!;
    expect([own?.statuses, own?.counts, own?.bars, others]).toEqual([statuses, counts, [calls], []]);
    const sum = (bins: readonly number[]): number => bins.reduce((a, b) => a + b, 0);
    const bins = unpackBins(counts, 2 * BINS);
    return { statuses, waits: sum(bins.slice(0, BINS)), runs: sum(bins.slice(BINS)) };
  };

  test('an end counts once, however often its record comes, and a change that is no end does not count', async () => {
    const opened = await aDb(kind);
    try {
      const { db } = opened;
      const batch = [aRecord(), aRecord(), aRecord({ status: 'TIMEOUT', startedAtMs: null, durationMs: null })];
      await writeRecords(db, [aRecord({ status: 'RUNNING', rank: 1, endedAtMs: null, durationMs: null })], []);
      await writeRecords(db, batch, []);
      await writeRecords(db, [...batch, aRecord()], []);
      // An earlier state that comes late changes nothing.
      await writeRecords(db, [aRecord({ taskId: batch[0]!.taskId, status: 'RUNNING', rank: 1, endedAtMs: null })], []);
      expect(await numbers(db)).toEqual({ statuses: { COMPLETE: 3, TIMEOUT: 1 }, waits: 4, runs: 3 });
    } finally {
      await opened.stop();
    }
  });

  test('intervals are added up in the database, and a read has a bound: the newest sums, the largest owners', async () => {
    const opened = await aDb(kind);
    try {
      const { db } = opened;
      const stubIds = [newId<StubId>(), newId<StubId>(), newId<StubId>()] as const;
      // Ten times five minutes; in each the first stub has one task, the second two, the third three.
      const ended = Array.from({ length: 10 }, (_, at) =>
        stubIds.flatMap((id, more) =>
          Array.from({ length: more + 1 }, () => aRecord({ stubId: id, endedAtMs: at * BUCKET_MS, createdAtMs: 0 })),
        ),
      ).flat();
      await db.transaction((tx) => addTaskStats(tx, ended));
      const range = { workspaceId, fromMs: 0, toMs: 10 * BUCKET_MS, intervalMs: 5 * BUCKET_MS };
      const read = async (bars: number, mostSums: number, mostOwners: number) =>
        (await taskStats(db, { ...range, bars, mostSums, mostOwners })).map((row) => [
          row.interval ?? stubIds.indexOf(row.stubId),
          row.sums,
          row.calls,
          ...row.bars,
        ]);
      expect(new Set(await read(0, 100, 1))).toEqual(
        new Set([
          [0, 15, 30],
          [1, 15, 30],
          [2, 10, 30],
          [1, 10, 20],
        ]),
      );
      // Six sums are those of the last two times five minutes.
      expect(await read(2, 6, 9)).toEqual([
        [1, 6, 12, 0, 12],
        [2, 2, 6, 0, 6],
        [1, 2, 4, 0, 4],
        [0, 2, 2, 0, 2],
      ]);
    } finally {
      await opened.stop();
    }
  });

  test('several writers of the same sums lose none, and never deadlock', async () => {
    const opened = await aDb(kind);
    try {
      const { db } = opened;
      const statuses = ['COMPLETE', 'ERROR', 'CANCELLED'] as const;
      const write = async (writer: number): Promise<void> => {
        for (let turn = 0; turn < 10; turn += 1) {
          const batch = Array.from({ length: 30 }, (_, at) => aRecord({ status: statuses[(at + writer) % 3]! }));
          await writeRecords(
            db,
            batch.toSorted((a, b) => (a.taskId < b.taskId ? -1 : 1)),
            [],
          );
        }
      };
      await Promise.all([0, 1, 2].map(write));
      expect(await numbers(db)).toEqual({
        statuses: { COMPLETE: 300, ERROR: 300, CANCELLED: 300 },
        waits: 900,
        runs: 900,
      });
    } finally {
      await opened.stop();
    }
  });
});

describe.each(['servers', 'embedded'] satisfies StoreKind[])('statistics by REST with %s stores', (stores) => {
  let platform: Platform;
  beforeAll(async () => {
    platform = await aPlatform({}, stores);
  });
  afterAll(() => platform.stop());
  const { unique } = kitOf(() => platform);
  const read = async (path: string, token = platform.own.token, workspaceId = platform.own.workspaceId) =>
    platform.call(`GET /api/v1/${path.replace('{ws}', workspaceId)}`, undefined, { token });

  test('tasks that ended are there at once, by deployment, stub, app and interval', async () => {
    const names = [unique('counted'), unique('counted')] as const;
    const first = await platform.deploy(names[0], { stubType: 'taskqueue/deployment', appName: 'one' });
    const second = await platform.deploy(names[1], { stubType: 'taskqueue/deployment', appName: 'two' });
    const put = async (name: string): Promise<string> =>
      String((await platform.call(`POST /taskqueue/${name}`, {})).json['task_id']);
    const ids = [await put(names[0]), await put(names[0]), await put(names[1])];
    await platform.gateway('POST /tasks/stop', { taskIds: ids });
    const stats = async (query: string): Promise<Json> => {
      const { status, json } = await read(`task-stats/{ws}?${query}`);
      expect([query, status]).toEqual([query, 200]);
      expect([...Value.Errors(TaskStats, json)]).toEqual([]);
      return json;
    };
    const calls = async (query: string): Promise<number> => Number(((await stats(query))['total'] as Json)['calls']);
    const all = await waitFor(async () => {
      const json = await stats('');
      return (json['total'] as Json)['calls'] === 3 && json;
    }, 'three are counted');
    expect(all).toMatchObject({
      interval_seconds: 300,
      truncated: false,
      total: { calls: 3, errors: 0, statuses: { CANCELLED: 3 }, run_ms: { p50: null } },
      groups: [
        { deployment_id: first.id, calls: 2 },
        { deployment_id: second.id, calls: 1 },
      ],
    });
    const app = String((await read(`deployment/{ws}/${second.id}`)).json['app_id']);
    expect([
      await calls(`deployment_ids=${first.id}`),
      await calls(`stub_ids=${second.stubId}`),
      await calls(`app_id=${app}`),
      await calls('interval=1h&start=2020-01-01T00:00:00Z&end=2020-01-02T00:00:00Z'),
      await calls('deployment_ids=nobody'),
    ]).toEqual([2, 1, 1, 0, 0]);
    const overview = (await read('overview/{ws}?range=2h')).json;
    expect([...Value.Errors(Overview, overview)]).toEqual([]);
    expect(overview).toMatchObject({ tasks: { calls: 3 }, failures: [], truncated: false });
    expect((overview['series'] as readonly Json[]).map((one) => one['calls'])).toEqual([...Array(11).fill(0), 3]);
    const health = (await read(`deployment-health/{ws}?name=${names[0]}`)).json;
    expect((health['data'] as readonly Json[])[0]).toMatchObject({ id: first.id });
    const { own, other } = platform;
    expect((await read('task-stats/{ws}', other.token, other.workspaceId)).json['total']).toMatchObject({ calls: 0 });
    for (const path of ['task-stats/{ws}', 'overview/{ws}'])
      expect((await read(path, other.token, own.workspaceId)).status).toBe(401);
  });

  test('things are found by a name, the beginning of an id or the end of one, and by nobody else', async () => {
    const name = unique('Findable');
    const { id } = await platform.deploy(name, { stubType: 'taskqueue/deployment' });
    const taskId = String((await platform.call(`POST /taskqueue/${name}`, {})).json['task_id']);
    const found = async (q: string, token = platform.own.token, workspaceId = platform.own.workspaceId) =>
      ((await read(`search/{ws}?q=${encodeURIComponent(q)}`, token, workspaceId)).json['data'] as readonly Json[]).map(
        (one) => one['id'],
      );
    expect(await found(name.toUpperCase())).toContain(id);
    expect(await found(name.slice(2))).toContain(id);
    expect(await found(id.slice(0, 8))).toContain(id);
    expect(await found(id)).toEqual([id]);
    await waitFor(async () => (await found(taskId.slice(0, 10))).includes(taskId), 'the task is found');
    expect(await found(taskId.slice(0, 10).toUpperCase())).toContain(taskId);
    expect(await found("%_'")).toEqual([]);
    for (const q of [name, id, taskId])
      expect(await found(q, platform.other.token, platform.other.workspaceId)).toEqual([]);
    expect((await read(`search/{ws}?q=${'x'.repeat(129)}`)).json['message']).toContain('parameter q ');
  });

  test('a range or an interval that cannot be is refused by its name', async () => {
    for (const [path, name] of [
      ['task-stats/{ws}?start=2020-01-02T00:00:00Z&end=2020-01-01T00:00:00Z', 'end'],
      ['task-stats/{ws}?start=2020-01-01T00:00:00Z', 'start'],
      ['task-stats/{ws}?interval=1m', 'interval'],
      ['task-stats/{ws}?interval=7m', 'interval'],
      ['task-stats/{ws}?start=2020-01-01T00:00:00Z&end=2020-01-31T00:00:00Z', 'interval'],
      ['overview/{ws}?range=1s', 'range'],
      ['overview/{ws}?range=9999h', 'range'],
    ] as const) {
      const { status, json } = await read(path);
      expect([path, status, json['message']]).toEqual([path, 400, expect.stringContaining(`parameter ${name} `)]);
    }
  });
});
