// Maps, queues, signals and outputs over HTTP on a real scheduler with real stores: whose they are, who may read what
// whom wrote, their bounds, and their end. Also calls with pickled inputs, and many calls in one request.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { waitFor } from '../helpers/programs.ts';
import { aContained } from './contained.ts';
import type { Contained } from './contained.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform, Sent } from './verbs-fixture.ts';
import { kitOf } from './verbs-kit.ts';

let platform: Platform;
/** Containers of one app with equal rights, of the same app with a secret, and of another app. */
let own: Contained;
let twin: Contained;
let trusted: Contained;
let stranger: Contained;
const kit = kitOf(() => platform);

beforeAll(async () => {
  platform = await aPlatform();
  await platform.call(`POST /api/v1/secret/${platform.own.workspaceId}`, { name: 'KEY', value: 'x' });
  const handle = ({ input }: { readonly input: string }): string => input;
  own = await aContained(platform, { appName: 'one' }, { handle });
  twin = await aContained(platform, { appName: 'one', env: ['TWIN=1'] });
  trusted = await aContained(platform, { appName: 'one', secrets: [{ name: 'KEY' }] });
  stranger = await aContained(platform, { appName: 'two' });
});
afterAll(async () => {
  for (const one of [own, twin, trusted, stranger]) await one.stop();
  await platform.stop();
});

const call = (line: string, body?: unknown, sent?: Sent): Promise<Answer> =>
  platform.call(line.replace(' /', ' /api/v1/').replace('{ws}', platform.own.workspaceId), body, sent);
const by = ({ token }: { readonly token: string }): Sent => ({ token });
const at = (name: string, key: string): string =>
  `/map/{ws}/entry?name=${encodeURIComponent(name)}&key=${encodeURIComponent(key)}`;
const put = (key: string, encoding: string, value: string, sent?: Sent): Promise<Answer> =>
  call('PUT /map/{ws}/entry', { name: 'm', key, encoding, value }, sent);
const get = (key: string, sent?: Sent): Promise<Answer> => call(`GET ${at('m', key)}`, undefined, sent);
const push = (name: string, value: string, said: Json = {}, sent?: Sent): Promise<Answer> =>
  call('POST /queue/{ws}', { name, encoding: 'json', value, ...said }, sent);
const pop = async (name: string, sent?: Sent): Promise<unknown> => {
  const { json } = await call('POST /queue/{ws}/pop', { name }, sent);
  return json['item'] === null ? null : (json['item'] as Json)['value'];
};

