// Messages to addresses that people named, with a real database and real receivers. Tests cover retries, final
// failures, and the recovery of a dead process's deliveries.
/* oxlint-disable no-empty-pattern */
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { expect } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { DeliveryId, ObjectId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { claimDeliveries, deliveriesOfSubject, insertDeliveries } from '#scheduler/stores/store/queries/deliveries.ts';
import type { DeliveryRow, NewDelivery } from '#scheduler/stores/store/queries/deliveries.ts';
import { upsertTaskRecords } from '#scheduler/stores/store/queries/tasks.ts';
import { taskCallbacks, writeRecords } from '#scheduler/tasks/webhooks/callbacks.ts';
import { AddressRules } from '#shared/address-rules.ts';
import { Lookups } from '#scheduler/tasks/webhooks/lookups.ts';
import { Deliveries } from '#scheduler/tasks/webhooks/deliveries.ts';
import type { Prepared } from '#scheduler/tasks/webhooks/deliveries.ts';
import { DeliveryMetrics } from '#scheduler/tasks/webhooks/metrics.ts';
import { Poster } from '#scheduler/tasks/webhooks/post.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import { Receiver } from '../helpers/receiver.ts';
import { test as base, waitFor } from '../helpers/services.ts';
import { aDb, aRecord } from './store-fixture.ts';

const quiet = createLog({ name: 'test', level: 'silent' });
const WORKSPACE = newId<WorkspaceId>();
const DEADLINES = { answerMs: 300, wholeMs: 2_000 };

interface World {
  readonly db: Db;
  readonly receiver: Receiver;
  /** A scheduler process, as far as deliveries go; `allow`: the addresses that the operator allows. */
  process(options?: {
    readonly allow?: string;
    readonly prepare?: (row: DeliveryRow) => Promise<Prepared>;
    readonly lookups?: Lookups;
  }): Process;
  /** A committed delivery. */
  row(url: string, workspaceId?: WorkspaceId): Promise<NewDelivery>;
  /** The delivery's row, once the delivery is over. */
  over(delivery: NewDelivery): Promise<DeliveryRow>;
}
interface Process {
  readonly deliveries: Deliveries;
  /** Looks for due deliveries from now on. */
  start(): this;
  stop(): Promise<void>;
}

const MESSAGE: Prepared = {
  kind: 'message',
  message: { headers: { 'Content-Type': 'application/json', 'X-Test': '1' }, body: Buffer.from('{"data":1}') },
};

const test = base
  .extend('world', { scope: 'file' }, async ({}, { onCleanup }): Promise<World> => {
    const opened = await aDb('pglite');
    const receiver = await new Receiver().start();
    const processes: Process[] = [];
    onCleanup(async () => {
      for (const one of processes) await one.stop();
      await receiver.stop();
      await opened.stop();
    });
    const { db } = opened;
    return {
      db,
      receiver,
      process: ({ allow = '127.0.0.0/8', prepare = () => Promise.resolve(MESSAGE), lookups } = {}) => {
        const rules = AddressRules.read(allow);
        if (!(rules instanceof AddressRules)) throw new Error(rules.wrong);
        const deliveries = new Deliveries({
          db,
          poster: new Poster(rules, DEADLINES, lookups),
          kinds: { task_callback: { policy: { attempts: 3, baseMs: 20, lifeMs: 3600_000 }, prepare } },
          metrics: new DeliveryMetrics(new Registry()),
          clock: systemClock,
          log: quiet,
        });
        let stopped: Promise<void> | undefined;
        const one: Process = {
          deliveries,
          start: () => {
            deliveries.start();
            return one;
          },
          stop: () => (stopped ??= deliveries.stop()),
        };
        processes.push(one);
        return one;
      },
      row: async (url, workspaceId = WORKSPACE) => {
        const delivery: NewDelivery = {
          id: newId<DeliveryId>(),
          workspaceId,
          kind: 'task_callback',
          subject: newId(),
          event: 'COMPLETE',
          url,
        };
        await insertDeliveries(db, [delivery]);
        return delivery;
      },
      over: (delivery) =>
        waitFor(async () => {
          const [row] = await deliveriesOfSubject(db, delivery.workspaceId, delivery.subject, 1);
          return row?.dueAtMs === null ? row : undefined;
        }, 'the delivery is over'),
    };
  })
  .extend('running', async ({ world }, { onCleanup }): Promise<Deliveries> => {
    const one = world.process().start();
    onCleanup(() => one.stop());
    return one.deliveries;
  });

test('a message is sent once, as it was made, and its row says so', async ({ world, running }) => {
  const { receiver } = world;
  const delivery = await world.row(receiver.url('/once'));
  running.wake();
  running.wake();
  expect(await world.over(delivery)).toMatchObject({ state: 'delivered', attempts: 1, httpStatus: 200 });
  running.wake();
  const last = await world.row(receiver.url('/last'));
  running.wake();
  await world.over(last);
  const [request, ...more] = receiver.at('/once');
  expect(more).toEqual([]);
  expect(request?.body).toBe('{"data":1}');
  expect(request?.rawHeaders).toContain('X-Test');
});

test('a receiver that fails is asked again, three times in all, and no more', async ({ world, running }) => {
  const { receiver } = world;
  receiver.replies.set('/recovers', [500, 429, 204]);
  receiver.replies.set('/broken', [503]);
  const rows = await Promise.all(['/recovers', '/broken'].map((path) => world.row(receiver.url(path))));
  running.wake();
  const [recovers, broken] = await Promise.all(rows.map((row) => world.over(row)));
  expect(recovers).toMatchObject({ state: 'delivered', attempts: 3, httpStatus: 204 });
  expect(broken).toMatchObject({ state: 'failed', attempts: 3, outcome: 'server_error', httpStatus: 503 });
  expect(receiver.at('/broken')).toHaveLength(3);
});

test('a redirect is not followed, a refusal is final', async ({ world, running }) => {
  const { receiver } = world;
  receiver.replies.set('/moved', [{ status: 307, location: receiver.url('/elsewhere') }]);
  receiver.replies.set('/gone', [410]);
  const rows = await Promise.all(['/moved', '/gone'].map((path) => world.row(receiver.url(path))));
  running.wake();
  const [moved, gone] = await Promise.all(rows.map((row) => world.over(row)));
  expect(moved).toMatchObject({ state: 'failed', attempts: 1, outcome: 'redirected', httpStatus: 307 });
  expect(gone).toMatchObject({ state: 'failed', attempts: 1, outcome: 'refused' });
  expect(receiver.at('/elsewhere')).toEqual([]);
});

test('a receiver that never answers is not asked again, one whose answer never ends has answered', async ({
  world,
  running,
}) => {
  const { receiver } = world;
  receiver.replies.set('/silent', ['never']);
  receiver.replies.set('/endless', ['endless']);
  const rows = await Promise.all(['/silent', '/endless'].map((path) => world.row(receiver.url(path))));
  running.wake();
  const [silent, endless] = await Promise.all(rows.map((row) => world.over(row)));
  expect(silent).toMatchObject({ state: 'failed', attempts: 1, outcome: 'timed_out', httpStatus: null });
  expect(endless).toMatchObject({ state: 'delivered', attempts: 1 });
  expect(receiver.at('/silent')).toHaveLength(1);
});

test('nothing listens there: tried again, then given up', async ({ world, running }) => {
  const closed = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => closed.once('listening', resolve));
  const { port } = closed.address() as AddressInfo;
  await new Promise((resolve) => closed.close(resolve));
  const row = await world.row(`http://127.0.0.1:${port}/`);
  running.wake();
  expect(await world.over(row)).toMatchObject({ state: 'failed', attempts: 3, outcome: 'connection_failed' });
});

