// Recipes of examples/, as examples/README.md has them. Those that need a GPU are checked by a dry run alone.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { createHmac } from 'node:crypto';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { MAIN, Platform, ROOT, test as base } from '../helpers/platform.ts';
import { docker, runProgram, waitFor } from '../helpers/services.ts';

const LONG_MS = 170_000;
const WAIT_MS = 30_000;

interface Recipes {
  readonly platform: Platform;
  readonly longshore: (args: readonly string[]) => Promise<string>;
  readonly json: (args: readonly string[]) => Promise<Readonly<Record<string, unknown>>>;
}

const test = base.extend('recipes', { scope: 'file' }, async ({}, { onCleanup }): Promise<Recipes> => {
  const platform = new Platform(await docker(), { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' });
  onCleanup(() => platform.stop());
  await platform.start();
  const env = {
    PATH: process.env['PATH'],
    HOME: platform.directory,
    LONGSHORE_URL: platform.url,
    LONGSHORE_TOKEN: platform.token,
    PYTHONPATH: join(ROOT, 'python'),
    PYTHONDONTWRITEBYTECODE: '1',
  };
  const longshore: Recipes['longshore'] = (args) =>
    runProgram(process.execPath, [MAIN, ...args], { cwd: ROOT, env }, LONG_MS);
  return {
    platform,
    longshore,
    json: async (args) => {
      const said = await longshore([...args, '--json']);
      return JSON.parse(said.slice(said.indexOf('{\n'))) as Readonly<Record<string, unknown>>;
    },
  };
});

/** Calls a deployment with JSON. */
async function called({ platform }: Recipes, path: string, body: object): Promise<unknown> {
  const answer = await platform.call(path, { body });
  expect([answer.status, answer.text]).toEqual([200, answer.text]);
  return JSON.parse(answer.text) as unknown;
}

describe('on a machine without a GPU', () => {
  test(
    'texts have vectors, near ones are found, and weights come from the volume',
    { timeout: 2 * LONG_MS },
    async ({ recipes }) => {
      const deployed = await recipes.json(['deploy', 'examples/embeddings/app.py']);
      expect(deployed).toMatchObject({
        deployed: [{ name: 'embed' }, { name: 'search' }, { name: 'fit' }],
        failed: [],
      });
      const texts = ['the ship leaves the harbour', 'bread is baked at night', 'a harbour for small ships', 'the cat'];
      const { vectors } = (await called(recipes, '/endpoint/embed', { texts: texts.slice(0, 2) })) as {
        readonly vectors: readonly (readonly number[])[];
      };
      expect(vectors.map((vector) => vector.length)).toEqual([512, 512]);
      const length = Math.sqrt((vectors[0] ?? []).reduce((sum, value) => sum + value * value, 0));
      expect(length).toBeCloseTo(1, 2);
      const found = await called(recipes, '/endpoint/search', { query: 'ship in the harbour', texts, most: 1 });
      expect(found).toMatchObject([{ text: texts[0] }]);
      const said = await recipes.longshore([
        'run',
        'examples/embeddings/app.py:fit',
        '--data',
        JSON.stringify({ texts: ['the ship', 'the cat', 'the bread'] }),
      ]);
      expect(said).toMatch(/\{"texts":3,"places":\d+\}\n$/);
      expect(await recipes.longshore(['volume', 'ls', 'embeddings'])).toContain('weights.npz');
    },
  );

  test('a table is made of rows, in their order', { timeout: LONG_MS }, async ({ recipes }) => {
    const { platform } = recipes;
    const folder = join(platform.directory, 'batch_table');
    cpSync(join(ROOT, 'examples/batch_table/'), folder, { recursive: true });
    const env = {
      PATH: `${join(ROOT, 'bin')}:${process.env['PATH'] ?? ''}`,
      HOME: platform.directory,
      LONGSHORE_URL: platform.url,
      LONGSHORE_TOKEN: platform.token,
      PYTHONPATH: join(ROOT, 'python'),
      PYTHONDONTWRITEBYTECODE: '1',
    };
    const said = await runProgram('python3', ['app.py'], { cwd: folder, env }, LONG_MS);
    expect(said).toMatch(/order +net +tax +total\nA-1 +59\.70 +11\.34 +71\.04\nA-2 +249\.00 +0\.00 +249\.00\n/);
    expect(readFileSync(join(folder, 'results.csv'), 'utf8').split(/\r?\n/)).toEqual([
      'order,net,tax,total',
      'A-1,59.70,11.34,71.04',
      'A-2,249.00,0.00,249.00',
      'A-3,51.00,10.20,61.20',
      'A-4,161.00,32.20,193.20',
      'A-5,39.60,7.52,47.12',
      '',
    ]);
  });

  test('webhooks are taken when their signature is right, and once', { timeout: 2 * LONG_MS }, async ({ recipes }) => {
    const { platform, longshore, json } = recipes;
    const file = join(platform.directory, 'secret.txt');
    const setSecret = async (value: string): Promise<void> => {
      writeFileSync(file, value, { mode: 0o600 });
      await longshore(['secret', 'set', 'WEBHOOK_SECRET', '--file', file]);
    };
    await setSecret('not known yet');
    const { url } = await json(['deploy', 'examples/webhook_consumer/app.py']);
    const webhook = await json(['webhook', 'create', String(url), '--events', 'deployment.*']);
    const secret = String(webhook['secret']);
    await setSecret(secret);
    expect(await longshore(['webhook', 'test', String(webhook['id'])])).not.toContain('failed');

    const send = async (id: string, key: string): Promise<number> => {
      const at = String(Math.floor(Date.now() / 1000));
      const body = JSON.stringify({ id, type: 'deployment.stopped', data: { name: `told-${id}` } });
      const bytes = Buffer.from(key.replace('whsec_', ''), 'base64');
      const signature = createHmac('sha256', bytes).update(`${id}.${at}.${body}`).digest('base64');
      const answer = await fetch(String(url), {
        method: 'POST',
        body,
        headers: { 'webhook-id': id, 'webhook-timestamp': at, 'webhook-signature': `v1,${signature}` },
      });
      return answer.status;
    };
    expect(await send('one', secret)).toBe(200);
    expect(await send('one', secret)).toBe(200);
    expect(await send('two', `whsec_${Buffer.from('another').toString('base64')}`)).toBe(401);
    expect((await fetch(String(url))).status).toBe(400);

    await longshore(['deployment', 'scale', 'embed', '1']);
    const logs = await waitFor(
      async () => {
        const said = await longshore(['logs', 'webhook-consumer']);
        return said.includes('deployment.scaled embed') && said.includes('told-one') ? said : undefined;
      },
      'the events are told in the log',
      WAIT_MS,
    );
    expect(logs.split('told-one')).toHaveLength(2);
    expect(logs).not.toContain('told-two');
  });
});

describe('with a GPU, which is not here', () => {
  test.for([
    ['llm_vllm', 'examples/llm_vllm/app.py', 'llm', 'H100', 'vllm==0.33.0'],
    ['whisper', 'examples/whisper/app.py', 'whisper', 'L4', 'faster-whisper==1.2.1'],
    ['diffusion', 'examples/diffusion/app.py', 'diffusion', 'L40S', 'diffusers==0.42.1'],
  ] as const)(
    '%s has a definition and a build plan without a problem',
    { timeout: LONG_MS },
    async ([, file, name, gpu, packageName], { recipes }) => {
      expect(readFileSync(join(ROOT, file), 'utf8').slice(0, 300)).toContain('Not run without a GPU');
      const plan = (await recipes.json(['deploy', '--dry-run', file])) as {
        readonly deployments: readonly { readonly image: { readonly steps: readonly string[] } }[];
      };
      expect(plan).toMatchObject({
        ok: true,
        deployments: [
          {
            name,
            config: { gpuCount: 1, gpu: expect.arrayContaining([gpu]) as string[] },
            image: { kind: 'built', pythonVersion: 'python3.12', exists: false },
            problems: [],
            // No machine of this test has a GPU.
            warnings: [expect.stringMatching(/GPU/) as string],
          },
        ],
      });
      expect(plan.deployments[0]?.image.steps.join('\n')).toContain(packageName);
    },
  );
});