describe('a map', () => {
  test('gives back what was set, by any key, byte by byte', async () => {
    const value = '{"a": "\\u00e4 ä 😀",  "n": 1.0}';
    for (const key of ['a', 'a/b/../c', '..', '%2e', 'ä 😀', '\'"', 'x'.repeat(500)]) {
      expect((await put(key, 'json', value)).status).toBe(200);
      const found = await get(key);
      expect([found.status, found.json['key'], found.json['value']]).toEqual([200, key, value]);
      expect((await call(`DELETE ${at('m', key)}`)).status).toBe(200);
      expect((await get(key)).status).toBe(404);
    }
  });

  test('refuses what it could not give back, in values and keys', async () => {
    for (const text of ['"\ud800"', '"\0"']) {
      expect((await put('a', 'json', text)).status).toBe(422);
      expect((await put(text, 'json', '1')).status).toBe(422);
      expect((await push('q', text)).status).toBe(422);
    }
    expect((await put('a', 'json', String.raw`"\ud800\u0000"`)).status).toBe(200);
    expect((await get('a')).json['value']).toBe(String.raw`"\ud800\u0000"`);
    expect((await call(`DELETE ${at('m', 'a')}`)).status).toBe(200);
  });

  test('lists its keys page by page', async () => {
    for (const key of ['c', 'a', 'b'])
      await call('PUT /map/{ws}/entry', { name: 'pages', key, encoding: 'json', value: '1' });
    const first = await call('GET /map/{ws}/keys?name=pages&limit=2');
    expect(first.json).toEqual({ data: ['a', 'b'], next: 'b', count: 3 });
    const second = await call('GET /map/{ws}/keys?name=pages&limit=2&after=b');
    expect(second.json).toEqual({ data: ['c'], next: '', count: 3 });
    expect((await call('GET /map/{ws}/keys?name=page')).json).toEqual({ data: [], next: '', count: 0 });
  });

  test('forgets a key after its time', async () => {
    const body = { name: 'm', key: 'short', encoding: 'json', value: '1', ttl_seconds: 1 };
    expect((await call('PUT /map/{ws}/entry', body)).status).toBe(200);
    await expect.poll(async () => (await get('short')).status, { timeout: 5_000 }).toBe(404);
  });

  test.each<readonly [string, Json, RegExp]>([
    ['no name', { name: '' }, /^name/],
    ['a long name', { name: 'x'.repeat(201) }, /^name/],
    ['no key', { key: '' }, /^key/],
    ['a long key', { key: 'x'.repeat(501) }, /^key/],
    ['a key with NUL', { key: 'a\u0000b' }, /key/],
    ['an unknown encoding', { encoding: 'xml' }, /^encoding/],
    ['a life of more than a week', { ttl_seconds: 604_801 }, /^ttl_seconds/],
    ['a value of more than a million characters', { value: 'x'.repeat(1_000_001) }, /^value/],
  ])('refuses %s', async (_name, said, text) => {
    const answer = await call('PUT /map/{ws}/entry', { name: 'm', key: 'k', encoding: 'json', value: '1', ...said });
    expect([answer.status, answer.json['message']]).toEqual([422, expect.stringMatching(text)]);
  });
});

describe('a queue', () => {
  test('gives first what came first, to one taker each', async () => {
    for (let number = 0; number < 20; number++) await push('q', String(number));
    expect((await call('GET /queue/{ws}?name=q')).json).toMatchObject({ size: 20, first: { value: '0' } });
    expect([await pop('q'), await pop('q')]).toEqual(['0', '1']);
    const taken = await Promise.all(Array.from({ length: 20 }, () => pop('q')));
    const numbers = taken.filter((one) => one !== null).map(Number);
    expect(numbers.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 18 }, (_, index) => index + 2));
    expect((await call('GET /queue/{ws}?name=q')).json).toEqual({ size: 0, first: null });
  });

  test('has the bound that the writer names', async () => {
    expect((await push('small', '1', { max_size: 1 })).status).toBe(200);
    const refused = await push('small', '2', { max_size: 1 });
    expect([refused.status, refused.json['code']]).toEqual([429, 'shared_state_full']);
    expect((await push('small', '2', { max_size: 2 })).status).toBe(200);
  });
});

