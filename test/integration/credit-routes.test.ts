// Routes of credits and usage, and the same for people: `longshore credit` and `longshore usage`.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import { EMPTY } from '#scheduler/workspaces/credits/entries.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { openDb } from '#scheduler/stores/store/db.ts';
import { writeLedger } from '#scheduler/stores/store/queries/credits.ts';
import type { LedgerEntry } from '#scheduler/stores/store/queries/credits.ts';
import { silent } from './store-fixture.ts';
import { tempDirectory } from '../helpers/services.ts';
import { runCommand } from '../helpers/command-line.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

const contexts = tempDirectory('credit-contexts');
let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform({}, 'servers');
});
afterAll(async () => {
  await platform.stop();
  contexts.remove();
});

/** A view of the database behind the platform, for one use. */
async function inDatabase(use: (db: Db) => Promise<unknown>): Promise<void> {
  const directory = tempDirectory('credit-routes');
  const db = await openDb({ databaseUrl: platform.servers?.postgres.url, dataDir: directory.path, log: silent });
  await use(db);
  await db.close();
  directory.remove();
}

const asAdmin = () => ({ token: platform.admin.token });
const creditOf = (path = '') => `/api/v1/credit/${platform.own.workspaceId}${path}`;
const show = async () => (await platform.call(`GET ${creditOf()}`)).json;
const grant = (body: Json) => platform.call(`POST ${creditOf('/grant')}`, body, asAdmin());

const run = (words: string, by: 'own' | 'admin') =>
  runCommand(words.split(' '), {
    LONGSHORE_CONTEXT_FILE: join(contexts.path, 'contexts.json'),
    LONGSHORE_URL: `http://${platform.address}`,
    LONGSHORE_TOKEN: platform[by].token,
  });

test('a workspace begins postpaid without a bound', async () => {
  expect(await show()).toEqual({
    workspace_id: platform.own.workspaceId,
    mode: 'postpaid',
    balance_micros: 0,
    held_micros: 0,
    available_micros: null,
    month: new Date().toISOString().slice(0, 7),
    spent_micros: 0,
    spend_limit_micros: null,
  });
});

test('a grant counts once for its key, and the same key with another amount is refused', async () => {
  const first = await grant({ amount_micros: 5_000_000, key: 'invoice-1', note: 'January' });
  expect(first.json).toMatchObject({ granted: true, account: { balance_micros: 5_000_000 } });
  const again = await grant({ amount_micros: 5_000_000, key: 'invoice-1' });
  expect(again.json).toMatchObject({ granted: false, account: { balance_micros: 5_000_000 } });
  const other = await grant({ amount_micros: 6_000_000, key: 'invoice-1' });
  expect([other.status, other.json['code']]).toEqual([409, 'credit_grant_exists']);
  await Promise.all(Array.from({ length: 5 }, () => grant({ amount_micros: 7, key: 'at-once' })));
  expect((await grant({ amount_micros: -1_000_007 })).json).toMatchObject({ account: { balance_micros: 4_000_000 } });
  expect(await show()).toMatchObject({ balance_micros: 4_000_000, available_micros: null });
});

test.for([
  [{ amount_micros: 0 }, 'must not be 0'],
  [{ amount_micros: 1.5 }, 'amount_micros'],
  [{ amount_micros: 10 ** 16 }, 'amount_micros'],
  [{ amount_micros: 1, key: 'x'.repeat(201) }, 'key'],
  [{ amount_micros: 1, note: 'a\nb' }, 'note'],
  [{}, 'amount_micros'],
] as const)('a grant of %j is refused, and the refusal names the field', async ([body, named]) => {
  const answer = await grant(body);
  expect([answer.status >= 400 && answer.status < 500, answer.text]).toEqual([true, expect.stringContaining(named)]);
});

test('grants that would leave the numbers that a balance can have are refused as a whole', async () => {
  const most = 10 ** 15;
  expect((await grant({ amount_micros: most })).status).toBe(422);
  expect(await show()).toMatchObject({ balance_micros: 4_000_000 });
});