test('an address that is not permitted is not even dialled, under whatever name', async ({ world }) => {
  let dialled = 0;
  const sockets: Socket[] = [];
  const trap = createServer((socket) => {
    dialled += 1;
    sockets.push(socket);
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => trap.once('listening', resolve));
  const { port } = trap.address() as AddressInfo;
  const one = world.process({ allow: '10.0.0.0/8' }).start();
  const rows = await Promise.all(
    ['127.0.0.1', 'localhost', '[::ffff:127.0.0.1]', '[::1]', '2130706433'].map((host) =>
      world.row(`http://${host}:${port}/`),
    ),
  );
  // TLS begins with a connection, too.
  rows.push(await world.row(`https://localhost:${port}/`));
  one.deliveries.wake();
  for (const row of rows) expect(await world.over(row), row.url).toMatchObject({ state: 'failed', outcome: 'blocked' });
  expect(dialled).toBe(0);
  await one.stop();
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => trap.close(resolve));
});

test('what a process that was killed had begun is tried again when its claim lapses', async ({ world }) => {
  const { db, receiver } = world;
  const begun = await world.row(receiver.url('/begun'));
  const [claimed] = await claimDeliveries(db, 1, 1, new Map(), { leastMs: 1_000, firstMs: 1, mostMs: 1_000 });
  expect(claimed).toMatchObject({ id: begun.id, claim: 1 });
  const one = world.process();
  await one.deliveries.look();
  expect(receiver.at('/begun')).toHaveLength(0);
  await db.query('update deliveries set due_at = now() where id = $1', [begun.id]);
  await one.deliveries.look();
  expect(await world.over(begun)).toMatchObject({ state: 'delivered', attempts: 1, claim: 2 });
  await one.stop();
});

