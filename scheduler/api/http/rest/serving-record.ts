// The `serving` settings of a stub as JSON: names that are empty are left out, and so is every field that the interface
// does not list. Source: reference, REST §2.2 and §2.3.
import type { ServingRecord } from '#shared/api/rest/serving.ts';
import { plainOf } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import type { ServingConfig } from '../../../domain/serving.ts';
import type { StubConfig } from '../../../domain/stub-config.ts';

const MOST_NAME = 256;

/** @returns null: the stub serves no protocol of its own */
export function servingRecord({ serving, extra }: Pick<StubConfig, 'serving' | 'extra'>): ServingRecord | null {
  // The request's own text, of which `serving` is what the platform understands.
  const given = plainOf(extra['serving']);
  const sent = isRecord(given) ? given : {};
  const record = {
    ...named('app_kind', sent['app_kind'] ?? sent['appKind']),
    ...named('serving_protocol', serving?.protocol ?? sent['serving_protocol'] ?? sent['servingProtocol']),
    ...(serving === undefined ? {} : { llm: llmRecord(serving.llm) }),
  };
  return Object.keys(record).length === 0 ? null : record;
}

const llmRecord = (llm: ServingConfig['llm']): NonNullable<ServingRecord['llm']> => ({
  ...named('model_id', llm.modelId),
  ...named('engine', llm.engine),
  ...named('served_model_name', llm.servedModelName),
  context_length: llm.contextLength,
  ...(llm.cacheTokens === undefined ? {} : { cache_tokens: llm.cacheTokens }),
  ...named('tokenizer', llm.tokenizer),
  metrics_path: llm.metricsPath,
  ...named('slo_tier', llm.sloTier),
});

const named = <const Name extends string>(name: Name, value: unknown): { readonly [key in Name]?: string } =>
  typeof value === 'string' && value !== '' && value.length <= MOST_NAME
    ? ({ [name]: value } as { readonly [key in Name]: string })
    : {};
