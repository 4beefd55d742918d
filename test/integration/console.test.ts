// Sessions of the web console on a real scheduler: who gets in by what, which half of a session is worth what, and what
// ends one. Pages and clicks are in test/e2e/console.test.ts.
import { once } from 'node:events';
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MOST_OF_TOKEN } from '#scheduler/workspaces/identity/console-sessions.ts';
import { runCommand } from '../helpers/command-line.ts';
import { waitFor } from '../helpers/programs.ts';
import { aToken, enterConsole, postSession, sentBy } from './console-session.ts';
import type { ConsoleSession } from './console-session.ts';
import { withSql } from './contract-lists.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform } from './verbs-fixture.ts';

let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform();
});
afterAll(() => platform.stop());

/** The bytes of an answer as they came. */
async function rawGet(address: string, path: string, headers: Readonly<Record<string, string>>) {
  const asked = request(`http://${address}${path}`, { headers }).end();
  const [answer] = (await once(asked, 'response')) as [IncomingMessage];
  expect([path, answer.statusCode]).toEqual([path, 200]);
  return { headers: answer.headers, body: await buffer(answer) };
}

const WITHOUT_TOKEN = { token: '' };
const link = (token = platform.own.token): Promise<Answer> =>
  platform.call('POST /api/v1/console/link', undefined, { token });
const codeIn = ({ json }: Answer): string => new URL(String(json['url'])).hash.slice(1);

const post = (body: Json, headers: Readonly<Record<string, string>> = {}) => postSession(platform, body, headers);
const entered = async (token = platform.own.token): Promise<ConsoleSession> =>
  enterConsole(platform, { code: codeIn(await link(token)) });

/** A request through the passage; `{ws}` is the own workspace. */
const through = (line: string, session: Partial<ConsoleSession>, headers = {}, body?: unknown): Promise<Answer> =>
  platform.call(line.replace(' ', ' /console/api/v1').replace('{ws}', platform.own.workspaceId), body, {
    ...WITHOUT_TOKEN,
    headers: { ...sentBy(session), ...headers },
  });
const statusOf = async (session: Partial<ConsoleSession>, headers = {}): Promise<number> =>
  (await through('GET /deployment/{ws}', session, headers)).status;

test('a link begins one session, whose secrets are no token', async () => {
  const made = await link();
  expect(made.status).toBe(201);
  expect(made.json['url']).toMatch(new RegExp(`^http://${platform.address}/console/enter#[\\w-]{43}$`));
  const { status, headers, json } = await post({ code: codeIn(made) });
  expect(status).toBe(200);
  expect(headers.get('set-cookie')).toMatch(/^longshore_console=[\w-]{43}; Path=\/console; HttpOnly; SameSite=Strict$/);
  expect(headers.get('cache-control')).toBe('no-store');
  expect(json).toMatchObject({ is_clear: false, address: '127.0.0.1', key: expect.stringMatching(/^[\w-]{43}$/) });
  expect(JSON.stringify(json)).not.toContain('eyJ');
  const again = await post({ code: codeIn(made) });
  expect([again.status, again.json['code']]).toEqual([401, 'unauthorized']);
});

test('a pasted token begins a session, and a bad, revoked or one-use one does not', async () => {
  const { status, json, headers } = await post({ token: ` ${platform.own.token}\n` });
  expect(status).toBe(200);
  const session = { cookie: (headers.get('set-cookie') ?? '').split(';', 1)[0] ?? '', key: String(json['key']) };
  expect(await statusOf(session)).toBe(200);
  const once = await aToken(platform, { reusable: false });
  const tried = [platform.revoked, once.key, 'eyJhbGciOiJIUzI1NiJ9.e30.c2ln', ''].map((token) => post({ token }));
  expect((await Promise.all(tried)).map((answer) => answer.status)).toEqual([401, 401, 401, 401]);
  expect((await link((await aToken(platform, { reusable: false })).key)).status).toBe(400);
  for (const body of [{}, { code: 'a', token: 'b' }]) expect((await post(body)).json['code']).toBe('invalid_body');
  expect((await post({ code: 5 })).json['message']).toContain('code');
});