describe('the list of names', () => {
  const namesOf = async (kind: 'map' | 'queue', sent?: Sent): Promise<readonly Json[]> =>
    (await call(`GET /${kind}/{ws}/names?limit=1000`, undefined, sent)).json['data'] as Json[];
  const named = async (kind: 'map' | 'queue', name: string): Promise<Json | undefined> =>
    (await namesOf(kind)).find((row) => row['name'] === name);

  test('has entries and bytes of what has not ended, of one kind alone', async () => {
    const entry = { name: 'both', encoding: 'json', value: '"ä"' };
    await call('PUT /map/{ws}/entry', { ...entry, key: 'a' });
    await call('PUT /map/{ws}/entry', { ...entry, key: 'bb' });
    await push('both', '1');
    expect(await named('map', 'both')).toEqual({ name: 'both', entries: 2, bytes: 2 * (4 + 4) + 3 });
    expect(await named('queue', 'both')).toEqual({ name: 'both', entries: 1, bytes: 5 });
    await push('short', '1', { ttl_seconds: 1 });
    expect(await named('queue', 'short')).toBeDefined();
    await waitFor(async () => (await named('queue', 'short')) === undefined, 'the item has ended');
  });

  test('is for tokens of the workspace, not for its containers, as is clearing', async () => {
    for (const line of ['GET /map/{ws}/names', 'GET /queue/{ws}/names', 'DELETE /map/{ws}?name=both'])
      expect([line, (await call(line, undefined, by(own))).status]).toEqual([line, 401]);
    expect(await named('map', 'both')).toBeDefined();
  });

  test('has any name, and pages lead behind it', async () => {
    const odd = ['ä/😀', 'a b?&#', '%2e', '..'];
    for (const name of odd) await push(name, '1');
    const seen: unknown[] = [];
    let cursor = '';
    do {
      const { json } = await call(`GET /queue/{ws}/names?limit=1&cursor=${cursor}`);
      seen.push(...(json['data'] as Json[]).map((row) => row['name']));
      cursor = String(json['next']);
    } while (cursor !== '');
    expect(seen).toEqual(expect.arrayContaining(odd));
    expect(new Set(seen).size).toBe(seen.length);
    for (const name of odd) await pop(name);
    expect((await namesOf('queue')).filter((row) => odd.includes(String(row['name'])))).toEqual([]);
  });

  test('loses what is cleared, and nothing else', async () => {
    expect((await call('DELETE /queue/{ws}?name=both')).json).toEqual({ removed: 1, complete: true });
    expect((await call('DELETE /queue/{ws}?name=both')).json).toEqual({ removed: 0, complete: true });
    expect(await named('map', 'both')).toMatchObject({ entries: 2 });
    expect((await call('DELETE /map/{ws}?name=both')).json).toEqual({ removed: 2, complete: true });
    expect([await named('map', 'both'), await named('queue', 'both')]).toEqual([undefined, undefined]);
  });
});

test('a signal has another number each time that it is set', async () => {
  const state = async (): Promise<Json> => (await call('GET /signal/{ws}?name=s')).json;
  expect(await state()).toEqual({ set: false, revision: 0 });
  await call('PUT /signal/{ws}', { name: 's' }, by(own));
  const first = await state();
  expect(first['set']).toBe(true);
  await call('PUT /signal/{ws}', { name: 's', ttl_seconds: 60 });
  expect(Number((await state())['revision'])).toBeGreaterThan(Number(first['revision']));
  await call('DELETE /signal/{ws}?name=s');
  expect(await state()).toEqual({ set: false, revision: 0 });
});

const LINES: readonly (readonly [string, Json | undefined])[] = [
  ['GET /map/{ws}/keys?name=m', undefined],
  [`GET ${at('m', 'mine')}`, undefined],
  ['PUT /map/{ws}/entry', { name: 'm', key: 'mine', encoding: 'json', value: '2' }],
  [`DELETE ${at('m', 'mine')}`, undefined],
  ['GET /queue/{ws}?name=mine', undefined],
  ['POST /queue/{ws}', { name: 'mine', encoding: 'json', value: '2' }],
  ['POST /queue/{ws}/pop', { name: 'mine' }],
  ['GET /map/{ws}/names', undefined],
  ['GET /queue/{ws}/names', undefined],
  ['DELETE /map/{ws}?name=m', undefined],
  ['DELETE /queue/{ws}?name=mine', undefined],
  ['GET /signal/{ws}?name=mine', undefined],
  ['PUT /signal/{ws}', { name: 'mine' }],
  ['DELETE /signal/{ws}?name=mine', undefined],
  ['POST /output/{ws}', { task_id: NOBODY, object_id: NOBODY, name: 'a' }],
  [`GET /output/{ws}/${NOBODY}/url`, undefined],
];

describe.each(LINES)('%s', (line, body) => {
  test('is for the workspace alone', async () => {
    await put('mine', 'json', '1');
    await push('mine', '1');
    for (const token of ['', 'nonsense', platform.revoked, platform.other.token, platform.restricted])
      expect([token, (await call(line, body, { token })).status]).toEqual([token, 401]);
    expect((await get('mine')).json['value']).toBe('1');
    expect(await pop('mine')).toBe('1');
    // The same names in the other workspace are other things.
    const theirs = line.replace('{ws}', platform.other.workspaceId);
    const answer = await platform.call(theirs.replace(' /', ' /api/v1/'), body, by(platform.other));
    expect(JSON.stringify(answer.json)).not.toContain('"1"');
    expect((await platform.call(theirs.replace(' /', ' /api/v1/'), body, by(own))).status).toBe(401);
  });
});

