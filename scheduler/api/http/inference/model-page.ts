// A model as callers of /v1 read it. Pure. Source: reference of the inference API, §3.
import type { ModelRow } from '../../../stores/store/queries/models.ts';
import type { ModelType } from '../../../domain/inference.ts';

export type ModelStatus = 'ready' | 'cold' | 'disabled';

const ENDPOINTS: Readonly<Record<ModelType, readonly string[]>> = {
  chat: ['/v1/chat/completions', '/v1/completions'],
  completion: ['/v1/completions'],
  embedding: ['/v1/embeddings'],
  rerank: [],
  image: [],
  custom: [],
};

/** Millionths of the currency for `of` units as a decimal text for one unit, without floating point. */
export function decimalPrice(micros: number, of: 1 | 1_000_000): string {
  const places = of === 1 ? 6 : 12;
  const digits = String(micros).padStart(places + 1, '0');
  const fraction = digits.slice(-places).replace(/0+$/, '');
  const whole = digits.slice(0, -places);
  return fraction === '' ? whole : `${whole}.${fraction}`;
}

export function modelPage(row: ModelRow, status: ModelStatus): object {
  const { details, prices } = row;
  return {
    id: row.name,
    object: 'model',
    created: Math.floor(row.createdAtMs / 1000),
    owned_by: details.ownedBy === '' ? row.workspaceName : details.ownedBy,
    name: details.displayName === '' ? row.name : details.displayName,
    description: details.description,
    type: row.type,
    endpoints: [...ENDPOINTS[row.type], `/v1/models/${row.name}/invoke`],
    visibility: row.isPublic ? 'public' : 'workspace',
    context_length: details.contextLength,
    max_output_tokens: details.maxOutputTokens,
    ...(details.embedding === null
      ? {}
      : {
          embedding: {
            dimensions: details.embedding.dimensions,
            supported_dimensions: details.embedding.supported_dimensions ?? [details.embedding.dimensions],
            max_input_tokens: details.embedding.max_input_tokens ?? null,
            max_batch: details.embedding.max_batch ?? 2048,
            normalized: details.embedding.normalized ?? false,
          },
        }),
    capabilities: details.capabilities,
    supported_parameters: details.supportedParameters,
    ...(details.inputSchema === null ? {} : { input_schema: details.inputSchema }),
    ...(details.outputSchema === null ? {} : { output_schema: details.outputSchema }),
    pricing: {
      currency: 'credits',
      unit: 'token',
      prompt: decimalPrice(prices.promptMicrosPerMillion, 1_000_000),
      completion: decimalPrice(prices.completionMicrosPerMillion, 1_000_000),
      request: decimalPrice(prices.requestMicros, 1),
    },
    status,
    shutdown_date: details.shutdownDate,
    default_parameters: details.defaultParameters,
  };
}

/** Rows that a query of the list asks for. */
export function matches(
  row: ModelRow,
  { type, owned_by: ownedBy, q }: { readonly type?: string; readonly owned_by?: string; readonly q?: string },
): boolean {
  const owner = row.details.ownedBy === '' ? row.workspaceName : row.details.ownedBy;
  if (type !== undefined && row.type !== type) return false;
  if (ownedBy !== undefined && owner !== ownedBy) return false;
  return q === undefined || row.name.toLowerCase().includes(q.toLowerCase());
}
