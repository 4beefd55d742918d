// Streamed calls that end otherwise than by their answer: callers that leave, containers that die, limits, stops and
// kills of the processes on the way. WebSockets: how they begin and end.
import { describe, expect } from 'vitest';
import { WebSocket } from 'ws';
import { sleep } from '#shared/backoff.ts';
import { jsonOf } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import type { RawConnection } from '../helpers/raw-http.ts';
import { waitFor } from '../helpers/services.ts';
import { openSocket, stateOf, test } from '../helpers/streamed-web.ts';
import type { Web } from '../helpers/streamed-web.ts';

describe('a caller who leaves', () => {
  test('ends a stream of events, whose application sees it', async ({ platform, web, raw }) => {
    const before = (await stateOf(platform, web)).seen['disconnects'] ?? 0;
    const connection = await raw();
    connection.send(`GET ${web.path}/events HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer ${platform.token}\r\n\r\n`);
    await connection.until((bytes) => bytes.includes('data: 3'));
    const taskId = /x-task-id: ([0-9a-f-]+)/i.exec(connection.received.toString())?.[1] ?? '';
    connection.close();
    await waitFor(async () => (await stateOf(platform, web)).seen['disconnects'] === before + 1, 'it is told');
    await platform.taskIs(taskId, 'CANCELLED');
  });
});

test('a realtime handler that blocks ends with its container, and a new one serves', async ({ platform }) => {
  const deployed = await platform.deploy({
    app: 'endless.py',
    handler: 'handler',
    name: 'endless',
    stubType: 'asgi/deployment',
    keepWarmSeconds: 60,
  });
  const endless = { ...deployed, path: new URL(deployed.url).pathname };
  const blocked = await openSocket(platform, endless, '/');
  blocked.socket.send('endless');
  await waitFor(async () => (await platform.tasks(deployed)).some(({ status }) => status === 'RUNNING'), 'it runs');
  blocked.socket.terminate();
  // The container has one slot, so the next caller waits for another container.
  const next = await openSocket(platform, endless, '/');
  next.socket.send('quick');
  await waitFor(() => next.messages.length === 1, 'another container answers', 45_000);
  expect(next.messages).toEqual(['quick']);
  await waitFor(
    async () => (await platform.tasks(deployed)).some(({ status }) => status === 'CANCELLED'),
    'the task of the blocked handler is CANCELLED',
    30_000,
  );
  next.socket.close(1000);
  await next.closed;
}, 120_000);

describe('a container that dies', () => {
  test('before its answer: 500', async ({ platform, web }) => {
    expect(await platform.call(`${web.url}/die`)).toMatchObject({ status: 500 });
    await waitFor(async () => (await platform.call(`${web.url}/`)).status === 200, 'another serves', 30_000);
  });

  test('within its answer: the answer is cut', async ({ platform, web, raw }) => {
    const connection = await raw();
    connection.send(`GET ${web.path}/die?late HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer ${platform.token}\r\n\r\n`);
    const answer = await connection.answer();
    expect(answer.isWhole).toBe(false);
    expect(answer.body.toString()).toBe('a part');
    // The process is the reason, and no caller who left.
    await platform.taskIs(answer.headers['x-task-id'] ?? '', 'ERROR');
    await waitFor(async () => (await platform.call(`${web.url}/`)).status === 200, 'another serves', 30_000);
  });
});

describe('a WebSocket', () => {
  test('carries messages both ways, and tells its end', async ({ platform, web }) => {
    const { socket, messages, closed } = await openSocket(platform, web, '/socket', ['chat', 'other']);
    expect(socket.protocol).toBe('chat');
    socket.send('hello');
    socket.send(Buffer.from([0, 1, 255]));
    socket.send('é'.repeat(100_000));
    await waitFor(() => messages.length === 3, 'three came back');
    expect(messages).toEqual(['hello', Buffer.from([0, 1, 255]), 'é'.repeat(100_000)]);
    socket.close(4002, 'done');
    expect(await closed).toEqual({ code: 4002, reason: 'done' });
    const { gone } = await stateOf(platform, web);
    expect(gone).toContainEqual(['websocket', 4002, 'done']);
  });

  test('is refused with 403 where the application refuses it', async ({ platform, web }) => {
    await expect(openSocket(platform, web, '/refused')).rejects.toThrow('403');
  });

  test('needs a token like any call', async ({ platform, web }) => {
    const socket = new WebSocket(`ws://${platform.httpAddress}${web.path}/socket`);
    const error = await new Promise<Error>((resolve) => socket.once('error', resolve));
    expect(error.message).toContain('401');
  });

  test('is closed by the application with its code', async ({ platform, web }) => {
    const { closed } = await openSocket(platform, web, '/close');
    expect(await closed).toEqual({ code: 4001, reason: 'enough' });
  });

  test('whose application raises is closed with 1011', async ({ platform, web }) => {
    const { closed } = await openSocket(platform, web, '/raise');
    expect((await closed).code).toBe(1011);
  });

  test('whose container dies never closes cleanly', async ({ platform, web }) => {
    const { closed } = await openSocket(platform, web, '/die');
    expect((await closed).code).toBe(1011);
    await waitFor(async () => (await platform.call(`${web.url}/`)).status === 200, 'another serves', 30_000);
  });

  test('whose caller leaves before it is accepted ends with him', async ({ platform, raw }) => {
    const cold = await platform.deploy({
      app: 'web.py',
      handler: 'app',
      name: 'cold',
      stubType: 'asgi/deployment',
      cpu: 100_000,
    });
    const connection = await raw();
    const handshake = [
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
    ];
    const authorization = `Authorization: Bearer ${platform.token}`;
    connection.send(
      `GET ${new URL(cold.url).pathname}/socket HTTP/1.1\r\nHost: w\r\n${authorization}\r\n${handshake.join('\r\n')}\r\n\r\n`,
    );
    await waitFor(async () => (await platform.tasks(cold)).some(({ status }) => status === 'PENDING'), 'it waits');
    connection.close();
    await waitFor(
      async () => (await platform.tasks(cold)).every(({ status }) => status === 'CANCELLED'),
      'it is cancelled',
    );
  });

  test('whose caller vanishes is 1006 for the application', async ({ platform, web }) => {
    const { socket } = await openSocket(platform, web, '/socket');
    socket.terminate();
    await waitFor(
      async () => (await stateOf(platform, web)).gone.some((one) => Array.isArray(one) && one[1] === 1006),
      'the application is told',
    );
  });
});