describe('a pickled value', () => {
  const status = async (key: string, reader: Sent | undefined): Promise<readonly unknown[]> => {
    const answer = await get(key, reader);
    return [answer.status, answer.json['code']];
  };

  test('is read where its writer may run code', async () => {
    await put('by-own', 'pickle', 'AAAA', by(own));
    await put('by-token', 'pickle', 'AAAA');
    await put('by-trusted', 'pickle', 'AAAA', by(trusted));
    for (const reader of [undefined, by(own), by(twin)])
      expect(await status('by-own', reader)).toEqual([200, undefined]);
    for (const reader of [own, twin, trusted, stranger])
      expect(await status('by-token', by(reader))).toEqual([200, undefined]);
    expect(await status('by-trusted', by(own))).toEqual([200, undefined]);
    for (const reader of [trusted, stranger]) {
      expect(await status('by-own', by(reader))).toEqual([403, 'value_not_trusted']);
      await put('plain', 'json', '1', by(own));
      expect(await status('plain', by(reader))).toEqual([200, undefined]);
    }
  });

  test('stays in the queue when a container may not have it', async () => {
    await push('code', 'AAAA', { encoding: 'pickle' }, by(own));
    await push('code', '2', {}, by(own));
    const refused = await call('POST /queue/{ws}/pop', { name: 'code' }, by(stranger));
    expect([refused.status, refused.json['code']]).toEqual([403, 'value_not_trusted']);
    expect((await call('GET /queue/{ws}?name=code', undefined, by(stranger))).status).toBe(403);
    expect([await pop('code', by(twin)), await pop('code', by(stranger))]).toEqual(['AAAA', '2']);
  });
});

test('the workspace’s bounds hold for all together, and are shown', async () => {
  const limits = `PUT /workspace/{ws}/limits`;
  const { json } = await call('GET /workspace/{ws}/limits');
  const used = (json['counts'] as Record<string, Json>)['shared_entries']?.['used'];
  await call(limits, { counts: { shared_entries: Number(used) + 1 } }, by(platform.admin));
  const another = async (): Promise<number> => (await push('bound', '1')).status;
  expect([await another(), await another()]).toEqual([200, 429]);
  expect((await put('over', 'json', '1')).json['code']).toBe('shared_state_full');
  expect((await call('PUT /signal/{ws}', { name: 'over' })).status).toBe(429);
  // A key that is there may be set again.
  expect((await put('plain', 'json', '2')).status).toBe(200);
  await call(limits, { counts: { shared_entries: null }, bytes: { shared: 1 } }, by(platform.admin));
  expect((await put('plain', 'json', '3')).status).toBe(429);
  await call(limits, { bytes: { shared: null } }, by(platform.admin));
  expect((await put('plain', 'json', '3')).status).toBe(200);
});

describe('pickled inputs', () => {
  const PICKLED = '?longshore_values=pickle';
  const aFunction = async (said: Json): Promise<string> => {
    const name = kit.unique('function');
    await platform.deploy(name, { stubType: 'function/deployment', ...said });
    return name;
  };
  const statusOf = async (name: string, sent?: Sent): Promise<number> =>
    (await platform.call(`POST /function/${name}${PICKLED}`, { pickle: 'AAAA' }, sent)).status;

  test('come from the workspace’s own tokens, and from containers that may run code there', async () => {
    const plain = await aFunction({ appName: 'one' });
    const secret = await aFunction({ appName: 'one', secrets: [{ name: 'KEY' }] });
    expect([await statusOf(plain), await statusOf(secret)]).toEqual([200, 200]);
    expect([await statusOf(plain, by(own)), await statusOf(secret, by(own))]).toEqual([200, 403]);
    expect([await statusOf(secret, by(trusted)), await statusOf(plain, by(stranger))]).toEqual([200, 403]);
    expect(await statusOf(plain, { token: platform.restricted })).toBe(403);
    // JSON is for all of them.
    expect((await platform.call(`POST /function/${secret}`, {}, by(stranger))).status).toBe(200);
    expect((await platform.call(`POST /function/${secret}`, {}, { token: platform.restricted })).status).toBe(200);
    const many = { ...by(stranger), headers: { 'content-type': 'application/x-ndjson' } };
    expect((await platform.call(`POST /function/${plain}${PICKLED}`, '{}\n{}', many)).status).toBe(403);
  });
});