test('mode and spend limit change alone or together, and bound what is available', async () => {
  const change = (body: Json) => platform.call(`PUT ${creditOf()}`, body, asAdmin());
  expect((await change({ mode: 'prepaid' })).json).toMatchObject({ mode: 'prepaid', available_micros: 4_000_000 });
  const limited = { spend_limit_micros: 1_000_000 };
  expect((await change(limited)).json).toMatchObject({ mode: 'prepaid', available_micros: 1_000_000 });
  expect((await change({ spend_limit_micros: null, mode: 'postpaid' })).json).toMatchObject({ available_micros: null });
  expect((await change({})).status).toBe(422);
  expect((await change({ mode: 'free' })).text).toContain('mode');
  expect((await change({ spend_limit_micros: -1 })).text).toContain('spend_limit_micros');
  const trail = await platform.call(
    `GET /api/v1/events/${platform.own.workspaceId}/history?event_types=audit.credit.*`,
    undefined,
    asAdmin(),
  );
  const actions = (trail.json['events'] as readonly { data: { action: string } }[]).map(({ data }) => data.action);
  expect(actions).toContain('credit.granted');
  expect(actions.slice(-3)).toEqual(['credit.updated', 'credit.updated', 'credit.updated']);
});

test('limits show the mode, and what is left in whole cents, rounded down', async () => {
  const limits = `/api/v1/workspace/${platform.own.workspaceId}/limits`;
  const billing = async () => (await platform.call(`GET ${limits}`)).json['billing'];
  const mode = (to: string) => platform.call(`PUT ${creditOf()}`, { mode: to }, asAdmin());
  expect(await billing()).toEqual({ mode: 'postpaid', credits_cents: null });
  await mode('prepaid');
  expect(await billing()).toEqual({ mode: 'prepaid', credits_cents: 400 });
  for (const [micros, cents] of [
    [-1, 399],
    [-3_999_999, 0],
    [-1, -1],
    [4_000_001, 400],
  ] as const) {
    await grant({ amount_micros: micros });
    expect(await billing()).toEqual({ mode: 'prepaid', credits_cents: cents });
  }
  const changed = await platform.call(`PUT ${limits}`, { concurrency: { gpu_limit: null } }, asAdmin());
  expect(changed.json['billing']).toEqual({ mode: 'prepaid', credits_cents: 400 });
  await mode('postpaid');
  expect(await billing()).toEqual({ mode: 'postpaid', credits_cents: null });
});