test('what nobody announced is found by a look, and two processes that look at once send it once', async ({
  world,
}) => {
  const { receiver } = world;
  const rows = await Promise.all(Array.from({ length: 6 }, () => world.row(receiver.url('/unheard'))));
  const [one, two] = [world.process().start(), world.process().start()];
  for (const row of rows) expect(await world.over(row)).toMatchObject({ state: 'delivered', attempts: 1, claim: 1 });
  expect(receiver.at('/unheard')).toHaveLength(6);
  await Promise.all([one.stop(), two.stop()]);
});

test('a process that stops gives back what it was sending, and no try is counted', async ({ world }) => {
  const { receiver } = world;
  receiver.replies.set('/held', ['never', 200]);
  const delivery = await world.row(receiver.url('/held'));
  const first = world.process().start();
  first.deliveries.wake();
  await receiver.until('/held');
  await first.stop();
  const second = world.process().start();
  expect(await world.over(delivery)).toMatchObject({ state: 'delivered', attempts: 1 });
  expect(receiver.at('/held')).toHaveLength(2);
  await second.stop();
});

test('one workspace with slow receivers does not hold up the others, and its next one comes when there is room', async ({
  world,
  onTestFinished,
}) => {
  const { receiver, db } = world;
  const held: (() => void)[] = [];
  const [busy, other] = [newId<WorkspaceId>(), newId<WorkspaceId>()];
  let holds = true;
  const letGo = (): void => {
    holds = false;
    for (const go of held) go();
  };
  onTestFinished(letGo);
  const many = await Promise.all(Array.from({ length: 40 }, () => world.row(receiver.url('/slow'), busy)));
  const one = world
    .process({
      prepare: async (row) => {
        if (holds && row.workspaceId === busy) await new Promise<void>((resolve) => held.push(resolve));
        return MESSAGE;
      },
    })
    .start();
  await waitFor(() => held.length === 8, 'eight of them are under way');
  const quick = await world.row(receiver.url('/quick'), other);
  one.deliveries.wake();
  expect(await world.over(quick)).toMatchObject({ state: 'delivered' });
  expect(held).toHaveLength(8);
  // Each delivery that leaves brings the next.
  letGo();
  for (const row of many) expect(await world.over(row)).toMatchObject({ state: 'delivered', attempts: 1 });
  expect(receiver.at('/slow')).toHaveLength(40);
  await db.query('delete from deliveries');
  await one.stop();
});

