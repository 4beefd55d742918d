// An answer of a backend that is held to its end: one JSON object, within bounds of bytes.
import type { Readable } from 'node:stream';
import type { BodyBudget } from '../body-budget.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { InferenceError } from './errors.ts';
import { backendFailed } from './failures.ts';
import { isRecord } from '#shared/json.ts';
import type { JsonObject } from './fields.ts';

/** Largest answer. */
export const MOST_ANSWER_BYTES = 16 * 1024 * 1024;
/** Bytes of answers under way at this replica, and of one workspace. */
export const ANSWER_RULES = { totalBytes: 256 * 1024 * 1024, payerBytes: 64 * 1024 * 1024 };

/** @throws InferenceError `backend_error`, `model_overloaded` */
export async function readJson(body: Readable, budget: BodyBudget, payer: WorkspaceId): Promise<JsonObject> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      if (bytes + chunk.length > MOST_ANSWER_BYTES)
        throw backendFailed(`the model answered with more than ${MOST_ANSWER_BYTES} bytes`);
      if (!budget.take(payer, chunk.length))
        throw new InferenceError(429, 'model_overloaded', 'too many answers are under way: try again', {
          headers: { 'retry-after': '1' },
        });
      bytes += chunk.length;
      chunks.push(chunk);
    }
    return parsed(Buffer.concat(chunks, bytes));
  } catch (error) {
    if (error instanceof InferenceError) throw error;
    throw backendFailed('the model broke off before its answer was whole', error);
  } finally {
    body.destroy();
    budget.giveBack(payer, bytes);
  }
}

function parsed(body: Buffer): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(body.toString('utf8'));
  } catch (error) {
    throw backendFailed('the model answered with something that is no JSON', error);
  }
  if (!isRecord(value)) throw backendFailed('the model answered with something that is no JSON object');
  return value;
}
