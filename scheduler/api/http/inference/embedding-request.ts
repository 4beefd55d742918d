// Checks an embeddings request, splits it to what the backend takes at once, and brings answers together. Pure.
// Source: reference of the inference API, §5.
import type { ModelRow } from '../../../stores/store/queries/models.ts';
import { badRequest, InferenceError } from './errors.ts';
import { itemTextsOf, memberText } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import type { JsonDocument, JsonObject } from './fields.ts';
import { bodyWith, defaultsOf } from './json-body.ts';
import { reportedTokens } from './prepared.ts';
import type { Prepared } from './prepared.ts';

/** Most inputs of a request. */
const MOST_INPUTS = 2048;
const OWN: ReadonlySet<string> = new Set(['model', 'input', 'encoding_format', 'user']);

export interface PreparedEmbeddings {
  readonly prepared: Prepared;
  /** Inputs, split to what the backend takes at once, in order. */
  readonly batches: readonly Batch[];
  readonly encoding: 'float' | 'base64';
  readonly inputs: number;
}

export interface Batch {
  readonly inputs: number;
  readonly bodyFor: (servedName: string) => JsonDocument;
}

/** @throws InferenceError 400 */
export function prepareEmbeddings(request: JsonDocument, model: ModelRow): PreparedEmbeddings {
  const body = request.value;
  const { embedding } = model.details;
  if (model.type !== 'embedding' || embedding === null)
    throw badRequest(`${model.name} is a model of the type ${model.type}`, 'model', 'model_type_mismatch');
  const encoding = body['encoding_format'] ?? 'float';
  if (encoding !== 'float' && encoding !== 'base64')
    throw badRequest('encoding_format must be float or base64', 'encoding_format');
  const { dimensions } = body;
  if (dimensions !== undefined && dimensions !== null && dimensions !== embedding.dimensions) {
    const known = embedding.supported_dimensions ?? [];
    if (typeof dimensions !== 'number' || !known.includes(dimensions)) {
      const text = [...new Set([embedding.dimensions, ...known])].join(', ');
      throw badRequest(`dimensions must be one of ${text} for the model ${model.name}`, 'dimensions');
    }
  }
  const inputs = readInputs(body['input'], embedding.token_inputs === true);
  const most = embedding.max_batch ?? MOST_INPUTS;
  if (inputs.length > MOST_INPUTS) throw badRequest(`input must have at most ${MOST_INPUTS} entries`, 'input');
  const sizes = inputs.map((input) =>
    typeof input === 'string' ? { characters: input.length } : { tokens: input.length },
  );
  checkSizes(sizes, embedding.max_input_tokens ?? 0);
  const forward: Record<string, unknown> = { ...defaultsOf(model) };
  for (const [field, value] of Object.entries(body)) if (!OWN.has(field)) forward[field] = value;
  // The backend's own length needs no field, and some refuse one.
  if (dimensions === embedding.dimensions) delete forward['dimensions'];
  const bodyOf =
    (input?: readonly Input[], text = '') =>
    (servedName: string): JsonDocument =>
      bodyWith(
        request,
        { ...forward, model: servedName, encoding_format: 'float', ...(input === undefined ? {} : { input }) },
        input === undefined ? {} : { input: text },
      );
  const texts = inputTexts(request, inputs.length);
  const batches: Batch[] = [];
  for (let at = 0; at < inputs.length; at += most) {
    const batch = inputs.slice(at, at + most);
    batches.push({ inputs: batch.length, bodyFor: bodyOf(batch, `[${texts.slice(at, at + most).join(',')}]`) });
  }
  const promptCharacters = sizes.reduce((sum, size) => sum + (size.characters ?? 0), 0);
  const promptTokens = sizes.reduce((sum, size) => sum + (size.tokens ?? 0), 0);
  return {
    prepared: {
      route: 'embedding',
      model,
      path: '/embeddings',
      bodyFor: bodyOf(),
      stream: false,
      includeUsage: false,
      promptCharacters,
      promptTokens,
      mostCompletionTokens: 0,
    },
    batches,
    encoding,
    inputs: inputs.length,
  };
}

type Input = string | readonly number[];

const isTokens = (value: unknown): value is readonly number[] =>
  Array.isArray(value) && value.length > 0 && value.every((one) => Number.isInteger(one) && (one as number) >= 0);

