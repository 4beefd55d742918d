// The examples as examples/README.md has them: deployed by the command line as they are, and called. The tests of image
// builds, frameworks, scaling, models, pods and the Python module have the others (EXAMPLES).
import { cpSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { MAIN, ROOT, jsonOf, test as base } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import { runProgram } from '../helpers/services.ts';

/** Folders of examples/, and the file that deploys each. */
const EXAMPLES: Readonly<Record<string, string>> = {
  add: 'hosts/examples.test.ts',
  batch: 'e2e/python-module.test.ts',
  batch_table: 'hosts/recipes.test.ts',
  chat: 'hosts/browser.test.ts',
  classifier: 'hosts/examples.test.ts',
  clock: 'hosts/examples.test.ts',
  commands: 'hosts/examples.test.ts',
  database: 'hosts/pod-examples.test.ts',
  diffusion: 'hosts/recipes.test.ts',
  dockerfile: 'hosts/examples.test.ts',
  embedding_model: 'hosts/model-examples.test.ts',
  embeddings: 'hosts/recipes.test.ts',
  fastapi: 'hosts/frameworks.test.ts',
  hello: 'hosts/examples.test.ts',
  llm_llamacpp: 'hosts/model-examples.test.ts',
  llm_vllm: 'hosts/recipes.test.ts',
  node: 'hosts/pod-examples.test.ts',
  notebook: 'hosts/notebook.test.ts',
  on_start: 'hosts/examples.test.ts',
  packages: 'hosts/image-builds.test.ts',
  qrcode: 'hosts/debian-packages.test.ts',
  retries: 'hosts/examples.test.ts',
  sandbox: 'hosts/pod-examples.test.ts',
  secrets: 'hosts/examples.test.ts',
  site: 'hosts/pod-examples.test.ts',
  slow: 'hosts/scaling.test.ts',
  stream: 'hosts/examples.test.ts',
  text_generator: 'hosts/model-examples.test.ts',
  webhook_consumer: 'hosts/recipes.test.ts',
  whisper: 'hosts/recipes.test.ts',
};
const BUILD_MS = 170_000;

class Examples {
  readonly platform: Platform;
  readonly #env: NodeJS.ProcessEnv;

  constructor(platform: Platform) {
    this.platform = platform;
    this.#env = {
      PATH: process.env['PATH'],
      HOME: platform.directory,
      LONGSHORE_URL: platform.url,
      LONGSHORE_TOKEN: platform.token,
      PYTHONPATH: join(ROOT, 'python'),
      PYTHONDONTWRITEBYTECODE: '1',
    };
  }

  longshore(...args: readonly string[]): Promise<string> {
    return runProgram(process.execPath, [MAIN, ...args], { cwd: ROOT, env: this.#env }, BUILD_MS);
  }

  python(file: string): Promise<string> {
    return runProgram('python3', [file], { cwd: ROOT, env: this.#env }, BUILD_MS);
  }

  /** Deploys a file. Steps of the command, which come before its JSON, are left out. */
  async deploy(file: string): Promise<Deployment> {
    const said = await this.longshore('deploy', file, '--json');
    return JSON.parse(said.slice(said.indexOf('{\n'))) as Deployment;
  }

  /** Deploys a file and calls it. @returns the answer's JSON */
  async answer(file: string, body: object): Promise<Readonly<Record<string, unknown>>> {
    const { url } = await this.deploy(file);
    return this.call(url, body);
  }

  async call(url: string, body: object): Promise<Readonly<Record<string, unknown>>> {
    const answer = await this.platform.call(url, { body });
    expect([answer.status, answer.text]).toEqual([200, answer.text]);
    return jsonOf(answer);
  }
}

const test = base.extend('examples', { scope: 'file' }, ({ platform }): Examples => new Examples(platform));

test('every folder is deployed by a test, and the README says what it gives', () => {
  const folders = readdirSync(join(ROOT, 'examples'), { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const names = folders.map(({ name }) => name).toSorted();
  expect(names).toEqual(Object.keys(EXAMPLES).toSorted());
  const readme = readFileSync(join(ROOT, 'examples', 'README.md'), 'utf8');
  for (const [name, file] of Object.entries(EXAMPLES)) {
    expect(readFileSync(join(ROOT, 'test', file), 'utf8')).toContain(`examples/${name}/`);
    expect(readme).toMatch(new RegExp(`^\\| \`${name}\` \\| .+ \\| .+ \\|$`, 'm'));
    expect(readme).toContain(`examples/${name}/`);
  }
});

describe('with images of their own', () => {
  test('a classifier that a script trained is loaded from its volume', { timeout: BUILD_MS }, async ({ examples }) => {
    const trained = await examples.python('examples/classifier/train.py');
    expect(trained).toMatch(/\{'messages': 45, 'accuracy': 0\.\d+\}\n$/);
    const { url } = await examples.deploy('examples/classifier/app.py');
    const topics: Readonly<Record<string, string>> = {
      'my parcel is late': 'delivery',
      'I was charged twice': 'billing',
      'I forgot my password': 'account',
    };
    for (const [text, topic] of Object.entries(topics)) {
      expect(await examples.call(url, { text })).toEqual({ topic, chance: expect.any(Number) as number });
    }
  });

  test('commands made an index, in which a program of the image looks', { timeout: BUILD_MS }, async ({ examples }) => {
    expect(await examples.answer('examples/commands/app.py', { name: 'namedtuple' })).toEqual({
      name: 'namedtuple',
      places: [{ file: 'collections/__init__.py', line: expect.any(Number) as number }],
    });
  });

  test('a Dockerfile makes a database that every container has', { timeout: BUILD_MS }, async ({ examples }) => {
    const { platform } = examples;
    // No registry is reached in these tests, so the base image here stands in for python:3.11-slim.
    const folder = join(platform.directory, 'dockerfile');
    cpSync(join(ROOT, 'examples/dockerfile/'), folder, { recursive: true });
    const text = readFileSync(join(folder, 'Dockerfile'), 'utf8');
    expect(text).toMatch(/^FROM python:3\.11-slim$/m);
    writeFileSync(join(folder, 'Dockerfile'), text.replace(/^FROM .+$/m, `FROM ${platform.engine.baseImage}`));
    const { url } = await examples.deploy(join(folder, 'app.py'));
    expect(await examples.call(url, { symbol: 'W' })).toEqual({ number: 74, name: 'Tungsten', year: 1783 });
    const unknown = await platform.call(url, { body: { symbol: 'Xx' } });
    expect([unknown.status, unknown.text]).toEqual([
      500,
      expect.stringContaining('no element has the symbol Xx') as string,
    ]);
  });
});

test('hello and primes answer, as `invoke` prints it', async ({ examples }) => {
  await examples.deploy('examples/hello/app.py');
  expect(await examples.longshore('invoke', 'hello', '--data', '{"name": "Ada"}')).toContain(
    '{"greeting":"Hello, Ada!"}',
  );
  expect(await examples.answer('examples/on_start/app.py', { up_to: 1000 })).toEqual({
    up_to: 1000,
    count: 168,
    largest: 997,
  });
});

test('a secret is set, and signs', async ({ examples }) => {
  await expect(examples.deploy('examples/secrets/app.py')).rejects.toThrow('longshore secret set SIGNING_KEY');
  const { platform } = examples;
  const body = { name: 'SIGNING_KEY', value: 'a key for this test' };
  expect(await platform.call(`/api/v1/secret/${platform.workspaceId}`, { body })).toMatchObject({ status: 201 });
  const signed = await examples.answer('examples/secrets/app.py', { message: 'hello' });
  expect(signed['signature']).toMatch(/^[0-9a-f]{64}$/);
});

test('an order is tried again, and a wrong one is not', async ({ examples }) => {
  const { platform } = examples;
  const { url } = await examples.deploy('examples/retries/app.py');
  const put = async (body: object): Promise<string> => String((await examples.call(url, body))['task_id']);
  const [kept, wrong] = [await put({ order: 'A-1', failures: 1 }), await put({ order: '' })];
  expect(await platform.taskIs(kept, 'COMPLETE', 30_000)).toMatchObject({ result: { order: 'A-1', tries: 2 } });
  const failed = await platform.taskIs(wrong, 'ERROR', 30_000);
  expect(JSON.stringify(failed)).toContain('ValueError: an order needs a name');
});

test('a schedule has its next time, and runs on a call', async ({ examples }) => {
  const { url } = await examples.deploy('examples/clock/app.py');
  expect(await examples.longshore('explain', 'clock')).toMatch(/its times are "\* \* \* \* \*" in Europe\/Berlin/);
  const task = String((await examples.call(url, {}))['task_id']);
  expect(await examples.platform.taskIs(task, 'COMPLETE', 30_000)).toMatchObject({
    result: { at: expect.stringMatching(/^20\d\d-.+\+00:00$/) as string },
  });
});

test('a generator sends its words one by one', async ({ examples }) => {
  const { url } = await examples.deploy('examples/stream/app.py');
  const answer = await examples.platform.call(url, { body: { prompt: 'the', words: 3, pause: 0 } });
  const events = answer.text.trim().split('\n\n');
  expect(events).toHaveLength(3);
  expect(JSON.parse(events[2]?.replace(/^data: /, '') ?? '')).toEqual({
    number: 3,
    word: expect.any(String) as string,
  });
});

test('a function that is not deployed is called from Python', async ({ examples }) => {
  expect((await examples.python('examples/add/app.py')).trim().split('\n').slice(-3)).toEqual(['3', '3', '[1, 2, 3]']);
});
