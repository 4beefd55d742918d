// The text and the --json of every command that no list prints (cli-golden.test.ts), against a real scheduler, as
// test/fixtures/cli/verbs/ keeps them. `npm run golden` writes the files anew. Neither has colours, because stdout is
// no terminal.
import { createServer } from 'node:http';
import { hostname } from 'node:os';
import { mkdirSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { parseYaml } from '@redocly/openapi-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { expectDocument, expectTable, steadyDocument, steadyTable, verbFile, written } from '../helpers/golden.ts';
import { VERBS } from '../helpers/kept-commands.ts';
import type { Verb } from '../helpers/kept-commands.ts';
import { waitFor } from '../helpers/programs.ts';
import { aProvidersFile } from '../helpers/providers-file.ts';
import { ScriptedModelServer, chatAnswer } from '../helpers/scripted-model-server.ts';
import { tempDirectory } from '../helpers/services.ts';
import { SimulatedAgent } from '../helpers/simulated-agent.ts';
import { aContained } from './contained.ts';
import type { Contained } from './contained.ts';
import { anImage } from './kept-image.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

const CONTEXTS = ['local', 'spare', 'other', 'third'];
const APP = `from longshore import endpoint

@endpoint(name="greeter", cpu=0.1, memory=64)
def greet(name: str = "world"):
    return {"hello": name}
`;

const directory = tempDirectory('cli-golden-verbs');
const providersFile = aProvidersFile();
let platform: Platform;
let contained: Contained;
let runs: SimulatedAgent | undefined;
const stopped: string[] = [];
/** Ids and paths that stand in a command as `{name}`. */
const given: Record<string, string> = {};
const model = new ScriptedModelServer();
const releases = join(directory.path, 'releases');
const receiver = createServer((_, answer) => void answer.end());

const run = (words: string, by: Verb['by'] = 'own') =>
  runCommand(
    words.split(' ').map((word) => word.replaceAll(/\{(\w+)\}/g, (_, name: string) => given[name] ?? `no ${name}`)),
    {
      LONGSHORE_CONTEXT_FILE: join(directory.path, 'contexts.json'),
      LONGSHORE_URL: `http://${platform.address}`,
      LONGSHORE_TOKEN: platform[by].token,
      NO_COLOR: '1',
    },
  );

/** Runs a command. @returns its results, and all that it wrote */
async function said(
  words: string,
  { by, code = 0 }: Verb,
): Promise<{ readonly stdout: string; readonly text: string }> {
  const ended = await run(words, by);
  const { stdout, stderr } = ended;
  expect(ended, words).toMatchObject({ code });
  expect(`${stdout}${stderr}`).not.toContain('\u001b');
  return { stdout, text: written(ended) };
}

const own = (): (readonly [string | RegExp, string])[] => [
  ...Object.entries(given).map(([name, value]) => [value, `<${name}>`] as const),
  [directory.path, '<directory>'],
  [/\/\/[\w-]+\.localhost:\d+/g, '//<host form>'],
  [/\bls[je]1\.[\w.-]+/g, '<join token>'],
  [/\bwhsec_[\w+/=]+/g, '<secret>'],
  [/\.\/bin\/longshore\.mjs/g, 'longshore'],
  [/\bNode [\d.]+, [\w-]+/g, 'Node <version>, <platform>'],
  [/(?<![-\w])(?:[0-9a-f]{8}|[0-9a-f]{12}|[0-9a-f]{24})(?![-\w])/g, '<short>'],
  [/^\d\d:\d\d:\d\d(\.\d+)?/gm, '<clock>'],
  [/\b\d+ ms\b/g, '<span>'],
  [/(?<=\(on )[\w.-]+(?=, )/g, '<host>'],
  [new RegExp(`^${hostname().replaceAll('.', '\\.')}$`, 'gm'), '<host>'],
  [/\b[0-9a-f]{64}\b/g, '<sha256>'],
  [/(?<![\w-])\d{4}-\d\d(?![\w-])/g, '<month>'],
];

/** Fields whose values differ from run to run, and in no way that a text shows. */
const VARYING = new Set([
  'stored_at_ns',
  'took_ms',
  'duration_ms',
  'seq_num',
  'request_id',
  'secret_hint',
  'event_id',
  'scanned_records',
]);

/** A document without them. */
function calm(value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => calm(item));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, field]) => [name, VARYING.has(name) ? '<varies>' : calm(field)]),
  );
}

