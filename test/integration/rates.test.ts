/**
 * Rate limits of a workspace and of an address. A caller that exceeds its rate is told to wait, on every surface in
 * that surface's shape; no other caller is.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { request } from 'undici';
import { CONSOLE_PER_MINUTE, SIGN_INS_PER_MINUTE } from '../../scheduler/api/http/console/passage.ts';
import { REFUSALS_PER_MINUTE } from '../../scheduler/workspaces/identity/refusals.ts';
import { enterConsole, sentBy } from './console-session.ts';
import { aPlatform, WITH_FIELDS } from './verbs-fixture.ts';
import type { Json, Person, Platform } from './verbs-fixture.ts';

let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform(
    {
      LONGSHORE_RATE_LIMITS: 'on',
      LONGSHORE_TRUSTED_PROXIES: '127.0.0.0/8, ::1',
      LONGSHORE_METRICS_TOKEN: 'guessable',
    },
    'embedded',
  );
});
afterAll(() => platform.stop());

/** Makes a request as a trusted proxy passes it on. */
async function from(forwardedFor: string, line: string, token: string) {
  const [method = 'GET', path = '/'] = line.split(' ');
  const answer = await request(`http://${platform.address}${path}`, {
    method: method as 'GET',
    headers: { authorization: `Bearer ${token}`, 'x-forwarded-for': forwardedFor },
  });
  return { status: answer.statusCode, headers: answer.headers, json: await answer.body.json().catch(() => undefined) };
}

/** Asks until the answer is to wait: a refusal is forgiven every second. */
async function toldToWait(address: string, line: string, token = platform.revoked) {
  for (let count = 0; count < 2 * REFUSALS_PER_MINUTE; count++) {
    const answer = await from(address, line, token);
    if (answer.status === 429) return answer;
  }
  throw new Error(`${line} told nobody to wait`);
}

/** Asks until the address is told to wait. @returns the number of refusals before */
async function exhaust(address: string): Promise<number> {
  for (let count = 0; count < 2 * REFUSALS_PER_MINUTE; count++) {
    const { status } = await from(address, 'GET /api/v1/workspace/current', platform.revoked);
    if (status === 429) return count;
    expect(status).toBe(401);
  }
  throw new Error('nobody was told to wait');
}

test('an address whose tokens are refused too often is told to wait in the shape of the surface it asks', async () => {
  expect(await exhaust('192.0.2.1')).toBeGreaterThanOrEqual(REFUSALS_PER_MINUTE);
  const rest = await toldToWait('192.0.2.1', 'GET /api/v1/workspace/current');
  expect(rest.json).toMatchObject({ code: 'rate_limited', message: expect.stringContaining('wait') as string });
  const status = { code: 8, message: expect.stringContaining('wait') as string, details: [] };
  const gateway = await toldToWait('192.0.2.1', 'GET /api/v1/gateway/deployments');
  expect(gateway.json).toEqual(status);
  const open = await toldToWait('192.0.2.1', 'POST /api/v1/gateway/auth/authorize');
  expect(open.json).toEqual(status);
  const invoke = await toldToWait('192.0.2.1', 'POST /endpoint/any');
  expect(invoke.json).toEqual({ code: 'rate_limited', error: expect.stringContaining('wait') as string });
  const metrics = await toldToWait('192.0.2.1', 'GET /metrics');
  expect(metrics.json).toMatchObject({ code: 'rate_limited' });
  for (const answer of [rest, gateway, open, invoke, metrics]) {
    expect(Number(answer.headers['retry-after'])).toBeGreaterThanOrEqual(1);
  }
  const page = await from('192.0.2.9', 'GET /metrics', platform.admin.token);
  expect(page.status).toBe(200);
});

test('a good token behind the same address works on, and so does a secret that nobody there has guessed at', async () => {
  await exhaust('192.0.2.2');
  for (const { token } of [platform.own, platform.other, platform.admin]) {
    expect((await from('192.0.2.2', 'GET /api/v1/workspace/current', token)).status).toBe(200);
  }
  // A program behind the same balancer that keeps using a revoked token does not blind Prometheus.
  await exhaust('192.0.2.2');
  const pages = await Promise.all(Array.from({ length: 20 }, () => from('192.0.2.2', 'GET /metrics', 'guessable')));
  expect(new Set(pages.map(({ status }) => status))).toEqual(new Set([200]));
  const first = await from('192.0.2.2', 'POST /api/v1/gateway/auth/authorize', 'first');
  expect([first.status, first.json]).toMatchObject([200, { ok: false }]);
});

