// Models whose servers run in containers of the installation, through /v1: an ASGI application and a pod. The servers
// are scripted: no model is behind them.
import { expect } from 'vitest';
import { deployPodModel } from '../helpers/pod-model.ts';
import { jsonOf, test as base } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

const LONG_MS = 170_000;
type Json = Readonly<Record<string, unknown>>;

const test = base.extend('web', { scope: 'file' }, async ({ platform }): Promise<Deployment> => {
  const web = await platform.deploy({
    app: 'scripted_chat.py',
    handler: 'app',
    name: 'chatty',
    stubType: 'asgi/deployment',
    concurrentRequests: 20,
    maxPendingTasks: 100,
    keepWarmSeconds: 60,
  });
  await deployPodModel(platform, 'podly');
  await add(platform, { id: 'acme/web', backends: [{ kind: 'deployment', deployment: 'chatty' }] });
  const pod = { kind: 'deployment', deployment: 'podly', deployment_kind: 'pod', port: 8000 };
  await add(platform, { id: 'acme/pod', backends: [pod] });
  await add(platform, { id: 'gone', backends: [{ kind: 'deployment', deployment: 'nothing' }] });
  return web;
});

async function add(platform: Platform, fields: Json): Promise<void> {
  const body = { type: 'chat', ...fields };
  const answer = await platform.call(`/api/v1/model/${platform.workspaceId}`, { method: 'POST', body });
  expect(answer.status, answer.text).toBe(201);
}

const ask = (
  platform: Platform,
  model: string,
  word: string,
  more: Json = {},
  signal?: AbortSignal,
): Promise<Response> =>
  fetch(`${platform.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${platform.token}` },
    body: JSON.stringify({ model, messages: [{ role: 'user', content: word }], ...more }),
    ...(signal === undefined ? {} : { signal }),
  });
const eventsOf = async (answer: Response): Promise<string[]> =>
  (await answer.text())
    .split('\n\n')
    .filter((event) => event.startsWith('data: '))
    .map((event) => event.slice(6));
const textOf = (events: readonly string[]): string =>
  events
    .filter((data) => data !== '[DONE]')
    .map((data) => {
      const { choices } = JSON.parse(data) as { choices: { delta: { content?: string } }[] };
      return choices[0]?.delta.content ?? '';
    })
    .join('');
const seenBy = async (platform: Platform, web: Deployment): Promise<{ left: number; paths: string[] }> =>
  jsonOf(await platform.call(`${web.url}/seen`));

test(
  'an application answers whole and in a stream, at its own path',
  { timeout: LONG_MS },
  async ({ platform, web }) => {
    const whole = await ask(platform, 'acme/web', 'hello');
    expect([whole.status, await whole.json()]).toMatchObject([
      200,
      { model: 'acme/web', choices: [{ message: { content: 'hello' } }], usage: { total_tokens: 3 } },
    ]);
    expect(whole.headers.get('x-model-version')).toBe('1');
    const events = await eventsOf(await ask(platform, 'acme/web', 'go', { stream: true, max_tokens: 2000 }));
    expect(events.at(-1)).toBe('[DONE]');
    expect(textOf(events)).toBe(Array.from({ length: 2000 }, (_, at) => `go ${at} `).join(''));
    const refused = await ask(platform, 'acme/web', 'refuse');
    expect([refused.status, await refused.json()]).toMatchObject([400, { error: { message: 'not this word' } }]);
    const { paths } = await seenBy(platform, web);
    expect(new Set(paths)).toEqual(new Set(['/v1/chat/completions']));
  },
);

test('a caller who leaves is told to the application', { timeout: LONG_MS }, async ({ platform, web }) => {
  const { left } = await seenBy(platform, web);
  const abort = new AbortController();
  const answer = await ask(platform, 'acme/web', 'wait', { stream: true }, abort.signal);
  await answer.body?.getReader().read();
  abort.abort();
  await waitFor(
    async () => (await seenBy(platform, web)).left === left + 1,
    'the application sees that its caller is gone',
    30_000,
  );
});

test('a port of a pod answers in a stream', { timeout: LONG_MS }, async ({ platform, web }) => {
  expect(web.name).toBe('chatty');
  const events = await eventsOf(await ask(platform, 'acme/pod', 'so', { stream: true }));
  expect([textOf(events), events.at(-1)]).toEqual(['so 0 so 1 so 2 ', '[DONE]']);
});

test(
  'a process that dies in its answer ends the stream with an error',
  { timeout: LONG_MS },
  async ({ platform, web }) => {
    expect(web.name).toBe('chatty');
    for (const model of ['acme/web', 'acme/pod']) {
      const events = await eventsOf(await ask(platform, model, 'die', { stream: true }));
      expect([model, events.includes('[DONE]')]).toEqual([model, false]);
      expect(JSON.parse(events.at(-1) ?? '')).toMatchObject({ error: { code: 'backend_error' } });
    }
  },
);

test('a call that is answered later has the answer of a container', { timeout: LONG_MS }, async ({ platform, web }) => {
  expect(web.name).toBe('chatty');
  for (const model of ['acme/web', 'acme/pod'])
    for (const word of model === 'acme/web' ? ['hello', 'die'] : ['hello']) {
      const accepted = await fetch(`${platform.url}/v1/chat/completions`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          authorization: `Bearer ${platform.token}`,
          prefer: 'respond-async',
        },
        body: JSON.stringify({ model, messages: [{ role: 'user', content: word }] }),
      });
      const { url } = (await accepted.json()) as { url: string };
      const task = await waitFor(
        async () => {
          const read = await fetch(url, { headers: { authorization: `Bearer ${platform.token}` } });
          const now = (await read.json()) as Json;
          return now['ended_at'] !== null && now;
        },
        `${model} has ended the call`,
        60_000,
      );
      const ended =
        word === 'hello'
          ? {
              status: 'COMPLETE',
              result: { choices: [{ message: { content: expect.stringContaining('hello') as string } }] },
            }
          : { status: 'ERROR', failure_reason: 'backend_error' };
      expect([accepted.status, task]).toMatchObject([202, ended]);
    }
});

test(
  'a deployment that is not there is 503, and a stopped one too',
  { timeout: LONG_MS },
  async ({ platform, web }) => {
    const gone = await ask(platform, 'gone', 'x');
    expect([gone.status, await gone.json()]).toMatchObject([503, { error: { code: 'model_unavailable' } }]);
    await platform.gateway(`/deployments/${web.deploymentId}/stop`, {});
    const stopped = await ask(platform, 'acme/web', 'x');
    expect([stopped.status, await stopped.json()]).toMatchObject([503, { error: { code: 'model_unavailable' } }]);
  },
);
