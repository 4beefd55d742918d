// An answer of a backend that is held to its end: one JSON object, within bounds of bytes.
// Invariant: the bytes count until the caller has them, or is gone.
import type { Readable } from 'node:stream';
import type { BodyBudget } from '../body-budget.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { InferenceError } from './errors.ts';
import { backendFailed } from './failures.ts';
import { failureInEvents, failureInText } from './false-success.ts';
import { BYTE_ORDER_MARK } from './sse.ts';
import { isRecord } from '#shared/json.ts';
import type { JsonDocument } from './fields.ts';

/** Largest answer. */
export const MOST_ANSWER_BYTES = 16 * 1024 * 1024;
/** Bytes of answers under way at this replica, and of one workspace. */
export const ANSWER_RULES = { totalBytes: 256 * 1024 * 1024, payerBytes: 64 * 1024 * 1024 };

/** Most bytes of the vectors of one request, as float32: 2048 of 4096 dimensions. */
export const MOST_VECTOR_BYTES = 32 * 1024 * 1024;

export const tooManyAnswers = (): InferenceError =>
  new InferenceError(429, 'model_overloaded', 'too many answers are under way: try again', {
    headers: { 'retry-after': '1' },
  });

/**
 * Reads an answer. Its bytes stay booked: the caller gives them back once nothing keeps the answer.
 * @throws InferenceError `backend_error`, `model_overloaded`; nothing is booked then
 */
export async function readJson(
  body: Readable,
  budget: BodyBudget,
  payer: WorkspaceId,
): Promise<{ readonly document: JsonDocument; readonly bytes: number }> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      if (bytes + chunk.length > MOST_ANSWER_BYTES)
        throw backendFailed(`the model answered with more than ${MOST_ANSWER_BYTES} bytes`);
      if (!budget.take(payer, chunk.length)) throw tooManyAnswers();
      bytes += chunk.length;
      chunks.push(chunk);
    }
    return { document: parsed(Buffer.concat(chunks, bytes)), bytes };
  } catch (error) {
    budget.giveBack(payer, bytes);
    if (error instanceof InferenceError) throw error;
    throw backendFailed('the model broke off before its answer was whole', error);
  } finally {
    body.destroy();
  }
}

function parsed(body: Buffer): JsonDocument {
  const text = body.toString('utf8').replace(BYTE_ORDER_MARK, '');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const failure = /^\s*(?:data|event):/.test(text) ? failureInEvents(text) : undefined;
    throw failure ?? backendFailed('the model answered with something that is no JSON', error);
  }
  if (!isRecord(value))
    throw failureInText(text) ?? backendFailed('the model answered with something that is no JSON object');
  return { text, value };
}
