// Tickets of the web console's terminals on a real scheduler: who gets one, what it is worth, and what ends a terminal.
// A shell in a real container is in test/hosts/console-terminal.test.ts.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { Redis } from 'ioredis';
import { waitFor } from '../helpers/programs.ts';
import { aToken, enterConsole, sentBy } from './console-session.ts';
import type { ConsoleSession } from './console-session.ts';
import { aContained } from './contained.ts';
import type { Contained } from './contained.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform } from './verbs-fixture.ts';

let platform: Platform;
let held: Contained;
beforeAll(async () => {
  platform = await aPlatform();
  held = await aContained(platform);
});
afterAll(async () => {
  await held.stop();
  await platform.stop();
});

const entered = (token = platform.own.token): Promise<ConsoleSession> => enterConsole(platform, { token });

const ask = (
  session: Partial<ConsoleSession>,
  containerId: unknown = held.containerId,
  headers: Readonly<Record<string, string>> = {},
): Promise<Answer> =>
  platform.call(
    'POST /console/api/terminals',
    { container_id: containerId },
    {
      token: '',
      headers: { ...sentBy(session), ...headers },
    },
  );
async function ticketOf(session: ConsoleSession): Promise<string> {
  const { status, json } = await ask(session);
  expect([status, json]).toEqual([200, { ticket: expect.stringMatching(/^[\w-]{43}$/), expires_in_seconds: 30 }]);
  return String(json['ticket']);
}

interface Visit {
  /** Status of a handshake that was refused; 101: it was taken. */
  readonly status: number;
  readonly protocol: string;
  readonly text: string;
  readonly closed: Promise<readonly [number, string]>;
  readonly close: () => void;
}

/** Opens a WebSocket as the page does. */
function visit(
  ticket: string,
  cookie: string,
  headers: Readonly<Record<string, string>> = { origin: `http://${platform.address}` },
  query = 'rows=24&columns=80',
): Promise<Visit> {
  const socket = new WebSocket(
    `ws://${platform.address}/console/api/terminals?${query}`,
    ticket === '' ? ['longshore-terminal'] : ['longshore-terminal', ticket],
    { headers: { ...(cookie === '' ? {} : { cookie }), ...headers } },
  );
  const closed = new Promise<readonly [number, string]>((resolve) =>
    socket.once('close', (code, reason) => resolve([code, reason.toString()])),
  );
  const close = (): void => socket.close();
  return new Promise((resolve, reject) => {
    socket.once('open', () => resolve({ status: 101, protocol: socket.protocol, text: '', closed, close }));
    socket.once('unexpected-response', (_request, answer) => {
      let text = '';
      answer.on('data', (piece: Buffer) => (text += piece.toString()));
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, protocol: '', text, closed, close }));
    });
    socket.on('error', reject);
  });
}

test('a ticket opens one terminal, and is in no answer but its own', async () => {
  const session = await entered();
  const ticket = await ticketOf(session);
  const first = await visit(ticket, session.cookie);
  expect([first.status, first.protocol]).toEqual([101, 'longshore-terminal']);
  const again = await visit(ticket, session.cookie);
  expect([again.status, again.text]).toEqual([401, expect.stringContaining('this ticket was used')]);
  expect(again.text).not.toContain(ticket);
  first.close();
});

test('a ticket that is over, that is none, or that is missing opens nothing', async () => {
  const session = await entered();
  const ticket = await ticketOf(session);
  const redis = new Redis(platform.servers?.redis.url ?? '');
  const [key = ''] = await redis.keys('*terminal-ticket*');
  expect(await redis.pttl(key)).toBeLessThanOrEqual(30_000);
  expect(await redis.pttl(key)).toBeGreaterThan(0);
  // Redis knows a hash of it alone.
  expect(key).not.toContain(ticket);
  await redis.pexpire(key, 1);
  await waitFor(async () => (await redis.exists(key)) === 0, 'the ticket is over');
  redis.disconnect();
  for (const one of [ticket, 'x'.repeat(43), 'short', ''])
    expect([one, (await visit(one, session.cookie)).status]).toEqual([one, 401]);
});

test('a ticket counts with the cookie of its own session alone', async () => {
  const [session, other] = [await entered(), await entered()];
  for (const cookie of [other.cookie, '', 'longshore_console=', `longshore_console=${session.key}`])
    expect([cookie, (await visit(await ticketOf(session), cookie)).status]).toEqual([cookie, 401]);
  // Signed out meanwhile.
  const ticket = await ticketOf(session);
  await platform.call('DELETE /console/session', undefined, {
    token: '',
    headers: sentBy(session),
  });
  expect((await visit(ticket, session.cookie)).status).toBe(401);
});