describe('usage', () => {
  const token = newId<TokenId>();
  const entry = (said: Partial<LedgerEntry>): LedgerEntry => ({
    ...EMPTY,
    requestId: `req_${newId()}`,
    kind: 'request',
    workspaceId: platform.own.workspaceId as WorkspaceId,
    tokenId: token,
    model: 'acme/small',
    promptTokens: 10,
    completionTokens: 5,
    costMicros: 20,
    status: 'complete',
    createdAtMs: Date.parse('2026-03-01T12:00:00Z'),
    ...said,
  });
  const usage = async (query: string, by: Platform['own'] = platform.own) =>
    platform.call(`GET /api/v1/usage/${platform.own.workspaceId}?from=2026-03-01&to=2026-04-01${query}`, undefined, {
      token: by.token,
    });

  beforeAll(async () => {
    const entries = [
      entry({}),
      entry({ createdAtMs: Date.parse('2026-03-31T23:59:59Z'), model: 'acme/large', costMicros: 100 }),
      entry({ createdAtMs: Date.parse('2026-04-01T00:00:00Z') }),
      entry({ tokenId: null, status: 'lost' }),
      entry({ workspaceId: platform.other.workspaceId as WorkspaceId }),
    ];
    await inDatabase((db) => writeLedger(db, entries));
  });

  test('is summed up by any of day, model and token, in a range whose end is exclusive', async () => {
    const time = { container_seconds: 0, gpu_seconds: 0 };
    const sums = { requests: 1, prompt_tokens: 10, completion_tokens: 5, cost_micros: 20, ...time };
    const total = { requests: 3, prompt_tokens: 30, completion_tokens: 15, cost_micros: 140, ...time };
    const answer = await usage('');
    expect(answer.json).toEqual({
      from: '2026-03-01T00:00:00.000Z',
      to: '2026-04-01T00:00:00.000Z',
      data: [total],
      truncated: false,
      total,
    });
    expect((await usage('&by=day,token')).json['data']).toEqual([
      { day: '2026-03-01', token_id: '', ...sums },
      { day: '2026-03-01', token_id: token, ...sums },
      { day: '2026-03-31', token_id: token, ...sums, cost_micros: 100 },
    ]);
    expect((await usage('&by=model')).json['data']).toEqual([
      { model: 'acme/large', ...sums, cost_micros: 100 },
      { model: 'acme/small', ...sums, requests: 2, prompt_tokens: 20, completion_tokens: 10, cost_micros: 40 },
    ]);
  });

  test('of another workspace is not shown, and odd ranges and groups are refused by name', async () => {
    expect((await usage('', platform.other)).status).toBe(401);
    expect((await usage('&by=hour')).text).toContain('day, model, token, app, deployment, gpu_model');
    const odd = async (query: string) =>
      (await platform.call(`GET /api/v1/usage/${platform.own.workspaceId}?${query}`)).json;
    expect(await odd('from=2026-03-02&to=2026-03-01')).toMatchObject({ code: 'invalid_query' });
    expect(await odd('from=2020-01-01&to=2026-01-01')).toMatchObject({ code: 'invalid_query' });
  });

  test('has its rows in pages, the newest first, by kind, model and token', async () => {
    const rows = async (query: string, by = platform.own.token) =>
      platform.call(`GET ${creditOf('/ledger')}?from=2026-03-01&to=2026-04-01${query}`, undefined, { token: by });
    const all: Json[] = [];
    let next = '';
    do {
      const { json } = await rows(`&limit=1&cursor=${next}`);
      all.push(...(json['data'] as Json[]));
      next = String(json['next']);
    } while (next !== '');
    expect(all.map((row) => [row['model'], row['token_id'], row['cost_micros'], row['status']])).toEqual([
      ['acme/large', token, 100, 'complete'],
      ['acme/small', null, 20, 'lost'],
      ['acme/small', token, 20, 'complete'],
    ]);
    expect(all[0]).toMatchObject({ kind: 'request', created_at: '2026-03-31T23:59:59.000Z', prompt_tokens: 10 });
    expect((await rows('')).json['data']).toEqual(all);
    expect((await rows('&model=acme/large')).json['data']).toEqual(all.slice(0, 1));
    expect((await rows(`&token=${token}`)).json['data']).toEqual([all[0], all[2]]);
    expect((await rows('&kind=grant,compute')).json).toEqual({ data: [], next: '' });
    expect((await rows('&kind=other')).json).toMatchObject({ code: 'invalid_query' });
    expect((await rows('&cursor=bm9uZQ')).json).toMatchObject({ code: 'invalid_cursor' });
    const uuid = Buffer.from(`1:${platform.own.workspaceId}`).toString('base64url');
    expect((await rows(`&cursor=${uuid}`)).json).toMatchObject({ code: 'invalid_cursor' });
    expect((await rows('', platform.other.token)).status).toBe(401);
    const grants = await platform.call(`GET ${creditOf('/ledger')}?kind=grant&limit=1000`);
    const granted = (grants.json['data'] as Json[]).reduce((sum, row) => sum + Number(row['grant_micros']), 0);
    // The four requests of the workspace cost 160.
    expect(granted).toBe(Number((await show())['balance_micros']) + 160);
    // The token of a grant is the administrator's.
    expect((grants.json['data'] as Json[]).every((row) => row['token_id'] === null)).toBe(true);
  });

  test('is a table for people, whose commands grant and bound, too', async () => {
    const id = platform.own.workspaceId;
    const table = await run('usage --from 2026-03-01 --to 2026-04-01 --by model', 'own');
    expect(table.stdout.split('\n').map((line) => line.trim().split(/\s+/))).toEqual([
      ['MODEL', 'REQUESTS', 'PROMPT', 'COMPLETION', 'COST', 'CONTAINER', 'H', 'GPU', 'H'],
      ['acme/large', '1', '10', '5', '0.0001', '0.00', '0.00'],
      ['acme/small', '2', '20', '10', '0.00004', '0.00', '0.00'],
      ['total', '3', '30', '15', '0.00014', '0.00', '0.00'],
      [''],
    ]);
    const before = (await show())['balance_micros'] as number;
    expect(await run(`credit grant ${id} 1.5 --key cli`, 'admin')).toMatchObject({ code: 0 });
    expect((await run(`credit grant ${id} 1.5 --key cli`, 'admin')).stdout).toContain('was there before');
    expect((await run(`credit grant ${id} 0.5 --take`, 'admin')).stdout).toContain('took back 0.50');
    expect(await show()).toMatchObject({ balance_micros: before + 1_000_000 });
    expect((await run(`credit mode ${id} prepaid`, 'admin')).stdout).toContain('prepaid');
    expect((await run(`credit limit ${id} 2`, 'admin')).stdout).toContain('2.00 a month');
    const shown = await run('credit show', 'own');
    expect(shown.stdout).toMatch(/mode: +prepaid\n/);
    expect(shown.stdout).toMatch(/spend limit: +2\.00\n/);
    expect(JSON.parse((await run('credit show --json', 'own')).stdout)).toMatchObject({
      spend_limit_micros: 2_000_000,
    });
    expect((await run(`credit grant ${id} 1`, 'own')).code).toBe(3);
    expect((await run(`credit mode ${id} free`, 'admin')).stderr).toContain('prepaid or postpaid');
    expect((await run(`credit show ${newId()}`, 'own')).code).toBe(3);
  });
});