function readInputs(input: unknown, takesTokens: boolean): readonly Input[] {
  if (input === undefined || input === null)
    throw badRequest('input must be given', 'input', 'missing_required_parameter');
  const list: readonly unknown[] =
    typeof input === 'string' || isTokens(input) ? [input] : Array.isArray(input) ? input : [];
  if (list.length === 0) throw badRequest('input must be a string, or a list of strings or of token ids', 'input');
  return list.map((one, index) => {
    if (one === '') throw badRequest(`input[${index}] must not be empty`, 'input');
    if (typeof one === 'string') return one;
    if (!isTokens(one)) throw badRequest(`input[${index}] must be a string or a list of token ids`, 'input');
    if (!takesTokens)
      throw badRequest('this model takes texts, and no token ids: switch the client to send texts', 'input');
    return one;
  });
}

/** The inputs as they came, where they came as a list or alone. */
function inputTexts({ text, value }: JsonDocument, count: number): readonly string[] {
  const given = memberText(text, 'input') ?? 'null';
  const { input } = value;
  return count === 1 && (!Array.isArray(input) || isTokens(input)) ? [given] : itemTextsOf(given);
}

function checkSizes(sizes: readonly { readonly characters?: number; readonly tokens?: number }[], most: number): void {
  if (most === 0) return;
  for (const [index, { characters = 0, tokens = 0 }] of sizes.entries()) {
    // A text of so many characters has surely more tokens than the bound.
    const surely = tokens > 0 ? tokens : Math.floor(characters / 16);
    if (surely <= most) continue;
    const text = `input[${index}] has at least ${surely} tokens, and the model takes ${most}`;
    throw badRequest(text, 'input', 'context_length_exceeded');
  }
}

export interface Vector {
  readonly values: Float32Array;
  /** The numbers as they came; undefined: they came in base64, or are not kept. */
  readonly text: string | undefined;
}

/** Reads the vectors of one answer, in the order of its inputs. @throws InferenceError `backend_error` */
export function vectorsOf({ text, value }: JsonDocument, count: number): readonly Vector[] {
  const { data } = value;
  if (!Array.isArray(data) || data.length !== count) throw rubbish();
  const texts = itemTextsOf(memberText(text, 'data') ?? '[]');
  const vectors: Vector[] = [];
  for (const [place, item] of (data as readonly unknown[]).entries()) {
    if (!isRecord(item)) throw rubbish();
    const index = item['index'] ?? place;
    if (typeof index !== 'number' || !Number.isInteger(index) || index < 0 || index >= count) throw rubbish();
    if (vectors[index] !== undefined) throw rubbish();
    const { embedding } = item;
    const values = vectorOf(embedding);
    // A number beyond float32 has no spelling in JSON that a client could read.
    if (values.length === 0 || !values.every(Number.isFinite)) throw rubbish();
    const own = Array.isArray(embedding) ? memberText(texts[place] ?? '{}', 'embedding') : undefined;
    vectors[index] = { values, text: own };
  }
  return vectors;
}

function vectorOf(value: unknown): Float32Array {
  if (Array.isArray(value) && value.every((one) => typeof one === 'number')) return Float32Array.from(value);
  if (typeof value !== 'string') throw rubbish();
  const bytes = Buffer.from(value, 'base64');
  if (bytes.length === 0 || bytes.length % 4 !== 0) throw rubbish();
  const vector = new Float32Array(bytes.length / 4);
  for (let at = 0; at < vector.length; at++) vector[at] = bytes.readFloatLE(at * 4);
  return vector;
}

/** A vector as JSON, as its caller wants it: the numbers as they came where they are kept, else as float32. */
export function encoded({ values, text }: Vector, encoding: 'float' | 'base64'): string {
  if (encoding === 'float') return text ?? JSON.stringify([...values]);
  const bytes = Buffer.allocUnsafe(values.length * 4);
  for (const [at, value] of values.entries()) bytes.writeFloatLE(value, at * 4);
  return `"${bytes.toString('base64')}"`;
}

const rubbish = (): InferenceError =>
  new InferenceError(502, 'backend_error', 'the model answered with something that is no list of embeddings');

/** Tokens of the prompt, as a backend reported them; undefined: it reported none. */
export function promptTokensOf(answer: JsonObject): number | undefined {
  const { usage } = answer;
  return isRecord(usage) ? reportedTokens(usage['prompt_tokens']) : undefined;
}
