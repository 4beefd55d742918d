// The published clients of the OpenAI API, unmodified, with a token of Longshore as their key: against the examples
// that serve models, and against a server that follows a script where a test needs a given answer.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { describe, expect } from 'vitest';
import { ModelExamples } from '../helpers/model-examples.ts';
import { chatByOrder, embeddingsByInput, wordsOf } from '../helpers/model-scripts.ts';
import type { Order } from '../helpers/model-scripts.ts';
import { CLIENTS, runAgent, runSteps } from '../helpers/openai-clients.ts';
import type { ClientError, ClientName, Outcome, Step } from '../helpers/openai-clients.ts';
import { POD_PORT, deployPodModel } from '../helpers/pod-model.ts';
import { jsonOf, test as base } from '../helpers/platform.ts';
import type { Deployment } from '../helpers/platform.ts';
import { ScriptedModelServer } from '../helpers/scripted-model-server.ts';
import { docker, waitFor } from '../helpers/services.ts';

const LONG_MS = 400_000;
const WAIT_MS = 30_000;
const STREAMS = 200;

interface Chunk {
  readonly id: string;
  readonly model: string;
  readonly choices: readonly {
    readonly delta: {
      readonly content?: string | null;
      readonly tool_calls?: readonly { readonly function: { readonly name?: string; readonly arguments: string } }[];
    };
    readonly finish_reason: string | null;
  }[];
  readonly usage?: Usage | null;
}
interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
}
interface Chat {
  readonly model: string;
  readonly choices: readonly { readonly message: { readonly content: string }; readonly finish_reason: string }[];
  readonly usage: Usage;
}
interface Embeddings {
  readonly model: string;
  readonly data: readonly { readonly index: number; readonly embedding: readonly number[] | string }[];
  readonly usage: { readonly prompt_tokens: number };
}

interface LedgerSums {
  readonly requests: number;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly cost_micros: number;
}
interface Prepaid {
  readonly token: string;
  readonly grant: (micros: number) => Promise<void>;
  readonly usage: () => Promise<LedgerSums>;
}

class World {
  readonly examples: ModelExamples;
  readonly server: ScriptedModelServer;
  paced: Deployment | undefined;

  constructor(examples: ModelExamples, server: ScriptedModelServer) {
    this.examples = examples;
    this.server = server;
  }

  async start(): Promise<void> {
    const { examples, server } = this;
    await server.start();
    server.script('/chat/completions', chatByOrder);
    server.script('/embeddings', embeddingsByInput);
    await examples.start();
    await examples.textGenerator();
    await examples.embeddingModel();
    this.paced = await examples.platform.deploy({
      app: 'paced_model.py',
      handler: 'app',
      name: 'paced-model',
      stubType: 'asgi/deployment',
      concurrentRequests: 250,
      taskPolicy: { maxRetries: 0, timeout: 180 },
      maxPendingTasks: 500,
      keepWarmSeconds: 600,
    });
    await deployPodModel(examples.platform, 'pod-model');
    const scripted = [{ kind: 'external', base_url: server.baseUrl, served_model_name: 'scripted' }];
    const models = [
      {
        id: 'paced',
        type: 'chat',
        backends: [{ kind: 'deployment', deployment: 'paced-model' }],
      },
      {
        id: 'podded',
        type: 'chat',
        backends: [{ kind: 'deployment', deployment: 'pod-model', deployment_kind: 'pod', port: POD_PORT }],
      },
      { id: 'scripted', type: 'chat', backends: scripted },
      {
        id: 'dear',
        type: 'chat',
        visibility: 'public',
        prices: { prompt_micros_per_million: 1_000_000, completion_micros_per_million: 2_000_000, request_micros: 5 },
        backends: scripted,
      },
      { id: 'tokens', type: 'embedding', embedding: { dimensions: 8, token_inputs: true }, backends: scripted },
    ];
    await examples.longshore(['model', 'add', 'acme/words', '--file', 'examples/text_generator/model.json']);
    await examples.longshore(['model', 'add', 'acme/vectors', '--file', 'examples/embedding_model/model.json']);
    const { platform } = examples;
    for (const body of models) {
      const made = await platform.call(`/api/v1/model/${platform.workspaceId}`, { body });
      expect([made.status, made.text]).toEqual([201, made.text]);
    }
  }