test('pages of other origins, and names that are not ours, get neither ticket nor terminal', async () => {
  const session = await entered();
  const foreign = await ask(session, held.containerId, { origin: 'https://evil.example.org' });
  expect([foreign.status, foreign.json['code']]).toEqual([403, 'foreign_page']);
  const ticket = await ticketOf(session);
  for (const headers of [
    {},
    { origin: 'http://127.0.0.1:1' },
    { origin: 'null' },
    { origin: `http://${platform.address}`, 'sec-fetch-site': 'same-site' },
  ])
    expect([headers, (await visit(ticket, session.cookie, headers)).status]).toEqual([headers, 403]);
  const rebound = { host: 'rebound.example.org', origin: 'http://rebound.example.org' };
  expect((await visit(ticket, session.cookie, rebound)).status).toBe(421);
  // None of them has used the ticket up.
  const own = await visit(ticket, session.cookie);
  expect(own.status).toBe(101);
  own.close();
});

test('both halves, a full token and a container of the workspace are needed for a ticket', async () => {
  const session = await entered();
  for (const half of [{}, { cookie: session.cookie }, { key: session.key }])
    expect([half, (await ask(half)).status]).toEqual([half, 401]);
  const byToken = { authorization: `Bearer ${platform.own.token}` };
  expect((await ask({}, held.containerId, byToken)).status).toBe(401);
  for (const body of [{ scopes: ['read'] }, { scopes: ['invoke'] }, { token_type: 'workspace_restricted' }]) {
    const refused = await ask(await entered((await aToken(platform, body)).key));
    expect([body, refused.status, refused.json['message']]).toEqual([
      body,
      401,
      expect.stringContaining('may not reach into containers'),
    ]);
  }
  const other = await entered(platform.other.token);
  for (const [by, id] of [
    [other, held.containerId],
    [session, NOBODY],
    [session, 'x'.repeat(5_000)],
  ] as const)
    expect([id, (await ask(by, id)).json['code']]).toEqual([id, 'container_not_found']);
  for (const id of ['', [1]]) {
    const wrong = await ask(session, id);
    expect([id, wrong.json['code'], wrong.json['message']]).toEqual([
      id,
      'invalid_body',
      expect.stringContaining('container_id'),
    ]);
  }
  // An administrator opens terminals in each workspace.
  const administrator = await entered(platform.admin.token);
  const opened = await visit(await ticketOf(administrator), administrator.cookie);
  expect(opened.status).toBe(101);
  opened.close();
  expect((await ask({ key: session.key, cookie: other.cookie })).status).toBe(401);
  for (const query of ['rows=0&columns=80', 'rows=24&columns=many', 'pid=-1'])
    expect([query, (await visit('', session.cookie, undefined, query)).status]).toEqual([query, 400]);
});

test('a request that is no WebSocket is told so', async () => {
  const answer = await platform.call('GET /console/api/terminals', undefined, { token: '' });
  expect([answer.status, answer.json['message']]).toEqual([400, expect.stringContaining('takes WebSockets')]);
});

test.each([
  ['its token is switched off', (id: string) => `PATCH /api/v1/token/${platform.own.workspaceId}/${id}`],
  ['its session is ended', () => ''],
])('a terminal ends when %s', async (_what, lineOf) => {
  const token = await aToken(platform);
  const session = await entered(token.key);
  const unused = await ticketOf(session);
  const open = await visit(await ticketOf(session), session.cookie);
  expect(open.status).toBe(101);
  const line = lineOf(token.id);
  if (line === '') {
    const ws = platform.own.workspaceId;
    const { json } = await platform.call(`GET /api/v1/console/sessions/${ws}`);
    const ours = (json['data'] as Json[]).find((one) => one['token_id'] === token.id);
    expect((await platform.call(`DELETE /api/v1/console/sessions/${ws}/${String(ours?.['id'])}`)).status).toBe(200);
  } else expect((await platform.call(line, { active: false })).status).toBe(200);
  expect(await open.closed).toEqual([1008, 'the token was revoked']);
  expect((await visit(unused, session.cookie)).status).toBe(401);
});

test('a workspace has a bounded number of terminals', async () => {
  const session = await entered(platform.own.token);
  const all: Visit[] = [];
  for (let one = 0; one < 33; one += 1) all.push(await visit(await ticketOf(session), session.cookie));
  // Terminals of the tests before may not be closed yet.
  expect(all.filter(({ status }) => status === 101).length).toBeLessThanOrEqual(32);
  expect([all[0]?.status, all.at(-1)?.status, all.at(-1)?.text]).toEqual([
    101,
    429,
    expect.stringContaining('close some'),
  ]);
  for (const open of all) open.close();
});