test('a message for whose name there was no place is not tried, and a slow look-up takes nothing from its receiver', async ({
  world,
}) => {
  const { receiver, db } = world;
  const asked: (() => void)[] = [];
  const lookups = new Lookups(
    (host) =>
      new Promise((resolve) => {
        asked.push(() => resolve([{ address: host === 'nowhere.test' ? '10.0.0.1' : '127.0.0.1', family: 4 }]));
      }),
    // `answerMs` is longer than a receiver may take for everything.
    { waitMs: 20, answerMs: 60_000 },
  );
  const one = world.process({ lookups });
  const at = (name: string): string => receiver.url(`/${name}`).replace('127.0.0.1', name);
  const slow = await world.row(at('slow.test'));
  const trying = one.deliveries.look();
  await waitFor(() => asked.length === 1, 'its name is asked for');
  const next = await world.row(at('next.test'));
  const another = one.deliveries.look();
  // A claim lasts for minutes, a pause for seconds.
  const isPut = (row: DeliveryRow | undefined): boolean => row?.claim === 1 && (row.dueAtMs ?? 0) < Date.now() + 60_000;
  const waiting = await waitFor(async () => {
    const [row] = await deliveriesOfSubject(db, WORKSPACE, next.subject, 1);
    return isPut(row) ? row : undefined;
  }, 'it is put off');
  expect(waiting).toMatchObject({ state: 'waiting', attempts: 0 });
  expect(waiting.dueAtMs).toBeGreaterThan(Date.now());
  expect(asked).toHaveLength(1);
  asked[0]?.();
  await Promise.all([trying, another]);
  expect(await world.over(slow)).toMatchObject({ state: 'delivered', attempts: 1 });
  expect(receiver.at('/slow.test')[0]?.headers.host).toMatch(/^slow\.test:/);
  const judged = await world.row(at('nowhere.test'));
  const judging = one.deliveries.look();
  await waitFor(() => asked.length === 2, 'the other name is asked for');
  asked[1]?.();
  await judging;
  expect(await world.over(judged)).toMatchObject({ state: 'failed', outcome: 'blocked' });
  await db.query('delete from deliveries where due_at is not null');
  await one.stop();
});

