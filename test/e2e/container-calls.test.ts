// Handlers that call the platform they run in, with no network, no URL and no
// token of theirs. Both daemons, the Python module and the containers are real.
import { describe, expect } from 'vitest';
import { jsonOf, test } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

interface Raw {
  readonly status: number;
  readonly body: string;
  readonly token: string;
}

const APP = { app: 'calling.py', blockNetwork: true, keepWarmSeconds: 120 };

async function raw(
  platform: Platform,
  deployment: Deployment,
  method: string,
  path: string,
  headers = {},
): Promise<Raw> {
  const answer = await platform.invoke(deployment, { method, path, headers });
  expect(answer.status, answer.text).toBe(200);
  return jsonOf<Raw>(answer);
}

describe('a handler without a network', () => {
  test('puts a task into a queue of its workspace and reads what became of it', async ({ platform }) => {
    await platform.deploy({
      app: 'calling.py',
      handler: 'later',
      name: 'calling-later',
      stubType: 'taskqueue/deployment',
    });
    const caller = await platform.deploy({ ...APP, handler: 'caller', name: 'calling' });
    const answer = await platform.invoke(caller, { n: 21 });
    expect(answer.status, answer.text).toBe(200);
    const { task, ...said } = jsonOf<{ readonly task: string }>(answer);
    expect(said).toEqual({ result: { doubled: 42 }, interfaces: ['lo'] });
    expect(await platform.task(task)).toMatchObject({ status: 'COMPLETE', result: { doubled: 42 } });
  });

  test('invokes another endpoint, with megabytes both ways', async ({ platform }) => {
    await platform.deploy({ app: 'calling.py', handler: 'other', name: 'calling-other' });
    const through = await platform.deploy({ ...APP, handler: 'through', name: 'calling-through' });
    const answer = await platform.invoke(through, { size: 3_000_000 });
    expect([answer.status, answer.text]).toEqual([200, '{"back":3000000}']);
  });

  test('goes no further than the list, nor into another workspace; its credential dies with it', async ({
    platform,
  }) => {
    const deployment = await platform.deploy({ ...APP, handler: 'raw', name: 'calling-raw' });
    const forbidden = await raw(platform, deployment, 'POST', '/api/v1/gateway/tokens');
    expect([forbidden.status, JSON.parse(forbidden.body)]).toEqual([
      403,
      expect.objectContaining({ ok: false, code: 'not_allowed' }),
    ]);
    const made = jsonOf<{ id: string; token: string }>(
      await platform.call('/api/v1/workspace', { body: { name: 'theirs' } }),
    );
    const elsewhere = await raw(platform, deployment, 'GET', `/api/v1/task/${made.id}/${deployment.stubId}`);
    expect(elsewhere.status).toBe(401);
    const borrowed = { Authorization: `Bearer ${made.token}` };
    expect((await raw(platform, deployment, 'GET', '/api/v1/workspace/current', borrowed)).status).toBe(401);
    const current = await raw(platform, deployment, 'GET', '/api/v1/workspace/current');
    expect([current.status, jsonOf({ status: 200, text: current.body, taskId: '' })]).toEqual([
      200,
      expect.objectContaining({ id: platform.workspaceId }),
    ]);

    // The token serves clients that must dial the scheduler themselves.
    const { token } = current;
    const asIt = async (): Promise<number> => (await platform.call('/api/v1/workspace/current', { token })).status;
    expect(await asIt()).toBe(200);
    expect((await platform.call('/api/v1/gateway/tokens', { token })).text).toContain('Unauthorized Access');
    const [container] = await platform.containers(deployment);
    await platform.engine.client.getContainer(container?.Id ?? '').kill();
    await waitFor(async () => (await asIt()) === 401, 'its credential is worth nothing');
    // Neither daemon has said it, nor kept it.
    expect([platform.agent.log().includes(token), platform.scheduler.log().includes(token)]).toEqual([false, false]);
  });
});