test('both halves are needed, and they must be of one session', async () => {
  const [one, two] = [await entered(), await entered()];
  expect(await statusOf(one)).toBe(200);
  expect(await statusOf({ cookie: one.cookie })).toBe(401);
  expect(await statusOf({ key: one.key })).toBe(401);
  expect(await statusOf({ cookie: one.cookie, key: two.key })).toBe(401);
  expect(await statusOf({ cookie: two.cookie, key: one.key })).toBe(401);
  expect(await statusOf({ cookie: one.cookie, key: '' })).toBe(401);
  expect(await statusOf({ cookie: 'longshore_console=', key: one.key })).toBe(401);
  // A token is no credential here.
  const answer = await platform.call(`GET /console/api/v1/deployment/${platform.own.workspaceId}`);
  expect(answer.status).toBe(401);
});

test('the API, models and calls ignore a session', async () => {
  const headers = sentBy(await entered());
  const { name } = { name: 'site' };
  await platform.deploy(name, { stubType: 'endpoint/deployment' });
  for (const line of [
    `GET /api/v1/deployment/${platform.own.workspaceId}`,
    'GET /api/v1/session',
    'GET /api/v1/gateway/machines',
    `POST /endpoint/${name}`,
    'POST /v1/chat/completions',
  ])
    expect([line, (await platform.call(line, {}, { ...WITHOUT_TOKEN, headers })).status]).toEqual([line, 401]);
});

test('a page of another origin, and another name of the host, are turned away', async () => {
  const session = await entered();
  const own = `http://${platform.address}`;
  expect(await statusOf(session, { origin: own, 'sec-fetch-site': 'same-origin' })).toBe(200);
  const foreign = await through('GET /session', session, { origin: 'http://127.0.0.1:1' });
  expect([foreign.status, foreign.json['code']]).toEqual([403, 'foreign_page']);
  expect(await statusOf(session, { 'sec-fetch-site': 'cross-site' })).toBe(403);
  expect(await statusOf(session, { 'sec-fetch-site': 'same-site' })).toBe(403);
  const rebound = await through('GET /session', session, { host: 'rebound.example.org' });
  expect([rebound.status, rebound.json['code']]).toEqual([421, 'misdirected']);
  const code = codeIn(await link());
  expect((await post({ code }, { origin: 'https://evil.example.org' })).status).toBe(403);
  // The code was not used up by the page of another origin.
  expect((await post({ code }, { origin: own })).status).toBe(200);
});

test('a session gets no signature of its workspace, and ends no key that tokens were signed with', async () => {
  const session = await entered();
  await platform.deploy('signs', { stubType: 'taskqueue/deployment' });
  const headers = sentBy(session);
  const callback = encodeURIComponent('https://example.org/hook');
  const called = await platform.call(
    `POST /console/api/calls/taskqueue/signs?callback_url=${callback}`,
    {},
    { ...WITHOUT_TOKEN, headers },
  );
  expect([called.status, called.text]).toEqual([403, expect.stringContaining('not for calls from the console')]);
  const administrator = sentBy(await entered(platform.admin.token));
  const ended = await platform.call(
    'DELETE /console/api/v1/signing-key/first',
    {},
    { ...WITHOUT_TOKEN, headers: administrator },
  );
  expect([ended.status, ended.json['code']]).toEqual([404, 'not_found']);
});

