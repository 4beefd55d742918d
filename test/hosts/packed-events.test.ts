// Rows that hold several events, of a task or of tasks that ended together, read beside the same events in a row each.
// Two databases get the same histories, drawn at random. Every reader must answer alike, whatever its limits, edges and
// filters are.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type {
  AppId,
  ContainerId,
  DeliveryId,
  DeploymentId,
  StubId,
  TaskId,
  WebhookId,
  WorkspaceId,
} from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { eventSource } from '#scheduler/compose/exports.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { getOrCreateApp } from '#scheduler/stores/store/queries/apps.ts';
import { insertDeployment } from '#scheduler/stores/store/queries/deployments.ts';
import { eventEdge, readEvents } from '#scheduler/stores/store/queries/event-reads.ts';
import type { EventMatch, EventStart } from '#scheduler/stores/store/queries/event-reads.ts';
import { appendEvents, eventsOf, toldEvents } from '#scheduler/stores/store/queries/events.ts';
import type { EventRow, NewEvent } from '#scheduler/stores/store/queries/events.ts';
import { deleteEventsBefore } from '#scheduler/stores/store/queries/retention.ts';
import { insertStub } from '#scheduler/stores/store/queries/stubs.ts';
import {
  backlogEdge,
  dueDeliveries,
  eventBySeq,
  eventsBehind,
  writeDeliveries,
} from '#scheduler/stores/store/queries/webhook-deliveries.ts';
import { packsOf, taskEvents } from '#scheduler/tasks/records/task-events.ts';
import type { RecordedChange } from '#scheduler/tasks/records/task-events.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import { EventReads } from '#scheduler/workspaces/events/reads.ts';
import type { EventFilter } from '#scheduler/workspaces/events/reads.ts';
import { eventHub } from '#scheduler/workspaces/events/source.ts';
import { aDb, aRecord, aWorkspace, KINDS, storedEvents } from '../integration/store-fixture.ts';
import type { OpenedDb } from '../integration/store-fixture.ts';

const BEGIN_MS = Date.UTC(2040, 0, 1);
const MINUTE = 60_000;
const HISTORIES = { pglite: 1, postgres: 2 } as const;
const READS = 12;

interface Story {
  readonly workspaceId: WorkspaceId;
  readonly stubs: readonly StubId[];
  readonly app: AppId;
  readonly tasks: readonly TaskId[];
  readonly batches: readonly (readonly (RecordedChange | NewEvent)[])[];
}

/** Draws numbers from a seed. */
function drawer(seed: number) {
  const numbers = fc.sample(fc.nat(2 ** 30), { numRuns: 20_000, seed });
  let at = 0;
  const below = (most: number): number => (numbers[(at += 1) % numbers.length] ?? 0) % most;
  return {
    below,
    one: <T>(values: readonly T[]): T => values[below(values.length)] as T,
    /** The value, or now and then nothing. */
    maybe: <Fields extends object>(fields: Fields): Partial<Fields> => (below(3) === 0 ? fields : {}),
  };
}
type Draw = ReturnType<typeof drawer>;

/** Id of a container of the workspace; no other has it. */
const aContainer = (draw: Draw, workspaceId: WorkspaceId) => `${workspaceId}-${draw.below(3)}` as ContainerId;

/** Records of a task, as replicas write them: those that came first may be lost. */
function recordsOf(draw: Draw, base: TaskRecord): readonly TaskRecord[] {
  const { createdAtMs } = base;
  const all: TaskRecord[] = [base];
  let attempt = 0;
  for (const more = draw.below(3); attempt <= more;) {
    attempt += 1;
    const containerId = aContainer(draw, base.workspaceId);
    const startedAtMs = createdAtMs + draw.below(4 * MINUTE) - 50;
    const running = { ...base, status: 'RUNNING', attempt, rank: 1, containerId, startedAtMs } as const;
    all.push(running);
    if (attempt <= more) all.push({ ...running, status: 'RETRY', rank: 2, failureReason: 'no \u0000 luck' });
    else if (draw.below(4) > 0) {
      const status = draw.one(['COMPLETE', 'ERROR', 'CANCELLED', 'TIMEOUT'] as const);
      const ended = { ...running, status, rank: 3, endedAtMs: startedAtMs + draw.below(MINUTE) } as const;
      all.push({ ...ended, failureReason: status === 'COMPLETE' ? '' : 'handler_error' });
      if (status !== 'COMPLETE' && draw.below(3) === 0) all.push({ ...ended, status: 'COMPLETE', rank: 4 });
    }
  }
  if (draw.below(6) === 0) return [{ ...base, status: 'EXPIRED', rank: 3, endedAtMs: createdAtMs + 5 }];
  const kept = all.slice(draw.below(all.length));
  return kept.filter((_, at) => at === kept.length - 1 || draw.below(3) > 0);
}

