// Events on their way to webhooks, with real databases of both kinds and real receivers: signatures, order, receivers
// that fail in every way, and pumps that end in the middle.
/* oxlint-disable no-empty-pattern */
import { createHmac } from 'node:crypto';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AddressRules } from '#shared/address-rules.ts';
import { systemClock } from '#shared/clock.ts';
import { newId } from '#shared/domain/ids.ts';
import type { DeploymentId, TaskId, WebhookId, WorkspaceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { webhookById } from '#scheduler/stores/store/queries/webhooks.ts';
import type { WebhookRow } from '#scheduler/stores/store/queries/webhooks.ts';
import { EventWebhookMetrics } from '#scheduler/tasks/event-webhooks/metrics.ts';
import { WebhookPump } from '#scheduler/tasks/event-webhooks/pump.ts';
import type { PumpParts } from '#scheduler/tasks/event-webhooks/pump.ts';
import { Receivers } from '#scheduler/tasks/event-webhooks/receivers.ts';
import { WebhookSecrets } from '#scheduler/tasks/event-webhooks/secrets.ts';
import { WebhookService } from '#scheduler/tasks/event-webhooks/service.ts';
import type { WebhookFields } from '#scheduler/tasks/event-webhooks/service.ts';
import { Lookups } from '#scheduler/tasks/webhooks/lookups.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import type { EventGiven } from '#scheduler/workspaces/events/writer.ts';
import { sealAnew } from '#scheduler/workspaces/identity/seal-anew.ts';
import { SIGNING_KEY } from '#scheduler/workspaces/identity/workspaces.ts';
import { createSealer } from '#scheduler/workspaces/secrets/seal.ts';
import { Receiver } from '../helpers/receiver.ts';
import type { Received } from '../helpers/receiver.ts';
import { waitFor } from '../helpers/services.ts';
import { KINDS, aDb, aWorkspace } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const quiet = createLog({ name: 'test', level: 'silent' });
const KEY = Buffer.alloc(32, 7);
const sealer = createSealer(KEY);
/** Long enough for a receiver on a busy machine. */
const TRY_MS = 1_500;
const MOST_WEBHOOKS = 20;

interface Pumped {
  readonly pump: WebhookPump;
  readonly metrics: EventWebhookMetrics;
  readonly stop: () => Promise<void>;
}

/** The parts of a scheduler that deliver, on a database. */
function worldOf(db: Db, allow: string) {
  const rules = AddressRules.read(allow);
  if (!(rules instanceof AddressRules)) throw new Error(rules.wrong);
  const writer = new EventWriter();
  const open: { close(): Promise<void> }[] = [];
  const receivers = (tryMs = TRY_MS): Receivers => {
    const made = new Receivers({
      rules,
      lookups: new Lookups(),
      monotonicMs: () => systemClock.monotonicMs(),
      connections: 8,
      tryMs,
    });
    open.push(made);
    return made;
  };
  const secrets = new WebhookSecrets(db, sealer, systemClock);
  const service = new WebhookService({
    db,
    events: writer,
    rules,
    receivers: receivers(),
    secrets,
    metrics: new EventWebhookMetrics(new Registry()),
    clock: systemClock,
    mostOf: () => MOST_WEBHOOKS,
  });
  const pumps: Pumped[] = [];
  return {
    writer,
    service,
    secrets,
    receivers,
    /** A scheduler that leads. */
    pump: (over: Partial<PumpParts> = {}): Pumped => {
      const metrics = new EventWebhookMetrics(new Registry());
      const pump = new WebhookPump({
        db,
        receivers: receivers(),
        secrets,
        metrics,
        clock: systemClock,
        log: quiet,
        leader: { isLeader: () => true, onChange: () => () => undefined },
        sweepMs: 100,
        ...over,
      });
      writer.onWritten((workspaceId, lastSeq) => pump.wake(workspaceId, lastSeq));
      pump.start();
      const made = { pump, metrics, stop: () => pump.stop() };
      pumps.push(made);
      return made;
    },
    stopPumps: async () => {
      for (const one of pumps.splice(0)) await one.stop();
    },
    stop: async () => {
      for (const one of pumps) await one.stop();
      for (const one of open) await one.close();
    },
  };
}

describe.each(KINDS)('webhooks on %s', (kind) => {
  let opened: OpenedDb;
  let receiver: Receiver;
  let world: ReturnType<typeof worldOf>;
  let ws: WorkspaceId;
  let counter = 0;
  beforeAll(async () => {
    opened = await aDb(kind);
    receiver = await new Receiver().start();
    world = worldOf(opened.db, '127.0.0.0/8');
    ({ id: ws } = await aWorkspace(opened.db));
  });
  afterAll(async () => {
    await world.stop();
    await receiver.stop();
    await opened.stop();
  });

  const path = (): string => `/hook-${(counter += 1)}`;
  const hook = async (
    at: string,
    fields: Omit<WebhookFields, 'url'> = {},
    workspaceId = ws,
  ): Promise<{ readonly webhook: WebhookRow; readonly secret: string }> =>
    await world.service.create(workspaceId, { url: receiver.url(at), ...fields });
  const now = async (id: WebhookId, workspaceId = ws): Promise<WebhookRow> => {
    const row = await webhookById(opened.db, workspaceId, id);
    if (row === undefined) throw new Error('there is no such webhook');
    return row;
  };
  const taskEvent = (taskId: TaskId, n: number, over: Partial<EventGiven> = {}): EventGiven => ({
    workspaceId: ws,
    type: 'task.updated',
    atMs: Date.now(),
    taskId,
    data: { id: taskId, n },
    ...over,
  });
  const write = (...events: readonly EventGiven[]): Promise<void> =>
    world.writer.transaction(opened.db, (_, emit) => {
      for (const event of events) emit(event);
      return Promise.resolve();
    });
  const numberIn = ({ body }: Received): number => (JSON.parse(body) as { data: { n: number } }).data.n;
  const numbersAt = (at: string): readonly number[] => receiver.at(at).map(numberIn);
  const sortedAt = (at: string): readonly number[] => numbersAt(at).toSorted((a, b) => a - b);
  const ofTask = (at: string, taskId: TaskId): readonly number[] =>
    receiver
      .at(at)
      .filter(({ body }) => body.includes(taskId))
      .map(numberIn);
  const deliveries = (id: WebhookId, workspaceId = ws) =>
    world.service.deliveries(workspaceId, id, { limit: 1_000, after: undefined, state: undefined });
  const running = async (over: Partial<PumpParts>, run: (pumped: Pumped) => Promise<void>): Promise<void> => {
    const pumped = world.pump(over);
    try {
      await run(pumped);
    } finally {
      await world.stopPumps();
      await opened.db.query('delete from webhooks');
    }
  };

  test('an event is sent once, as one CloudEvent, with signatures of both kinds', () =>
    running({}, async () => {
      const at = path();
      const { webhook, secret } = await hook(at, { event_types: ['task.*'] });
      expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
      expect(webhook.secretHint).toBe(secret.slice(-4));
      const taskId = newId<TaskId>();
      await write(taskEvent(taskId, 1));
      const [request] = await receiver.until(at);
      if (request === undefined) throw new Error('there is none');
      const { headers, body } = request;
      const event = JSON.parse(body) as Record<string, unknown>;
      expect(event).toMatchObject({
        specversion: '1.0',
        type: 'task.updated',
        datacontenttype: 'application/json',
        workspaceid: ws,
        taskid: taskId,
        data: { id: taskId, n: 1 },
      });
      expect(headers).toMatchObject({
        'content-type': 'application/cloudevents+json',
        'x-beta9-event': 'task.updated',
        'x-beta9-delivery': event['id'],
        'x-beta9-signature': `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`,
        'webhook-id': event['id'],
      });
      const standard = headers as Record<string, string>;
      expect(new Webhook(secret).verify(body, standard)).toEqual(event);
      expect(() => new Webhook(secret).verify(`${body} `, standard)).toThrow('No matching signature');
      await waitFor(async () => (await deliveries(webhook.id)).length === 1, 'its outcome is written');
      expect(await deliveries(webhook.id)).toMatchObject([
        { state: 'delivered', attempts: 1, statusCode: 200, eventId: event['id'], error: '', dueAtMs: null },
      ]);
      expect(await now(webhook.id)).toMatchObject({
        lastDelivery: { event_id: event['id'], status_code: 200, error: null },
        updatedAtMs: webhook.updatedAtMs,
      });
      await write(taskEvent(taskId, 2));
      await receiver.until(at, 2);
      expect(numbersAt(at)).toEqual([1, 2]);
    }));

  test('events of one task come in order, one after another, and a slow task holds up no other', () =>
    running({}, async () => {
      const at = path();
      await hook(at);
      let open = (): void => undefined;
      const once = new Promise<void>((resolve) => (open = resolve));
      receiver.replies.set(at, [{ status: 200, once }, 200]);
      const [slow, ...others] = Array.from({ length: 6 }, () => newId<TaskId>());
      if (slow === undefined) throw new Error('there is none');
      await write(taskEvent(slow, 1), taskEvent(slow, 2));
      await receiver.until(at, 1);
      await write(...[3, 4].flatMap((n) => others.map((taskId) => taskEvent(taskId, n))));
      await receiver.until(at, 11);
      expect(numbersAt(at).filter((n) => n === 2)).toEqual([]);
      for (const taskId of others) {
        expect(ofTask(at, taskId)).toEqual([3, 4]);
      }
      open();
      await receiver.until(at, 12);
      expect(numbersAt(at).at(-1)).toBe(2);
    }));

  test('without `retry` an event is tried once, in every way in which a receiver fails; the next one goes on', () =>
    running({}, async ({ metrics }) => {
      const [refuses, moves, silent, down] = [path(), path(), path(), path()];
      receiver.replies.set(refuses, [500]);
      receiver.replies.set(moves, [{ status: 307, location: receiver.url('/elsewhere') }]);
      receiver.replies.set(silent, ['never']);
      const closed = createServer().listen(0, '127.0.0.1');
      await new Promise((resolve) => closed.once('listening', resolve));
      const { port } = closed.address() as AddressInfo;
      await new Promise((resolve) => closed.close(resolve));
      const hooks = [];
      for (const at of [refuses, moves, silent]) hooks.push((await hook(at)).webhook);
      hooks.push((await world.service.create(ws, { url: `http://127.0.0.1:${port}${down}` })).webhook);
      const taskId = newId<TaskId>();
      await write(taskEvent(taskId, 1), taskEvent(taskId, 2));
      const expected = [
        { statusCode: 500, error: 'answered 500' },
        { statusCode: 307, error: 'answered 307; redirects are not followed' },
        { statusCode: null, error: 'no answer in 10 s' },
        { statusCode: null, error: 'the connection failed (ECONNREFUSED)' },
      ];
      for (const [index, webhook] of hooks.entries()) {
        const rows = await waitFor(async () => {
          const found = await deliveries(webhook.id);
          return found.length === 2 ? found : undefined;
        }, `both are over: ${index}`);
        for (const row of rows) expect(row).toMatchObject({ state: 'failed', attempts: 1, ...expected[index] });
        expect((await now(webhook.id)).lastDelivery).toMatchObject({ error: expected[index]?.error });
      }
      expect(numbersAt(refuses)).toEqual([1, 2]);
      expect(numbersAt(silent)).toEqual([1, 2]);
      expect(receiver.at('/elsewhere')).toEqual([]);
      const events = (await metrics.events.get()).values;
      expect(events).toEqual([expect.objectContaining({ labels: { result: 'failed' }, value: 8 })]);
    }));

  test('with `retry` an event waits; those of its task wait behind it, others go on; Retry-After is kept to', () =>
    running({}, async () => {
      const at = path();
      const { webhook } = await hook(at, { retry: true });
      receiver.replies.set(at, [{ status: 503, retryAfter: '1000' }, 200, 500, 200]);
      const [first, second] = [newId<TaskId>(), newId<TaskId>()];
      await write(taskEvent(first, 1));
      const waiting = await waitFor(async () => (await deliveries(webhook.id))[0], 'it waits');
      expect(waiting).toMatchObject({ state: 'waiting', attempts: 1, statusCode: 503, error: 'answered 503' });
      const dueInMs = (waiting.dueAtMs ?? 0) - Date.now();
      expect(dueInMs).toBeGreaterThan(900_000);
      expect(dueInMs).toBeLessThan(1_001_000);
      await write(taskEvent(first, 2), taskEvent(second, 3), taskEvent(first, 4));
      await receiver.until(at, 2);
      expect(numbersAt(at)).toEqual([1, 3]);
      await waitFor(async () => (await deliveries(webhook.id)).length === 4, 'the others wait behind it');
      // The first retry fails again; with the next one all the others come, in order.
      const due =
        'update webhook_deliveries set due_at = now() where webhook_id = $1 and attempts > 0 and due_at is not null';
      await opened.db.query(due, [webhook.id]);
      await receiver.until(at, 3);
      const again = await waitFor(async () => {
        const row = (await deliveries(webhook.id)).find(({ id }) => id === waiting.id);
        return row?.attempts === 2 ? row : undefined;
      }, 'the second try is over');
      expect(again).toMatchObject({ state: 'waiting', statusCode: 500 });
      expect(((again.dueAtMs ?? 0) - Date.now()) / 1000).toBeGreaterThan(290);
      expect(numbersAt(at)).toEqual([1, 3, 1]);
      await opened.db.query(due, [webhook.id]);
      await receiver.until(at, 6);
      expect(numbersAt(at)).toEqual([1, 3, 1, 1, 2, 4]);
      const ids = receiver.at(at).map(({ headers }) => headers['webhook-id']);
      expect(new Set([ids[0], ids[2], ids[3]]).size).toBe(1);
      await waitFor(
        async () => (await deliveries(webhook.id)).every(({ state }) => state === 'delivered'),
        'all are delivered',
      );
      // Nothing waits any more: the next one is sent at once.
      await write(taskEvent(first, 5));
      await receiver.until(at, 7);
    }));

  test('tries end after seven, and a webhook that is switched off ends what waits', () =>
    running({}, async () => {
      const at = path();
      const { webhook } = await hook(at, { retry: true });
      receiver.replies.set(at, [{ status: 500, retryAfter: '1000' }]);
      await write(taskEvent(newId<TaskId>(), 1));
      const row = async () => (await deliveries(webhook.id))[0];
      for (let tries = 1; tries < 7; tries += 1) {
        await waitFor(async () => (await row())?.attempts === tries, `try ${tries}`);
        expect(await row()).toMatchObject({ state: 'waiting' });
        await opened.db.query('update webhook_deliveries set due_at = now() where webhook_id = $1', [webhook.id]);
      }
      await waitFor(async () => (await row())?.state === 'failed', 'it is given up');
      expect(await row()).toMatchObject({ attempts: 7, dueAtMs: null });
      await write(taskEvent(newId<TaskId>(), 2));
      await waitFor(async () => (await row())?.state === 'waiting', 'another waits');
      expect(await world.service.change(ws, webhook.id, { active: false })).toMatchObject({
        active: false,
        inactiveReason: 'switched_off',
      });
      expect(await row()).toMatchObject({ state: 'failed', error: 'the webhook is inactive' });
      // Events of the time in between are not sent later.
      await write(taskEvent(newId<TaskId>(), 3));
      receiver.replies.set(at, [200]);
      await world.service.change(ws, webhook.id, { active: true });
      await write(taskEvent(newId<TaskId>(), 4));
      await receiver.until(at, 9);
      expect(numbersAt(at).slice(8)).toEqual([4]);
    }));

  test('410 to a test or to an event that is sent again ends the webhook, too', async () => {
    const ended = { active: false, inactiveReason: 'receiver_gone' };
    const failed = { state: 'failed', statusCode: 410, error: 'answered 410, which ends the webhook', dueAtMs: null };
    const tried = path();
    const { webhook } = await hook(tried);
    const tested = await world.service.test(ws, webhook.id);
    expect(tested).toMatchObject({ state: 'delivered' });
    receiver.replies.set(tried, [410, 410]);
    expect(await world.service.test(ws, webhook.id)).toMatchObject(failed);
    expect(await now(webhook.id)).toMatchObject(ended);
    await world.service.change(ws, webhook.id, { active: true });
    expect(await world.service.redeliver(ws, webhook.id, tested.id)).toMatchObject(failed);
    expect(await now(webhook.id)).toMatchObject(ended);
    // A webhook that somebody switched off keeps that reason.
    await world.service.change(ws, webhook.id, { active: true });
    await world.service.change(ws, webhook.id, { active: false });
    receiver.replies.set(tried, [410]);
    await world.service.test(ws, webhook.id);
    expect(await now(webhook.id)).toMatchObject({ active: false, inactiveReason: 'switched_off' });
  });

  test('410 ends the webhook, and says why', () =>
    running({}, async () => {
      const at = path();
      const { webhook } = await hook(at, { retry: true });
      receiver.replies.set(at, [410]);
      await write(taskEvent(newId<TaskId>(), 1));
      const ended = await waitFor(async () => {
        const row = await now(webhook.id);
        return row.active ? undefined : row;
      }, 'it is inactive');
      expect(ended.inactiveReason).toBe('receiver_gone');
      await waitFor(async () => (await deliveries(webhook.id)).length === 1, 'its outcome is written');
      expect(await deliveries(webhook.id)).toMatchObject([{ state: 'failed', statusCode: 410, dueAtMs: null }]);
      const other = path();
      await hook(other);
      await write(taskEvent(newId<TaskId>(), 2));
      await receiver.until(other);
      expect(numbersAt(at)).toEqual([1]);
    }));

  test('filters choose kinds; nothing of another workspace, and nothing that is not for webhooks, is sent', () =>
    running({}, async () => {
      const [all, tasks, one] = [path(), path(), path()];
      await hook(all, { event_types: ['*'] });
      await hook(tasks, { event_types: ['task.*'] });
      await hook(one, { event_types: ['deployment.stopped', 'task.created'] });
      const { id: other } = await aWorkspace(opened.db);
      const deploymentId = newId<DeploymentId>();
      const about = { taskId: undefined, deploymentId };
      await write(
        taskEvent(newId<TaskId>(), 1, { workspaceId: other }),
        taskEvent(newId<TaskId>(), 2, { type: 'task.created' }),
        taskEvent(newId<TaskId>(), 3, { type: 'deployment.started', ...about }),
        taskEvent(newId<TaskId>(), 4, { type: 'audit.token.created', ...about }),
        taskEvent(newId<TaskId>(), 5, { type: 'container.event', ...about }),
        taskEvent(newId<TaskId>(), 6, { type: 'deployment.stopped', ...about }),
        taskEvent(newId<TaskId>(), 7),
      );
      await receiver.until(all, 4);
      await receiver.until(tasks, 2);
      await receiver.until(one, 2);
      // The last one comes behind whatever else might have come.
      await write(taskEvent(newId<TaskId>(), 8, { type: 'task.created' }));
      for (const [at, count] of [
        [all, 5],
        [tasks, 3],
        [one, 3],
      ] as const)
        await receiver.until(at, count);
      expect(sortedAt(all)).toEqual([2, 3, 6, 7, 8]);
      expect(sortedAt(tasks)).toEqual([2, 7, 8]);
      expect(sortedAt(one)).toEqual([2, 6, 8]);
    }));

  test('a leader that dies loses nothing: the next one repeats what was not written, in order', async () => {
    const at = path();
    const { webhook } = await hook(at, { event_types: ['task.*'] });
    const tasks = Array.from({ length: 5 }, () => newId<TaskId>());
    await write(...[1, 2].flatMap((n) => tasks.map((taskId) => taskEvent(taskId, n))));
    await running({}, async ({ stop }) => {
      await receiver.until(at, 10);
      await waitFor(async () => (await deliveries(webhook.id)).length === 10, 'ten outcomes are written');
      await stop();
      const before = (await now(webhook.id)).cursorSeq;
      // A process that is killed before its next write.
      const gone = world.pump({ db: withoutTransactions(opened.db) });
      await write(...[3, 4].flatMap((n) => tasks.map((taskId) => taskEvent(taskId, n))));
      await receiver.until(at, 20);
      await gone.stop();
      expect((await now(webhook.id)).cursorSeq).toBe(before);
      const next = world.pump();
      await write(...tasks.map((taskId) => taskEvent(taskId, 5)));
      await waitFor(async () => (await deliveries(webhook.id)).length === 25, 'all outcomes are written');
      await next.stop();
      for (const taskId of tasks) {
        expect(ofTask(at, taskId)).toEqual([1, 2, 3, 4, 3, 4, 5]);
      }
    });
  });

  test('of too many events the oldest are passed over, counted, and seen in the record', async () => {
    const at = path();
    const { webhook } = await hook(at, { event_types: ['task.updated'] });
    const mine = Array.from({ length: 30 }, (_, n) => taskEvent(newId<TaskId>(), n));
    // Events of other kinds do not count.
    const others = mine.map((_, n) => taskEvent(newId<TaskId>(), 100 + n, { type: 'task.created' }));
    await write(...mine.flatMap((event, n) => [event, others[n] ?? event]));
    await running({ mostBacklog: 10 }, async ({ metrics }) => {
      await receiver.until(at, 10);
      const row = await waitFor(async () => {
        const found = await now(webhook.id);
        return found.skipped > 0 ? found : undefined;
      }, 'it is counted');
      expect(row.skipped).toBe(20);
      expect((await metrics.skipped.get()).values).toMatchObject([{ value: 20 }]);
      await write(taskEvent(newId<TaskId>(), 200));
      await receiver.until(at, 11);
      expect(sortedAt(at)).toEqual([...Array.from({ length: 10 }, (_, n) => 20 + n), 200]);
    });
  });

  test('events that were deleted by age before they were sent are counted, too', async () => {
    const at = path();
    const { id: own } = await aWorkspace(opened.db);
    const { webhook } = await hook(at, {}, own);
    await write(...Array.from({ length: 6 }, (_, n) => taskEvent(newId<TaskId>(), n, { workspaceId: own })));
    const { rows } = await opened.db.query<{ first: number }>(
      "select min(seq) as first from events where workspace_id = $1 and type = 'task.updated'",
      [own],
    );
    const first = rows[0]?.first ?? 0;
    // The first one was sent; of the others three are gone.
    await opened.db.query('update webhooks set cursor_seq = $2 where id = $1', [webhook.id, first]);
    await opened.db.query('delete from events where workspace_id = $1 and seq <= $2', [own, first + 3]);
    await running({}, async () => {
      await receiver.until(at, 2);
      await waitFor(async () => (await now(webhook.id, own)).skipped === 3, 'three are counted');
      expect(sortedAt(at)).toEqual([4, 5]);
    });
  });

  test('receivers that never answer hold up no other workspace', async () => {
    // Nothing times out while this test runs.
    await running({ receivers: world.receivers(60_000) }, async () => {
      const { id: other } = await aWorkspace(opened.db);
      const slow = Array.from({ length: 18 }, path);
      for (const at of slow) {
        receiver.replies.set(at, ['never']);
        await hook(at);
      }
      const others = path();
      await hook(others, {}, other);
      const tasks = Array.from({ length: 20 }, () => newId<TaskId>());
      await write(...tasks.map((taskId, n) => taskEvent(taskId, n)));
      const asked = (): number => slow.reduce((sum, at) => sum + receiver.at(at).length, 0);
      await waitFor(() => asked() === 16, 'the workspace has all its places', 20_000);
      await write(...tasks.map((taskId, n) => taskEvent(taskId, n, { workspaceId: other })));
      await waitFor(() => receiver.at(others).length === 20, 'the other one has its events', 20_000);
      expect(asked()).toBe(16);
    });
  });

  test('receivers that are known not to answer hold up no other webhook of their workspace', async () => {
    // Nothing times out while this test runs.
    await running({ receivers: world.receivers(60_000) }, async ({ stop }) => {
      await stop();
      const slow = Array.from({ length: 18 }, path);
      for (const at of slow) {
        receiver.replies.set(at, ['never']);
        await hook(at);
      }
      const last = JSON.stringify({ event_id: 'x', status_code: null, at: '2030-01-01T00:00:00Z', error: 'no answer' });
      await opened.db.query('update webhooks set last_delivery = $1::json', [last]);
      const same = path();
      await hook(same);
      world.pump({ receivers: world.receivers(60_000) });
      const tasks = Array.from({ length: 60 }, () => newId<TaskId>());
      await write(...tasks.map((taskId, n) => taskEvent(taskId, n)));
      await waitFor(() => receiver.at(same).length === 60, 'the other webhook has its events', 20_000);
      // Each has one request at a time, and all of them have half of the places.
      const counts = slow.map((at) => receiver.at(at).length);
      expect(Math.max(...counts)).toBe(1);
      expect(counts.filter((count) => count > 0)).toHaveLength(8);
    });
  });

  test('a receiver that did not answer in time has one request at a time', () =>
    running({}, async () => {
      const at = path();
      receiver.replies.set(at, ['never']);
      const { webhook } = await hook(at);
      await write(...Array.from({ length: 12 }, (_, n) => taskEvent(newId<TaskId>(), n)));
      // Two are sent before anything is known of it.
      await waitFor(async () => (await deliveries(webhook.id)).length >= 2, 'two are over', 20_000);
      expect(receiver.at(at).length).toBeLessThanOrEqual(4);
    }));

  test('a change of address, filters or state counts from the next page on; a deleted webhook gets nothing', () =>
    running({ sweepMs: 60_000 }, async ({ stop }) => {
      await stop();
      const [first, second] = [path(), path()];
      const { webhook } = await hook(first);
      // No sweep finds the changes: this pump swept before them.
      const next = world.pump({ sweepMs: 60_000 });
      await write(taskEvent(newId<TaskId>(), 1));
      await receiver.until(first);
      await world.service.change(ws, webhook.id, { url: receiver.url(second), event_types: ['task.created'] });
      await write(taskEvent(newId<TaskId>(), 2), taskEvent(newId<TaskId>(), 3, { type: 'task.created' }));
      await receiver.until(second);
      expect([numbersAt(first), numbersAt(second)]).toEqual([[1], [3]]);
      await world.service.delete(ws, webhook.id);
      const last = path();
      await write(taskEvent(newId<TaskId>(), 4, { type: 'task.created' }));
      await hook(last);
      await next.stop();
      world.pump();
      await write(taskEvent(newId<TaskId>(), 5, { type: 'task.created' }));
      await receiver.until(last);
      expect([numbersAt(second), numbersAt(last)]).toEqual([[3], [5]]);
    }));

  test('an address that may not be dialled is refused when it is named, and not dialled when its name leads there', async () => {
    for (const [url, text] of [
      ['http://127.0.0.1.example.com/', 'url must be an https URL: http is taken for a loopback address alone'],
      ['http://10.0.0.1/', 'url must not name the address 10.0.0.1'],
      ['https://10.0.0.1/', 'url must not name the address 10.0.0.1'],
      ['https://169.254.169.254/latest/meta-data', 'url must not name the address 169.254.169.254'],
      ['https://[::1]/', 'url must not name the address ::1'],
      ['https://[::ffff:10.0.0.1]/', 'url must not name the address'],
      ['https://0x0a000001/', 'url must not name the address 10.0.0.1'],
      ['ftp://example.com/', 'url must be an http or https URL'],
      ['https://user:secret@example.com/', 'url must not carry a user name or a password'],
      ['https://example.com/a b', 'url must not hold spaces'],
      ['', 'url must be an http or https URL'],
    ] as const)
      await expect(world.service.create(ws, { url }), url).rejects.toMatchObject({
        code: 'invalid_webhook',
        message: expect.stringContaining(text) as string,
      });
    let dialled = 0;
    const trap = createServer((socket) => {
      dialled += 1;
      socket.destroy();
    }).listen(0, '127.0.0.1');
    await new Promise((resolve) => trap.once('listening', resolve));
    const { port } = trap.address() as AddressInfo;
    const guarded = worldOf(opened.db, '10.0.0.0/8');
    await expect(guarded.service.create(ws, { url: `http://127.0.0.1:${port}/` })).rejects.toThrow('127.0.0.1');
    const { webhook } = await guarded.service.create(ws, { url: `https://localhost:${port}/` });
    for (const url of [`https://localhost:${port}/`, `http://127.0.0.1:${port}/`, `http://2130706433:${port}/`]) {
      // An address may have been allowed when it was named.
      await opened.db.query('update webhooks set url = $2 where id = $1', [webhook.id, url]);
      expect(await guarded.service.test(ws, webhook.id), url).toMatchObject({
        state: 'failed',
        statusCode: null,
        error: 'no address of the host may be dialled',
      });
    }
    expect(dialled).toBe(0);
    await new Promise((resolve) => trap.close(resolve));
    await guarded.stop();
    await opened.db.query('delete from webhooks');
  });

  test('filters are checked by name, and a workspace has twenty webhooks, also when many are made at once', async () => {
    for (const [event_types, text] of [
      [['task.created', 'task.gone'], 'there is no kind "task.gone"'],
      [['tusk.*'], 'there is no kind "tusk.*"'],
      [['container.log'], '"container.log" is not sent to webhooks'],
      [['audit.*'], 'there is no kind "audit.*"'],
      [[''], 'there is no kind ""'],
      [Array.from({ length: 51 }, () => '*'), 'event_types must have at most 50 entries'],
    ] as const)
      await expect(world.service.create(ws, { url: 'https://example.com/', event_types })).rejects.toMatchObject({
        code: 'invalid_webhook',
        message: expect.stringContaining(text) as string,
      });
    await expect(
      world.service.create(ws, { url: 'https://example.com/', description: 'x'.repeat(501) }),
    ).rejects.toThrow('description must have at most 500 characters');
    const made = await Promise.allSettled(
      Array.from({ length: 25 }, () => world.service.create(ws, { url: 'https://example.com/' })),
    );
    expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(20);
    const refused = made.find(({ status }) => status === 'rejected');
    expect(refused).toMatchObject({ reason: { code: 'too_many_webhooks' } });
    await opened.db.query('delete from webhooks');
  });

  test('after a rotation both secrets sign, for a day; a test and a repetition say what came of them', async () => {
    const at = path();
    const { webhook, secret: first } = await hook(at);
    const tested = await world.service.test(ws, webhook.id);
    expect(tested).toMatchObject({ state: 'delivered', attempts: 1, eventType: 'webhook.test', statusCode: 200 });
    const { secret: second, webhook: rotated } = await world.service.rotate(ws, webhook.id);
    expect(second).not.toBe(first);
    expect(rotated.secretHint).toBe(second.slice(-4));
    receiver.replies.set(at, [500, 200]);
    const again = await world.service.redeliver(ws, webhook.id, tested.id);
    expect(again).toMatchObject({ id: tested.id, state: 'failed', attempts: 2, error: 'answered 500' });
    expect(await world.service.redeliver(ws, webhook.id, tested.id)).toMatchObject({ state: 'delivered', attempts: 3 });
    const [before, after, last] = receiver.at(at);
    if (before === undefined || after === undefined || last === undefined) throw new Error('one is missing');
    expect(after.headers['webhook-id']).toBe(before.headers['webhook-id']);
    expect(after.body).toBe(before.body);
    const headers = after.headers as Record<string, string>;
    for (const secret of [first, second]) expect(() => new Webhook(secret).verify(after.body, headers)).not.toThrow();
    expect(headers['x-beta9-signature']).toBe(
      `sha256=${createHmac('sha256', second).update(after.body).digest('hex')}`,
    );
    expect(() => new Webhook(second).verify(before.body, before.headers as Record<string, string>)).toThrow();
    // A day later the first one is over.
    await opened.db.query(
      "update webhook_secrets set signs_until = now() - interval '1 second' where signs_until is not null",
    );
    world.secrets.forget(webhook.id);
    await world.service.test(ws, webhook.id);
    const alone = receiver.at(at).at(-1);
    expect(() => new Webhook(first).verify(alone?.body ?? '', alone?.headers as Record<string, string>)).toThrow();
    expect(() => new Webhook(second).verify(alone?.body ?? '', alone?.headers as Record<string, string>)).not.toThrow();
    // At most three secrets sign, however often it is rotated.
    for (let turn = 0; turn < 5; turn += 1) await world.service.rotate(ws, webhook.id);
    expect(await world.secrets.of(await now(webhook.id))).toHaveLength(3);
    await opened.db.query('delete from webhooks');
  });

  test('a change of the key that seals keeps secrets good', async () => {
    const { webhook, secret } = await hook(path());
    const key = Buffer.alloc(32, 9);
    await opened.db.query('update workspaces set signing_key = $1', [sealer.seal(Buffer.from('sk_test'), SIGNING_KEY)]);
    await sealAnew(opened.db, createSealer(key, KEY), quiet);
    expect(await new WebhookSecrets(opened.db, createSealer(key), systemClock).of(webhook)).toEqual([secret]);
    const before = new WebhookSecrets(opened.db, sealer, systemClock);
    await expect(before.of(webhook)).rejects.toMatchObject({ code: 'sealed_value_unreadable' });
    await opened.db.query('delete from webhooks');
  });

  test('a secret that cannot be read holds up its own webhook alone, which goes on when it can', () =>
    running({}, async () => {
      const [closed, open] = [path(), path()];
      const { webhook } = await hook(closed);
      await hook(open);
      const { rows } = await opened.db.query<{ sealed: Uint8Array }>(
        'select sealed from webhook_secrets where webhook_id = $1',
        [webhook.id],
      );
      await opened.db.query("update webhook_secrets set sealed = ''::bytea where webhook_id = $1", [webhook.id]);
      await write(taskEvent(newId<TaskId>(), 1));
      await receiver.until(open);
      expect(receiver.at(closed)).toEqual([]);
      await opened.db.query('update webhook_secrets set sealed = $2 where webhook_id = $1', [
        webhook.id,
        rows[0]?.sealed,
      ]);
      await waitFor(() => receiver.at(closed).length === 1, 'it is sent', 20_000);
    }));

  test('a receiver that closes kept connections without a word misses nothing', () =>
    running({}, async () => {
      let connections = 0;
      const bodies: string[] = [];
      const sockets: Socket[] = [];
      const server = createServer((socket) => {
        sockets.push(socket);
        connections += 1;
        let text = '';
        socket.on('error', () => undefined);
        socket.on('data', (part: Buffer) => {
          // The second request of a connection ends it.
          if (bodies.length >= connections) return void socket.destroy();
          text += part.toString();
          const [head = '', body = ''] = text.split('\r\n\r\n');
          if (Buffer.byteLength(body) < Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 1)) return;
          bodies.push(body);
          socket.write('HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n');
        });
      }).listen(0, '127.0.0.1');
      await new Promise((resolve) => server.once('listening', resolve));
      const { port } = server.address() as AddressInfo;
      const { webhook } = await world.service.create(ws, { url: `http://127.0.0.1:${port}/` });
      const taskId = newId<TaskId>();
      await write(...[1, 2, 3].map((n) => taskEvent(taskId, n)));
      await waitFor(async () => (await deliveries(webhook.id)).length === 3, 'all are over', 20_000);
      expect((await deliveries(webhook.id)).map(({ state, attempts }) => [state, attempts])).toEqual([
        ['delivered', 1],
        ['delivered', 1],
        ['delivered', 1],
      ]);
      expect([connections, bodies.length]).toEqual([3, 3]);
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    }));

  test('an event that failed is sent again on request, and one that waits is over then', () =>
    running({}, async () => {
      const at = path();
      const { webhook } = await hook(at, { retry: true });
      receiver.replies.set(at, [{ status: 500, retryAfter: '1000' }, 200]);
      const taskId = newId<TaskId>();
      await write(taskEvent(taskId, 1));
      const waiting = await waitFor(async () => (await deliveries(webhook.id))[0], 'it waits');
      const { id: foreign } = await aWorkspace(opened.db);
      await expect(world.service.redeliver(foreign, webhook.id, waiting.id)).rejects.toThrow('no such webhook');
      await expect(world.service.redeliver(ws, webhook.id, newId())).rejects.toMatchObject({
        code: 'delivery_not_found',
      });
      expect(await world.service.redeliver(ws, webhook.id, waiting.id)).toMatchObject({
        state: 'delivered',
        attempts: 2,
        dueAtMs: null,
      });
      await write(taskEvent(taskId, 2));
      await receiver.until(at, 3);
      expect(numbersAt(at)).toEqual([1, 1, 2]);
      await opened.db.query('delete from events where workspace_id = $1', [ws]);
      await expect(world.service.redeliver(ws, webhook.id, waiting.id)).rejects.toMatchObject({ code: 'event_gone' });
    }));

  test('a body has at most 256 KiB: the recipe of a stub goes first', () =>
    running({}, async () => {
      const at = path();
      await hook(at);
      const about = { taskId: undefined, type: 'stub.deploy' };
      await write(
        taskEvent(newId<TaskId>(), 1, { ...about, data: { id: 'a', n: 1, stub_config: 'x'.repeat(300_000) } }),
        taskEvent(newId<TaskId>(), 2, { ...about, data: { id: 'b', n: 2, other: 'y'.repeat(400_000) } }),
        taskEvent(newId<TaskId>(), 3, { ...about, data: { id: 'c', n: 3, stub_config: '{}' } }),
      );
      await receiver.until(at, 3);
      expect(receiver.at(at).map(({ body }) => (JSON.parse(body) as { data: unknown }).data)).toEqual([
        { id: 'a', n: 1 },
        { id: 'b', n: 2 },
        { id: 'c', n: 3, stub_config: '{}' },
      ]);
    }));

  test('outcomes are kept up to a bound, of each state on its own', () =>
    running({ keptOutcomes: 5 }, async ({ stop }) => {
      const at = path();
      const { webhook } = await hook(at);
      receiver.replies.set(at, [500, 500, 500, 200]);
      const taskId = newId<TaskId>();
      await write(...Array.from({ length: 250 }, (_, n) => taskEvent(taskId, n)));
      const [{ seq } = { seq: 0 }] = (
        await opened.db.query<{ seq: number }>('select max(seq) as seq from events where workspace_id = $1', [ws])
      ).rows;
      await waitFor(async () => (await now(webhook.id)).cursorSeq === seq, 'all outcomes are written', 20_000);
      await stop();
      const next = world.pump({ keptOutcomes: 5 });
      await write(taskEvent(taskId, 250));
      await receiver.until(at, 251);
      await waitFor(async () => (await deliveries(webhook.id)).length <= 8, 'the others are gone');
      await next.stop();
      const rows = await deliveries(webhook.id);
      expect(rows.filter(({ state }) => state === 'failed')).toHaveLength(3);
      expect(numbersAt(at)).toEqual(Array.from({ length: 251 }, (_, n) => n));
    }));
});

/** A database that takes no transactions, which outcomes are written by. */
const withoutTransactions = (db: Db): Db =>
  new Proxy(db, {
    get: (target, name): unknown => {
      if (name === 'transaction') return () => Promise.reject(new Error('the connection is lost'));
      const value: unknown = Reflect.get(target, name);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
