// The right to read Prometheus' pages, asked from another host:
// pages of the scheduler and of machines, and the list of them all.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Answer, Platform } from './verbs-fixture.ts';

const METRICS_TOKEN = 'of-prometheus-alone-0123456789';

let platform: Platform;
let machineId: string;
beforeAll(async () => {
  platform = await aPlatform({ LONGSHORE_METRICS_TOKEN: METRICS_TOKEN });
  const made = await platform.gateway('POST /machines', { poolName: 'mine' });
  machineId = (made.json['machine'] as { readonly id: string }).id;
});
afterAll(() => platform.stop());

const DISCOVERY = '/api/v1/discovery/prometheus';
const pageOf = (id: string): string => `/metrics/machines/${id}`;
const fromElsewhere = (path: string, token: string): Promise<Answer> =>
  platform.call(`GET ${path}`, undefined, { token, forwardedFor: '203.0.113.9' });

const REFUSED: readonly (readonly [string, () => string])[] = [
  ['no token', (): string => ''],
  ['a token that does not exist', () => 'bad'],
  ['a token that was switched off', () => platform.revoked],
  ['a token that may only invoke', () => platform.restricted],
  ['the token of the workspace whose machine it is', () => platform.own.token],
  ["another workspace's token", () => platform.other.token],
  ['the beginning of the metrics token', () => METRICS_TOKEN.slice(0, -1)],
];
const ALLOWED: readonly (readonly [string, () => string])[] = [
  ['the metrics token', () => METRICS_TOKEN],
  ['the administrator', () => platform.admin.token],
];

describe.each([
  ['the list of the fleet', (): string => DISCOVERY],
  ["a machine's page", (): string => pageOf(machineId)],
  ['the page of a machine that does not exist', (): string => pageOf(NOBODY)],
  ["the scheduler's page", (): string => '/metrics'],
] as const)('%s', (_, path) => {
  test.each(REFUSED)('is refused to %s', async (_caller, token) => {
    expect(await fromElsewhere(path(), token())).toMatchObject({
      status: 401,
      json: { code: 'unauthorized', message: 'Unauthorized' },
    });
  });
});

describe.each(ALLOWED)('%s', (_, token) => {
  test('sees the list of the fleet, without the machine that never joined', async () => {
    const answer = await fromElsewhere(DISCOVERY, token());
    expect(answer.status).toBe(200);
    expect(JSON.parse(answer.text)).toEqual([
      { targets: [platform.address], labels: { job: 'longshore-scheduler', __scheme__: 'http' } },
    ]);
  });

  test("sees the scheduler's page", async () => {
    const answer = await fromElsewhere('/metrics', token());
    expect([answer.status, answer.text.includes('longshore_scheduler_machines')]).toEqual([200, true]);
  });

  test('is told of a machine that does not exist, and of one whose agent is away', async () => {
    expect(await fromElsewhere(pageOf(NOBODY), token())).toMatchObject({
      status: 404,
      json: { code: 'machine_not_found', message: `there is no machine ${NOBODY}` },
    });
    expect(await fromElsewhere(pageOf(machineId), token())).toMatchObject({
      status: 502,
      json: { code: 'machine_away', message: `no agent of machine ${machineId} is connected (it is PENDING)` },
    });
  });

  test('is told of an id that is none', async () => {
    expect((await fromElsewhere(pageOf('..%2f..%2fetc'), token())).status).toBe(404);
  });
});
