// Pods that serve models: ready by their engine's routes, scaled by what waits inside the engine, and left by no stream
// before its end.
import { readFileSync } from 'node:fs';
import { describe, expect } from 'vitest';
import type { Platform } from '../helpers/platform.ts';
import { jsonOf, test } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

const PROGRAM = readFileSync('test/fixtures/apps/model_engine.py', 'utf8');
const AUTOSCALER = { type: 'llm_token_pressure', minContainers: 0, maxContainers: 2, tasksPerContainer: 16 };

interface Deployed {
  readonly deploymentId: string;
  readonly url: string;
}

async function aModelServer(
  platform: Platform,
  name: string,
  { version = 1, minContainers = 0 } = {},
): Promise<Deployed> {
  const { stubId } = await platform.gateway('/stubs', {
    stubType: 'pod/deployment',
    name,
    cpu: 100,
    memory: 128,
    keepWarmSeconds: 5,
    entrypoint: ['python3', '-u', '-c', PROGRAM],
    ports: [8000],
    env: [`VERSION=${version}`],
    serving: { serving_protocol: 'openai', llm: { context_length: 4096 } },
    autoscaler: { ...AUTOSCALER, minContainers },
  });
  const { deploymentId } = await platform.gateway('/stubs/deploy', { stubId, name });
  return { deploymentId: String(deploymentId), url: `${platform.url}/pod/${name}/v${version}/8000` };
}

interface Scaling {
  readonly formula: string;
  readonly live: number;
  readonly ready: number;
}

async function scalingOf(platform: Platform, deploymentId: string): Promise<Scaling> {
  const answer = await platform.call(`/api/v1/explain/${platform.workspaceId}/${deploymentId}`);
  return jsonOf<{ readonly scaling: Scaling }>(answer).scaling;
}

const LINES = (seconds: number): string =>
  [...Array.from({ length: seconds }, (_, second) => String(second)), '[DONE]']
    .map((text) => `data: ${text}\n\n`)
    .join('');

describe('a pod that serves a model', () => {
  test('takes calls once one of the routes of its engine succeeds', async ({ platform }) => {
    const { url } = await aModelServer(platform, 'ready');
    const seen = jsonOf<readonly string[]>(await platform.call(`${url}/seen`));
    // The first success ends the asking.
    expect(seen.at(-1)).toBe('/health');
    expect(seen.filter((path) => path === '/health')).toHaveLength(3);
    expect(new Set(seen)).toEqual(new Set(['/v1/models', '/health', '/server_info', '/get_model_info']));
  });

  test('gets another container when requests wait inside its engine, where their number asks for none', async ({
    platform,
  }) => {
    const { url, deploymentId } = await aModelServer(platform, 'waiting');
    const streams = Array.from({ length: 4 }, () => platform.call(`${url}/stream?seconds=30`));
    const scaling = await waitFor(
      async () => {
        const now = await scalingOf(platform, deploymentId);
        return now.live === 2 ? now : undefined;
      },
      'a second container is asked for',
      90_000,
    );
    expect(scaling.formula).toContain('4 tasks / 16 per container = 1');
    for (const { status, text } of await Promise.all(streams)) {
      expect(status).toBe(200);
      expect(text).toBe(LINES(30));
    }
  });

  test('serves a conversation from one of its containers, and others from all, below /v1', async ({ platform }) => {
    const { deploymentId } = await aModelServer(platform, 'sticky', { minContainers: 2 });
    const backends = [{ kind: 'deployment', deployment: 'sticky', deployment_kind: 'pod' }];
    const made = await platform.call(`/api/v1/model/${platform.workspaceId}`, {
      body: { id: 'sticky', type: 'chat', backends },
    });
    expect(made.status).toBe(201);
    await waitFor(async () => (await scalingOf(platform, deploymentId)).ready === 2, 'two are ready', 60_000);
    const servedBy = async (first: string, more: readonly object[] = []): Promise<string> => {
      const messages = [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: first }, ...more];
      const answer = await platform.call('/v1/chat/completions', { body: { model: 'sticky', messages } });
      expect(answer.status, answer.text).toBe(200);
      const { choices } = jsonOf<{ readonly choices: readonly [{ readonly message: { readonly content: string } }] }>(
        answer,
      );
      return choices[0].message.content;
    };
    const turns: string[] = [];
    for (let turn = 0; turn < 10; turn += 1)
      turns.push(
        await servedBy('Hello', [
          { role: 'assistant', content: `${turn}` },
          { role: 'user', content: 'On' },
        ]),
      );
    expect(new Set(turns).size).toBe(1);
    const others = new Set<string>();
    for (let each = 0; each < 16; each += 1) others.add(await servedBy(`Question ${each}`));
    expect(others.size).toBe(2);
  });

  test('ends a stream that outlasts a rollout, the scale-in and a drain of its machine', async ({ platform }) => {
    // A stop gives a container 30 s.
    const SECONDS = 45;
    const name = 'outlasting';
    const first = await aModelServer(platform, name);
    await platform.call(`${first.url}/seen`);
    const stream = platform.call(`${first.url}/stream?seconds=${SECONDS}`);
    await waitFor(
      async () => (await platform.call(`${first.url}/metrics`)).text.includes('running 1'),
      'the stream has begun',
      30_000,
    );
    const second = await aModelServer(platform, name, { version: 2 });
    await waitFor(async () => (await scalingOf(platform, second.deploymentId)).ready > 0, 'version 2 is ready', 60_000);
    const machineId = platform.machineId() ?? '';
    await platform.gateway(`/workers/${machineId}/drain`, { deadlineSeconds: 3600 });
    const { status, text } = await stream;
    expect(status).toBe(200);
    expect(text).toBe(LINES(SECONDS));
    await waitFor(async () => (await scalingOf(platform, first.deploymentId)).live === 0, 'version 1 leaves', 60_000);
    await platform.gateway(`/workers/${machineId}/uncordon`, {});
  });
});
