// Answers that come whole: chats, completions and custom calls without a stream, and embeddings.
import type { Exchange } from './exchange.ts';
import { backendFailed } from './failures.ts';
import type { JsonObject } from './fields.ts';
import { encoded, promptTokensOf, vectorsOf } from './embedding-request.ts';
import { estimatedPrompt } from './prepared.ts';
import type { PreparedEmbeddings } from './embedding-request.ts';
import type { Asked } from './backends.ts';
import { usageObject } from './stream-frames.ts';
import type { Usage } from './stream-frames.ts';
import { costOf } from '../../../workspaces/credits/cost.ts';
import { finished, usageHeaders, usageOfWhole } from './usage.ts';

/** A chat, a completion or a custom call. */
export async function serveWhole(exchange: Exchange): Promise<void> {
  const asked = await exchange.ask();
  const answer = await exchange.readJson(asked);
  const { prepared } = exchange;
  exchange.signal.throwIfAborted();
  const usage = usageOfWhole(answer, prepared);
  exchange.firstToken();
  if (prepared.route === 'invoke') {
    await finished(exchange, usage);
    return await send(exchange, asked, usage, answer);
  }
  if (!Array.isArray(answer['choices'])) throw backendFailed('the model answered with something that is no completion');
  await finished(exchange, usage);
  await send(exchange, asked, usage, { ...answer, model: prepared.model.name, usage: usageObject(usage) });
}

/** Embeddings: batches one behind the other, with their vectors in the order of the inputs. */
export async function serveEmbeddings(exchange: Exchange, embeddings: PreparedEmbeddings): Promise<void> {
  const { batches, encoding, prepared } = embeddings;
  const data: object[] = [];
  let promptTokens: number | undefined = 0;
  let last: Asked | undefined;
  for (const batch of batches) {
    last = await exchange.ask((name) => ({ ...prepared.bodyFor(name), input: batch }));
    const answer = await exchange.readJson(last);
    for (const vector of vectorsOf(answer, batch.length))
      data.push({ object: 'embedding', index: data.length, embedding: encoded(vector, encoding) });
    const tokens = promptTokensOf(answer);
    promptTokens = promptTokens === undefined || tokens === undefined ? undefined : promptTokens + tokens;
  }
  exchange.signal.throwIfAborted();
  const usage: Usage = {
    promptTokens: promptTokens ?? estimatedPrompt(prepared),
    completionTokens: 0,
    estimated: promptTokens === undefined,
    reported: undefined,
  };
  exchange.firstToken();
  await finished(exchange, usage);
  const { promptTokens: tokens, estimated } = usage;
  const body = {
    object: 'list',
    model: prepared.model.name,
    data,
    usage: { prompt_tokens: tokens, total_tokens: tokens, ...(estimated ? { estimated: true } : {}) },
  };
  await send(exchange, last, usage, body);
}

async function send(exchange: Exchange, asked: Asked | undefined, usage: Usage, body: JsonObject): Promise<void> {
  const { reply } = exchange;
  exchange.begun();
  const text = JSON.stringify(body);
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    ...(asked?.version === undefined ? {} : { 'x-model-version': String(asked.version) }),
    ...(exchange.prepared.route === 'invoke' && asked?.taskId !== undefined ? { 'x-task-id': asked.taskId } : {}),
    ...usageHeaders(usage, exchange.isCharged ? costOf(exchange.prepared.model.prices, usage) : 0),
  };
  // A caller who has left may send the call again, and gets this answer.
  await exchange.key?.keep({ headers, body: text });
  if (exchange.hasLeft) return;
  void reply
    .code(200)
    .headers({ ...headers, 'openai-processing-ms': String(exchange.tookMs) })
    .send(text);
}