async function made(line: string, body: Json, id: string): Promise<string> {
  const [method, path] = line.split(' ');
  const answer = await platform.call(`${method} /api/v1/${path?.replace('{ws}', platform.own.workspaceId)}`, body);
  expect(answer.status, answer.text).toBeLessThan(300);
  return String(id.split('.').reduce<unknown>((value, name) => (value as Json)[name], answer.json));
}

/** A call of a model of the other workspace, which its ledger has. */
async function callModel(): Promise<void> {
  await model.start();
  model.script('/chat/completions', chatAnswer('good day'));
  const { token, workspaceId } = platform.other;
  const backends = [{ kind: 'external', base_url: model.baseUrl }];
  const body = { id: 'acme/measured', type: 'chat', backends };
  await platform.call(`POST /api/v1/model/${workspaceId}`, body, { token });
  const chat = { model: 'acme/measured', messages: [{ role: 'user', content: 'hello' }] };
  const answer = await platform.call('POST /v1/chat/completions', chat, { token });
  expect([answer.status, answer.text]).toEqual([200, expect.stringContaining('good day')]);
}

/** A release that machines install from, for the command that tells how. */
async function writeRelease(): Promise<void> {
  mkdirSync(releases, { recursive: true });
  const file = 'longshore-9.9.9-linux-x64.tar.gz';
  const release = { version: '9.9.9', file, sha256: 'a'.repeat(64), bytes: 1 };
  writeFileSync(join(releases, 'stable.json'), JSON.stringify({ 'linux-x64': release }));
}

/** Two containers that wait for a machine, each of a deployment of its own. */
async function addContainers(): Promise<void> {
  const autoscaler = { type: 'queue_depth', minContainers: 1, maxContainers: 1, tasksPerContainer: 1 };
  for (const name of ['text', 'json']) {
    const { id, stubId } = await platform.deploy(`stopped-${name}`, { autoscaler, forceCreate: true });
    stopped.push(id);
    given[`${name}_container`] = await waitFor(async () => {
      const { containers } = (await platform.gateway('GET /containers')).json as {
        readonly containers: readonly Json[];
      };
      const found = containers.find((container) => container['stubId'] === stubId);
      return found === undefined ? undefined : String(found['containerId']);
    }, 'the deployment has its container');
  }
}

async function removeContainers(): Promise<void> {
  for (const id of stopped) await platform.gateway(`DELETE /deployments/${id}`);
}

/** A machine whose pool takes only what names it. */
async function addMachine(): Promise<void> {
  const { token } = platform.admin;
  await platform.gateway('POST /pools', { name: 'runs', settings: { requiresPoolSelector: true } }, { token });
  const made = await platform.gateway('POST /machines', { poolName: 'runs' }, { token });
  const joinToken = String(made.json['agentUpstreamToken']);
  runs = new SimulatedAgent({ addresses: () => [platform.agentAddress], joinToken });
  await runs.start();
}

/** Steps before the commands that need them, so that no other command sees what they make. */
const BEFORE: Readonly<Record<string, () => Promise<void>>> = {
  'container stop': addContainers,
  'machine upgrade': writeRelease,
  run: addMachine,
};