  async stop(): Promise<void> {
    await this.examples.stop();
    await this.server.stop();
  }

  /** Another workspace, which pays in advance and has no credits yet. */
  async prepaid(name: string): Promise<Prepaid> {
    const { platform } = this.examples;
    const made = jsonOf<{ token: string }>(await platform.call('/api/v1/workspace', { body: { name } }));
    const { token } = made;
    const found = jsonOf<{ external_id: string }>(await platform.call('/api/v1/workspace/current', { token }));
    const path = `/api/v1/credit/${found.external_id}`;
    const changed = await platform.call(path, { method: 'PUT', body: { mode: 'prepaid' } });
    expect([changed.status, changed.text]).toEqual([200, changed.text]);
    return {
      token,
      grant: async (micros) => {
        const granted = await platform.call(`${path}/grant`, { body: { amount_micros: micros, key: name } });
        expect([granted.status, granted.text]).toEqual([200, granted.text]);
      },
      usage: async () => {
        const answer = await platform.call(`/api/v1/usage/${found.external_id}`, { token });
        return jsonOf<{ total: LedgerSums }>(answer).total;
      },
    };
  }

  run(client: ClientName, ...steps: readonly Step[]): Promise<readonly Outcome[]> {
    return runSteps(client, this.examples.platform, steps);
  }

  /** A single call. @returns the value that the client gives */
  async value<T>(client: ClientName, step: Step): Promise<T> {
    const [outcome] = await this.run(client, step);
    expect(outcome?.error).toBeUndefined();
    return outcome?.value as T;
  }

  async error(client: ClientName, step: Step): Promise<ClientError & { readonly requests: number }> {
    const [outcome] = await this.run(client, step);
    if (outcome?.error === undefined) throw new Error(`no error: ${JSON.stringify(outcome)}`);
    return { ...outcome.error, requests: outcome.requests };
  }
}