test('what the session says it may do is what it may do', async () => {
  const rights = async (token: string): Promise<Json> => (await through('GET /session', await entered(token), {})).json;
  const read = await aToken(platform, { scopes: ['read'], name: 'looks' });
  const own = await rights(platform.own.token);
  expect(own).toMatchObject({ via: 'console', is_admin: false, workspace: { id: platform.own.workspaceId } });
  const reader = await rights(read.key);
  expect(reader).toMatchObject({ token: { name: 'looks', scopes: ['read'], id: read.id } });
  expect(reader['rights']).toContain('GET /task/{ws}');
  expect(reader['rights']).not.toContain('GET /secret/{ws}');
  expect(own['rights']).toContain('GET /secret/{ws}');
  expect(own['rights']).not.toContain('GET /workspace');
  expect((await rights(platform.admin.token))['rights']).toContain('GET /workspace');
  const session = await entered(read.key);
  expect((await through('GET /task/{ws}', session)).status).toBe(200);
  expect((await through('GET /secret/{ws}', session)).status).toBe(401);
  // Another workspace stays closed, as to the token itself.
  const other = await through(`GET /task/${platform.other.workspaceId}`, await entered());
  expect(other.status).toBe(401);
  // A browser gets neither the signing key nor a link that outlives its session.
  for (const line of ['GET /workspace/current', 'POST /console/link']) {
    expect([404, 405]).toContain((await through(line, await entered())).status);
    expect(own['rights']).not.toContain(line);
  }
});

test('operations of the gateway take a session, with the rights of its token', async () => {
  const [own, admin] = [await entered(), await entered(platform.admin.token)];
  const listed = await through('GET /gateway/machines', own);
  expect([listed.status, listed.json['ok']]).toEqual([200, true]);
  const made = await through('POST /gateway/machines', admin, {}, { poolName: 'by-console' });
  expect(made.json).toMatchObject({ ok: true, agentUpstreamToken: expect.stringMatching(/./) });
  const limited = await entered((await aToken(platform, { scopes: ['invoke'] })).key);
  expect((await through('GET /gateway/workers', limited)).json).toMatchObject({ ok: false });
  for (const session of [{}, { cookie: own.cookie }, { key: own.key }, { ...own, key: admin.key }]) {
    expect((await through('GET /gateway/machines', session)).status).toBe(401);
    expect((await through('POST /gateway/machines', session, {}, { poolName: 'x' })).status).toBe(401);
  }
  // A token is no credential here, and a session is none elsewhere.
  const byToken = { authorization: `Bearer ${platform.admin.token}` };
  expect((await through('GET /gateway/machines', {}, byToken)).status).toBe(401);
  const outside = await platform.call('GET /api/v1/gateway/machines', undefined, {
    ...WITHOUT_TOKEN,
    headers: sentBy(admin),
  });
  expect(outside.status).toBe(401);
  // Pages of other origins and names that are not ours are turned away, whatever the address is rewritten to.
  const foreign = { origin: 'https://evil.example.org' };
  expect((await through('POST /gateway/machines', admin, foreign, { poolName: 'x' })).status).toBe(403);
  const rebound = await through('GET /gateway/machines', admin, { host: 'rebound.example.org' });
  // The gateway's own shape has no 421.
  expect([rebound.status, rebound.json['message']]).toEqual([400, expect.stringContaining('under this name')]);
  const trail = await platform.call(
    `GET /api/v1/events/${platform.admin.workspaceId}/history?event_types=audit.machine.created`,
    undefined,
    { token: platform.admin.token },
  );
  expect((trail.json['events'] as Json[]).at(-1)).toMatchObject({
    data: { actor: { token_type: 'admin', via: 'console' } },
  });
});

test('only routes that say so are served through the passage', async () => {
  const admin = await entered(platform.admin.token);
  const rights = (await through('GET /session', admin)).json['rights'] as readonly string[];
  expect(rights).toContain('POST /gateway/workers/{workerId}/drain');
  // Signatures of the workspace, what is open to everybody, and what is no route of either API.
  for (const line of ['POST /gateway/auth/sign', 'POST /gateway/auth/authorize', 'GET /health', 'GET /nothing']) {
    expect([line, (await through(line, admin, {}, line.startsWith('P') ? {} : undefined)).status]).toEqual([line, 404]);
    expect(rights).not.toContain(line);
  }
  for (const path of ['/console/api', '/console/api/v1', '/console/api/v2/session'])
    expect([path, (await platform.call(`GET ${path}`, undefined, { ...WITHOUT_TOKEN, headers: sentBy(admin) })).status]) //
      .toEqual([path, 404]);
});

