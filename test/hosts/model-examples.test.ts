// Examples that serve models, as examples/README.md has them: examples/text_generator/, examples/embedding_model/ and
// examples/llm_llamacpp/. They are deployed by the command line, and called at their own addresses.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { ROOT, test as base } from '../helpers/platform.ts';
import { ModelExamples } from '../helpers/model-examples.ts';
import { docker } from '../helpers/services.ts';

const LONG_MS = 170_000;

const test = base.extend('examples', { scope: 'file' }, async ({}, { onCleanup }): Promise<ModelExamples> => {
  const examples = new ModelExamples(await docker());
  onCleanup(() => examples.stop());
  await examples.start();
  return examples;
});

interface Choice {
  readonly text?: string;
  readonly message?: { readonly content: string };
  readonly delta?: { readonly role?: string; readonly content?: string };
  readonly finish_reason: string | null;
}
interface Completion {
  readonly id: string;
  readonly object: string;
  readonly choices: readonly Choice[];
  readonly usage?: Readonly<Record<string, number>> | null;
}
interface Refusal {
  readonly error: { readonly code: string; readonly message: string; readonly param: string | null };
}

describe('the text generator', () => {
  const messages = [{ role: 'user', content: 'A container' }];

  test('continues a text, and counts its tokens', { timeout: LONG_MS }, async ({ examples }) => {
    const url = await examples.textGenerator();
    const chat = `${url}/v1/chat/completions`;
    const whole = await examples.answered<Completion>(chat, { messages, seed: 7, max_tokens: 12 });
    const said = whole.choices[0]?.message?.content ?? '';
    expect(whole).toMatchObject({ object: 'chat.completion', choices: [{ finish_reason: 'length' }] });
    expect(whole.usage).toEqual({ prompt_tokens: 2, completion_tokens: 12, total_tokens: 14 });
    // A token is a word with its space, a digit, or another character.
    expect(said.match(/ ?\p{L}+| ?\d|./gsu)).toHaveLength(12);
    const again = await examples.answered<Completion>(`${url}/v1/completions`, {
      prompt: 'A container',
      seed: 7,
      max_completion_tokens: 12,
    });
    expect(again).toMatchObject({ object: 'text_completion', choices: [{ text: said }], usage: whole.usage });

    // The stop text spans two tokens; nothing of it is said.
    const [, , third = '', fourth = ''] = said.match(/ ?\p{L}+| ?\d|./gsu) ?? [];
    const stop = `${third}${fourth.slice(0, 2)}`;
    const stopped = await examples.answered<Completion>(chat, { messages, seed: 7, max_tokens: 12, stop });
    expect(stopped.choices[0]).toMatchObject({ message: { content: said.split(stop)[0] }, finish_reason: 'stop' });
    expect(stopped.usage?.['completion_tokens']).toBe(4);
    expect(await examples.answered(`${url}/v1/models`)).toMatchObject({ data: [{ id: 'text-generator' }] });
  });

  test('streams the same text, with the usage where it is asked for', { timeout: LONG_MS }, async ({ examples }) => {
    const url = `${await examples.textGenerator()}/v1/chat/completions`;
    const request = { messages, seed: 7, max_tokens: 12 };
    const whole = await examples.answered<Completion>(url, request);
    const streamed = async (options: object): Promise<readonly Completion[]> => {
      const frames = await examples.frames(url, { ...request, stream: true, ...options });
      expect(frames.at(-1)).toBe('[DONE]');
      return frames.slice(0, -1).map((frame) => JSON.parse(frame) as Completion);
    };
    const chunks = await streamed({ stream_options: { include_usage: true } });
    expect(new Set(chunks.map(({ id, object }) => `${id} ${object}`)).size).toBe(1);
    expect(chunks[0]?.choices[0]?.delta).toEqual({ role: 'assistant', content: '' });
    expect(chunks.map(({ choices }) => choices[0]?.delta?.content ?? '').join('')).toBe(
      whole.choices[0]?.message?.content,
    );
    expect(chunks.at(-2)?.choices).toMatchObject([{ delta: {}, finish_reason: 'length' }]);
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: whole.usage });
    expect(chunks.slice(0, -1).every(({ usage }) => usage === null)).toBe(true);
    expect((await streamed({})).some((chunk) => 'usage' in chunk)).toBe(false);
  });

  test('refuses what it cannot do', { timeout: LONG_MS }, async ({ examples }) => {
    const url = `${await examples.textGenerator()}/v1/chat/completions`;
    const refusals = [
      [{}, 'missing_required_parameter', 'messages'],
      [{ messages, n: 2 }, 'unsupported_parameter', 'n'],
      [{ messages, tools: [{}] }, 'unsupported_parameter', 'tools'],
      [{ messages, temperature: 3 }, 'invalid_request', 'temperature'],
      [{ messages, max_tokens: 4096 }, 'context_length_exceeded', 'messages'],
      ['{', 'invalid_json', null],
    ] as const;
    for (const [body, code, param] of refusals) {
      const answer = await examples.platform.call(url, { body });
      expect([answer.status, (JSON.parse(answer.text) as Refusal).error]).toMatchObject([400, { code, param }]);
    }
    expect(await examples.platform.call(url.replace('chat/', ''))).toMatchObject({ status: 404 });
  });
});