describe('many calls in one request', () => {
  const many = (path: string, body: string, headers: Record<string, string> = {}, sent: Sent = {}): Promise<Answer> =>
    platform.call(`POST ${path}`, body, { headers: { 'content-type': 'application/x-ndjson', ...headers }, ...sent });
  const lines = (count: number): string => Array.from({ length: count }, (_, n) => `{"n": ${n}}`).join('\n');

  test('are one task each, in the order of the lines', async () => {
    const { name } = await kit.aQueue({ maxPendingTasks: 500 });
    const { status, json } = await many(`/taskqueue/${name}`, lines(200));
    const ids = json['task_ids'] as string[];
    expect([status, new Set(ids).size, json['refused']]).toEqual([200, 200, undefined]);
    const read = await call(`GET /task/{ws}/${ids[150]}`);
    expect([read.status, read.json['status']]).toEqual([200, 'PENDING']);
  });

  test('are taken as far as the queue has room', async () => {
    const { name } = await kit.aQueue({ maxPendingTasks: 10 });
    const { json } = await many(`/taskqueue/${name}`, lines(100));
    const ids = json['task_ids'] as (string | null)[];
    expect([ids.length, ids.filter((id) => id !== null).length]).toEqual([100, 10]);
    expect(json['refused']).toEqual({ status: 429, error: 'exceeded max pending tasks: 10' });
    const full = await many(`/taskqueue/${name}`, lines(3));
    expect([full.status, full.json['error']]).toEqual([429, 'exceeded max pending tasks: 10']);
  });

  test('with a key are the same tasks when they come again', async () => {
    const { name } = await kit.aQueue();
    const key = { 'idempotency-key': 'map-1' };
    const first = await many(`/taskqueue/${name}`, lines(5), key);
    const second = await many(`/taskqueue/${name}`, lines(5), key);
    expect(second.json['task_ids']).toEqual(first.json['task_ids']);
    expect(new Set(first.json['task_ids'] as string[]).size).toBe(5);
  });

  test('are refused where somebody waits for the answer, and where a line is no call', async () => {
    const endpoint = kit.unique('waits');
    await platform.deploy(endpoint, {});
    expect((await many(`/endpoint/${endpoint}`, lines(2))).status).toBe(400);
    const { name } = await kit.aQueue();
    for (const body of ['', '{}\n[]', '{}\n{"callback_url": "https://example.com"}', lines(1001)])
      expect([body.length, (await many(`/taskqueue/${name}`, body)).status]).toEqual([body.length, 400]);
    expect((await many(`/taskqueue/${name}?callback_url=https://example.com`, lines(2))).status).toBe(400);
    for (const token of ['', platform.revoked])
      expect((await many(`/taskqueue/${name}`, lines(2), {}, { token })).status).toBe(401);
    expect((await many(`/taskqueue/${name}`, lines(2), {}, by(platform.other))).status).toBe(400);
  });
});

