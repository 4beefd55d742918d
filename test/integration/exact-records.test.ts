// JSON of users in records that stay: models, stacks and stubs give back the text that was sent.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { memberText } from '#shared/json-text.ts';
import { runCommand } from '../helpers/command-line.ts';
import { EXACT_OBJECT } from '../helpers/exact-json.ts';
import { test } from './inference-fixture.ts';
import type { Json, World } from './inference-fixture.ts';

/** A request of REST or of the gateway with a text as its body. @returns the text of the answer */
async function send({ url, set }: World, method: string, path: string, body?: string): Promise<string> {
  const answer = await fetch(`${url}/api/v1${path.replace('{ws}', set.workspaceId)}`, {
    method,
    headers: { authorization: `Bearer ${set.token}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body }),
  });
  const text = await answer.text();
  expect([answer.status, text]).toEqual([expect.toBeOneOf([200, 201]), text]);
  return text;
}
const textAt = (text: string, ...names: readonly string[]): string | undefined =>
  names.reduce<string | undefined>((from, name) => (from === undefined ? from : memberText(from, name)), text);
/** The only record of a list. */
const listed = (list: string): string => textAt(list, 'data')?.slice(1, -1) ?? '';

const SPACED = ` ${EXACT_OBJECT.replaceAll('},', '} , ')}`.trim();

test('a model gives its schemas and defaults back, to its owner and to callers, also after a change', async ({
  world,
}) => {
  const names = ['input_schema', 'output_schema', 'default_parameters'] as const;
  const fields = (text: string): string => names.map((name) => `"${name}":${text}`).join(',');
  const base = `"id":"exact","type":"custom","backends":[{"kind":"external","base_url":"${world.server.baseUrl}"}]`;
  const made = await send(world, 'POST', '/model/{ws}', `{${base},${fields('{"old":1.0}')},${fields(EXACT_OBJECT)}}`);
  const records = async (): Promise<readonly string[]> => [
    await send(world, 'GET', '/model/{ws}/exact'),
    listed(await send(world, 'GET', '/model/{ws}?limit=1&cursor=bmFtZTpkdW1teQ')),
    await (await world.get('/models/exact')).text(),
  ];
  for (const record of [made, ...(await records())])
    expect(names.map((name) => textAt(record, name))).toEqual([EXACT_OBJECT, EXACT_OBJECT, EXACT_OBJECT]);
  await send(world, 'PATCH', '/model/{ws}/exact', `{"output_schema":${SPACED}}`);
  for (const record of await records())
    expect(names.map((name) => textAt(record, name))).toEqual([EXACT_OBJECT, SPACED, EXACT_OBJECT]);
});

test('the defaults of a model reach its server as they were given, unless the caller says otherwise', async ({
  world,
}) => {
  const defaults = String.raw`{"top_p":1.0,"seed":9007199254740993,"stop":["\u2028\/"],"x":1,"x":{"10":1,"9":1E+2}}`;
  const embedding = { dimensions: 3 };
  const calls = [
    ['chat', {}, '/chat/completions', '/chat/completions', '"messages":[{"role":"user","content":"a"}]'],
    ['completion', {}, '/completions', '/completions', '"prompt":"a"'],
    ['embedding', { embedding }, '/embeddings', '/embeddings', '"input":"a"'],
    ['custom', {}, '/models/exact-custom/invoke', '/invoke', '"prompt":"a"'],
  ] as const;
  for (const [type, more, path, served, request] of calls) {
    await world.model({ id: `exact-${type}`, type, ...more });
    await send(world, 'PATCH', `/model/{ws}/exact-${type}`, `{"default_parameters":${defaults}}`);
    world.server.script(served, {
      json: { choices: [{ message: {}, text: '' }], data: [{ index: 0, embedding: [1, 2, 3] }] },
    });
    const answer = await world.post(path, `{"model":"exact-${type}",${request},"seed":1.0}`);
    expect([type, answer.status]).toEqual([type, 200]);
    const { text } = world.server.last;
    expect(['top_p', 'seed', 'stop', 'x'].map((name) => textAt(text, name))).toEqual([
      '1.0',
      '1.0',
      String.raw`["\u2028\/"]`,
      '{"10":1,"9":1E+2}',
    ]);
  }
});

test('a stack gives its layout back', async ({ world }) => {
  const made = await send(world, 'POST', '/stack/{ws}', `{"name":"exact","layout":${EXACT_OBJECT}}`);
  const id = JSON.parse(textAt(made, 'id') ?? '""') as string;
  expect(textAt(made, 'layout')).toBe(EXACT_OBJECT);
  expect(textAt(listed(await send(world, 'GET', '/stack/{ws}')), 'layout')).toBe(EXACT_OBJECT);
  const renamed = await send(world, 'PUT', `/stack/{ws}/${id}`, '{"name":"again"}');
  expect(textAt(renamed, 'layout')).toBe(EXACT_OBJECT);
  const changed = await send(world, 'PUT', `/stack/{ws}/${id}`, `{"layout":${SPACED}}`);
  expect(textAt(changed, 'layout')).toBe(SPACED);
});

/** Free JSON of a stub's request, and its name in records. */
const FREE = [
  ['pricing', 'pricing'],
  ['inputs', 'inputs'],
  ['outputs', 'outputs'],
  ['extra', 'extra'],
] as const;

test('a stub gives its free JSON back in every record that has its configuration', async ({ world }) => {
  const recipe = (free: string): string =>
    `{"stubType":"endpoint/deployment","name":"exact","handler":"app:handler",${FREE.map(
      ([name]) => `"${name}":${name === 'extra' ? JSON.stringify(free) : free}`,
    ).join(',')},"disks":[{"size":1.0}]}`;
  const ids: string[] = [];
  for (const free of [EXACT_OBJECT, SPACED]) {
    const stub = JSON.parse(await send(world, 'POST', '/gateway/stubs', recipe(free))) as { readonly stubId: string };
    const again = await send(world, 'POST', '/gateway/stubs', recipe(free));
    expect(again).toContain(stub.stubId);
    ids.push(stub.stubId);
    const config = (record: string | undefined): string =>
      JSON.parse(textAt(record ?? '{}', 'config') ?? '""') as string;
    const deployed = JSON.parse(
      await send(world, 'POST', '/gateway/stubs/deploy', `{"stubId":"${stub.stubId}","name":"exact"}`),
    ) as { readonly deploymentId: string };
    const records = [
      textAt(await send(world, 'GET', `/deployment/{ws}/${deployed.deploymentId}`), 'stub'),
      textAt(listed(await send(world, 'GET', '/deployment/{ws}?limit=1')), 'stub'),
    ];
    for (const record of records) {
      expect(FREE.map(([, name]) => textAt(config(record), name))).toEqual(FREE.map(() => free));
      expect(textAt(config(record), 'disks')).toBe('[{"size":1.0}]');
    }
    const checked = await send(world, 'POST', '/gateway/stubs/check', recipe(free));
    expect(FREE.map(([name]) => textAt(checked, 'config', 'extra', name))).toEqual(FREE.map(() => free));
    const history = await send(world, 'GET', `/events/{ws}/history?limit=1&stub_id=${stub.stubId}`);
    const { events } = JSON.parse(history) as { readonly events: readonly { readonly data: Json }[] };
    const told = String(events[0]?.data['stub_config']);
    expect(FREE.map(([name]) => textAt(told, 'extra', name))).toEqual(FREE.map(() => free));
  }
  expect(new Set(ids).size).toBe(2);
});

test('the command line adds a model from a file, and shows it, as it is written there', async ({ world }) => {
  const cli = async (...args: readonly string[]): Promise<string> => {
    const ended = await runCommand(args, {
      LONGSHORE_URL: world.url,
      LONGSHORE_TOKEN: world.set.token,
      LONGSHORE_CONTEXT_FILE: join(world.set.directory, 'contexts.json'),
    });
    expect([ended.code, ended.stderr]).toEqual([0, expect.any(String)]);
    return ended.stdout;
  };
  const file = join(world.set.directory, 'model.json');
  writeFileSync(file, `{"type":"custom","default_parameters":${EXACT_OBJECT},"input_schema":${SPACED}}`);
  const added = await cli('model', 'add', 'a-first', '--file', file, '--server', world.server.baseUrl, '--json');
  const listedFirst =
    textAt(`{"data":${await cli('model', 'list', '--json')}}`, 'data')
      ?.trim()
      .slice(1, -1) ?? '';
  for (const shown of [added, await cli('model', 'show', 'a-first', '--json'), listedFirst])
    for (const name of ['default_parameters', 'input_schema'])
      expect(compact(textAt(shown, name))).toBe(compact(EXACT_OBJECT));
});

/** Text without the white space between tokens. */
const compact = (text = ''): string => text.replaceAll(/[ \n]/g, '');
