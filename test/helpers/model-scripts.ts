// Answers of the scripted server that follow from the request, for clients whose messages a test does not write. The
// last user message is an `Order` when it is a JSON object. Without one, a request with tools gets a call of the first
// tool, then a text with that tool's result; a JSON schema gets an object that fits it.
import type { Script, ScriptedFrame, ScriptedRequest } from './scripted-model-server.ts';

export interface Order {
  /** Tokens of the reply, `word1 word2 …`; 5 when absent. */
  readonly tokens?: number;
  /** Before the first token, and before each later one. */
  readonly first_ms?: number;
  readonly pause_ms?: number;
  /** After so many tokens the connection breaks. */
  readonly break_after?: number;
  /** False: no usage is reported. */
  readonly usage?: boolean;
  /** The answer is an error with this status. */
  readonly status?: number;
}

type Json = Readonly<Record<string, unknown>>;
interface Message {
  readonly role: string;
  readonly content?: unknown;
}
interface Tool {
  readonly function: { readonly name: string; readonly parameters?: Json };
}

/** A text by its tokens, or the arguments of a tool by fragments. */
interface Reply {
  readonly pieces: readonly string[];
  readonly tool?: string;
}

const PROMPT_TOKENS = 11;
const usageOf = (count: number): Json => ({
  prompt_tokens: PROMPT_TOKENS,
  completion_tokens: count,
  total_tokens: PROMPT_TOKENS + count,
});

/** Text of the first so many tokens. */
export const wordsOf = (count: number): string =>
  Array.from({ length: count }, (_value, at) => `word${at + 1}`).join(' ');

/** The answer to a chat completion. */
export function chatByOrder({ body }: ScriptedRequest): Script {
  const order = orderOf(body);
  if (order.status !== undefined) {
    const message = `scripted ${order.status}`;
    return { status: order.status, json: { error: { message, type: 'scripted', param: null, code: 'scripted' } } };
  }
  const reply = replyOf(body, order);
  return body['stream'] === true ? streamed(reply, order) : whole(reply, order);
}

const messagesOf = (body: Json): readonly Message[] => (body['messages'] ?? []) as readonly Message[];

function orderOf(body: Json): Order {
  const content = messagesOf(body).findLast(({ role }) => role === 'user')?.content;
  return typeof content === 'string' && content.startsWith('{') ? (JSON.parse(content) as Order) : {};
}

function replyOf(body: Json, order: Order): Reply {
  const last = messagesOf(body).at(-1);
  if (last?.role === 'tool') return { pieces: fragments(`the tool said ${String(last.content)}`) };
  const [tool] = (body['tools'] ?? []) as readonly Tool[];
  if (tool !== undefined) {
    const { name, parameters = {} } = tool.function;
    return { pieces: fragments(JSON.stringify(fitting(parameters))), tool: name };
  }
  const format = body['response_format'] as { json_schema?: { schema: Json } } | undefined;
  if (format?.json_schema !== undefined)
    return { pieces: fragments(JSON.stringify(fitting(format.json_schema.schema))) };
  return { pieces: wordsOf(order.tokens ?? 5).match(/ ?\w+/g) ?? [] };
}

const fragments = (text: string): readonly string[] => text.match(/.{1,3}/gsu) ?? [];

/** A value that fits a JSON schema of the simple kinds. */
function fitting(schema: Json): unknown {
  switch (schema['type']) {
    case 'object': {
      const properties = Object.entries((schema['properties'] ?? {}) as Readonly<Record<string, Json>>);
      return Object.fromEntries(properties.map(([name, value]) => [name, fitting(value)]));
    }
    case 'array':
      return [fitting((schema['items'] ?? {}) as Json)];
    case 'integer':
    case 'number':
      return 7;
    case 'boolean':
      return true;
    default:
      return 'scripted';
  }
}

const headOf = (object: string): Json => ({
  id: 'chatcmpl-scripted',
  object,
  created: 1_700_000_000,
  model: 'scripted',
  system_fingerprint: 'scripted',
});

function whole({ pieces, tool }: Reply, order: Order): Script {
  const text = pieces.join('');
  const call = { id: 'call_scripted', type: 'function', function: { name: tool, arguments: text } };
  const message =
    tool === undefined
      ? { role: 'assistant', content: text, refusal: null }
      : { role: 'assistant', content: null, refusal: null, tool_calls: [call] };
  const choice = { index: 0, message, finish_reason: tool === undefined ? 'stop' : 'tool_calls', logprobs: null };
  const usage = order.usage === false ? {} : { usage: usageOf(pieces.length) };
  return { json: { ...headOf('chat.completion'), choices: [choice], ...usage } };
}

function streamed({ pieces, tool }: Reply, order: Order): Script {
  const { first_ms: firstMs = 0, pause_ms: pauseMs = 0, break_after: breakAfter } = order;
  const head = headOf('chat.completion.chunk');
  const chunk = (delta: object, finishReason: string | null = null): ScriptedFrame => ({
    data: { ...head, choices: [{ index: 0, delta, finish_reason: finishReason, logprobs: null }] },
  });
  const begin = { index: 0, id: 'call_scripted', type: 'function', function: { name: tool, arguments: '' } };
  const frames: ScriptedFrame[] = [
    chunk({ role: 'assistant', content: '' }),
    ...(tool === undefined ? [] : [chunk({ tool_calls: [begin] })]),
    ...pieces.flatMap((piece, at): ScriptedFrame[] => [
      { pauseMs: at === 0 ? firstMs : pauseMs },
      chunk(tool === undefined ? { content: piece } : { tool_calls: [{ index: 0, function: { arguments: piece } }] }),
      ...(at + 1 === breakAfter ? (['break'] as const) : []),
    ]),
    chunk({}, tool === undefined ? 'stop' : 'tool_calls'),
    ...(order.usage === false ? [] : [{ data: { ...head, choices: [], usage: usageOf(pieces.length) } }]),
    { data: '[DONE]' },
  ];
  return { frames };
}

/** Vectors of 8 numbers that tell the place and the size of each input: a text, or an array of tokens. */
export function embeddingsByInput({ body }: ScriptedRequest): Script {
  const given = body['input'] as string | readonly (string | number | readonly number[])[];
  const isOne = typeof given === 'string' || typeof given[0] === 'number';
  const inputs = (isOne ? [given] : given) as readonly (string | readonly number[])[];
  const count = inputs.reduce((sum, { length }) => sum + length, 0);
  const data = inputs.map(({ length }, index) => ({
    object: 'embedding',
    index,
    embedding: [index, length, 0.5, -0.25, 0.125, 1 / 3, 1e-7, 3],
  }));
  return { json: { object: 'list', model: 'scripted', data, usage: { prompt_tokens: count, total_tokens: count } } };
}