interface Embeddings {
  readonly data: readonly { readonly index: number; readonly embedding: readonly number[] | string }[];
  readonly usage: { readonly prompt_tokens: number; readonly total_tokens: number };
}

const TEXTS = [
  'A ship is unloaded at the quay.',
  "The vessel's cargo is discharged in port.",
  'He bakes bread every morning.',
];
const dot = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((sum, value, at) => sum + value * (b[at] ?? 0), 0);

describe('the embedding model', () => {
  test('gives near vectors to near texts, in both encodings alike', { timeout: LONG_MS }, async ({ examples }) => {
    const url = `${await examples.embeddingModel()}/v1/embeddings`;
    const { data, usage } = await examples.answered<Embeddings>(url, { input: TEXTS });
    const vectors = data.map(({ embedding }) => embedding as readonly number[]);
    const [ship = [], vessel = [], bread = []] = vectors;
    expect(vectors.map(({ length }) => length)).toEqual([384, 384, 384]);
    expect(data.map(({ index }) => index)).toEqual([0, 1, 2]);
    // Figures of the published model.
    expect(dot(ship, vessel)).toBeCloseTo(0.58, 3);
    expect(dot(ship, bread)).toBeCloseTo(-0.08, 3);
    expect(usage).toEqual({ prompt_tokens: 32, total_tokens: 32 });

    const alone = await examples.answered<Embeddings>(url, { input: TEXTS[0], encoding_format: 'base64' });
    const bytes = Buffer.from(String(alone.data[0]?.embedding), 'base64');
    expect([...new Float32Array(new Uint8Array(bytes).buffer)]).toEqual(ship);
  });

  test('refuses other dimensions, empty texts, tokens and long texts', { timeout: LONG_MS }, async ({ examples }) => {
    const url = `${await examples.embeddingModel()}/v1/embeddings`;
    const refusals = [
      [{ input: [] }, 'invalid_request', 'input'],
      [{ input: ['a', ''] }, 'invalid_request', 'input'],
      [{ input: [[1, 2]] }, 'invalid_request', 'input'],
      [{ input: 'a', dimensions: 128 }, 'invalid_request', 'dimensions'],
      [{ input: 'a', encoding_format: 'hex' }, 'invalid_request', 'encoding_format'],
      [{ input: ['a', 'ship '.repeat(255)] }, 'context_length_exceeded', 'input'],
    ] as const;
    for (const [body, code, param] of refusals) {
      const answer = await examples.platform.call(url, { body });
      expect([answer.status, (JSON.parse(answer.text) as Refusal).error]).toMatchObject([400, { code, param }]);
    }
    expect(await examples.platform.call(url, { body: { input: 'ship '.repeat(254) } })).toMatchObject({ status: 200 });
  });
});

test('llama.cpp has a definition without a problem', { timeout: LONG_MS }, async ({ examples }) => {
  const file = 'examples/llm_llamacpp/app.py';
  expect(readFileSync(join(ROOT, file), 'utf8').slice(0, 300)).toContain('Not run without a GPU');
  expect(await examples.json(['deploy', '--dry-run', file])).toMatchObject({
    ok: true,
    deployments: [
      {
        name: 'llm-llamacpp',
        config: { gpuCount: 1, gpu: ['L4', 'T4', 'A10G'] },
        image: { kind: 'named', name: 'ghcr.io/ggml-org/llama.cpp:server-cuda' },
        problems: [],
        // No machine of this test has a GPU.
        warnings: [expect.stringMatching(/GPU/) as string],
      },
    ],
  });
});
