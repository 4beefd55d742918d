// A workspace floods everything that it can make, over HTTP on a real scheduler with real stores. Each bound answers
// with the error that names it, and a neighbour's calls are accepted all the while. There is no machine: tasks wait.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform } from './verbs-fixture.ts';

let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform();
});
afterAll(() => platform.stop());

const limitsPath = (workspaceId: string): string => `/api/v1/workspace/${workspaceId}/limits`;
const asAdmin = () => ({ token: platform.admin.token });
async function set(change: Json, { workspaceId } = platform.own): Promise<void> {
  const put = await platform.call(`PUT ${limitsPath(workspaceId)}`, change, asAdmin());
  expect(put.status).toBe(200);
}
async function used(group: string, name: string): Promise<Json> {
  const { json } = await platform.call(`GET ${limitsPath(platform.own.workspaceId)}`);
  return (json[group] as Record<string, Json>)[name] ?? {};
}
/** Sends `count` requests, `atOnce` at a time. */
async function flood(count: number, atOnce: number, send: (at: number) => Promise<Answer>): Promise<readonly Answer[]> {
  const answers: Answer[] = [];
  for (let at = 0; at < count; at += atOnce) {
    const some = Array.from({ length: Math.min(atOnce, count - at) }, (_, index) => send(at + index));
    answers.push(...(await Promise.all(some)));
  }
  return answers;
}
const neighbour = () => ({ token: platform.other.token });

describe('limits', () => {
  test('are shown with what is used, every one of them; a workspace sees its own and sets none', async () => {
    const { json } = await platform.call(`GET ${limitsPath(platform.own.workspaceId)}`);
    expect(json).toMatchObject({
      workspace_id: platform.own.workspaceId,
      tasks: { max_pending_tasks: 100_000 },
      rate: { inference_per_minute: 600, inference_tokens_per_minute: null },
      counts: {
        webhooks: { used: 0, limit: 20 },
        databases: { used: 0, limit: 20 },
        stacks: { used: 0, limit: 100 },
        stubs: { used: 0, limit: 10_000 },
        objects: { used: 0, limit: 100_000 },
        pools: { used: 0, limit: 20 },
        unjoined_machines: { used: 0, limit: 50 },
        sandboxes: { used: 0, limit: 200 },
      },
      bytes: {
        logs_per_day: { used: 0, limit: 1024 ** 3 },
        objects: { used: 0, limit: 100 * 1024 ** 3 },
        queue: { used: 0, limit: 256 * 1024 ** 2 },
      },
      retention: { logs_days: 30, events_days: 30, tasks_days: 30 },
    });
    const [own, foreign] = [limitsPath(platform.own.workspaceId), limitsPath(platform.other.workspaceId)];
    expect((await platform.call(`GET ${foreign}`)).status).toBe(401);
    for (const path of [own, foreign]) {
      expect((await platform.call(`PUT ${path}`, { bytes: { queue: 5 } })).status).toBe(401);
    }
    const wrong = await platform.call(`PUT ${own}`, { bytes: { queue: -1 } }, asAdmin());
    expect([wrong.status, wrong.json['message']]).toEqual([
      422,
      expect.stringContaining('bytes.queue must be a whole'),
    ]);
  });
});