describe('the execution limit', () => {
  const brief = (platform: Platform, name: string) =>
    platform.deploy({ app: 'web.py', handler: 'app', name, stubType: 'asgi/deployment', timeout: 1 });

  test('ends a request whose response does not begin', async ({ platform }) => {
    const { url } = await brief(platform, 'brief');
    const answer = await platform.call(`${url}/sleep?30`);
    expect(answer).toMatchObject({ status: 504, text: '{"error":"no response began within the limit of 1 s"}' });
    await platform.taskIs(answer.taskId, 'TIMEOUT');
  });

  test('begins anew while the body arrives, and counts once it does not', async ({ platform, raw }) => {
    const { url } = await brief(platform, 'slow');
    const head = [
      `POST ${new URL(url).pathname}/upload HTTP/1.1`,
      'Host: w',
      `Authorization: Bearer ${platform.token}`,
      'Transfer-Encoding: chunked',
    ];
    const [whole, stuck] = [await raw(), await raw()];
    for (const connection of [whole, stuck]) connection.send(`${head.join('\r\n')}\r\n\r\n`);
    for (let second = 0; second < 8; second += 1) {
      whole.send('1\r\na\r\n');
      await sleep(400);
    }
    whole.send('0\r\n\r\n');
    await whole.until((bytes) => bytes.includes('\r\n\r\n'));
    expect(whole.received.toString()).toMatch(/^HTTP\/1\.1 200 /);
    await stuck.until((bytes) => bytes.includes('\r\n\r\n'));
    expect(stuck.received.toString()).toMatch(/^HTTP\/1\.1 504 /);
  });
});

/** A stream of events under way, and what it takes to see its end. */
async function streaming(platform: Platform, web: Web, raw: () => Promise<RawConnection>) {
  const { pid, seen } = await stateOf(platform, web);
  const connection = await raw();
  connection.send(`GET ${web.path}/events HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer ${platform.token}\r\n\r\n`);
  await connection.until((bytes) => bytes.includes('data: 3'));
  const taskId = /x-task-id: ([0-9a-f-]+)/i.exec(connection.received.toString())?.[1] ?? '';
  const endsInContainer = (): Promise<unknown> =>
    waitFor(
      async () => {
        const answer = await platform.call(`${web.url}/`).catch(() => undefined);
        if (answer?.status !== 200) return false;
        const now = jsonOf<{ pid: number; seen: Record<string, number> }>(answer);
        expect(now.pid, 'the same process serves').toBe(pid);
        return (now.seen['disconnects'] ?? 0) > (seen['disconnects'] ?? 0);
      },
      'the application saw the end',
      30_000,
    );
  return { connection, taskId, endsInContainer };
}

describe('in the middle of a stream', () => {
  test('an agent that is killed cuts it; the application sees the end, and goes on serving', async ({
    platform,
    web,
    raw,
  }) => {
    const { connection, taskId, endsInContainer } = await streaming(platform, web, raw);
    const killedAtMs = performance.now();
    await platform.agent.kill();
    expect((await connection.answer()).isWhole).toBe(false);
    expect(performance.now() - killedAtMs).toBeLessThan(5_000);
    await platform.agent.start();
    await endsInContainer();
    await waitFor(
      async () => /CANCELLED|ERROR/.test((await platform.task(taskId)).status),
      'its task has ended',
      30_000,
    );
  }, 60_000);

  test('a scheduler that is killed cuts it; the application sees the end, and goes on serving', async ({
    platform,
    web,
    raw,
  }) => {
    const { connection, taskId, endsInContainer } = await streaming(platform, web, raw);
    await platform.scheduler.kill();
    expect((await connection.answer()).isWhole).toBe(false);
    await platform.startScheduler();
    await endsInContainer();
    await waitFor(
      async () => /CANCELLED|ERROR/.test((await platform.task(taskId)).status),
      'its task has ended',
      30_000,
    );
  }, 60_000);

  test('a scheduler that stops lets answers end, and tells WebSockets to come again', async ({
    platform,
    web,
    raw,
  }) => {
    const { closed } = await openSocket(platform, web, '/socket');
    const connection = await raw();
    connection.send(`GET ${web.path}/sleep?2 HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer ${platform.token}\r\n\r\n`);
    await waitFor(async () => (await stateOf(platform, web)).seen['calls'] !== undefined, 'it serves');
    await platform.scheduler.stop();
    expect((await closed).code).toBe(1012);
    expect(await connection.answer()).toMatchObject({ status: 200, isWhole: true });
    await platform.startScheduler();
    await waitFor(async () => (await platform.call(`${web.url}/`)).status === 200, 'calls are served', 30_000);
  }, 60_000);

  test('nothing is left of streams that have ended', async ({ platform }) => {
    const metrics = await platform.call('/metrics');
    expect(metrics.text).toMatch(/longshore_scheduler_streams_active\{protocol="http"\} 0/);
    expect(metrics.text).toMatch(/longshore_scheduler_streams_active\{protocol="websocket"\} 0/);
  });
});