test('whoever guesses at a secret too often is not told whether the next guess is right', async () => {
  await toldToWait('192.0.2.5', 'GET /metrics', 'wrong');
  // Guesses are not judged meanwhile, and cost nothing; one refusal is forgiven every second.
  const guesses = await Promise.all(Array.from({ length: 20 }, () => from('192.0.2.5', 'GET /metrics', 'guessable')));
  expect(guesses.map(({ status }) => status)).toContain(429);
  expect((await from('192.0.2.3', 'GET /metrics', 'guessable')).status).toBe(200);
});

test('another address is asked for nothing, and no token at all is no refused one', async () => {
  await exhaust('2001:db8:0:1::1');
  await toldToWait('2001:db8:0:1::2', 'GET /api/v1/workspace/current');
  expect((await from('2001:db8:0:2::1', 'GET /api/v1/workspace/current', platform.revoked)).status).toBe(401);
  for (let count = 0; count < 2 * REFUSALS_PER_MINUTE; count++) {
    const { status } = await platform.call('GET /api/v1/workspace/current', undefined, {
      token: '',
      forwardedFor: '192.0.2.4',
    });
    expect(status).toBe(401);
  }
});

describe('limits of a workspace', () => {
  const limits = (who: Person): string => `/api/v1/workspace/${who.workspaceId}/limits`;
  const change = async (who: Person, body: Json) => {
    const answer = await platform.call(`PUT ${limits(who)}`, body, { token: platform.admin.token });
    expect([answer.status, answer.json['message']]).toEqual([200, undefined]);
    return answer.json;
  };
  const asOther = () => ({ token: platform.other.token });
  const aStub = async (said: Json): Promise<Json> => {
    const asked = { stubType: 'taskqueue/deployment', name: 'q', handler: 'app:f', cpu: 2_000, memory: 256, ...said };
    return (await platform.gateway('POST /stubs', asked, asOther())).json;
  };

  test('hold for the next request, for stubs that are too large, too many deployments and too many tokens', async () => {
    expect((await aStub({}))['ok']).toBe(true);
    await change(platform.other, {
      stub: { cpu_millicores: 1_000, max_replicas: 3 },
      tasks: { max_pending_tasks: 2 },
      counts: { deployments: 1, tokens: 2 },
    });
    expect(await aStub({})).toMatchObject({ ok: false, errMsg: 'CPU must be 1000 or less.' });
    expect(await aStub({ cpu: 100, maxPendingTasks: 3 })).toMatchObject({
      errMsg: 'maxPendingTasks must be 2 or less',
    });
    // The limits of other workspaces stay unchanged.
    expect(
      (await platform.gateway('POST /stubs', { stubType: 'endpoint', handler: 'a:b', cpu: 2_000, memory: 64 })).json[
        'ok'
      ],
    ).toBe(true);

    const { stubId } = await aStub({ cpu: 100 });
    const deploy = () =>
      platform.gateway('POST /stubs/deploy', { stubId, name: 'bounded' }, { ...asOther(), ...WITH_FIELDS });
    const { deploymentId } = (await deploy()).json;
    expect((await deploy()).json).toMatchObject({
      ok: false,
      errMsg: expect.stringContaining('1 deployments') as string,
    });
    const scaled = await platform.gateway(
      `POST /deployments/${String(deploymentId)}/scale`,
      { containers: 4 },
      asOther(),
    );
    expect(scaled.json).toMatchObject({ ok: false, errMsg: 'replicas must be 3 or less' });

    expect((await platform.gateway('POST /tokens', undefined, asOther())).json['ok']).toBe(true);
    expect((await platform.gateway('POST /tokens', undefined, asOther())).json).toMatchObject({
      ok: false,
      errMsg: expect.stringContaining('2 tokens') as string,
    });

    const call = () => platform.call('POST /taskqueue/bounded', {}, asOther());
    expect([(await call()).status, (await call()).status]).toEqual([200, 200]);
    expect(await call()).toMatchObject({ status: 429, json: { error: 'exceeded max pending tasks: 2' } });
    await change(platform.other, { tasks: { max_pending_tasks: 3 } });
    expect((await call()).status).toBe(200);
    await change(platform.other, { tasks: { max_pending_tasks: null } });
    expect((await call()).status).toBe(200);

    const shown = (await platform.call(`GET ${limits(platform.other)}`, undefined, asOther())).json;
    expect(shown).toMatchObject({
      workspace_id: platform.other.workspaceId,
      stub: { cpu_millicores: 1_000, memory_mib: 32_768, max_replicas: 3 },
      tasks: { max_pending_tasks: 100_000 },
      counts: { deployments: { used: 1, limit: 1 }, tokens: { used: 2, limit: 2 }, volumes: { used: 0, limit: 1_000 } },
    });
  });

  test('that cannot be are refused by their name, and nothing changes', async () => {
    const before = (await platform.call(`GET ${limits(platform.own)}`)).text;
    const asAdmin = { token: platform.admin.token };
    const refused = await platform.call(
      `PUT ${limits(platform.own)}`,
      { counts: { tokens: 7 }, stub: { max_replicas: -1 } },
      asAdmin,
    );
    expect([refused.status, refused.json]).toMatchObject([
      422,
      { code: 'invalid_body', message: expect.stringContaining('stub.max_replicas') as string },
    ]);
    expect((await platform.call(`GET ${limits(platform.own)}`)).text).toBe(before);
  });

  test('hold requests a minute: of REST, of maps and the like, of invoking, and not of the administrator', async () => {
    await change(platform.own, { rate: { rest_per_minute: 5, state_per_minute: 5, invoke_per_minute: 5 } });
    await platform.deploy('often', { stubType: 'taskqueue/deployment' });
    const signal = `GET /api/v1/signal/${platform.own.workspaceId}?name=s`;
    for (const line of [`GET ${limits(platform.own)}`, signal, 'POST /taskqueue/often']) {
      const answers = [];
      // A minute may end in between, once.
      for (let count = 0; count < 11; count++) {
        const method = line.startsWith('GET') ? 'GET' : 'POST';
        const answer = await request(`http://${platform.address}${line.split(' ')[1]}`, {
          method,
          headers: { authorization: `Bearer ${platform.own.token}` },
        });
        answers.push({
          status: answer.statusCode,
          after: answer.headers['retry-after'],
          text: await answer.body.text(),
        });
      }
      const [ok, waiting] = [
        answers.filter(({ status }) => status === 200),
        answers.filter(({ status }) => status === 429),
      ];
      expect(ok.length).toBeGreaterThanOrEqual(1);
      expect(ok.length).toBeLessThanOrEqual(10);
      expect(ok.length + waiting.length).toBe(11);
      expect(Number(waiting[0]?.after)).toBeGreaterThanOrEqual(1);
      expect(waiting[0]?.text).toContain('wait');
    }
    for (let count = 0; count < 11; count++) {
      const answer = await platform.call(`GET ${limits(platform.own)}`, undefined, { token: platform.admin.token });
      expect(answer.status).toBe(200);
    }
    const page = await platform.call('GET /metrics', undefined, { token: platform.admin.token });
    expect(page.text).toMatch(/rate_limited_total\{limit="rest"\} [1-9]/);
  });
});