beforeAll(async () => {
  const settings = {
    LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1',
    LONGSHORE_RELEASES_DIR: releases,
    LONGSHORE_PROVIDERS_FILE: providersFile.path,
  };
  platform = await aPlatform(settings);
  const { token: adminToken } = platform.admin;
  for (const name of ['text_key', 'json_key', 'signing_key']) {
    const key = await platform.call('POST /api/v1/signing-key', undefined, { token: adminToken });
    given[name] = String(key.json['id']);
  }
  given['other_workspace'] = platform.other.workspaceId;
  await callModel();
  await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
  contained = await aContained(platform);
  Object.assign(given, { container: contained.containerId, worker: contained.machineId });
  await contained.agent.log({ containerId: contained.containerId, line: 'hello' });
  given['own_token'] = platform.own.token;
  given['receiver'] = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
  for (const name of ['text', 'json']) {
    given[`${name}_image`] = await anImage(platform);
    const shared = { name: `visits-${name}`, encoding: 'json', value: '1' };
    await platform.call(`PUT /api/v1/map/${platform.own.workspaceId}/entry`, { ...shared, key: 'a' });
    await platform.call(`POST /api/v1/queue/${platform.own.workspaceId}`, shared);
    given[`${name}_folder`] = join(directory.path, name);
    given[`${name}_file`] = join(directory.path, `${name}.txt`);
    writeFileSync(given[`${name}_file`] ?? '', 'value');
    const app = join(directory.path, `${name}-app`);
    mkdirSync(app);
    writeFileSync(join(app, 'app.py'), APP.replace('greeter', `greeter-${name}`));
    given[`${name}_app`] = join(app, 'app.py');
    await platform.deploy(`shop-${name}`, { stubType: 'taskqueue/deployment', appName: 'shop' });
    await platform.deploy(`shop-${name}`, { stubType: 'taskqueue/deployment', appName: 'shop', memory: 128 });
    given[`${name}_task`] = await made(`POST ../../taskqueue/shop-${name}`, {}, 'task_id');
    const hook = { url: given['receiver'], event_types: ['stub.state.degraded'] };
    given[`${name}_hook`] = await made('POST webhook/{ws}', hook, 'id');
    given[`${name}_delivery`] = await made(`POST webhook/{ws}/${given[`${name}_hook`]}/test`, {}, 'id');
    given[`${name}_token`] = String(((await platform.gateway('POST /tokens')).json['token'] as Json)['tokenId']);
    const machine = await platform.gateway('POST /machines', { poolName: 'spare' }, { token: platform.admin.token });
    given[`${name}_machine`] = String((machine.json['machine'] as Json)['id']);
    for (const context of CONTEXTS)
      await run(`login --context ${context}-${name} --token ${platform.own.token}`, 'own');
  }
});
afterAll(async () => {
  await Promise.all([contained.stop(), runs?.stop()]);
  await platform.stop();
  await model.stop();
  await new Promise((resolve) => receiver.close(resolve));
  providersFile.remove();
  directory.remove();
});

describe.for(Object.entries(VERBS))('%s', ([path, verb]) => {
  const { by, text, json, lines, waits } = verb;
  const file = verbFile(path);
  const before = BEFORE[path];
  if (before !== undefined) beforeAll(before);
  if (path === 'container stop') afterAll(removeContainers);

  test('prints the text that is kept', async () => {
    if (waits !== undefined)
      await waitFor(async () => waits.test((await run(text, by)).stdout), `${path} shows ${waits.source}`, 30_000);
    expectTable(`${file}.txt`, steadyTable((await said(text, verb)).text, own()));
  });

  test('prints the document that is kept with --json', async () => {
    const { stdout } = await said(`${json} --json`, verb);
    const parsed: unknown =
      lines === true
        ? stdout
            .trimEnd()
            .split('\n')
            .map((line) => JSON.parse(line) as unknown)
        : JSON.parse(stdout);
    expectDocument(`${file}.json`, steadyDocument(calm(parsed), own()));
  });
});

test('enrol-token create --user-data prints a document for cloud-init, in which root alone reads the token', async () => {
  await writeRelease();
  const made = await run('enrol-token create group-of-instances --pool spare --user-data', 'admin');
  expect(made).toMatchObject({ code: 0, stderr: expect.stringContaining('it is shown this once: keep it') });
  expect(made.stdout.startsWith('#cloud-config\n')).toBe(true);
  const { write_files: files, runcmd } = parseYaml(made.stdout) as {
    readonly write_files: readonly { readonly permissions: string; readonly content: string }[];
    readonly runcmd: unknown;
  };
  expect(files.map(({ permissions }) => permissions)).toEqual(['0600', '0600']);
  expect(files[0]?.content).toMatch(/^lse1\.[\da-f]{64}\.[\w-]{43}\n$/);
  expect(files[1]?.content).toContain('install --from ');
  expect(JSON.stringify([files[1], runcmd])).not.toContain('lse1');
  const other = await run('enrol-token create another-group --pool spare --user-data cloud-init --json', 'admin');
  expect((JSON.parse(other.stdout) as Json)['userData']).toMatch(/^#cloud-config\n/);
  expect(await run('enrol-token create third-group --user-data ignition', 'admin')).toMatchObject({ code: 2 });
});