const LATE = { status: 'COMPLETE', rank: 4, failureReason: '' } as const;

/** Tasks that one container ended at once. */
function aBurst(draw: Draw, like: TaskRecord): readonly TaskRecord[] {
  const containerId = draw.below(4) === 0 ? null : aContainer(draw, like.workspaceId);
  return Array.from({ length: 2 + draw.below(6) }, () => {
    const startedAtMs = containerId === null ? null : like.createdAtMs + draw.below(MINUTE);
    return {
      ...like,
      taskId: newId<TaskId>(),
      status: 'ERROR',
      attempt: containerId === null ? 0 : 1,
      rank: 3,
      containerId,
      startedAtMs,
      endedAtMs: (startedAtMs ?? like.createdAtMs) + draw.below(MINUTE),
      failureReason: 'handler_error',
    };
  });
}

const OTHERS = ['stub.deploy', 'audit.token.created', 'container.lifecycle'] as const;
const KINDS_NAMED = [['task.created'], ['task.updated'], ['task.updated', 'task.created', 'stub.deploy']] as const;
const KINDS_ASKED = [
  ...KINDS_NAMED,
  ['task.*'],
  ['task'],
  ['task', 'task.updated'],
  ['stub.*', 'task.created'],
  ['*'],
  ['audit.*'],
  ['task.updated', 'container.lifecycle'],
] as const;

function storyOf(draw: Draw, place: Omit<Story, 'tasks' | 'batches'>, deploymentId: DeploymentId): Story {
  const { workspaceId, stubs } = place;
  const tasks = Array.from({ length: 25 }, () => newId<TaskId>());
  const left = tasks.map((taskId, at) => {
    const base = aRecord({
      workspaceId,
      taskId,
      stubId: draw.one(stubs),
      deploymentId: draw.one([deploymentId, null, newId<DeploymentId>()]),
      createdAtMs: BEGIN_MS + at * MINUTE + draw.below(MINUTE),
      ...draw.maybe({ calledBy: newId<WorkspaceId>() }),
    });
    return [...recordsOf(draw, base as TaskRecord)];
  });
  const entries: (RecordedChange | NewEvent)[] = [];
  for (;;) {
    const open = left.filter((records) => records.length > 0);
    if (open.length === 0) break;
    const own = draw.one(open.slice(0, 4));
    const record = own[0] as TaskRecord;
    // A record may come twice.
    if (draw.below(6) > 0) own.shift();
    entries.push({ record, atMs: record.createdAtMs + draw.below(MINUTE) });
    if (draw.below(8) === 0) {
      const burst = aBurst(draw, record);
      entries.push(...burst.map((ended) => ({ record: ended, atMs: ended.createdAtMs + draw.below(MINUTE) })));
      tasks.push(...burst.slice(0, 2).map(({ taskId }) => taskId));
      left.push(...burst.filter(() => draw.below(4) === 0).map((ended) => [{ ...ended, ...LATE }]));
    }
    if (draw.below(3) > 0) continue;
    const atMs = BEGIN_MS + draw.below(30) * MINUTE;
    const id = newId().replaceAll('-', '').slice(0, 24);
    entries.push({
      workspaceId,
      id,
      type: draw.one(OTHERS),
      atMs,
      stubId: draw.one(stubs),
      data: { action: draw.one(['a', 'b']) },
      ...draw.maybe({ taskId: draw.one(tasks), containerId: aContainer(draw, workspaceId) }),
    });
  }
  const batches: (RecordedChange | NewEvent)[][] = [];
  while (entries.length > 0) batches.push(entries.splice(0, 1 + draw.below(12)));
  return { ...place, tasks, batches };
}

const isRecord = (entry: RecordedChange | NewEvent): entry is RecordedChange => 'record' in entry;

