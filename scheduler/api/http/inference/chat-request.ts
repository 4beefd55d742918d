// Checks a chat completion and brings it into the form for a backend. Pure. Messages, tools and response formats pass
// through: only what would be misunderstood is refused. Source: reference of the inference API, §4.1, §4.2.
import { isRecord } from '#shared/json.ts';
import type { ModelRow } from '../../../stores/store/queries/models.ts';
import { badRequest } from './errors.ts';
import { checkNumber, checkSampling, isForwarded, readFlag, readStream } from './fields.ts';
import type { JsonDocument, JsonObject } from './fields.ts';
import { bodyWith, defaultsOf } from './json-body.ts';
import { tokensOf } from '../../../domain/serving.ts';
import type { Prepared } from './prepared.ts';

const ROLES: ReadonlySet<string> = new Set(['system', 'developer', 'user', 'assistant', 'tool', 'function']);
const IMAGE = 'image_url';
/** Output tokens that are reserved where neither request nor model names a bound. Source: reference, §9. */
const DEFAULT_OUTPUT = 256;
/** Fields that the platform writes itself. */
const OWN: ReadonlySet<string> = new Set(['model', 'stream', 'stream_options', 'max_tokens', 'max_completion_tokens']);

const unsupported = (param: string, id: string): Error =>
  badRequest(`the model ${id} does not take ${param}`, param, 'unsupported_parameter');

/** @throws InferenceError 400 */
export function prepareChat(request: JsonDocument, model: ModelRow): Prepared {
  const body = request.value;
  const { capabilities, supportedParameters } = model.details;
  if (model.type !== 'chat')
    throw badRequest(`${model.name} is a model of the type ${model.type}`, 'model', 'model_type_mismatch');
  const { stream, includeUsage } = readStream(body);
  checkSampling(body);
  checkNumber(body, 'top_logprobs', 0, 20, true);
  readFlag(body, 'parallel_tool_calls');
  const messages = readMessages(body, capabilities.vision === true);
  if (isGiven(body['tools']) && capabilities.tools === false) throw unsupported('tools', model.name);
  if (isGiven(body['functions']) && capabilities.tools === false) throw unsupported('functions', model.name);
  if (body['parallel_tool_calls'] === true && capabilities.parallel_tool_calls === false)
    throw unsupported('parallel_tool_calls', model.name);
  checkFormat(body['response_format'], model);
  const promptCharacters = charactersOf(messages);
  const asked = numberOr(body['max_completion_tokens']) ?? numberOr(body['max_tokens']);
  const { choices, mostCompletionTokens } = outputOf(body, model, asked, promptCharacters, 'messages');
  const forward: Record<string, unknown> = { ...defaultsOf(model) };
  for (const [field, value] of Object.entries(body)) {
    if (!OWN.has(field) && isForwarded(field, supportedParameters, capabilities)) forward[field] = value;
  }
  if (asked !== undefined) {
    const name = supportedParameters.includes('max_completion_tokens') ? 'max_completion_tokens' : 'max_tokens';
    forward[name] = asked;
  }
  const streams = stream && capabilities.streaming !== false;
  if (streams) Object.assign(forward, { stream: true, stream_options: { include_usage: true } });
  return {
    route: 'chat',
    model,
    path: '/chat/completions',
    bodyFor: (servedName) => bodyWith(request, { ...forward, model: servedName }),
    stream,
    includeUsage,
    promptCharacters,
    promptTokens: 0,
    mostCompletionTokens: mostCompletionTokens * choices,
  };
}

const isGiven = (value: unknown): boolean => Array.isArray(value) && value.length > 0;
export const numberOr = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined);

/** Bounds of the output. @throws InferenceError `context_length_exceeded` */
export function outputOf(
  body: JsonObject,
  model: ModelRow,
  asked: number | undefined,
  promptCharacters: number,
  param: string,
): { readonly choices: number; readonly mostCompletionTokens: number } {
  const { contextLength, maxOutputTokens } = model.details;
  const prompt = tokensOf(promptCharacters);
  // Estimates err: only a request that is surely too long is refused here, and a backend refuses the others.
  const surely = Math.floor(promptCharacters / 16) + (asked ?? 0);
  if (contextLength !== null && surely > contextLength) {
    const text = `the model ${model.name} has a context of ${contextLength} tokens, and this request takes at least ${surely}`;
    throw badRequest(text, param, 'context_length_exceeded');
  }
  const room = contextLength === null ? DEFAULT_OUTPUT : Math.max(1, contextLength - prompt);
  return { choices: numberOr(body['n']) ?? 1, mostCompletionTokens: asked ?? maxOutputTokens ?? room };
}

function checkFormat(format: unknown, model: ModelRow): void {
  if (format === undefined || format === null) return;
  if (!isRecord(format) || typeof format['type'] !== 'string')
    throw badRequest('response_format must be an object with a type', 'response_format');
  const known = model.details.capabilities.response_format;
  if (known !== undefined && format['type'] !== 'text' && !known.includes(format['type']))
    throw unsupported('response_format', model.name);
}

function readMessages(body: JsonObject, hasVision: boolean): readonly JsonObject[] {
  const { messages } = body;
  if (messages === undefined || messages === null)
    throw badRequest('messages must be given', 'messages', 'missing_required_parameter');
  if (!Array.isArray(messages) || messages.length === 0)
    throw badRequest('messages must be a list of at least one message', 'messages');
  return messages.map((message: unknown, index) => {
    const at = `messages[${index}]`;
    if (!isRecord(message)) throw badRequest(`${at} must be an object`, at);
    const { role, content } = message;
    if (typeof role !== 'string' || !ROLES.has(role))
      throw badRequest(`${at}.role must be one of ${[...ROLES].join(', ')}`, `${at}.role`);
    if (role === 'tool' && typeof message['tool_call_id'] !== 'string')
      throw badRequest(`${at}.tool_call_id must be given`, `${at}.tool_call_id`);
    const mayLack = role === 'assistant' && (isGiven(message['tool_calls']) || isRecord(message['function_call']));
    if (content === undefined || content === null) {
      if (!mayLack && !(role === 'assistant' && typeof message['refusal'] === 'string'))
        throw badRequest(`${at}.content must be given`, `${at}.content`);
      return message;
    }
    checkContent(content, `${at}.content`, hasVision);
    return message;
  });
}

function checkContent(content: unknown, at: string, hasVision: boolean): void {
  if (typeof content === 'string') return;
  if (!Array.isArray(content)) throw badRequest(`${at} must be a string or a list of parts`, at);
  for (const [index, part] of (content as readonly unknown[]).entries()) {
    if (!isRecord(part) || typeof part['type'] !== 'string')
      throw badRequest(`${at}[${index}] must be an object with a type`, `${at}[${index}]`);
    if (part['type'] === IMAGE && !hasVision)
      throw badRequest('this model takes no images', `${at}[${index}]`, 'unsupported_content');
  }
}

/** Characters of the texts; an image counts as little, since only its model knows. */
function charactersOf(messages: readonly JsonObject[]): number {
  let sum = 0;
  for (const { content, tool_calls: calls } of messages) {
    if (typeof content === 'string') sum += content.length;
    else if (Array.isArray(content)) {
      for (const part of content as readonly unknown[])
        if (isRecord(part) && typeof part['text'] === 'string') sum += part['text'].length;
    }
    if (calls !== undefined) sum += JSON.stringify(calls).length;
  }
  return sum;
}
