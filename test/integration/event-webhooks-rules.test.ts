// Webhooks of events on real databases of both kinds: changes, bounds, addresses, secrets, and requests to send again.
import { createHmac } from 'node:crypto';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { Webhook } from 'standardwebhooks';
import { describe, expect, test } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import { newId } from '#shared/domain/ids.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import { WebhookSecrets } from '#scheduler/tasks/event-webhooks/secrets.ts';
import { sealAnew } from '#scheduler/workspaces/identity/seal-anew.ts';
import { SIGNING_KEY } from '#scheduler/workspaces/identity/workspaces.ts';
import { createSealer } from '#scheduler/workspaces/secrets/seal.ts';
import { waitFor } from '../helpers/services.ts';
import { KINDS, aWorkspace } from './store-fixture.ts';
import { KEY, quiet, sealer, webhooksOn, worldOf } from './event-webhooks-fixture.ts';

describe.each(KINDS)('webhooks on %s', (kind) => {
  const on = webhooksOn(kind);
  const { path, hook, now, taskEvent, write, numbersAt, deliveries, running } = on;

  test('a change of address, filters or state counts from the next page on; a deleted webhook gets nothing', () =>
    running({ sweepMs: 60_000 }, async ({ stop }) => {
      await stop();
      const [first, second] = [path(), path()];
      const { webhook } = await hook(first);
      // No sweep finds the changes: this pump swept before them.
      const next = on.world.pump({ sweepMs: 60_000 });
      await write(taskEvent(newId<TaskId>(), 1));
      await on.receiver.until(first);
      await on.world.service.change(on.ws, webhook.id, { url: on.receiver.url(second), event_types: ['task.created'] });
      await write(taskEvent(newId<TaskId>(), 2), taskEvent(newId<TaskId>(), 3, { type: 'task.created' }));
      await on.receiver.until(second);
      expect([numbersAt(first), numbersAt(second)]).toEqual([[1], [3]]);
      await on.world.service.delete(on.ws, webhook.id);
      const last = path();
      await write(taskEvent(newId<TaskId>(), 4, { type: 'task.created' }));
      await hook(last);
      await next.stop();
      on.world.pump();
      await write(taskEvent(newId<TaskId>(), 5, { type: 'task.created' }));
      await on.receiver.until(last);
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
      await expect(on.world.service.create(on.ws, { url }), url).rejects.toMatchObject({
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
    const guarded = worldOf(on.opened.db, '10.0.0.0/8');
    await expect(guarded.service.create(on.ws, { url: `http://127.0.0.1:${port}/` })).rejects.toThrow('127.0.0.1');
    const { webhook } = await guarded.service.create(on.ws, { url: `https://localhost:${port}/` });
    for (const url of [`https://localhost:${port}/`, `http://127.0.0.1:${port}/`, `http://2130706433:${port}/`]) {
      // An address may have been allowed when it was named.
      await on.opened.db.query('update webhooks set url = $2 where id = $1', [webhook.id, url]);
      expect(await guarded.service.test(on.ws, webhook.id), url).toMatchObject({
        state: 'failed',
        statusCode: null,
        error: 'no address of the host may be dialled',
      });
    }
    expect(dialled).toBe(0);
    await new Promise((resolve) => trap.close(resolve));
    await guarded.stop();
    await on.opened.db.query('delete from webhooks');
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
      await expect(on.world.service.create(on.ws, { url: 'https://example.com/', event_types })).rejects.toMatchObject({
        code: 'invalid_webhook',
        message: expect.stringContaining(text) as string,
      });
    await expect(
      on.world.service.create(on.ws, { url: 'https://example.com/', description: 'x'.repeat(501) }),
    ).rejects.toThrow('description must have at most 500 characters');
    const made = await Promise.allSettled(
      Array.from({ length: 25 }, () => on.world.service.create(on.ws, { url: 'https://example.com/' })),
    );
    expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(20);
    const refused = made.find(({ status }) => status === 'rejected');
    expect(refused).toMatchObject({ reason: { code: 'too_many_webhooks' } });
    await on.opened.db.query('delete from webhooks');
  });

  test('after a rotation both secrets sign, for a day; a test and a repetition say what came of them', async () => {
    const at = path();
    const { webhook, secret: first } = await hook(at);
    const tested = await on.world.service.test(on.ws, webhook.id);
    expect(tested).toMatchObject({ state: 'delivered', attempts: 1, eventType: 'webhook.test', statusCode: 200 });
    const { secret: second, webhook: rotated } = await on.world.service.rotate(on.ws, webhook.id);
    expect(second).not.toBe(first);
    expect(rotated.secretHint).toBe(second.slice(-4));
    on.receiver.replies.set(at, [500, 200]);
    const again = await on.world.service.redeliver(on.ws, webhook.id, tested.id);
    expect(again).toMatchObject({ id: tested.id, state: 'failed', attempts: 2, error: 'answered 500' });
    expect(await on.world.service.redeliver(on.ws, webhook.id, tested.id)).toMatchObject({
      state: 'delivered',
      attempts: 3,
    });
    const [before, after, last] = on.receiver.at(at);
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
    await on.opened.db.query(
      "update webhook_secrets set signs_until = now() - interval '1 second' where signs_until is not null",
    );
    on.world.secrets.forget(webhook.id);
    await on.world.service.test(on.ws, webhook.id);
    const alone = on.receiver.at(at).at(-1);
    expect(() => new Webhook(first).verify(alone?.body ?? '', alone?.headers as Record<string, string>)).toThrow();
    expect(() => new Webhook(second).verify(alone?.body ?? '', alone?.headers as Record<string, string>)).not.toThrow();
    // At most three secrets sign, however often it is rotated.
    for (let turn = 0; turn < 5; turn += 1) await on.world.service.rotate(on.ws, webhook.id);
    expect(await on.world.secrets.of(await now(webhook.id))).toHaveLength(3);
    await on.opened.db.query('delete from webhooks');
  });

  test('a change of the key that seals keeps secrets good', async () => {
    const { webhook, secret } = await hook(path());
    const key = Buffer.alloc(32, 9);
    await on.opened.db.query('update workspaces set signing_key = $1', [
      sealer.seal(Buffer.from('sk_test'), SIGNING_KEY),
    ]);
    await sealAnew(on.opened.db, createSealer(key, KEY), quiet);
    expect(await new WebhookSecrets(on.opened.db, createSealer(key), systemClock).of(webhook)).toEqual([secret]);
    const before = new WebhookSecrets(on.opened.db, sealer, systemClock);
    await expect(before.of(webhook)).rejects.toMatchObject({ code: 'sealed_value_unreadable' });
    await on.opened.db.query('delete from webhooks');
  });

  test('a secret that cannot be read holds up its own webhook alone, which goes on when it can', () =>
    running({}, async () => {
      const [closed, open] = [path(), path()];
      const { webhook } = await hook(closed);
      await hook(open);
      const { rows } = await on.opened.db.query<{ sealed: Uint8Array }>(
        'select sealed from webhook_secrets where webhook_id = $1',
        [webhook.id],
      );
      await on.opened.db.query("update webhook_secrets set sealed = ''::bytea where webhook_id = $1", [webhook.id]);
      await write(taskEvent(newId<TaskId>(), 1));
      await on.receiver.until(open);
      expect(on.receiver.at(closed)).toEqual([]);
      await on.opened.db.query('update webhook_secrets set sealed = $2 where webhook_id = $1', [
        webhook.id,
        rows[0]?.sealed,
      ]);
      await waitFor(() => on.receiver.at(closed).length === 1, 'it is sent', 20_000);
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
      const { webhook } = await on.world.service.create(on.ws, { url: `http://127.0.0.1:${port}/` });
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
      on.receiver.replies.set(at, [{ status: 500, retryAfter: '1000' }, 200]);
      const taskId = newId<TaskId>();
      await write(taskEvent(taskId, 1));
      const waiting = await waitFor(async () => (await deliveries(webhook.id))[0], 'it waits');
      const { id: foreign } = await aWorkspace(on.opened.db);
      await expect(on.world.service.redeliver(foreign, webhook.id, waiting.id)).rejects.toThrow('no such webhook');
      await expect(on.world.service.redeliver(on.ws, webhook.id, newId())).rejects.toMatchObject({
        code: 'delivery_not_found',
      });
      expect(await on.world.service.redeliver(on.ws, webhook.id, waiting.id)).toMatchObject({
        state: 'delivered',
        attempts: 2,
        dueAtMs: null,
      });
      await write(taskEvent(taskId, 2));
      await on.receiver.until(at, 3);
      expect(numbersAt(at)).toEqual([1, 1, 2]);
      await on.opened.db.query('delete from events where workspace_id = $1', [on.ws]);
      await expect(on.world.service.redeliver(on.ws, webhook.id, waiting.id)).rejects.toMatchObject({
        code: 'event_gone',
      });
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
      await on.receiver.until(at, 3);
      expect(on.receiver.at(at).map(({ body }) => (JSON.parse(body) as { data: unknown }).data)).toEqual([
        { id: 'a', n: 1 },
        { id: 'b', n: 2 },
        { id: 'c', n: 3, stub_config: '{}' },
      ]);
    }));

  test('outcomes are kept up to a bound, of each state on its own', () =>
    running({ keptOutcomes: 5 }, async ({ stop }) => {
      const at = path();
      const { webhook } = await hook(at);
      on.receiver.replies.set(at, [500, 500, 500, 200]);
      const taskId = newId<TaskId>();
      await write(...Array.from({ length: 250 }, (_, n) => taskEvent(taskId, n)));
      const [{ seq } = { seq: 0 }] = (
        await on.opened.db.query<{ seq: number }>('select max(seq) as seq from events where workspace_id = $1', [on.ws])
      ).rows;
      await waitFor(async () => (await now(webhook.id)).cursorSeq === seq, 'all outcomes are written', 20_000);
      await stop();
      const next = on.world.pump({ keptOutcomes: 5 });
      await write(taskEvent(taskId, 250));
      await on.receiver.until(at, 251);
      await waitFor(async () => (await deliveries(webhook.id)).length <= 8, 'the others are gone');
      await next.stop();
      const rows = await deliveries(webhook.id);
      expect(rows.filter(({ state }) => state === 'failed')).toHaveLength(3);
      expect(numbersAt(at)).toEqual(Array.from({ length: 251 }, (_, n) => n));
    }));
});