test.each([
  ['requests', 'GET /console/api/v1/session'],
  ['calls', 'GET /console/api/calls/v1/models'],
])('%s of a session of the web console have a rate of its own, for administrators, too', async (_, line) => {
  const made = await platform.call('POST /api/v1/console/link', undefined, { token: platform.admin.token });
  const code = new URL(String(made.json['url'])).hash.slice(1);
  const headers = sentBy(await enterConsole(platform, { code }));
  const ask = async (): Promise<number> => (await platform.call(line, undefined, { token: '', headers })).status;
  // Minutes of the clock count, so that one of two has all of them.
  const statuses = await Promise.all(Array.from({ length: 2 * CONSOLE_PER_MINUTE + 1 }, ask));
  expect(statuses.filter((status) => status === 429).length).toBeGreaterThan(0);
  expect((await platform.call('GET /api/v1/session', undefined, { token: platform.admin.token })).status).toBe(200);
});

test('a token signs in so many times a minute, and has its API beside', async () => {
  const signIn = async (): Promise<number> =>
    (
      await fetch(`http://${platform.address}/console/session`, {
        method: 'POST',
        body: JSON.stringify({ token: platform.admin.token }),
      })
    ).status;
  const statuses = await Promise.all(Array.from({ length: 2 * SIGN_INS_PER_MINUTE + 1 }, signIn));
  expect(statuses).toContain(429);
  expect(statuses).toContain(200);
  expect((await platform.call('GET /api/v1/session', undefined, { token: platform.admin.token })).status).toBe(200);
});
