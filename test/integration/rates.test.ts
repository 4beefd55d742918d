/** Who sends too much too fast is told to wait, on every surface in its own shape, and nobody else is. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { request } from 'undici';
import { REFUSALS_PER_MINUTE } from '../../scheduler/identity/refusals.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Platform } from './verbs-fixture.ts';

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

/** As a proxy that is trusted passes it on. */
async function from(forwardedFor: string, line: string, token: string) {
  const [method = 'GET', path = '/'] = line.split(' ');
  const answer = await request(`http://${platform.address}${path}`, {
    method: method as 'GET',
    headers: { authorization: `Bearer ${token}`, 'x-forwarded-for': forwardedFor },
  });
  return { status: answer.statusCode, headers: answer.headers, json: await answer.body.json().catch(() => undefined) };
}

/** Until the address is told to wait; how many were refused before. */
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
  const bad = platform.revoked;
  const rest = await from('192.0.2.1', 'GET /api/v1/workspace/current', bad);
  expect([rest.status, rest.json]).toMatchObject([
    429,
    { code: 'rate_limited', message: expect.stringContaining('wait') },
  ]);
  const gateway = await from('192.0.2.1', 'GET /api/v1/gateway/deployments', bad);
  expect([gateway.status, gateway.json]).toMatchObject([
    429,
    { code: 8, message: expect.stringContaining('wait'), details: [] },
  ]);
  const open = await from('192.0.2.1', 'POST /api/v1/gateway/auth/authorize', bad);
  expect([open.status, open.json]).toMatchObject([429, { code: 8 }]);
  const invoke = await from('192.0.2.1', 'POST /endpoint/any', bad);
  expect(invoke).toMatchObject({ status: 429, json: { message: expect.stringContaining('wait') } });
  const metrics = await from('192.0.2.1', 'GET /metrics', bad);
  expect(metrics).toMatchObject({ status: 429, json: { code: 'rate_limited' } });
  for (const answer of [rest, gateway, open, invoke, metrics]) {
    expect(Number(answer.headers['retry-after'])).toBeGreaterThanOrEqual(1);
  }
  const page = await from('192.0.2.9', 'GET /metrics', platform.admin.token);
  expect(page.status).toBe(200);
});

test('a good token behind the same address works on, a secret that may be guessed does not', async () => {
  await exhaust('192.0.2.2');
  for (const { token } of [platform.own, platform.other, platform.admin]) {
    expect((await from('192.0.2.2', 'GET /api/v1/workspace/current', token)).status).toBe(200);
  }
  expect((await from('192.0.2.2', 'GET /metrics', 'guessable')).status).toBe(429);
  expect((await from('192.0.2.3', 'GET /metrics', 'guessable')).status).toBe(200);
});

test('another address is asked for nothing, and no token at all is no refused one', async () => {
  await exhaust('2001:db8:0:1::1');
  expect((await from('2001:db8:0:1::2', 'GET /api/v1/workspace/current', platform.revoked)).status).toBe(429);
  expect((await from('2001:db8:0:2::1', 'GET /api/v1/workspace/current', platform.revoked)).status).toBe(401);
  for (let count = 0; count < 2 * REFUSALS_PER_MINUTE; count++) {
    const { status } = await platform.call('GET /api/v1/workspace/current', undefined, {
      token: '',
      forwardedFor: '192.0.2.4',
    });
    expect(status).toBe(401);
  }
});