/** Writes a story, packed as the writer of records does, or with a row for each event. */
async function tell(db: Db, { workspaceId, batches }: Story, isPacked: boolean): Promise<void> {
  for (const [at, batch] of batches.entries()) {
    const streamed = batch.filter(isRecord);
    const ids = [...new Set(streamed.map(({ record }) => record.taskId))];
    const { rows } = await db.query<{ id: TaskId; told_in: string }>(
      'select id, told_in from tasks where id = any ($1::text[])',
      [ids],
    );
    const toldIn = new Map(rows.map((row) => [row.id, row.told_in]));
    const before = await toldEvents(db, new Map(ids.map((id) => [id, { toldIn: toldIn.get(id) }])));
    const packs = new Map([...packsOf(streamed)].filter(([id]) => !before.has(id)));
    if (isPacked) await nameRows(db, workspaceId, packs);
    const told = taskEvents(streamed, before, packs);
    const others = batch.filter((entry): entry is NewEvent => !isRecord(entry));
    await appendEvents(db, [...(isPacked ? told : told.flatMap(apart)), ...others]);
    const storedAt = new Date(BEGIN_MS + at * MINUTE);
    await db.query('update events set stored_at = $2 where workspace_id = $1 and stored_at < $3', [
      workspaceId,
      storedAt,
      new Date(BEGIN_MS - MINUTE),
    ]);
  }
}

/** Rows of tasks that name the rows of events that tell them. */
async function nameRows(db: Db, workspaceId: WorkspaceId, packs: ReadonlyMap<TaskId, string>): Promise<void> {
  await db.query(
    `insert into tasks (id, workspace_id, stub_id, queue, kind, sync, status, attempt, rank, created_at, told_in)
     select id, $1, '', '', '', true, 'ERROR', 1, 3, now(), told_in from unnest($2::text[], $3::text[]) as r (id, told_in)`,
    [workspaceId, [...packs.keys()], [...packs.values()]],
  );
}

/** The same events in a row each. */
function apart(row: NewEvent): readonly NewEvent[] {
  const { workspaceId, id, type, atMs, more = 0, data } = row;
  const [at, seq] = [new Date(atMs), more + 1];
  const ids = { app_id: null, stub_id: row.stubId ?? null, stub_type: null, deployment_id: row.deploymentId ?? null };
  const subject = { ...ids, task_id: row.taskId ?? null, container_id: row.containerId ?? null, machine_id: null };
  const raw = { workspace_id: workspaceId, seq, more, id, type, at, stored_at: at, ...subject, data };
  return eventsOf(raw).map((event) => ({ ...event, isOfTask: true }));
}

/** Events without what tells the two ways of writing apart. */
const shown = (events: readonly EventRow[]): readonly EventRow[] =>
  events.map((event) => {
    const { dataBytes: _bytes, ...same } = event as EventRow & { dataBytes?: number };
    // The text tells the order of the fields, too.
    return { ...same, data: { text: JSON.stringify(same.data) } };
  });

function filterOf(draw: Draw, { workspaceId, stubs, app, tasks }: Story): EventFilter {
  const fromMs = BEGIN_MS + draw.below(25 * MINUTE);
  return {
    ...draw.maybe({ types: draw.one(KINDS_ASKED) }),
    ...draw.maybe({ stubId: draw.one(stubs) }),
    ...draw.maybe({ appId: app }),
    ...draw.maybe({ containerId: aContainer(draw, workspaceId) }),
    ...(draw.below(5) === 0 ? { taskId: draw.one(tasks) } : {}),
    ...draw.maybe({ withoutActions: ['a'] }),
    ...draw.maybe({ fromMs }),
    ...draw.maybe({ toMs: fromMs + draw.below(10 * MINUTE) + 1 }),
  };
}