const test = base.extend('world', { scope: 'file' }, async ({}, { onCleanup }): Promise<World> => {
  const examples = new ModelExamples(await docker(), { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' });
  const world = new World(examples, new ScriptedModelServer());
  onCleanup(() => world.stop());
  await world.start();
  return world;
});

const ordered = (model: string, order: Order, more: object = {}): Readonly<Record<string, unknown>> => ({
  model,
  messages: [{ role: 'user', content: JSON.stringify(order) }],
  ...more,
});
const textOf = (chunks: readonly Chunk[]): string =>
  chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('');
const reasonOf = (chunks: readonly Chunk[]): string | null | undefined =>
  chunks.findLast(({ choices }) => choices.length > 0)?.choices[0]?.finish_reason;

describe.for(CLIENTS)('the client of %s', (client) => {
  test('lists and finds models', { timeout: LONG_MS }, async ({ world }) => {
    const models = await world.value<readonly { id: string }[]>(client, { kind: 'models' });
    expect(models.map(({ id }) => id)).toEqual([
      'acme/vectors',
      'acme/words',
      'dear',
      'paced',
      'podded',
      'scripted',
      'tokens',
    ]);
    const found = await world.value(client, { kind: 'retrieve', args: { model: 'acme/words' } });
    expect(found).toMatchObject({ id: 'acme/words', object: 'model', type: 'chat', context_length: 4096 });
    const missing = await world.error(client, { kind: 'retrieve', args: { model: 'acme/none' } });
    expect(missing).toMatchObject({ name: 'NotFoundError', status: 404, code: 'model_not_found', requests: 1 });
  });

  test('chats, and streams the same text with its usage', { timeout: LONG_MS }, async ({ world }) => {
    const args = { model: 'acme/words', messages: [{ role: 'user', content: 'A container' }], seed: 7, max_tokens: 2 };
    // The model's text is that of docs/, so only so short an answer is sure to be longer.
    const chat = await world.value<Chat>(client, { kind: 'chat', args });
    expect(chat).toMatchObject({
      model: 'acme/words',
      choices: [{ message: { content: expect.any(String) as string }, finish_reason: 'length' }],
      usage: { prompt_tokens: 2, completion_tokens: 2, total_tokens: 4 },
    });
    const stream = { ...args, stream: true };
    const [counted, plain] = await world.run(
      client,
      { kind: 'stream', args: { ...stream, stream_options: { include_usage: true } } },
      { kind: 'stream', args: stream },
    );
    const chunks = counted?.value as readonly Chunk[];
    expect(textOf(chunks)).toBe(chat.choices[0]?.message.content);
    expect(reasonOf(chunks)).toBe('length');
    expect(chunks.at(-1)).toMatchObject({ choices: [], model: 'acme/words', usage: chat.usage });
    expect(chunks.slice(0, -1).every(({ usage }) => usage === null)).toBe(true);
    const others = plain?.value as readonly Chunk[];
    expect(textOf(others)).toBe(chat.choices[0]?.message.content);
    expect(others.some((chunk) => 'usage' in chunk)).toBe(false);
  });

  test('chats with a pod, and streams the same text with its usage', { timeout: LONG_MS }, async ({ world }) => {
    const args = { model: 'podded', messages: [{ role: 'user', content: 'hello' }] };
    const chat = await world.value<Chat>(client, { kind: 'chat', args });
    const usage = { prompt_tokens: 1, completion_tokens: 3, total_tokens: 4 };
    const message = { content: 'hello 0 hello 1 hello 2 ' };
    expect(chat).toMatchObject({ model: 'podded', choices: [{ message, finish_reason: 'stop' }], usage });
    const stream = { ...args, stream: true, stream_options: { include_usage: true } };
    const chunks = await world.value<readonly Chunk[]>(client, { kind: 'stream', args: stream });
    expect([textOf(chunks), reasonOf(chunks)]).toEqual([message.content, 'stop']);
    expect(chunks.at(-1)).toMatchObject({ choices: [], model: 'podded', usage });
  });

  test('gets the same vectors in every encoding', { timeout: LONG_MS }, async ({ world }) => {
    const input = ['A ship is unloaded at the quay.', "The vessel's cargo is discharged in port.", 'He bakes bread.'];
    const args = { model: 'acme/vectors', input };
    const outcomes = await world.run(
      client,
      { kind: 'embeddings', args },
      { kind: 'embeddings', args: { ...args, encoding_format: 'float' } },
      { kind: 'embeddings', args: { ...args, encoding_format: 'base64' } },
    );
    const vectors = outcomes.map(({ value, error }) => {
      expect(error).toBeUndefined();
      const { data, model } = value as Embeddings;
      expect([model, data.map(({ index }) => index)]).toEqual(['acme/vectors', [0, 1, 2]]);
      return data.map(({ embedding }) => floatsOf(embedding));
    });
    expect(vectors[0]?.[0]).toHaveLength(384);
    expect(vectors[1]).toEqual(vectors[0]);
    expect(vectors[2]).toEqual(vectors[0]);
  });

  test('sends arrays of tokens where the model takes them', { timeout: LONG_MS }, async ({ world }) => {
    const input = [[1, 2, 3], [4]];
    const taken = await world.value<Embeddings>(client, { kind: 'embeddings', args: { model: 'tokens', input } });
    expect(taken.data.map(({ embedding }) => floatsOf(embedding)[1])).toEqual([3, 1]);
    const refused = await world.error(client, { kind: 'embeddings', args: { model: 'acme/vectors', input } });
    expect(refused).toMatchObject({ name: 'BadRequestError', status: 400, param: 'input', requests: 1 });
    expect(refused.message).toMatch(/token/);
  });

  test('puts a tool call together, and gets JSON by a schema', { timeout: LONG_MS }, async ({ world }) => {
    const parameters = { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } } };
    const tools = [{ type: 'function', function: { name: 'weather', parameters } }];
    const messages = [{ role: 'user', content: 'How is the weather?' }];
    const args = { model: 'scripted', messages, stream: true, tools };
    const chunks = await world.value<readonly Chunk[]>(client, { kind: 'stream', args });
    const calls = chunks.flatMap(({ choices }) => choices[0]?.delta.tool_calls ?? []);
    expect(calls[0]?.function.name).toBe('weather');
    const given = calls.map((call) => call.function.arguments).join('');
    expect(JSON.parse(given)).toEqual({ city: 'scripted', days: 7 });
    expect(reasonOf(chunks)).toBe('tool_calls');
    const format = { type: 'json_schema', json_schema: { name: 'answer', schema: parameters, strict: true } };
    const chat = await world.value<Chat>(client, {
      kind: 'chat',
      args: { model: 'scripted', messages, response_format: format },
    });
    expect(JSON.parse(chat.choices[0]?.message.content ?? '')).toEqual({ city: 'scripted', days: 7 });
  });

  test('raises its own errors, and tries again only where that helps', { timeout: LONG_MS }, async ({ world }) => {
    const chat = { model: 'scripted', messages: [{ role: 'user', content: 'hello' }] };
    const cases = [
      [{ kind: 'chat', args: chat, key: 'bad' }, 'AuthenticationError', 401, 'invalid_api_key', 1],
      [{ kind: 'chat', args: { ...chat, model: 'none' } }, 'NotFoundError', 404, 'model_not_found', 1],
      [{ kind: 'chat', args: { ...chat, temperature: 3 } }, 'BadRequestError', 400, 'invalid_request', 1],
      [{ kind: 'chat', args: ordered('scripted', { status: 429 }) }, 'RateLimitError', 429, 'model_overloaded', 3],
      [{ kind: 'chat', args: ordered('scripted', { status: 500 }) }, 'InternalServerError', 502, 'backend_error', 3],
    ] as const;
    const outcomes = await world.run(client, ...cases.map(([step]) => step));
    for (const [at, [, name, status, code, requests]] of cases.entries()) {
      expect(outcomes[at]).toMatchObject({ error: { name, status, code }, requests });
    }
  });

  test('raises when the model breaks off in the middle', { timeout: LONG_MS }, async ({ world }) => {
    const args = ordered('scripted', { tokens: 9, pause_ms: 10, break_after: 3 }, { stream: true });
    const broken = await world.error(client, { kind: 'stream', args });
    expect(broken).toMatchObject({ name: 'APIError', code: 'backend_error', type: 'server_error', requests: 1 });
  });

  test('raises when the container of the model is killed in the middle', { timeout: LONG_MS }, async ({ world }) => {
    const { platform } = world.examples;
    const user = `killed-${client}`;
    const args = ordered('paced', { tokens: 3000, pause_ms: 20 }, { stream: true, user });
    const ended = world.run(client, { kind: 'stream', args });
    await seenOf(world, user, ({ tokens }) => tokens > 5);
    const running = await platform.containers(world.paced);
    await Promise.all(running.map(({ Id }) => platform.engine.client.getContainer(Id).kill()));
    expect((await ended)[0]?.error).toMatchObject({ name: 'APIError', code: 'backend_error', type: 'server_error' });
  });

  test('ends the work of the model within a second when it leaves', { timeout: LONG_MS }, async ({ world }) => {
    const { server } = world;
    const order = { tokens: 3000, pause_ms: 20 };
    const args = ordered('scripted', order, { stream: true });
    const [left] = await world.run(client, { kind: 'stream', args, leave_after: 4 });
    const leftAtMs = await waitFor(() => server.last.leftAtMs, 'the server sees the end', WAIT_MS);
    expect(leftAtMs - (left?.atMs ?? 0)).toBeLessThan(1000);

    const user = `left-${client}`;
    await world.run(client, { kind: 'stream', args: ordered('paced', order, { stream: true, user }), leave_after: 4 });
    const seen = await seenOf(world, user, ({ state }) => state === 'cut');
    expect(seen.tokens).toBeLessThan(3000);
  });

  test('is refused once without credits, and pays for what it got', { timeout: LONG_MS }, async ({ world }) => {
    const { server } = world;
    const { token, grant, usage } = await world.prepaid(`prepaid-${client.toLowerCase()}`);
    const before = server.requests.length;
    const chat = { kind: 'chat', args: ordered('dear', {}, { max_tokens: 100 }), key: token } as const;
    const refused = await world.error(client, chat);
    expect(refused).toMatchObject({
      status: 402,
      code: 'insufficient_credits',
      type: 'insufficient_quota',
      requests: 1,
    });
    expect(server.requests.length).toBe(before);

    await grant(25_000_000);
    await world.value(client, chat);
    // 11 tokens at 1 micro-unit, 5 at 2, and 5 for the request.
    const whole = { requests: 1, prompt_tokens: 11, completion_tokens: 5, cost_micros: 26 };
    await expect.poll(usage, { timeout: WAIT_MS }).toMatchObject(whole);

    const args = ordered('dear', { tokens: 3000, pause_ms: 20 }, { stream: true, max_tokens: 3000 });
    await world.run(client, { kind: 'stream', args, leave_after: 4, key: token });
    const sums = await waitFor(
      async () => {
        const now = await usage();
        return now.requests === 2 && now;
      },
      'the ledger has the stream that was left',
      WAIT_MS,
    );
    expect(sums.completion_tokens).toBeGreaterThanOrEqual(5 + 3);
    expect(sums.completion_tokens).toBeLessThan(3000);
  });

  test(`reads ${STREAMS} streams side by side`, { timeout: LONG_MS }, async ({ world }) => {
    const args = ordered('paced', { tokens: 20, pause_ms: 100 }, { stream: true });
    const streams = await world.value<readonly (readonly Chunk[])[]>(client, { kind: 'streams', args, count: STREAMS });
    expect(streams).toHaveLength(STREAMS);
    expect(new Set(streams.map(textOf))).toEqual(new Set([wordsOf(20)]));
    expect(new Set(streams.map(reasonOf))).toEqual(new Set(['stop']));
  });
});

test('an agent of a published framework calls its tool and answers', { timeout: LONG_MS }, async ({ world }) => {
  expect(await runAgent(world.examples.platform, 'scripted')).toEqual({
    answer: 'the tool said sun in scripted for 7 days',
    calls: [['scripted', 7]],
    requests: 2,
    tokens: expect.any(Number) as number,
  });
});

const floatsOf = (embedding: readonly number[] | string): readonly number[] => {
  if (typeof embedding !== 'string') return embedding;
  return [...new Float32Array(new Uint8Array(Buffer.from(embedding, 'base64')).buffer)];
};

interface Seen {
  readonly id: string;
  readonly tokens: number;
  readonly state: 'open' | 'complete' | 'cut';
}

/** A request as the paced model tells it, once it is so. */
function seenOf({ examples: { platform }, paced }: World, user: string, is: (seen: Seen) => boolean): Promise<Seen> {
  return waitFor(
    async () => {
      const answer = await platform.call(`${paced?.url ?? ''}/seen`);
      const all = JSON.parse(answer.text) as readonly Seen[];
      return all.find((seen) => seen.id === user && is(seen));
    },
    `the model tells of ${user}`,
    WAIT_MS,
  );
}
