// The tables and the --json of every command that lists things, against a real scheduler, as test/fixtures/cli/lists/
// keeps them. `npm run golden` writes the files anew.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { expectDocument, expectTable, steadyDocument, steadyTable } from '../helpers/golden.ts';
import { LISTS } from '../helpers/kept-commands.ts';
import { waitFor } from '../helpers/programs.ts';
import { aProvidersFile } from '../helpers/providers-file.ts';
import { ROOT } from '../helpers/repository.ts';
import { tempDirectory } from '../helpers/services.ts';
import { aContained } from './contained.ts';
import type { Contained } from './contained.ts';
import { anImage } from './kept-image.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Platform } from './verbs-fixture.ts';

const KEPT = join(ROOT, 'test/fixtures/cli/lists');
const directory = tempDirectory('cli-golden');
const providersFile = aProvidersFile();
let platform: Platform;
let contained: Contained;
let ofThisRun: readonly (readonly [string | RegExp, string])[];

const run = (words: string, by: 'own' | 'admin') =>
  runCommand(words.split(' '), {
    LONGSHORE_CONTEXT_FILE: join(directory.path, 'contexts.json'),
    LONGSHORE_URL: `http://${platform.address}`,
    LONGSHORE_TOKEN: platform[by].token,
  });
const line = async (words: string, by: 'own' | 'admin'): Promise<string> => {
  const ended = await run(words, by);
  expect(ended).toMatchObject({ code: 0, stderr: '' });
  return ended.stdout;
};
const send = async (method: 'POST' | 'PUT', path: string, body: object): Promise<void> => {
  const { workspaceId } = platform.own;
  const answer = await platform.call(`${method} /api/v1/${path.replace('{ws}', workspaceId)}`, body);
  expect(answer.status, answer.text).toBeLessThan(300);
};
const make = (path: string, body: object): Promise<void> => send('POST', path, body);

beforeAll(async () => {
  const settings = { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1', LONGSHORE_PROVIDERS_FILE: providersFile.path };
  platform = await aPlatform(settings);
  const image = await anImage(platform);
  // A container runs; the tasks of the queue find no machine, and wait.
  contained = await aContained(platform);
  await platform.deploy('orders', { stubType: 'taskqueue/deployment', appName: 'orders' });
  await make('../../taskqueue/orders', {});
  await make('secret/{ws}', { name: 'API_KEY', value: 'x' });
  const pulls = { registry: 'ghcr.io', username: 'robot', password: 'x', repositories: ['team/*'] };
  await make('secret/{ws}', { name: 'LONGSHORE_REGISTRY_GHCR_IO', value: JSON.stringify(pulls) });
  await make('volume/{ws}', { name: 'models', driver: 'shared' });
  for (const page of ['one', 'two']) {
    await make('queue/{ws}', { name: 'pages', encoding: 'json', value: `"${page}"` });
    await send('PUT', 'map/{ws}/entry', { name: 'seen', key: page, encoding: 'json', value: '1' });
  }
  await make('webhook/{ws}', { url: 'https://example.com/hooks', event_types: ['task.updated'] });
  const llm = { kind: 'deployment', deployment: 'llm', deployment_kind: 'pod', port: 8000 };
  await make('model/{ws}', { id: 'chat', type: 'chat', context_length: 8192, backends: [llm] });
  await make('stack/{ws}', { name: 'shop', apps: ['orders'] });
  await run(`login --context local --token ${platform.own.token}`, 'own');
  const workspaces = JSON.parse(await line('workspace list --json', 'admin')) as readonly Record<string, string>[];
  const first = workspaces.find(({ id }) => id === platform.admin.workspaceId)?.['name'] ?? '';
  ofThisRun = [
    [contained.machineId, '<machine>'],
    [first, '<first>'],
    [providersFile.folder, '<folder>'],
    [image, '<image>'],
    // The end of a webhook's secret.
    [/^[\w+/]{3}=$/g, '<hint>'],
    [/(bytes\.queue .* )\d+/g, '$1<bytes>'],
  ];
  await waitFor(
    async () => (await line('container list', 'own')).split('\n').length > 3,
    'a container waits for a machine',
    30_000,
  );
  await waitFor(async () => / ok /.test(await line('provider list', 'admin')), 'the provider was listed', 30_000);
  await waitFor(
    async () => /"last_used_at": "/.test(await line('token list --json', 'own')),
    'the use of the token is kept',
    90_000,
  );
});
afterAll(async () => {
  await contained.stop();
  await platform.stop();
  providersFile.remove();
  directory.remove();
});

describe.for(Object.entries(LISTS))('%s', ([words, by]) => {
  const file = join(KEPT, words.replaceAll(' ', '-'));

  test('prints the table that is kept', async () => {
    expectTable(`${file}.txt`, steadyTable(await line(words, by), ofThisRun));
  });

  test('prints the records that are kept with --json', async () => {
    const parsed: unknown = JSON.parse(await line(`${words} --json`, by));
    expectDocument(`${file}.json`, steadyDocument(parsed, ofThisRun));
  });
});