describe.each(KINDS)('events that share a row on %s', (kind) => {
  let packed: OpenedDb;
  let single: OpenedDb;
  beforeAll(async () => {
    [packed, single] = [await aDb(kind), await aDb(kind)];
  });
  afterAll(async () => {
    await packed.stop();
    await single.stop();
  });

  /** The same place in both databases. */
  async function aPlace() {
    const { id: workspaceId } = await aWorkspace(packed.db);
    const stubs = [newId<StubId>(), newId<StubId>()];
    const [app, deploymentId] = [newId<AppId>(), newId<DeploymentId>()];
    for (const { db } of [packed, single]) {
      await db.query(
        `insert into workspaces (id, name, signing_key, is_admin) values ($1, 'w', $2, false) on conflict do nothing`,
        [workspaceId, Buffer.from([1])],
      );
      await getOrCreateApp(db, workspaceId, 'app', app);
      const stub = { workspaceId, appId: app, name: 's', type: 'endpoint/deployment', objectId: null } as const;
      const config = { config: { handler: 'app:handler' }, public: false };
      // A stub that is not known any more has neither app nor type.
      await insertStub(db, { ...stub, ...config, id: stubs[0] as StubId, configHash: 'c' });
      const deployed = { stubId: stubs[0] as StubId, name: 'a "name"', stubType: stub.type, subdomain: deploymentId };
      await insertDeployment(db, { id: deploymentId, workspaceId, appId: app, ...deployed });
    }
    return { place: { workspaceId, stubs, app }, deploymentId };
  }

  async function aStory(seed: number): Promise<{ readonly draw: Draw; readonly story: Story; readonly last: number }> {
    const draw = drawer(seed);
    const { place, deploymentId } = await aPlace();
    const story = storyOf(draw, place, deploymentId);
    await tell(packed.db, story, true);
    await tell(single.db, story, false);
    const { workspaceId } = place;
    const last = (await new EventReads(single.db).tails([workspaceId])).get(workspaceId) ?? 0;
    return { draw, story, last };
  }

  /** Reads both ways, and compares. */
  async function alike<T>(read: (db: Db) => Promise<T>): Promise<T> {
    const [a, b] = [await read(packed.db), await read(single.db)];
    expect(a).toEqual(b);
    return a;
  }

  test.each(Array.from({ length: HISTORIES[kind] }, (_, at) => at + 1))('are read alike, history %i', async (seed) => {
    const { draw, story, last } = await aStory(seed);
    const { workspaceId } = story;
    const all = await alike(async (db) => shown(await storedEvents(db, workspaceId)));
    expect(all.map(({ seq }) => seq)).toEqual(Array.from({ length: last }, (_, at) => at + 1));
    const { rows } = await packed.db.query<{ rows: number }>(
      'select count(*)::int as rows from events where workspace_id = $1 and more > 0',
      [workspaceId],
    );
    expect(rows[0]?.rows).toBeGreaterThan(5);
    const { rows: shared } = await packed.db.query<{ rows: number; most: number }>(
      'select count(*)::int as rows, max(more)::int as most from events where workspace_id = $1 and more > 2',
      [workspaceId],
    );
    expect(shared[0]?.rows).toBeGreaterThan(3);
    expect(shared[0]?.most).toBeGreaterThan(8);
    await alike((db) => new EventReads(db).tails([workspaceId]));

    for (let turn = 0; turn < READS; turn += 1) {
      const filter = filterOf(draw, story);
      const [from, limit, edge] = [draw.below(last + 3), 1 + draw.below(15), 1 + draw.below(9)];
      const until = Math.min(last, from + draw.below(last));
      await alike(async (db) => shown((await new EventReads(db).latest(workspaceId, filter, limit, from + 1)).events));
      await alike(async (db) => {
        const found: EventRow[] = [];
        for (let before: number | undefined = from + 1; before !== undefined;) {
          const page = await new EventReads(db).latest(workspaceId, filter, limit, before);
          found.unshift(...page.events);
          before = page.nextBeforeSeq;
        }
        return shown(found);
      });
      await alike(async (db) => {
        const found: EventRow[] = [];
        for (let after = from; after < until;) {
          const page = await new EventReads(db).after(workspaceId, filter, after, until, limit);
          found.push(...page.rows);
          after = page.nextSeq - 1;
        }
        return shown(found);
      });
      // Short stretches: an edge lies in the midst of the rows.
      const { types: _types, ...others } = filter;
      const match = { workspaceId, ...others, ...draw.maybe({ types: draw.one(KINDS_NAMED) }) };
      await alike(async (db) => shown(await inStretches(db, match, { beforeSeq: from + 1 }, edge, limit)));
      await alike(async (db) => shown(await inStretches(db, match, { afterSeq: from, untilSeq: until }, edge, limit)));
      await alike(async (db) => shown(await exported(db, workspaceId, from, limit)));
      const atMs = BEGIN_MS + draw.below(20) * MINUTE - draw.below(2);
      await alike((db) => new EventReads(db).seqAt(workspaceId, atMs));
      await alike((db) => eventBySeq(db, workspaceId, from).then((event) => event && shown([event])));
      const kinds = draw.one(KINDS_NAMED);
      await alike(async (db) => shown(await behind(db, workspaceId, from, kinds, limit)));
      const most = draw.below(last);
      await alike((db) => backlogEdge(db, workspaceId, from, kinds, most));
    }
  });

  test('reach live readers alike, behind the ring and within it', async () => {
    const { draw, story, last } = await aStory(101);
    const log = createLog({ name: 'test', level: 'silent' });
    for (let turn = 0; turn < 12; turn += 1) {
      const [from, ringRows] = [1 + draw.below(last), 1 + draw.below(2) * 20];
      const filter = { types: draw.one(KINDS_ASKED) };
      await alike(async (db) => {
        const hub = eventHub(new EventReads(db), { log, ringRows });
        const frames: string[] = [];
        await new Promise<void>((resolve, reject) => {
          const reader = {
            take: (_: EventRow, frame: () => Buffer) => {
              frames.push(frame().toString());
              return 'more' as const;
            },
            atTail: resolve,
            failed: reject,
          };
          hub.subscribe(story.workspaceId, filter, from, reader).then((one) => one.start(), reject);
        });
        hub.stop();
        return frames;
      });
    }
  });

  test('wait for a webhook alike, and go with their age', async () => {
    const { draw, story, last } = await aStory(102);
    const { workspaceId } = story;
    const id = newId<WebhookId>();
    const seqs = Array.from({ length: 10 }, () => 1 + draw.below(last));
    const ids = seqs.map(() => newId<DeliveryId>());
    const due = await alike(async (db) => {
      await db.query(
        `insert into webhooks (id, workspace_id, url, event_types, secret_hint, cursor_seq)
         values ($1, $2, 'https://example.org', '[]', '', 0)`,
        [id, workspaceId],
      );
      await writeDeliveries(
        db,
        seqs.map((eventSeq, at) => ({
          id: ids[at] as DeliveryId,
          webhookId: id,
          eventSeq,
          eventId: `${eventSeq}`,
          eventType: 'task.updated',
          subject: `${eventSeq}`,
          state: 'waiting',
          attempts: 1,
          statusCode: 500,
          error: '',
          durationMs: 1,
          dueInMs: -1000,
          atMs: BEGIN_MS,
        })),
      );
      const found = await dueDeliveries(db, workspaceId, id, [], 50);
      return found
        .flatMap(({ event }) => (event === undefined ? [] : shown([event])))
        .toSorted((a, b) => a.seq - b.seq);
    });
    expect(due.map(({ seq }) => seq)).toEqual([...new Set(seqs)].toSorted((a, b) => a - b));
    const left = await alike(async (db) => {
      const beforeMs = BEGIN_MS + 5 * MINUTE;
      while ((await deleteEventsBefore(db, beforeMs, 7, workspaceId)).gone > 0);
      return shown(await storedEvents(db, workspaceId));
    });
    expect(left.length).toBeGreaterThan(0);
    expect(left.length).toBeLessThan(last);
    await alike(async (db) => (await eventsBehind(db, { id, workspaceId }, 0, ['task.created'], 5)).oldestSeq);
    await alike((db) => new EventReads(db).seqAt(workspaceId, 0));
  });

  /** Reads to the end, a stretch of a few rows at a time. */
  async function inStretches(db: Db, match: EventMatch, begin: EventStart, rows: number, limit: number) {
    const found: EventRow[] = [];
    for (let start: EventStart | undefined = begin; start !== undefined;) {
      const edge = await eventEdge(db, match, start, rows);
      const some = await readEvents(db, match, start, edge?.seq, limit, rows);
      found.push(...some.events);
      const isBack: boolean = 'beforeSeq' in start;
      const next: number | undefined = some.next ?? (isBack ? edge?.firstSeq : edge?.seq);
      if (next === undefined) start = undefined;
      else start = 'beforeSeq' in start ? { beforeSeq: next } : { ...start, afterSeq: next };
    }
    return found;
  }

  async function exported(db: Db, workspaceId: WorkspaceId, from: number, limit: number) {
    const found: EventRow[] = [];
    for (let after = from; ;) {
      const { records, last } = await eventSource(db).next(workspaceId, after, limit);
      found.push(...records.map(({ record, atMs }) => ({ atMs, data: record }) as unknown as EventRow));
      if (records.length < limit) return found;
      after = last;
    }
  }

  async function behind(db: Db, workspaceId: WorkspaceId, from: number, kinds: readonly string[], limit: number) {
    const found: EventRow[] = [];
    for (let after = from; ;) {
      const page = await eventsBehind(db, { id: newId<WebhookId>(), workspaceId }, after, kinds, limit);
      found.push(...page.events);
      if (page.upTo >= page.lastSeq || page.upTo <= after) return found;
      after = page.upTo;
    }
  }
});
