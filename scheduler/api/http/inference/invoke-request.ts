// A call of a model in its own form: custom models by their schema, the others by the rules of their own route. Pure.
// Source: reference of the inference API, §6.
import type { ModelRow } from '../../../stores/store/queries/models.ts';
import { prepareChat } from './chat-request.ts';
import { prepareCompletion } from './completion-request.ts';
import { badRequest, InferenceError } from './errors.ts';
import { readFlag } from './fields.ts';
import type { JsonDocument } from './fields.ts';
import { bodyWith, defaultsOf } from './json-body.ts';
import { schemaProblem } from './input-schema.ts';
import type { Prepared } from './prepared.ts';

/** Path below `/v1` at which a deployment or another server takes calls of a custom model. */
export const INVOKE_PATH = '/invoke';

/**
 * Prepares a call of any model but an embedding one.
 * @param wantsEvents - the caller accepts server-sent events alone
 * @throws InferenceError 400
 */
export function prepareInvoke(request: JsonDocument, model: ModelRow, wantsEvents: boolean): Prepared {
  const body = request.value;
  const named = { text: request.text, value: { ...body, model: model.name } };
  if (model.type === 'chat') return prepareChat(named, model);
  if (model.type === 'completion') return prepareCompletion(named, model);
  const problem = schemaProblem(model.details.inputSchema?.value ?? {}, body);
  if (problem !== undefined) {
    const place = problem.pointer === '' ? 'the body' : problem.pointer;
    throw new InferenceError(400, 'invalid_request', `${place} ${problem.text}`, { param: problem.pointer });
  }
  const stream = readFlag(body, 'stream') || wantsEvents;
  if (stream && model.details.capabilities.streaming !== true)
    throw badRequest(`the model ${model.name} does not stream`, 'stream', 'unsupported_parameter');
  const forward = { ...defaultsOf(model), ...body, ...(stream ? { stream: true } : {}) };
  return {
    route: 'invoke',
    model,
    path: INVOKE_PATH,
    bodyFor: () => bodyWith(request, forward),
    stream,
    includeUsage: false,
    promptCharacters: request.text.length,
    promptTokens: 0,
    mostCompletionTokens: model.details.maxOutputTokens ?? 0,
  };
}