describe('an output', () => {
  const anObjectOf = async (sent: Sent | undefined, bytes: string): Promise<string> => {
    const made = await platform.gateway(
      'POST /objects',
      { hash: kit.unique('output'), size: bytes.length, overwrite: true },
      sent,
    );
    const { pathname, search } = new URL(String(made.json['presignedUrl']));
    expect((await platform.call(`PUT ${pathname}${search}`, bytes, { token: '' })).status).toBe(200);
    return String(made.json['objectId']);
  };
  const save = (task: string, object: string, sent?: Sent, name = 'a.txt'): Promise<Answer> =>
    call('POST /output/{ws}', { task_id: task, object_id: object, name }, sent);
  const address = (id: unknown, sent?: Sent, query = ''): Promise<Answer> =>
    call(`GET /output/{ws}/${String(id)}/url${query}`, undefined, sent);

  /** A task that the container of `own` serves. */
  const aTaskOfOwn = async (): Promise<string> => {
    const answer = await platform.call(`POST /endpoint/id/${own.stubId}`, { n: 1 });
    expect(answer.status).toBe(200);
    const { json } = await call('GET /task/{ws}?limit=1');
    const [task] = json['data'] as Json[];
    expect(task?.['stub_id']).toBe(own.stubId);
    return String(task?.['id']);
  };

  test('of a container’s task has an address, and is in the task', async () => {
    const task = await aTaskOfOwn();
    const saved = await save(task, await anObjectOf(by(own), 'bytes'), by(own));
    expect(saved.status).toBe(201);
    const signed = await address(saved.json['id'], by(own), '?expires_in=60');
    expect(signed.json).toMatchObject({ name: 'a.txt', size: 5, task_id: task });
    const { pathname, search } = new URL(String(signed.json['url']));
    expect((await platform.call(`GET ${pathname}${search}`, undefined, { token: '' })).text).toBe('bytes');
    const left = Date.parse(String(signed.json['expires_at'])) - Date.now();
    expect(left).toBeLessThanOrEqual(60_000);
    const [output] = (await call(`GET /task/{ws}/${task}`)).json['outputs'] as Json[];
    expect(output).toMatchObject({ name: 'a.txt', expires_in: 3600 });
    const listed = new URL(String(output?.['url']));
    const read = await platform.call(`GET ${listed.pathname}${listed.search}`, undefined, { token: '' });
    expect(read.text).toBe('bytes');
  });

  test('is of the container’s own task and object', async () => {
    const task = await aTaskOfOwn();
    const object = await anObjectOf(by(own), 'mine');
    const queued = await kit.aTask();
    expect((await save(queued, object, by(own))).status).toBe(404);
    expect((await save(task, object, by(twin))).status).toBe(404);
    expect((await save(task, await anObjectOf(undefined, 'x'), by(own))).status).toBe(404);
    expect((await save(task, await anObjectOf(by(twin), 'x'), by(own))).status).toBe(404);
    const saved = await save(task, object, by(own));
    expect((await address(saved.json['id'], by(twin))).status).toBe(404);
    expect((await address(saved.json['id'], by(own))).status).toBe(200);
    // A token of the workspace may have all of it.
    expect((await save(queued, object)).status).toBe(201);
    expect((await address(saved.json['id'])).status).toBe(200);
  });

  test('of another workspace’s object or task is refused', async () => {
    const task = await kit.aTask();
    const theirs = await anObjectOf(by(platform.other), 'theirs');
    expect((await save(task, theirs)).status).toBe(404);
    const { workspaceId } = platform.other;
    const body = { task_id: task, object_id: theirs, name: 'a' };
    expect((await platform.call(`POST /api/v1/output/${workspaceId}`, body, by(platform.other))).status).toBe(404);
  });

  test.each(['', 'a/b', 'x'.repeat(256)])('has the name of a file: %j is refused', async (name) => {
    const answer = await save(await kit.aTask(), await anObjectOf(undefined, 'x'), undefined, name);
    expect([answer.status, answer.json['code']]).toEqual([422, 'invalid_body']);
  });

  test('a task may have a hundred', async () => {
    const [task, object] = [await kit.aTask(), await anObjectOf(undefined, 'x')];
    const answers: number[] = [];
    for (let count = 0; count < 101; count++) answers.push((await save(task, object)).status);
    expect([answers.filter((status) => status === 201).length, answers.at(-1)]).toEqual([100, 429]);
  });
});