test('long answers of the passage are compressed for who takes that, and none elsewhere', async () => {
  const session = await entered(platform.admin.token);
  const ask = async (path: string, headers: Readonly<Record<string, string>>) => {
    // No client that decompresses by itself.
    const { headers: said, body } = await rawGet(platform.address, path, headers);
    return { encoding: said['content-encoding'], vary: said['vary'], type: said['content-type'], body };
  };
  // The rights of an administrator are some ten thousand characters.
  const path = '/api/v1/session';
  const through = sentBy(session);
  const plain = await ask(`/console${path}`, through);
  const small = await ask(`/console${path}`, { ...through, 'accept-encoding': 'br, gzip;q=0.8' });
  expect([plain.encoding, small.encoding, small.vary]).toEqual([undefined, 'gzip', 'accept-encoding']);
  expect([small.type, gunzipSync(small.body).toString()]).toEqual([plain.type, plain.body.toString()]);
  expect(small.body.length).toBeLessThan(plain.body.length / 2);
  expect((await ask(`/console${path}`, { ...through, 'accept-encoding': 'gzip;q=0' })).encoding).toBeUndefined();
  const short = await ask('/console/api/v1/alerts', { ...through, 'accept-encoding': 'gzip' });
  expect([short.encoding, JSON.parse(short.body.toString())]).toMatchObject([undefined, { data: expect.any(Array) }]);
  const elsewhere = { authorization: `Bearer ${platform.admin.token}`, 'accept-encoding': 'gzip' };
  expect((await ask(path, elsewhere)).encoding).toBeUndefined();
});

test('a change is recorded as one of the token, by way of the console', async () => {
  const session = await entered();
  const made = await through('POST /secret/{ws}', session, {}, { name: 'FROM_CONSOLE', value: 'v' });
  expect(made.status).toBe(201);
  const trail = await platform.call(
    `GET /api/v1/events/${platform.own.workspaceId}/history?event_types=audit.secret.created`,
  );
  const event = (trail.json['events'] as Json[]).at(-1) as { readonly data: { readonly actor: Json } };
  expect(event.data.actor).toMatchObject({ token_type: 'workspace_primary', via: 'console' });
});

test('sessions of a workspace are listed, and each is ended by others; the trail has both', async () => {
  const token = await aToken(platform, { name: 'laptop' });
  const session = await entered(token.key);
  const path = `/api/v1/console/sessions/${platform.own.workspaceId}`;
  const listed = async (): Promise<Json | undefined> =>
    ((await platform.call(`GET ${path}`)).json['data'] as Json[]).find((one) => one['token_id'] === token.id);
  const found = await listed();
  expect(found).toMatchObject({ token_name: 'laptop', address: '127.0.0.1', current: false });
  const own = (await through('GET /console/sessions/{ws}', session)).json['data'] as Json[];
  expect(own.filter((one) => one['current'] === true).map((one) => one['id'])).toEqual([found?.['id']]);
  // A link that nobody has entered is no session.
  await link(token.key);
  expect(
    ((await platform.call(`GET ${path}`)).json['data'] as Json[]).filter((one) => one['token_id'] === token.id),
  ).toHaveLength(1);
  for (const by of [platform.revoked, platform.restricted, (await aToken(platform, { scopes: ['read'] })).key])
    expect((await platform.call(`DELETE ${path}/${String(found?.['id'])}`, undefined, { token: by })).status).toBe(401);
  const foreign = `/api/v1/console/sessions/${platform.other.workspaceId}/${String(found?.['id'])}`;
  expect((await platform.call(`DELETE ${foreign}`, undefined, { token: platform.other.token })).status).toBe(404);
  expect(await statusOf(session)).toBe(200);
  expect((await platform.call(`DELETE ${path}/${String(found?.['id'])}`)).status).toBe(200);
  expect([await statusOf(session), await listed()]).toEqual([401, undefined]);
  const trail = await platform.call(
    `GET /api/v1/events/${platform.own.workspaceId}/history?event_types=audit.session.began,audit.session.ended`,
  );
  const about = (trail.json['events'] as readonly { readonly data: Json }[])
    .map(({ data }) => data)
    .filter(({ target }) => (target as Json)['id'] === found?.['id']);
  expect(about).toMatchObject([
    { action: 'session.began', actor: { token_name: 'laptop', via: 'console', remote_ip: '127.0.0.1' } },
    { action: 'session.ended', actor: { token_type: 'workspace_primary' } },
  ]);
});