test('a message that cannot be made rests longer each time, until its life is over', async ({ world }) => {
  const { db, receiver } = world;
  const one = world.process({ prepare: () => Promise.reject(new Error('the store is away')) });
  const row = await world.row(receiver.url('/never-made'));
  const { id, workspaceId } = row;
  const isDue = () => db.query('update deliveries set due_at = now() where id = $1', [id]);
  const pauses: number[] = [];
  for (let claim = 0; claim < 40; claim += 1) {
    await isDue();
    await one.deliveries.look();
    const [after] = await deliveriesOfSubject(db, workspaceId, row.subject, 1);
    expect(after).toMatchObject({ state: 'waiting', attempts: 0, claim: claim + 1 });
    pauses.push(Math.round(((after?.dueAtMs ?? 0) - (after?.updatedAtMs ?? 0)) / 1000));
  }
  expect(pauses.slice(0, 9)).toEqual([30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
  await db.query("update deliveries set created_at = now() - interval '2 hours' where id = $1", [id]);
  await isDue();
  await one.deliveries.look();
  expect(await world.over(row)).toMatchObject({ state: 'failed', outcome: 'too_old', attempts: 0 });
});

test('of the places for large results one workspace takes one at a time', async ({ world }) => {
  const { db } = world;
  const [busy, other] = [newId<WorkspaceId>(), newId<WorkspaceId>()];
  const rowOf = async (workspaceId: WorkspaceId): Promise<DeliveryRow> => {
    const end = { status: 'COMPLETE', rank: 4, callbackUrl: 'https://example.com/' } as const;
    const record = aRecord({ workspaceId, resultObjectId: newId<ObjectId>(), ...end });
    await writeRecords(db, [record as TaskRecord], []);
    const [row] = await deliveriesOfSubject(db, workspaceId, record.taskId, 1);
    if (row === undefined) throw new Error('there is none');
    return row;
  };
  const loaded: ObjectId[] = [];
  const kind = taskCallbacks({
    db,
    clock: systemClock,
    signingKeyOf: () => Promise.resolve('sk_test'),
    loadResult: (id) => Promise.resolve((loaded.push(id), '"large"')),
  });
  const first = await kind.prepare(await rowOf(busy));
  const second = kind.prepare(await rowOf(busy));
  const others = await kind.prepare(await rowOf(other));
  expect(loaded).toHaveLength(2);
  for (const prepared of [first, others]) if (prepared.kind === 'message') prepared.done?.();
  expect(await second).toMatchObject({ kind: 'message' });
  await db.query('delete from deliveries');
});

const deliveriesOf =
  (db: Db) =>
  async (records: readonly TaskRecord[]): Promise<readonly NewDelivery[]> =>
    (await writeRecords(db, records, [])).deliveries;

test('the end of a task and its callback are written together, once, however often they are told', async ({
  world,
}) => {
  const { db } = world;
  const written = deliveriesOf(db);
  const record = (status: 'RUNNING' | 'ERROR' | 'COMPLETE', rank: 1 | 3 | 4, more: object = {}): TaskRecord =>
    ({ ...pending, status, rank, attempt: 1, ...more }) as TaskRecord;
  const pending = aRecord({ callbackUrl: 'https://example.com/' });
  expect(await written([record('RUNNING', 1)])).toEqual([]);
  const ended = record('ERROR', 3, { failureReason: 'handler_error' });
  const [first, ...none] = await written([ended, aRecord() as TaskRecord]);
  expect(none).toEqual([]);
  expect(first).toMatchObject({ subject: pending.taskId, event: 'ERROR', url: 'https://example.com/' });
  // A record drained again after a crash, and one of an older attempt, give no delivery.
  expect(await written([ended])).toEqual([]);
  expect(await written([{ ...ended, attempt: 0 }])).toEqual([]);
  // A late COMPLETE is news.
  const [late] = await written([record('COMPLETE', 4)]);
  expect(late).toMatchObject({ event: 'COMPLETE' });
  const rows = await deliveriesOfSubject(db, pending.workspaceId, pending.taskId, 10);
  expect(rows.map(({ event }) => event).toSorted()).toEqual(['COMPLETE', 'ERROR']);
  // Another workspace gets nothing for the same task.
  expect(await deliveriesOfSubject(db, newId<WorkspaceId>(), pending.taskId, 10)).toEqual([]);
  const without = aRecord({ status: 'COMPLETE', rank: 4 });
  await upsertTaskRecords(db, [without]);
  expect(await deliveriesOfSubject(db, without.workspaceId, without.taskId, 10)).toEqual([]);
});

test('an address that the database cannot hold keeps no end from being written', async ({ world }) => {
  const { db } = world;
  const written = deliveriesOf(db);
  const ended = ['https://example.com/a\0b', 'https://example.com/\ud83d'].map(
    (callbackUrl) => aRecord({ callbackUrl, status: 'COMPLETE', rank: 4 }) as TaskRecord,
  );
  expect(await written(ended)).toHaveLength(2);
  for (const { workspaceId, taskId } of ended) {
    const [row] = await deliveriesOfSubject(db, workspaceId, taskId, 1);
    expect(row?.url).toMatch(/^https:\/\/example\.com\/a?\ufffdb?$/);
  }
  await db.query('delete from deliveries');
});
