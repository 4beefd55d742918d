// Answers that come whole: chats, completions and custom calls without a stream, and embeddings.
import type { ModelCall } from './call.ts';
import { InferenceError } from './errors.ts';
import { backendFailed } from './failures.ts';
import { failureOfWhole } from './false-success.ts';
import { encoded, promptTokensOf, vectorsOf } from './embedding-request.ts';
import { inParallel } from './parallel.ts';
import { estimatedPrompt } from './prepared.ts';
import type { PreparedEmbeddings, Vector } from './embedding-request.ts';
import type { Asked } from './backends.ts';
import { MOST_ANSWER_BYTES, MOST_VECTOR_BYTES } from './whole-answer.ts';
import { usageText } from './stream-frames.ts';
import type { Usage } from './stream-frames.ts';
import { withMembers } from '#shared/json-text.ts';
import { costOf } from '../../../workspaces/credits/cost.ts';
import { finished, usageHeaders, usageOfWhole } from './usage.ts';

/** A chat, a completion or a custom call. */
export async function serveWhole(exchange: ModelCall): Promise<void> {
  const asked = await exchange.ask();
  const answer = await exchange.readJson(asked);
  const { prepared } = exchange;
  // The work is done for a caller who leaves now: it is charged, and kept for a repeated call.
  if (!exchange.hasLeft) exchange.signal.throwIfAborted();
  const failure = failureOfWhole(answer.value, prepared.route);
  if (failure !== undefined) throw failure;
  const usage = usageOfWhole(answer, prepared);
  if (prepared.route === 'invoke') {
    exchange.firstToken();
    await finished(exchange, usage);
    return await send(exchange, asked, usage, answer.text);
  }
  exchange.firstToken();
  await finished(exchange, usage);
  const set = { model: JSON.stringify(prepared.model.name), usage: usageText(usage) };
  await send(exchange, asked, usage, withMembers(answer.text, { set }));
}

/** Batches of a request that the model has at a time. */
export const BATCHES_AT_ONCE = 4;

/** Embeddings: some batches side by side, with their vectors in the order of the inputs. */
export async function serveEmbeddings(exchange: ModelCall, embeddings: PreparedEmbeddings): Promise<void> {
  const { batches, encoding, prepared } = embeddings;
  /** Prompt tokens that the model reported. */
  let reported = 0;
  let isReported = true;
  let vectorBytes = 0;
  /** Bytes of numbers as they came: beyond the bound vectors are kept as float32. */
  let textBytes = 0;
  /** Refusals of batches of which nothing was done. */
  const refusals = new Set<unknown>();
  const askBatch = async (at: number, signal: AbortSignal): Promise<EmbeddedBatch> => {
    const batch = batches[at];
    if (batch === undefined) throw new Error('there is no such batch');
    const asked = await exchange.askWith(batch.bodyFor, signal).catch((error: unknown) => {
      if (error instanceof InferenceError && error.code === 'model_overloaded') refusals.add(error);
      throw error;
    });
    const answer = await exchange.readPart(asked);
    const failure = failureOfWhole(answer.value, prepared.route);
    if (failure !== undefined) throw failure;
    const found = vectorsOf(answer, batch.inputs);
    const bytes = found.reduce((sum, { values }) => sum + values.byteLength, 0);
    vectorBytes += bytes;
    if (vectorBytes > MOST_VECTOR_BYTES)
      throw backendFailed(`the model answered with vectors of more than ${MOST_VECTOR_BYTES} bytes`);
    const keptBytes = encoding === 'float' ? found.reduce((sum, { text = '' }) => sum + text.length, 0) : 0;
    textBytes += keptBytes;
    const isKept = keptBytes > 0 && textBytes <= MOST_ANSWER_BYTES;
    exchange.hold(isKept ? bytes + keptBytes : bytes);
    const vectors = isKept ? found : found.map(({ values }) => ({ values, text: undefined }));
    const tokens = promptTokensOf(answer.value);
    if (tokens === undefined) isReported = false;
    else reported += tokens;
    return { asked, vectors };
  };
  let embedded: readonly EmbeddedBatch[];
  try {
    embedded = await inParallel({
      parts: batches.length,
      most: BATCHES_AT_ONCE,
      signal: exchange.signal,
      run: askBatch,
      isRefusal: (error) => refusals.has(error),
    });
  } catch (error) {
    // A caller who left pays for the batches that the model has done.
    if (exchange.hasLeft && reported > 0)
      await exchange.settle({ promptTokens: reported, completionTokens: 0, estimated: false }, 'aborted');
    throw error;
  }
  if (!exchange.hasLeft) exchange.signal.throwIfAborted();
  const usage: Usage = {
    promptTokens: isReported ? reported : estimatedPrompt(prepared),
    completionTokens: 0,
    estimated: !isReported,
    reported: undefined,
    reportedText: undefined,
  };
  exchange.firstToken();
  await finished(exchange, usage);
  const { promptTokens: tokens, estimated } = usage;
  const data = embedded
    .flatMap(({ vectors }) => vectors)
    .map((vector, index) => `{"object":"embedding","index":${index},"embedding":${encoded(vector, encoding)}}`);
  const counted = { prompt_tokens: tokens, total_tokens: tokens, ...(estimated ? { estimated: true } : {}) };
  const head = `{"object":"list","model":${JSON.stringify(prepared.model.name)},"data":[`;
  await send(exchange, embedded.at(-1)?.asked, usage, `${head}${data.join(',')}],"usage":${JSON.stringify(counted)}}`);
}

interface EmbeddedBatch {
  readonly asked: Asked;
  readonly vectors: readonly Vector[];
}

function send(exchange: ModelCall, asked: Asked | undefined, usage: Usage, text: string): Promise<void> {
  return exchange.answer(
    {
      'content-type': 'application/json; charset=utf-8',
      ...(asked?.version === undefined ? {} : { 'x-model-version': String(asked.version) }),
      ...(exchange.prepared.route === 'invoke' && asked?.taskId !== undefined ? { 'x-task-id': asked.taskId } : {}),
      ...usageHeaders(usage, exchange.isCharged ? costOf(exchange.prepared.model.prices, usage) : 0),
    },
    text,
  );
}