describe('a flood of', () => {
  test('machines meets its bound at 50; neighbours and shared pools do not notice', async () => {
    const create = (sent?: { readonly token: string }) => platform.gateway('POST /machines', { poolName: 'gpu' }, sent);
    const answers = await flood(200, 50, () => create());
    const made = answers.filter(({ json }) => json['ok'] === true);
    expect(made).toHaveLength(50);
    const refused = answers.filter(({ json }) => json['ok'] === false);
    expect(refused).toHaveLength(150);
    expect(new Set(refused.map(({ json }) => json['errMsg']))).toEqual(
      new Set([expect.stringMatching(/^50 machines were created and have not joined.*machine delete/)]),
    );
    expect(await used('counts', 'unjoined_machines')).toEqual({ used: 50, limit: 50 });
    expect((await create(neighbour())).json['ok']).toBe(true);
    expect((await create(asAdmin())).json['ok']).toBe(true);
    const { json } = await platform.gateway('GET /machines');
    expect(json['machines']).toHaveLength(50);
  });

  test('pools is refused by name at its bound, whether CreatePool or CreateMachine makes them', async () => {
    await set({ counts: { pools: 3, unjoined_machines: 1_000 } });
    const { limit, used: before } = await used('counts', 'pools');
    expect([limit, before]).toEqual([3, 1]);
    const answers = await flood(20, 10, (at) =>
      at % 2 === 0
        ? platform.gateway('POST /machines', { poolName: `flood-${at}` })
        : platform.gateway('POST /pools', { name: `flood-${at}`, settings: {} }),
    );
    expect(answers.filter(({ json }) => json['ok'] === true)).toHaveLength(2);
    expect(new Set(answers.filter(({ json }) => json['ok'] !== true).map(({ json }) => json['errMsg']))).toEqual(
      new Set([expect.stringMatching(/^this workspace has 3 pools.*counts\.pools/)]),
    );
    expect((await platform.gateway('POST /pools', { name: 'theirs', settings: {} }, neighbour())).json['ok']).toBe(
      true,
    );
    expect(await used('counts', 'pools')).toEqual({ used: 3, limit: 3 });
    await set({ counts: { pools: null, unjoined_machines: null } });
  });

  test('stubs is refused by name at its bound; known ones are found all the same', async () => {
    await set({ counts: { stubs: 5 } });
    const stub = (name: string, sent?: { readonly token: string }) =>
      platform.gateway(
        'POST /stubs',
        { stubType: 'endpoint/deployment', name, handler: 'app:handler', cpu: 100, memory: 64 },
        sent,
      );
    const answers = await flood(20, 1, (at) => stub(`s-${at}`));
    expect(answers.filter(({ json }) => json['ok'] === true)).toHaveLength(5);
    expect(answers.at(-1)?.json).toMatchObject({
      ok: false,
      errMsg: expect.stringMatching(/counts\.stubs.*workspace limits/),
    });
    expect((await stub('s-0')).json['ok']).toBe(true);
    expect((await stub('theirs', neighbour())).json['ok']).toBe(true);
    expect(await used('counts', 'stubs')).toEqual({ used: 5, limit: 5 });
    // A refused stub leaves no app of its name.
    const { json: apps } = await platform.call(`GET /api/v1/app/${platform.own.workspaceId}`);
    expect(apps['data']).toHaveLength(5);
    await set({ counts: { stubs: null } });
  });

  test('objects is refused by name at its bytes and at its count, when announced and when more comes than was announced', async () => {
    await set({ bytes: { objects: 1_000 }, counts: { objects: 4 } });
    const announce = (hash: string, size: number, sent?: { readonly token: string }) =>
      platform.gateway('POST /objects', { hash, size, overwrite: true }, sent);
    const upload = (answer: Answer, bytes: number) => {
      const { pathname, search } = new URL(String(answer.json['presignedUrl']));
      return platform.call(`PUT ${pathname}${search}`, 'x'.repeat(bytes), { token: '' });
    };
    const first = await announce('a', 600);
    expect((await upload(first, 600)).status).toBe(200);
    const over = await announce('b', 401);
    expect(over.status).toBe(429);
    expect(over.text).toMatch(/bytes\.objects, 1000.*workspace limits/);
    // The upload exceeds its announced size.
    const small = await announce('b', 1);
    const more = await upload(small, 401);
    expect([more.status, more.json['code']]).toEqual([507, 'object_quota_reached']);
    expect((await upload(small, 400)).status).toBe(200);
    expect((await announce('a', 600)).status).toBe(200);
    await announce('c', 0);
    await announce('d', 0);
    expect((await announce('e', 0)).text).toMatch(/counts\.objects is 4/);
    expect((await announce('e', 5_000, neighbour())).status).toBe(200);
    expect(await used('bytes', 'objects')).toEqual({ used: 1_000, limit: 1_000 });
    await set({ bytes: { objects: null }, counts: { objects: null } });
  });

  test('tasks with 64 KiB inputs is refused at the bytes of its queue; what was taken stays, and room comes back as tasks end', async () => {
    const limit = 4 * 1024 ** 2;
    await set({ bytes: { queue: limit } });
    await platform.deploy('flood', { stubType: 'taskqueue/deployment', maxPendingTasks: 100_000 });
    await platform.deploy('calm', { stubType: 'taskqueue/deployment' }, platform.other.token);
    const input = { text: 'x'.repeat(60_000) };
    const put = () => platform.call('POST /taskqueue/flood', input);
    const calm = () => platform.call('POST /taskqueue/calm', input, neighbour());
    let served = 0;
    const answers = await flood(200, 10, async (at) => {
      if (at % 10 === 0 && (await calm()).status === 200) served += 1;
      return put();
    });
    const taken = answers.filter(({ status }) => status === 200);
    const refused = answers.filter(({ status }) => status === 429);
    expect(taken.length + refused.length).toBe(200);
    // The count matches the bound, within the ten tasks that may be let in between two looks at the use.
    expect(taken.length).toBeGreaterThan(0.8 * (limit / 61_000));
    expect(taken.length).toBeLessThanOrEqual(limit / 60_000 + 10);
    expect(refused[0]?.json).toEqual({ error: expect.stringContaining('bytes.queue'), code: 'queue_bytes_reached' });
    expect(served).toBe(20);
    const taskIds = taken.map(({ json }) => json['task_id']);
    expect(Number((await used('bytes', 'queue'))['used'])).toBeGreaterThan(0.8 * limit);
    await platform.gateway('POST /tasks/stop', { taskIds });
    await waitFor(async () => (await put()).status === 200 || undefined, 'room when the tasks have ended');
    await set({ bytes: { queue: null } });
  });

  test('tasks meets a Redis that is nearly full: asynchronous ones are told so and when to come again, and are taken when there is room', async () => {
    const servers = platform.servers;
    if (servers === undefined) throw new Error('this platform has no servers');
    const redis = servers.redis.connect({});
    const memory = async (): Promise<number> => Number(/used_memory:(\d+)/.exec(await redis.info('memory'))?.[1]);
    await platform.deploy(
      'waits',
      { stubType: 'taskqueue/deployment', maxPendingTasks: 100_000 },
      platform.other.token,
    );
    const put = () => platform.call('POST /taskqueue/waits', {}, neighbour());
    expect((await put()).status).toBe(200);
    await redis.config('SET', 'maxmemory', String(Math.floor((await memory()) / 0.9)));
    const refused = await waitFor(async () => {
      const answer = await put();
      return answer.status === 503 ? answer : undefined;
    }, 'a refusal');
    expect(refused.json).toEqual({ error: expect.stringContaining('nearly full'), code: 'redis_nearly_full' });
    const again = await fetch(`http://${platform.address}/taskqueue/waits`, {
      method: 'POST',
      headers: { authorization: `Bearer ${platform.other.token}` },
    });
    expect([again.status, again.headers.get('retry-after')]).toEqual([503, '5']);
    // Redis itself refuses nothing yet.
    await redis.set('reserve', 'x');
    const page = await platform.call('GET /metrics', undefined, asAdmin());
    expect(page.text).toMatch(/longshore_scheduler_redis_memory_bytes\{kind="max"\} [1-9]/);
    expect(page.text).toMatch(/longshore_scheduler_quota_throttles_total\{resource="redis_memory"\} [1-9]/);
    await redis.config('SET', 'maxmemory', '0');
    await waitFor(async () => (await put()).status === 200 || undefined, 'tasks are taken again');
  });
});
