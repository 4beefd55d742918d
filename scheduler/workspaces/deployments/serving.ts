// The `serving` settings of a request for a stub. A text is a refusal, and names the field. Pure.
// Source: reference of the inference API, §9; decision 0250.
import { isRecord } from '#shared/json.ts';
import type { LlmConfig, ServingConfig } from '../../domain/serving.ts';
import { DEFAULT_CONTEXT_LENGTH, DEFAULT_METRICS_PATH } from '../../domain/serving.ts';
import { quoted } from './refusals.ts';

const MOST_TOKENS = 100_000_000;
const MOST_TEXT = 256;
const MOST_PATH = 2_048;

type Fields = Readonly<Record<string, unknown>>;

/** Reads the settings. @returns undefined: the stub is no model server, or speaks another protocol */
export function normaliseServing(serving: unknown): ServingConfig | undefined | string {
  if (!isRecord(serving) || field(serving, 'serving_protocol') !== 'openai') return undefined;
  const llm = field(serving, 'llm') ?? {};
  if (!isRecord(llm)) return 'serving.llm must be an object';
  const contextLength = tokens(llm, 'context_length');
  const cacheTokens = tokens(llm, 'cache_tokens');
  const path = field(llm, 'metrics_path') ?? '';
  if (typeof contextLength === 'string') return contextLength;
  if (typeof cacheTokens === 'string') return cacheTokens;
  if (path !== '' && !(typeof path === 'string' && path.length <= MOST_PATH && /^\/[\x21-\x7e]*$/.test(path)))
    return `serving.llm.metrics_path must begin with a slash and have no blanks, got ${quoted(text(path))}`;
  const names = {
    modelId: '',
    engine: '',
    servedModelName: '',
    tokenizer: '',
    sloTier: '',
  } satisfies Partial<LlmConfig>;
  for (const [name, key] of NAMES) {
    const value = field(llm, key) ?? '';
    if (typeof value !== 'string' || value.length > MOST_TEXT || value.includes('\0') || !value.isWellFormed())
      return `serving.llm.${key} must be a text of at most ${MOST_TEXT} characters, well-formed and without NUL`;
    names[name] = value;
  }
  return {
    protocol: 'openai',
    llm: {
      ...names,
      contextLength: contextLength ?? DEFAULT_CONTEXT_LENGTH,
      ...(cacheTokens === undefined ? {} : { cacheTokens }),
      metricsPath: typeof path === 'string' && path !== '' ? path : DEFAULT_METRICS_PATH,
    },
  };
}

const NAMES = [
  ['modelId', 'model_id'],
  ['engine', 'engine'],
  ['servedModelName', 'served_model_name'],
  ['tokenizer', 'tokenizer'],
  ['sloTier', 'slo_tier'],
] as const;

/** A field in either spelling: `context_length` or `contextLength`. */
function field(from: Fields, key: string): unknown {
  const camel = key.replaceAll(/_(\w)/g, (_all, letter: string) => letter.toUpperCase());
  return from[key] ?? from[camel] ?? undefined;
}

/** A number of tokens, as a number or its text; 0 and null count as absent. A text is a refusal. */
function tokens(llm: Fields, key: string): number | undefined | string {
  const value = field(llm, key);
  if (value === undefined || value === 0 || value === '' || value === '0') return undefined;
  const count = typeof value === 'string' ? Number(value) : value;
  if (typeof count === 'number' && Number.isInteger(count) && count >= 1 && count <= MOST_TOKENS) return count;
  return `serving.llm.${key} must be a whole number from 1 to ${MOST_TOKENS}, got ${quoted(text(value))}`;
}

const text = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? ''));
