// Checks a legacy completion and brings it into the form for a backend. Pure.
import type { ModelRow } from '../../../stores/store/queries/models.ts';
import { numberOr, outputOf } from './chat-request.ts';
import { badRequest } from './errors.ts';
import { checkNumber, checkSampling, isForwarded, readStream } from './fields.ts';
import type { JsonDocument } from './fields.ts';
import { bodyWith, defaultsOf } from './json-body.ts';
import type { Prepared } from './prepared.ts';

const OWN: ReadonlySet<string> = new Set(['model', 'stream', 'stream_options']);

/** @throws InferenceError 400 */
export function prepareCompletion(request: JsonDocument, model: ModelRow): Prepared {
  const body = request.value;
  if (model.type !== 'chat' && model.type !== 'completion')
    throw badRequest(`${model.name} is a model of the type ${model.type}`, 'model', 'model_type_mismatch');
  const { capabilities, supportedParameters } = model.details;
  const { stream, includeUsage } = readStream(body);
  checkSampling(body);
  checkNumber(body, 'logprobs', 0, 20, true);
  const { prompt } = body;
  if (prompt === undefined || prompt === null)
    throw badRequest('prompt must be given', 'prompt', 'missing_required_parameter');
  const prompts: readonly unknown[] = Array.isArray(prompt) ? prompt : [prompt];
  const isTokens = prompts.length > 0 && prompts.every((one) => typeof one === 'number');
  const isKnown = prompts.every((one) => typeof one === 'string' || typeof one === 'number' || Array.isArray(one));
  if (prompts.length === 0 || !isKnown)
    throw badRequest('prompt must be a string, or a list of strings or of token ids', 'prompt');
  const promptCharacters = prompts.reduce<number>(
    (sum, one) => sum + (typeof one === 'string' ? one.length : Array.isArray(one) ? one.length * 4 : 4),
    0,
  );
  const asked = numberOr(body['max_tokens']);
  const { choices, mostCompletionTokens } = outputOf(body, model, asked, promptCharacters, 'prompt');
  const forward: Record<string, unknown> = { ...defaultsOf(model) };
  for (const [field, value] of Object.entries(body)) {
    if (!OWN.has(field) && isForwarded(field, supportedParameters, capabilities)) forward[field] = value;
  }
  if (stream && capabilities.streaming !== false)
    Object.assign(forward, { stream: true, stream_options: { include_usage: true } });
  return {
    route: 'completion',
    model,
    path: '/completions',
    bodyFor: (servedName) => bodyWith(request, { ...forward, model: servedName }),
    stream,
    includeUsage,
    promptCharacters,
    promptTokens: 0,
    mostCompletionTokens: mostCompletionTokens * choices * (isTokens ? 1 : prompts.length),
  };
}