describe('a session ends', () => {
  test('when its token is switched off, limited or deleted, at once', async () => {
    const token = await aToken(platform);
    const session = await entered(token.key);
    const change = (body: Json): Promise<Answer> =>
      platform.call(`PATCH /api/v1/token/${platform.own.workspaceId}/${token.id}`, body);
    expect(await statusOf(session)).toBe(200);
    await change({ active: false });
    expect(await statusOf(session)).toBe(401);
    await change({ active: true, scopes: ['invoke'] });
    expect(await statusOf(session)).toBe(401);
    expect((await through('GET /session', session)).status).toBe(200);
    const code = codeIn(await link(token.key));
    await platform.call(`DELETE /api/v1/token/${platform.own.workspaceId}/${token.id}`);
    expect((await through('GET /session', session)).status).toBe(401);
    expect((await post({ code })).status).toBe(401);
  });

  test('with its stream, when its token is switched off', async () => {
    const token = await aToken(platform);
    const session = await entered(token.key);
    const url = `http://${platform.address}/console/api/v1/logs/${platform.own.workspaceId}/stream`;
    const answer = await fetch(url, { headers: sentBy(session) });
    expect(answer.status).toBe(200);
    let isOver = false;
    const read = answer.text().finally(() => (isOver = true));
    await platform.call(`PATCH /api/v1/token/${platform.own.workspaceId}/${token.id}`, { active: false });
    await waitFor(() => isOver, 'the stream has ended');
    expect(await read).toContain(': connected');
  });

  test('when it is signed out, and nothing of it is left', async () => {
    const session = await entered();
    const shown = await platform.call('GET /console/session', undefined, {
      ...WITHOUT_TOKEN,
      headers: sentBy(session),
    });
    expect(shown.json).toMatchObject({ address: '127.0.0.1', is_clear: false });
    const url = `http://${platform.address}/console/session`;
    const half = await fetch(url, { method: 'DELETE', headers: sentBy({ cookie: session.cookie }) });
    expect(half.status).toBe(401);
    const out = await fetch(url, { method: 'DELETE', headers: sentBy(session) });
    expect([out.status, out.headers.get('clear-site-data')]).toEqual([200, '"cache", "storage"']);
    expect(out.headers.get('set-cookie')).toMatch(/^longshore_console=; .*Max-Age=0$/);
    expect(await statusOf(session)).toBe(401);
  });

  test('after its time, and a link after its own', async () => {
    const session = await entered();
    const code = codeIn(await link());
    await withSql(platform, async (sql) => {
      const { rows } = await sql.query<{ hours: number; days: number }>(
        `select max(extract(epoch from expires_at - created_at)::int / 3600) as hours,
           max(extract(epoch from ends_at - created_at)::int / 86400) as days from console_sessions`,
      );
      expect(rows).toEqual([{ hours: 12, days: 7 }]);
      // A use moves the time on, and never beyond the end.
      await sql.query(`update console_sessions set used_at = now() - interval '2 minutes',
        expires_at = now() + interval '1 minute', ends_at = now() + interval '1 hour' where link_hash is null`);
      expect(await statusOf(session)).toBe(200);
      const moved = await sql.query('select 1 from console_sessions where expires_at = ends_at and link_hash is null');
      expect(moved.rowCount).toBe(1);
      await sql.query('update console_sessions set expires_at = now()');
    });
    expect(await statusOf(session)).toBe(401);
    expect((await post({ code })).status).toBe(401);
  });
});

