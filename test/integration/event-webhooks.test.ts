// Events on their way to webhooks, with real databases of both kinds and real receivers: signatures, order, receivers
// that fail in every way, and pumps that end in the middle.
import { createHmac } from 'node:crypto';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { Webhook } from 'standardwebhooks';
import { describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { DeploymentId, TaskId } from '#shared/domain/ids.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { DOUBTS, DoubtfulDb, doubtAt } from '../helpers/doubtful-db.ts';
import { waitFor } from '../helpers/services.ts';
import { KINDS, aWorkspace } from './store-fixture.ts';
import { webhooksOn } from './event-webhooks-fixture.ts';

describe.each(KINDS)('webhooks on %s', (kind) => {
  const on = webhooksOn(kind);
  const { path, hook, now, taskEvent, write, numbersAt, sortedAt, ofTask, deliveries, running } = on;

  test('an event is sent once, as one CloudEvent, with signatures of both kinds', () =>
    running({}, async () => {
      const at = path();
      const { webhook, secret } = await hook(at, { event_types: ['task.*'] });
      expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
      expect(webhook.secretHint).toBe(secret.slice(-4));
      const taskId = newId<TaskId>();
      await write(taskEvent(taskId, 1));
      const [request] = await on.receiver.until(at);
      if (request === undefined) throw new Error('there is none');
      const { headers, body } = request;
      const event = JSON.parse(body) as Record<string, unknown>;
      expect(event).toMatchObject({
        specversion: '1.0',
        type: 'task.updated',
        datacontenttype: 'application/json',
        workspaceid: on.ws,
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
      await on.receiver.until(at, 2);
      expect(numbersAt(at)).toEqual([1, 2]);
    }));

  test('events of one task come in order, one after another, and a slow task holds up no other', () =>
    running({}, async () => {
      const at = path();
      await hook(at);
      let open = (): void => undefined;
      const once = new Promise<void>((resolve) => (open = resolve));
      on.receiver.replies.set(at, [{ status: 200, once }, 200]);
      const [slow, ...others] = Array.from({ length: 6 }, () => newId<TaskId>());
      if (slow === undefined) throw new Error('there is none');
      await write(taskEvent(slow, 1), taskEvent(slow, 2));
      await on.receiver.until(at, 1);
      await write(...[3, 4].flatMap((n) => others.map((taskId) => taskEvent(taskId, n))));
      await on.receiver.until(at, 11);
      expect(numbersAt(at).filter((n) => n === 2)).toEqual([]);
      for (const taskId of others) {
        expect(ofTask(at, taskId)).toEqual([3, 4]);
      }
      open();
      await on.receiver.until(at, 12);
      expect(numbersAt(at).at(-1)).toBe(2);
    }));

  test('events arrive in order where a statement of the pump is in doubt, again only where one was', async () => {
    let met = 0;
    for (const doubt of DOUBTS)
      for (let before = 0; before < 6; before += 1) {
        const db = new DoubtfulDb(on.opened.db, doubtAt(doubt, before));
        await running({ db, sweepMs: 20 }, async () => {
          const at = path();
          const { webhook } = await hook(at);
          const taskId = newId<TaskId>();
          await write(taskEvent(taskId, 1), taskEvent(taskId, 2));
          await write(taskEvent(taskId, 3));
          const states = async () => (await deliveries(webhook.id)).map(({ state }) => state);
          await waitFor(async () => (await states()).join() === 'delivered,delivered,delivered', `${doubt} ${before}`);
          await db.letGo();
          const numbers = numbersAt(at);
          expect([...new Set(numbers)], `${doubt} ${before}`).toEqual([1, 2, 3]);
          // A statement writes what became of one event, or of the two that were written together.
          expect(numbers.length, `${doubt} ${before}: ${numbers.join(' ')}`).toBeLessThanOrEqual(3 + 2 * db.met);
          expect(await states()).toEqual(['delivered', 'delivered', 'delivered']);
          met += db.met;
        });
      }
    expect(met).toBeGreaterThan(9);
  });

  test('without `retry` an event is tried once, in every way in which a receiver fails; the next one goes on', () =>
    running({}, async ({ metrics }) => {
      const [refuses, moves, silent, down] = [path(), path(), path(), path()];
      on.receiver.replies.set(refuses, [500]);
      on.receiver.replies.set(moves, [{ status: 307, location: on.receiver.url('/elsewhere') }]);
      on.receiver.replies.set(silent, ['never']);
      const closed = createServer().listen(0, '127.0.0.1');
      await new Promise((resolve) => closed.once('listening', resolve));
      const { port } = closed.address() as AddressInfo;
      await new Promise((resolve) => closed.close(resolve));
      const hooks = [];
      for (const at of [refuses, moves, silent]) hooks.push((await hook(at)).webhook);
      hooks.push((await on.world.service.create(on.ws, { url: `http://127.0.0.1:${port}${down}` })).webhook);
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
      expect(on.receiver.at('/elsewhere')).toEqual([]);
      const events = (await metrics.events.get()).values;
      expect(events).toEqual([expect.objectContaining({ labels: { result: 'failed' }, value: 8 })]);
    }));

  test('with `retry` an event waits; those of its task wait behind it, others go on; Retry-After is kept to', () =>
    running({}, async () => {
      const at = path();
      const { webhook } = await hook(at, { retry: true });
      on.receiver.replies.set(at, [{ status: 503, retryAfter: '1000' }, 200, 500, 200]);
      const [first, second] = [newId<TaskId>(), newId<TaskId>()];
      await write(taskEvent(first, 1));
      const waiting = await waitFor(async () => (await deliveries(webhook.id))[0], 'it waits');
      expect(waiting).toMatchObject({ state: 'waiting', attempts: 1, statusCode: 503, error: 'answered 503' });
      const dueInMs = (waiting.dueAtMs ?? 0) - Date.now();
      expect(dueInMs).toBeGreaterThan(900_000);
      expect(dueInMs).toBeLessThan(1_001_000);
      await write(taskEvent(first, 2), taskEvent(second, 3), taskEvent(first, 4));
      await on.receiver.until(at, 2);
      expect(numbersAt(at)).toEqual([1, 3]);
      await waitFor(async () => (await deliveries(webhook.id)).length === 4, 'the others wait behind it');
      // The first retry fails again; with the next one all the others come, in order.
      const due =
        'update webhook_deliveries set due_at = now() where webhook_id = $1 and attempts > 0 and due_at is not null';
      await on.opened.db.query(due, [webhook.id]);
      await on.receiver.until(at, 3);
      const again = await waitFor(async () => {
        const row = (await deliveries(webhook.id)).find(({ id }) => id === waiting.id);
        return row?.attempts === 2 ? row : undefined;
      }, 'the second try is over');
      expect(again).toMatchObject({ state: 'waiting', statusCode: 500 });
      expect(((again.dueAtMs ?? 0) - Date.now()) / 1000).toBeGreaterThan(290);
      expect(numbersAt(at)).toEqual([1, 3, 1]);
      await on.opened.db.query(due, [webhook.id]);
      await on.receiver.until(at, 6);
      expect(numbersAt(at)).toEqual([1, 3, 1, 1, 2, 4]);
      const ids = on.receiver.at(at).map(({ headers }) => headers['webhook-id']);
      expect(new Set([ids[0], ids[2], ids[3]]).size).toBe(1);
      await waitFor(
        async () => (await deliveries(webhook.id)).every(({ state }) => state === 'delivered'),
        'all are delivered',
      );
      // Nothing waits any more: the next one is sent at once.
      await write(taskEvent(first, 5));
      await on.receiver.until(at, 7);
    }));

  test('tries end after seven, and a webhook that is switched off ends what waits', () =>
    running({}, async () => {
      const at = path();
      const { webhook } = await hook(at, { retry: true });
      on.receiver.replies.set(at, [{ status: 500, retryAfter: '1000' }]);
      await write(taskEvent(newId<TaskId>(), 1));
      const row = async () => (await deliveries(webhook.id))[0];
      for (let tries = 1; tries < 7; tries += 1) {
        await waitFor(async () => (await row())?.attempts === tries, `try ${tries}`);
        expect(await row()).toMatchObject({ state: 'waiting' });
        await on.opened.db.query('update webhook_deliveries set due_at = now() where webhook_id = $1', [webhook.id]);
      }
      await waitFor(async () => (await row())?.state === 'failed', 'it is given up');
      expect(await row()).toMatchObject({ attempts: 7, dueAtMs: null });
      await write(taskEvent(newId<TaskId>(), 2));
      await waitFor(async () => (await row())?.state === 'waiting', 'another waits');
      expect(await on.world.service.change(on.ws, webhook.id, { active: false })).toMatchObject({
        active: false,
        inactiveReason: 'switched_off',
      });
      expect(await row()).toMatchObject({ state: 'failed', error: 'the webhook is inactive' });
      // Events of the time in between are not sent later.
      await write(taskEvent(newId<TaskId>(), 3));
      on.receiver.replies.set(at, [200]);
      await on.world.service.change(on.ws, webhook.id, { active: true });
      await write(taskEvent(newId<TaskId>(), 4));
      await on.receiver.until(at, 9);
      expect(numbersAt(at).slice(8)).toEqual([4]);
    }));

  test('410 to a test or to an event that is sent again ends the webhook, too', async () => {
    const ended = { active: false, inactiveReason: 'receiver_gone' };
    const failed = { state: 'failed', statusCode: 410, error: 'answered 410, which ends the webhook', dueAtMs: null };
    const tried = path();
    const { webhook } = await hook(tried);
    const tested = await on.world.service.test(on.ws, webhook.id);
    expect(tested).toMatchObject({ state: 'delivered' });
    on.receiver.replies.set(tried, [410, 410]);
    expect(await on.world.service.test(on.ws, webhook.id)).toMatchObject(failed);
    expect(await now(webhook.id)).toMatchObject(ended);
    await on.world.service.change(on.ws, webhook.id, { active: true });
    expect(await on.world.service.redeliver(on.ws, webhook.id, tested.id)).toMatchObject(failed);
    expect(await now(webhook.id)).toMatchObject(ended);
    // A webhook that somebody switched off keeps that reason.
    await on.world.service.change(on.ws, webhook.id, { active: true });
    await on.world.service.change(on.ws, webhook.id, { active: false });
    on.receiver.replies.set(tried, [410]);
    await on.world.service.test(on.ws, webhook.id);
    expect(await now(webhook.id)).toMatchObject({ active: false, inactiveReason: 'switched_off' });
  });

  test('410 ends the webhook, and says why', () =>
    running({}, async () => {
      const at = path();
      const { webhook } = await hook(at, { retry: true });
      on.receiver.replies.set(at, [410]);
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
      await on.receiver.until(other);
      expect(numbersAt(at)).toEqual([1]);
    }));

  test('filters choose kinds; nothing of another workspace, and nothing that is not for webhooks, is sent', () =>
    running({}, async () => {
      const [all, tasks, one] = [path(), path(), path()];
      await hook(all, { event_types: ['*'] });
      await hook(tasks, { event_types: ['task.*'] });
      await hook(one, { event_types: ['deployment.stopped', 'task.created'] });
      const { id: other } = await aWorkspace(on.opened.db);
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
      await on.receiver.until(all, 4);
      await on.receiver.until(tasks, 2);
      await on.receiver.until(one, 2);
      // The last one comes behind whatever else might have come.
      await write(taskEvent(newId<TaskId>(), 8, { type: 'task.created' }));
      for (const [at, count] of [
        [all, 5],
        [tasks, 3],
        [one, 3],
      ] as const)
        await on.receiver.until(at, count);
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
      await on.receiver.until(at, 10);
      await waitFor(async () => (await deliveries(webhook.id)).length === 10, 'ten outcomes are written');
      await stop();
      const before = (await now(webhook.id)).cursorSeq;
      // A process that is killed before its next write.
      const gone = on.world.pump({ db: withoutTransactions(on.opened.db) });
      await write(...[3, 4].flatMap((n) => tasks.map((taskId) => taskEvent(taskId, n))));
      await on.receiver.until(at, 20);
      await gone.stop();
      expect((await now(webhook.id)).cursorSeq).toBe(before);
      const next = on.world.pump();
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
      await on.receiver.until(at, 10);
      const row = await waitFor(async () => {
        const found = await now(webhook.id);
        return found.skipped > 0 ? found : undefined;
      }, 'it is counted');
      expect(row.skipped).toBe(20);
      expect((await metrics.skipped.get()).values).toMatchObject([{ value: 20 }]);
      await write(taskEvent(newId<TaskId>(), 200));
      await on.receiver.until(at, 11);
      expect(sortedAt(at)).toEqual([...Array.from({ length: 10 }, (_, n) => 20 + n), 200]);
    });
  });

  test('events that were deleted by age before they were sent are counted, too', async () => {
    const at = path();
    const { id: own } = await aWorkspace(on.opened.db);
    const { webhook } = await hook(at, {}, own);
    await write(...Array.from({ length: 6 }, (_, n) => taskEvent(newId<TaskId>(), n, { workspaceId: own })));
    const { rows } = await on.opened.db.query<{ first: number }>(
      "select min(seq) as first from events where workspace_id = $1 and type = 'task.updated'",
      [own],
    );
    const first = rows[0]?.first ?? 0;
    // The first one was sent; of the others three are gone.
    await on.opened.db.query('update webhooks set cursor_seq = $2 where id = $1', [webhook.id, first]);
    await on.opened.db.query('delete from events where workspace_id = $1 and seq <= $2', [own, first + 3]);
    await running({}, async () => {
      await on.receiver.until(at, 2);
      await waitFor(async () => (await now(webhook.id, own)).skipped === 3, 'three are counted');
      expect(sortedAt(at)).toEqual([4, 5]);
    });
  });

  test('receivers that never answer hold up no other workspace', async () => {
    // Nothing times out while this test runs.
    await running({ receivers: on.world.receivers(60_000) }, async () => {
      const { id: other } = await aWorkspace(on.opened.db);
      const slow = Array.from({ length: 18 }, path);
      for (const at of slow) {
        on.receiver.replies.set(at, ['never']);
        await hook(at);
      }
      const others = path();
      await hook(others, {}, other);
      const tasks = Array.from({ length: 20 }, () => newId<TaskId>());
      await write(...tasks.map((taskId, n) => taskEvent(taskId, n)));
      const asked = (): number => slow.reduce((sum, at) => sum + on.receiver.at(at).length, 0);
      await waitFor(() => asked() === 16, 'the workspace has all its places', 20_000);
      await write(...tasks.map((taskId, n) => taskEvent(taskId, n, { workspaceId: other })));
      await waitFor(() => on.receiver.at(others).length === 20, 'the other one has its events', 20_000);
      expect(asked()).toBe(16);
    });
  });

  test('receivers that are known not to answer hold up no other webhook of their workspace', async () => {
    // Nothing times out while this test runs.
    await running({ receivers: on.world.receivers(60_000) }, async ({ stop }) => {
      await stop();
      const slow = Array.from({ length: 18 }, path);
      for (const at of slow) {
        on.receiver.replies.set(at, ['never']);
        await hook(at);
      }
      const last = JSON.stringify({ event_id: 'x', status_code: null, at: '2030-01-01T00:00:00Z', error: 'no answer' });
      await on.opened.db.query('update webhooks set last_delivery = $1::json', [last]);
      const same = path();
      await hook(same);
      on.world.pump({ receivers: on.world.receivers(60_000) });
      const tasks = Array.from({ length: 60 }, () => newId<TaskId>());
      await write(...tasks.map((taskId, n) => taskEvent(taskId, n)));
      await waitFor(() => on.receiver.at(same).length === 60, 'the other webhook has its events', 20_000);
      // Each has one request at a time, and all of them have half of the places.
      const reached = (): readonly string[] => slow.filter((at) => on.receiver.at(at).length > 0);
      await waitFor(() => reached().length >= 8, 'the silent receivers have theirs', 20_000);
      const counts = slow.map((at) => on.receiver.at(at).length);
      expect(Math.max(...counts)).toBe(1);
      expect(reached()).toHaveLength(8);
    });
  });

  test('a receiver that did not answer in time has one request at a time', () =>
    running({}, async () => {
      const at = path();
      on.receiver.replies.set(at, ['never']);
      const { webhook } = await hook(at);
      await write(...Array.from({ length: 12 }, (_, n) => taskEvent(newId<TaskId>(), n)));
      // Two are sent before anything is known of it.
      await waitFor(async () => (await deliveries(webhook.id)).length >= 2, 'two are over', 20_000);
      expect(on.receiver.at(at).length).toBeLessThanOrEqual(4);
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
