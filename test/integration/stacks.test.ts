// Stacks over HTTP and by the command line, against a real scheduler with real stores. There is no machine.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Answer, Json, Platform } from './verbs-fixture.ts';

describe('stacks', () => {
  let platform: Platform;
  beforeAll(async () => {
    platform = await aPlatform();
    for (const name of ['alpha', 'beta', 'gamma']) await platform.deploy(name, { appName: name, env: [`N=${name}`] });
    await platform.stub({ stubType: 'function/serve', appName: 'empty' });
  });
  afterAll(() => platform.stop());

  const call = (line: string, body?: unknown, token: string = platform.own.token): Promise<Answer> =>
    platform.call(line.replace(' ', ` /api/v1/stack/${platform.own.workspaceId}`), body, { token });
  const made = async (body: Json): Promise<Json> => {
    const answer = await call('POST ', body);
    expect(answer.status).toBe(201);
    return answer.json;
  };
  const idOf = async (body: Json): Promise<string> => String((await made(body))['id']);
  const refused = async (line: string, body: unknown, token?: string): Promise<readonly unknown[]> => {
    const { status, json } = await call(line, body, token);
    return [status, json['code'], json['message']];
  };

  test('are made of apps by name, and show them as they are now', async () => {
    const stack = await made({
      name: 'Shop 1',
      apps: ['beta', 'empty', 'alpha', 'beta'],
      layout: { x: [1, { y: null }] },
    });
    expect(stack).toEqual({
      id: expect.any(String),
      external_id: stack['id'],
      name: 'Shop 1',
      apps: ['beta', 'empty', 'alpha'],
      members: [
        {
          app_id: expect.any(String),
          name: 'beta',
          kind: 'endpoint',
          active: true,
          url: expect.stringMatching(/\/endpoint\/beta\/v1$/),
        },
        { app_id: expect.any(String), name: 'empty', kind: 'function', active: false, url: expect.any(String) },
        { app_id: expect.any(String), name: 'alpha', kind: 'endpoint', active: true, url: expect.any(String) },
      ],
      layout: { x: [1, { y: null }] },
      created_at: expect.any(String),
      updated_at: stack['created_at'],
    });
    expect((await call('GET ')).json).toEqual({ data: [stack], next: '' });
    const deployments = (await platform.gateway('GET /deployments?filters=name=beta')).json['deployments'] as Json[];
    const id = String(deployments[0]?.['id']);
    await platform.gateway(`POST /deployments/${id}/stop`);
    const [listed] = (await call('GET ')).json['data'] as Json[];
    expect((listed?.['members'] as Json[] | undefined)?.[0]).toMatchObject({ name: 'beta', active: false });
    await platform.gateway(`POST /deployments/${id}/start`);
  });

  test('are replaced, or changed app by app, and never both at once', async () => {
    const id = await idOf({ name: 'changed', apps: ['alpha'], layout: { a: 1 } });
    const put = async (body: Json): Promise<Json> => {
      const answer = await call(`PUT /${id}`, body);
      expect([body, answer.status]).toEqual([body, 200]);
      return answer.json;
    };
    expect(await put({ apps: ['beta', 'gamma'] })).toMatchObject({ name: 'changed', apps: ['beta', 'gamma'] });
    expect(await put({ name: 'renamed' })).toMatchObject({
      name: 'renamed',
      apps: ['beta', 'gamma'],
      layout: { a: 1 },
    });
    expect(await put({ add: ['alpha', 'beta'] })).toMatchObject({ apps: ['beta', 'gamma', 'alpha'] });
    expect(await put({ add: ['empty'], remove: ['beta', 'nobody'], layout: {} })).toMatchObject({
      apps: ['gamma', 'alpha', 'empty'],
      layout: {},
    });
    expect(await put({ apps: [] })).toMatchObject({ apps: [], members: [] });
    expect(await put({})).toMatchObject({ name: 'renamed', apps: [] });

    const mixed = 'send name and apps, or add and remove: not both';
    for (const body of [
      { name: 'x', add: [] },
      { apps: [], remove: ['alpha'] },
    ]) {
      expect(await refused(`PUT /${id}`, body)).toEqual([400, 'bad_request', mixed]);
    }
    const unknown = (field: string) => [422, 'invalid_body', `${field} names nobody: there is no such app`];
    expect(await refused('POST ', { name: 'y', apps: ['nobody'] })).toEqual(unknown('apps'));
    expect(await refused(`PUT /${id}`, { apps: ['nobody'] })).toEqual(unknown('apps'));
    expect(await refused(`PUT /${id}`, { add: ['nobody'] })).toEqual(unknown('add'));
    expect(await refused(`PUT /${id}`, { add: ['alpha'], remove: ['alpha'] })).toEqual([
      422,
      'invalid_body',
      'add and remove both name alpha',
    ]);
    await made({ name: 'taken' });
    const taken = [409, 'stack_exists', 'there is a stack taken already'];
    expect(await refused('POST ', { name: 'taken' })).toEqual(taken);
    expect(await refused(`PUT /${id}`, { name: 'taken' })).toEqual(taken);
    for (const name of ['', 'a\nb', 'x'.repeat(101), undefined]) {
      expect((await refused('POST ', { name })).slice(0, 2)).toEqual([422, 'invalid_body']);
    }
    for (const layout of [{ x: 'x'.repeat(65_536) }, [], 'x']) {
      expect((await refused('POST ', { name: 'z', layout })).slice(0, 2)).toEqual([422, 'invalid_body']);
    }
    const many = Array.from({ length: 101 }, (_, n) => `app-${n}`);
    expect(await refused('POST ', { name: 'z', apps: many })).toEqual([422, 'invalid_body', 'apps may name 100 apps']);
  });

  test('that are changed at once keep every change', async () => {
    const id = await idOf({ name: 'at once', apps: ['alpha'] });
    const changes = [{ add: ['beta'] }, { add: ['gamma'] }, { remove: ['alpha'] }, { add: ['empty'] }];
    const answers = await Promise.all(changes.map((body) => call(`PUT /${id}`, body)));
    expect(answers.map((answer) => answer.status)).toEqual([200, 200, 200, 200]);
    const { json } = await call(`PUT /${id}`, {});
    expect((json['apps'] as string[]).toSorted()).toEqual(['beta', 'empty', 'gamma']);
  });

  test('are deleted, and their apps stay', async () => {
    const id = await idOf({ name: 'gone', apps: ['alpha'] });
    expect([(await call(`DELETE /${id}`)).status, (await call(`DELETE /${id}`)).status]).toEqual([200, 404]);
    expect((await refused(`PUT /${id}`, {}))[1]).toBe('stack_not_found');
    const apps = await platform.call(`GET /api/v1/app/${platform.own.workspaceId}?name=alpha`);
    expect(apps.json['data']).toHaveLength(1);
  });

  test('of a workspace are closed to others, and their changes to restricted tokens', async () => {
    const id = await idOf({ name: 'mine', apps: ['alpha'] });
    const { restricted, other } = platform;
    for (const line of ['POST ', `PUT /${id}`, `DELETE /${id}`]) {
      expect((await refused(line, { name: 'theirs' }, restricted))[0]).toBe(401);
      expect((await refused(line, { name: 'theirs' }, other.token))[0]).toBe(401);
    }
    expect((await call('GET ', undefined, restricted)).status).toBe(200);
    const theirs = (line: string, body: unknown) =>
      platform.call(line.replace(' ', ` /api/v1/stack/${other.workspaceId}`), body, { token: other.token });
    expect((await theirs(`PUT /${id}`, { name: 'x' })).status).toBe(404);
    expect((await theirs(`DELETE /${id}`, undefined)).status).toBe(404);
    expect((await theirs(`DELETE /${NOBODY}`, undefined)).status).toBe(404);
    expect((await theirs('POST ', { name: 'x', apps: ['alpha'] })).status).toBe(422);
    expect((await theirs('GET ', undefined)).json).toEqual({ data: [], next: '' });
  });

  test('are as many as the limits say, also when many are made at once', async () => {
    const used = async (): Promise<Json> => {
      const { json } = await platform.call(`GET /api/v1/workspace/${platform.own.workspaceId}/limits`);
      return (json['counts'] as Json)['stacks'] as Json;
    };
    const before = Number((await used())['used']);
    const { token } = platform.admin;
    const limits = `PUT /api/v1/workspace/${platform.own.workspaceId}/limits`;
    await platform.call(limits, { counts: { stacks: before + 2 } }, { token });
    const names = ['m1', 'm2', 'm3', 'm4', 'm5'];
    const answers = await Promise.all(names.map((name) => call('POST ', { name })));
    expect(answers.map((answer) => answer.status).toSorted((a, b) => a - b)).toEqual([201, 201, 429, 429, 429]);
    expect(answers.find((answer) => answer.status === 429)?.json['code']).toBe('too_many_stacks');
    expect(await used()).toEqual({ used: before + 2, limit: before + 2 });
    await platform.call(limits, { counts: { stacks: null } }, { token });
    expect(await used()).toEqual({ used: before + 2, limit: 100 });
  });

  test('are listed, made, changed and deleted by the command line', async () => {
    const cli = (...args: readonly string[]) =>
      runCommand(['stack', ...args], {
        LONGSHORE_URL: `http://${platform.address}`,
        LONGSHORE_TOKEN: platform.other.token,
        LONGSHORE_CONTEXT_FILE: '/nonexistent/contexts.json',
      });
    const fine = async (...args: readonly string[]): Promise<string> => {
      const ended = await cli(...args);
      expect(ended).toMatchObject({ code: 0, stderr: '' });
      return ended.stdout.replaceAll(/[0-9a-f-]{36}/g, '<id>').replaceAll(/\b\d+s ago +/g, '<age> ago  ');
    };
    const wrong = async (...args: readonly string[]): Promise<string> => {
      const ended = await cli(...args);
      expect(ended.stdout).toBe('');
      return `${ended.code} ${ended.stderr.split('\n')[0]}`;
    };
    await platform.deploy('one', { appName: 'one' }, platform.other.token);
    await platform.deploy('two', { appName: 'two', env: ['N=2'] }, platform.other.token);
    expect(await fine('list')).toBe('(none)\n');
    expect(await fine('create', 'shop', '--app', 'one', 'two')).toBe('made stack shop: one, two\n');
    expect(await fine('create', 'bare')).toBe('made stack bare, without apps\n');
    const table = ['NAME  APPS      CHANGED  ID', 'bare  -         <age> ago  <id>', 'shop  one, two  <age> ago  <id>'];
    expect(await fine('list')).toBe(`${table.join('\n')}\n`);
    expect(await fine('update', 'shop', '--remove', 'one')).toBe('changed stack shop: two\n');
    expect(await fine('update', 'shop', '--name', 'store', '--app', 'one')).toBe('changed stack store: one\n');
    expect(JSON.parse(await fine('list', '--json'))).toMatchObject([
      { name: 'store', apps: ['one'] },
      { name: 'bare' },
    ]);
    expect(await fine('delete', 'store')).toBe('deleted stack store; its apps stay\n');
    expect(await wrong('delete', 'store')).toBe(
      '4 longshore: there is no stack store in this workspace: `longshore stack list` shows them',
    );
    expect(await wrong('update', 'bare')).toBe('2 longshore: say what to change: --name, --app, --add or --remove');
    expect(await wrong('update', 'bare', '--add', 'one', '--name', 'x')).toMatch(/^2 longshore: --add and --remove/);
    expect(await wrong('create', 'bare')).toMatch(/^1 longshore: .*there is a stack bare already/);
    expect(await wrong('create', 'new', '--app', 'nobody')).toMatch(/^2 longshore: .*there is no such app/);
  });
});