test('`longshore console` prints a link that signs in, and the way to it from another machine', async () => {
  const env = {
    LONGSHORE_CONTEXT_FILE: join(tmpdir(), 'longshore-no-contexts.json'),
    LONGSHORE_URL: `http://${platform.address}`,
    LONGSHORE_TOKEN: platform.own.token,
  };
  const told = await runCommand(['console', '--no-open'], env);
  expect([told.code, told.stdout]).toEqual([
    0,
    expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+\/console\/enter#[\w-]{43}\n$/),
  ]);
  expect(told.stderr).toContain(`ssh -L ${platform.address.split(':')[1]}:127.0.0.1:`);
  expect((await post({ code: told.stdout.trim().split('#')[1] ?? '' })).status).toBe(200);
  const json = await runCommand(['--json', 'console', '--no-open'], env);
  expect(JSON.parse(json.stdout)).toMatchObject({ url: expect.stringContaining('#'), expires_at: expect.any(String) });
});

test('the table has no secret, and a token has a bounded number of sessions', async () => {
  const token = await aToken(platform);
  const first = await entered(token.key);
  const links = await Promise.all(Array.from({ length: MOST_OF_TOKEN + 5 }, () => link(token.key)));
  expect(new Set(links.map(({ status }) => status))).toEqual(new Set([201]));
  const last = codeIn(await link(token.key));
  await withSql(platform, async (sql) => {
    const { rows } = await sql.query<{ row: string }>(
      'select s::text as row from console_sessions s where token_id = $1',
      [token.id],
    );
    expect(rows).toHaveLength(MOST_OF_TOKEN);
    const kept = rows.map(({ row }) => row).join('\n');
    for (const secret of [...links.map(codeIn), first.key, first.cookie.split('=')[1] ?? '', token.key])
      expect(kept).not.toContain(secret);
  });
  // The session that was unused for the longest time went.
  expect(await statusOf(first)).toBe(401);
  expect((await post({ code: last })).status).toBe(200);
});

test('a console with a name of its own is told where everything else is', async () => {
  const own = 'http://console.example.org';
  for (const external of [undefined, 'https://gpu.example.org/']) {
    const apart = await aPlatform({
      LONGSHORE_CONSOLE_URL: own,
      ...(external === undefined ? {} : { LONGSHORE_EXTERNAL_URL: external }),
    });
    try {
      const { domains } = (await apart.call('GET /api/v1/session')).json as { readonly domains: unknown };
      const api = external === undefined ? `http://${apart.address}` : 'https://gpu.example.org';
      expect(domains).toMatchObject({ console_url: own, api_url: api });
    } finally {
      await apart.stop();
    }
  }
  expect((await platform.call('GET /api/v1/session')).json).toMatchObject({ domains: { api_url: null } });
});

test('a scheduler without the console has none of it', async () => {
  const without = await aPlatform({ LONGSHORE_CONSOLE: 'off' });
  try {
    const asked = await without.call('POST /api/v1/console/link');
    expect([asked.status, asked.json['message']]).toEqual([404, expect.stringContaining('LONGSHORE_CONSOLE')]);
    expect((await without.call('GET /api/v1/session')).json).toMatchObject({ domains: { console_url: null } });
    for (const path of ['/console/', '/console/session', '/console/api/v1/session'])
      expect([path, (await without.call(`GET ${path}`)).status]).toEqual([path, 404]);
  } finally {
    await without.stop();
  }
});
