// Models as their owners see them: fields that are refused by name, bounds, pages, public models of the administrator,
// and the command line. Two schedulers see a change at once.
/* oxlint-disable no-empty-pattern */
import { join } from 'node:path';
import { expect } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { jsonOf } from '../helpers/platform.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { test as base } from '../helpers/services.ts';

type Json = Readonly<Record<string, unknown>>;

interface World {
  readonly set: ReplicaSet;
  readonly call: (
    method: string,
    path: string,
    body?: unknown,
    token?: string,
  ) => Promise<{ readonly status: number; readonly json: Json }>;
  readonly cli: (...args: readonly string[]) => Promise<{
    readonly code: number | null;
    readonly stdout: string;
    readonly stderr: string;
  }>;
}

const test = base.extend('world', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<World> => {
  const set = new ReplicaSet(postgres, redis, postgres.url, { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' });
  onCleanup(() => set.stop());
  const replica = await set.add();
  return {
    set,
    call: async (method, path, body, token) => {
      const answer = await set.call(replica, `/api/v1/model/${set.workspaceId}${path}`, {
        method,
        ...(body === undefined ? {} : { body }),
        ...(token === undefined ? {} : { token }),
      });
      return { status: answer.status, json: answer.text === '' ? {} : jsonOf<Json>(answer) };
    },
    cli: (...args) =>
      runCommand(args, {
        LONGSHORE_URL: replica.url,
        LONGSHORE_TOKEN: set.token,
        LONGSHORE_CONTEXT_FILE: join(set.directory, 'contexts.json'),
      }),
  };
});

const EXTERNAL = { kind: 'external', base_url: 'http://127.0.0.1:9/v1/' };
const CHAT = { type: 'chat', backends: [EXTERNAL] };

test('a model has the fields that were given, defaults for the others, and an id with a slash', async ({ world }) => {
  const { call } = world;
  const made = await call('POST', '', {
    ...CHAT,
    id: 'acme/first',
    context_length: 8192,
    capabilities: { tools: false },
    prices: { prompt_micros_per_million: 150_000, completion_micros_per_million: 600_000, request_micros: 0 },
    backends: [EXTERNAL, { kind: 'deployment', deployment: 'llm', weight: 3, level: 1 }],
  });
  expect(made).toMatchObject({
    status: 201,
    json: {
      id: 'acme/first',
      visibility: 'workspace',
      context_length: 8192,
      max_output_tokens: null,
      capabilities: { tools: false, streaming: true },
      prices: { prompt_micros_per_million: 150_000 },
      backends: [
        { kind: 'external', base_url: 'http://127.0.0.1:9/v1', weight: 1, level: 0 },
        { kind: 'deployment', deployment: 'llm', deployment_kind: 'asgi', weight: 3, level: 1 },
      ],
    },
  });
  const changed = await call('PATCH', '/acme%2Ffirst', { context_length: 0, active: false });
  expect(changed.json).toMatchObject({ context_length: null, active: false, capabilities: { tools: false } });
  expect((await call('GET', '/acme%2Ffirst')).json).toEqual(changed.json);
  expect((await call('POST', '', { ...CHAT, id: 'acme/first' })).json).toMatchObject({ code: 'model_exists' });
  expect((await call('DELETE', '/acme%2Ffirst')).status).toBe(200);
  expect((await call('GET', '/acme%2Ffirst')).json).toMatchObject({ code: 'model_not_found' });
});

test.for([
  ['id', { ...CHAT, id: 'a/b/c' }],
  ['id', { ...CHAT, id: '' }],
  ['type', { ...CHAT, id: 'a', type: 'poem' }],
  ['backends', { ...CHAT, id: 'a', backends: [] }],
  ['backends', { ...CHAT, id: 'a', backends: Array.from({ length: 9 }, () => EXTERNAL) }],
  ['backends[0].kind', { ...CHAT, id: 'a', backends: [{ kind: 'magic' }] }],
  ['backends[0].base_url', { ...CHAT, id: 'a', backends: [{ kind: 'external', base_url: 'http://10.0.0.1/v1' }] }],
  ['backends[0].base_url', { ...CHAT, id: 'a', backends: [{ kind: 'external', base_url: 'ftp://example.com' }] }],
  ['backends[1].deployment', { ...CHAT, id: 'a', backends: [EXTERNAL, { kind: 'deployment' }] }],
  ['backends[0].port', { ...CHAT, id: 'a', backends: [{ kind: 'deployment', deployment: 'x', port: 80 }] }],
  ['embedding.dimensions', { ...CHAT, id: 'a', type: 'embedding' }],
  ['name', { ...CHAT, id: 'a', name: 'x'.repeat(101) }],
  ['visibility', { ...CHAT, id: 'a', visibility: 'secret' }],
] as const)('a wrong %s is named', async ([field, body], { world }) => {
  const { status, json } = await world.call('POST', '', body);
  expect([status, json['code']]).toEqual([400, 'invalid_model']);
  expect(String(json['message']).startsWith(`${field} `)).toBe(true);
});

test('lists have pages by id, and a workspace has at most 100 models', async ({ world }) => {
  const { call } = world;
  for (let at = 0; at < 100; at++) {
    expect((await call('POST', '', { ...CHAT, id: `m${String(at).padStart(3, '0')}` })).status).toBe(201);
  }
  expect((await call('POST', '', { ...CHAT, id: 'more' })).json).toMatchObject({ code: 'too_many_models' });
  const first = await call('GET', '?limit=60');
  const second = await call('GET', `?limit=60&cursor=${String(first.json['next'])}`);
  const ids = [...(first.json['data'] as Json[]), ...(second.json['data'] as Json[])].map((row) => row['id']);
  expect(ids).toEqual(Array.from({ length: 100 }, (_, at) => `m${String(at).padStart(3, '0')}`));
  expect(second.json['next']).toBe('');
  for (const id of ids) await call('DELETE', `/${String(id)}`);
});

test('the command line adds, lists, shows and removes a model', async ({ world: { cli } }) => {
  const added = await cli(
    'model',
    'add',
    'acme/cli',
    '--type',
    'chat',
    '--deployment',
    'llm',
    '--context-length',
    '4096',
  );
  expect(added.stderr).toContain('there is no asgi/llm yet');
  expect(added).toMatchObject({ code: 0, stdout: 'added model acme/cli: chat, served by asgi/llm\n' });
  expect(await cli('model', 'add', 'acme/cli', '--type', 'chat', '--deployment', 'llm')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('`longshore model remove acme/cli`') as string,
  });
  const other = ['acme/elsewhere', '--type', 'chat', '--server', 'https://models.example.com/v1'];
  expect(await cli('model', 'add', ...other)).toMatchObject({
    code: 0,
    stdout: 'added model acme/elsewhere: chat, served by https://models.example.com/v1\n',
    stderr: '',
  });
  expect(await cli('model', 'remove', 'acme/elsewhere')).toMatchObject({ code: 0 });
  expect((await cli('model', 'list')).stdout).toContain('acme/cli');
  expect((await cli('model', 'show', 'acme/cli')).stdout).toContain('4096');
  expect(JSON.parse((await cli('model', 'show', 'acme/cli', '--json')).stdout)).toMatchObject({ id: 'acme/cli' });
  expect(await cli('model', 'remove', 'acme/cli')).toMatchObject({ code: 0, stdout: 'removed model acme/cli\n' });
  expect(await cli('model', 'remove', 'acme/cli')).toMatchObject({ code: 4 });
  expect(await cli('model', 'add', 'acme/cli', '--type', 'chat')).toMatchObject({ code: 2 });
});
