// Reads from the body of a call to a model how many tokens it may take, and which earlier calls it continues. Pure.
// Source: reference of the inference API, §9; decisions 0250 (tokens) and 0251 (affinity).
import { createHash } from 'node:crypto';
import { isRecord } from '#shared/json.ts';
import type { LlmConfig, ServingCall } from '../../domain/serving.ts';
import { tokensOf, tokensPerStream } from '../../domain/serving.ts';

/** Header with which a caller names its conversation. */
export const AFFINITY_HEADER = 'x-longshore-affinity';

/** Answer length that is reserved where the call names none. */
const DEFAULT_OUTPUT_TOKENS = 256;
/** Characters of the conversation's beginning that the hash covers. */
const MOST_HASHED = 16 * 1024;
/** Characters of a plain prompt that the hash covers: later ones differ between calls with the same instructions. */
const MOST_OF_PROMPT = 1024;
const HASH_LENGTH = 22;

type Body = Readonly<Record<string, unknown>>;

/**
 * Reservation and preference of a call.
 * @param header - value of {@link AFFINITY_HEADER}
 */
export function servingCallOf(
  body: Body,
  header: string | undefined,
  llm: Pick<LlmConfig, 'contextLength' | 'cacheTokens'>,
  tasksPerContainer: number,
): ServingCall {
  const prefers = affinityOf(body, header);
  return {
    tokens: estimatedTokens(body),
    tokensPerStream: tokensPerStream(llm, tasksPerContainer),
    ...(prefers === undefined ? {} : { prefers }),
  };
}

/** Tokens that the call may take: a quarter of the prompt's characters, and the longest answer for each choice. */
export function estimatedTokens(body: Body): number {
  const output = positive(body['max_completion_tokens']) ?? positive(body['max_tokens']) ?? DEFAULT_OUTPUT_TOKENS;
  const prompt = promptTokens(body['messages']) + promptTokens(body['prompt']) + promptTokens(body['input']);
  const isEmbedding = body['input'] !== undefined;
  return Math.max(1, prompt + (isEmbedding ? 0 : output * (positive(body['n']) ?? 1)));
}

/**
 * Hash of the conversation that a call belongs to; undefined: the call has none. The first of these decides: the
 * header, `prompt_cache_key`, `user`, the beginning of the conversation.
 */
export function affinityOf(body: Body, header: string | undefined): string | undefined {
  const named: readonly (readonly [string, unknown])[] = [
    ['header', header],
    ['prompt_cache_key', body['prompt_cache_key']],
    ['user', body['user']],
    ['beginning', beginningOf(body)],
  ];
  for (const [source, key] of named)
    if (typeof key === 'string' && key !== '')
      return createHash('sha256').update(`${source}\0${key}`).digest('base64url').slice(0, HASH_LENGTH);
  return undefined;
}

/** The messages up to the first one of the user, or the beginning of a plain prompt. */
function beginningOf(body: Body): string | undefined {
  const { messages, prompt } = body;
  if (typeof prompt === 'string') return prompt.slice(0, MOST_OF_PROMPT);
  if (!Array.isArray(messages)) return undefined;
  let beginning = '';
  for (const message of messages as readonly unknown[]) {
    if (!isRecord(message) || beginning.length >= MOST_HASHED) break;
    const { role } = message;
    beginning += `${typeof role === 'string' ? role : ''}\0${textOf(message['content'])}\0`;
    if (role !== 'system' && role !== 'developer') break;
  }
  return beginning.slice(0, MOST_HASHED);
}

/** Text of a content: a string, or the parts that are text. Other parts count by what names them. */
function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  let text = '';
  for (const part of content as readonly unknown[]) {
    if (text.length >= MOST_HASHED) break;
    if (!isRecord(part)) continue;
    text += typeof part['text'] === 'string' ? part['text'] : JSON.stringify(part).slice(0, MOST_HASHED);
  }
  return text;
}

/** Estimated tokens of messages, a prompt or inputs: a number is one token, as arrays of tokens have them. */
function promptTokens(value: unknown): number {
  const { characters, numbers } = countsIn(value, 0);
  return tokensOf(characters) + numbers;
}

/** Depth past which nothing of a body is counted: no dialect nests deeper. */
const DEEPEST = 8;

function countsIn(value: unknown, depth: number): { readonly characters: number; readonly numbers: number } {
  if (typeof value === 'string') return { characters: value.length, numbers: 0 };
  if (typeof value === 'number') return { characters: 0, numbers: 1 };
  if (depth >= DEEPEST || typeof value !== 'object' || value === null) return { characters: 0, numbers: 0 };
  let characters = 0;
  let numbers = 0;
  // The bytes of an image are no prompt: the engine makes a bounded number of tokens of it.
  const parts: readonly unknown[] = Array.isArray(value)
    ? value
    : isRecord(value)
      ? [value['content'], value['text'], value['tool_calls'], value['function'], value['arguments']]
      : [];
  for (const part of parts) {
    const counted = countsIn(part, depth + 1);
    characters += counted.characters;
    numbers += counted.numbers;
  }
  return { characters, numbers };
}

const positive = (value: unknown): number | undefined =>
  typeof value === 'number' && Number.isFinite(value) && value >= 1 ? Math.floor(value) : undefined;
