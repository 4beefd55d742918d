import { Type } from 'typebox';
import type { Static } from 'typebox';
import {
  BACKEND_DEPLOYMENT_KINDS,
  BACKEND_KINDS,
  MODEL_TYPES,
  MODEL_VISIBILITIES,
  MOST_MODEL_BACKENDS,
  MOST_PRICE,
} from '#shared/domain/models.ts';
import { Exact, nullable } from '../fields.ts';
import { Id, OneOf, Time, listOf } from './lists.ts';

const Micros = (what: string) =>
  Type.Integer({ minimum: 0, maximum: MOST_PRICE, description: `millionths of the currency ${what}` });
const Tokens = (description: string) => Type.Integer({ minimum: 0, maximum: 1_000_000_000, description });

export const ModelPrices = Type.Object({
  prompt_micros_per_million: Micros('for a million prompt tokens'),
  completion_micros_per_million: Micros('for a million completion tokens'),
  request_micros: Micros('for a request'),
});

export const ModelBackend = Type.Object({
  kind: OneOf(BACKEND_KINDS),
  deployment: Type.Optional(Type.String({ description: 'name of a deployment of this workspace' })),
  deployment_kind: Type.Optional(OneOf(BACKEND_DEPLOYMENT_KINDS)),
  port: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 65_535, description: 'of a pod; its first port when absent' }),
  ),
  base_url: Type.Optional(
    Type.String({ description: 'of an OpenAI-compatible server, such as https://models.example.com/v1' }),
  ),
  secret: Type.Optional(Type.String({ description: 'name of the secret with the key of that server' })),
  served_model_name: Type.Optional(Type.String({ description: "the server's own name; the id when absent" })),
  weight: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, description: 'share among backends of a level' })),
  level: Type.Optional(
    Type.Integer({ minimum: 0, maximum: 7, description: 'order of fallback: the lowest first; 0 when absent' }),
  ),
});
export type ModelBackend = Static<typeof ModelBackend>;

export const ModelCapabilities = Type.Object({
  streaming: Type.Optional(Type.Boolean()),
  tools: Type.Optional(Type.Boolean()),
  parallel_tool_calls: Type.Optional(Type.Boolean()),
  response_format: Type.Optional(Type.Array(Type.String())),
  vision: Type.Optional(Type.Boolean()),
  logprobs: Type.Optional(Type.Boolean()),
  seed: Type.Optional(Type.Boolean()),
  reasoning: Type.Optional(Type.Boolean()),
});
export type ModelCapabilities = Static<typeof ModelCapabilities>;

export const ModelEmbedding = Type.Object({
  dimensions: Tokens('length of a vector'),
  supported_dimensions: Type.Optional(Type.Array(Type.Integer({ minimum: 1, maximum: 1_000_000 }))),
  max_input_tokens: Type.Optional(Tokens('of an input')),
  max_batch: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 2048, description: 'inputs that the backend takes at once; 2048 when absent' }),
  ),
  normalized: Type.Optional(Type.Boolean()),
  token_inputs: Type.Optional(Type.Boolean({ description: 'whether inputs may be lists of token ids' })),
});

const FreeObject = (options: Record<string, unknown> = {}) =>
  Exact(Type.Record(Type.String(), Type.Unknown(), options));

const Described = {
  name: Type.Optional(Type.String({ description: 'for people, at most 100 characters' })),
  description: Type.Optional(Type.String({ description: 'at most 2000 characters' })),
  owned_by: Type.Optional(Type.String({ description: 'publisher; the name of the workspace when absent' })),
  visibility: Type.Optional(OneOf(MODEL_VISIBILITIES)),
  active: Type.Optional(Type.Boolean({ description: 'false: calls get 503' })),
  context_length: Type.Optional(Tokens('of prompt and output together; 0: not known')),
  max_output_tokens: Type.Optional(Tokens('0: not known')),
  embedding: Type.Optional(ModelEmbedding),
  capabilities: Type.Optional(ModelCapabilities),
  supported_parameters: Type.Optional(
    Type.Array(Type.String(), {
      description: 'tuning options of requests that the model takes; the others are dropped',
    }),
  ),
  input_schema: Type.Optional(FreeObject({ description: 'JSON Schema of an invoke' })),
  output_schema: Type.Optional(FreeObject()),
  default_parameters: Type.Optional(FreeObject()),
  shutdown_date: Type.Optional(Type.String({ description: 'as callers read it, such as 2027-01-31' })),
  prices: Type.Optional(ModelPrices),
};

export const CreateModel = Type.Object({
  id: Type.String({ description: 'as callers name it: name or org/name' }),
  type: OneOf(MODEL_TYPES),
  ...Described,
  backends: Type.Array(ModelBackend, { description: `1 to ${MOST_MODEL_BACKENDS}` }),
});
export type CreateModel = Static<typeof CreateModel>;

export const ChangeModel = Type.Object({ ...Described, backends: Type.Optional(Type.Array(ModelBackend)) });
export type ChangeModel = Static<typeof ChangeModel>;

export const ModelRecord = Type.Object({
  id: Type.String(),
  external_id: Id(),
  type: OneOf(MODEL_TYPES),
  visibility: OneOf(MODEL_VISIBILITIES),
  active: Type.Boolean(),
  name: Type.String(),
  description: Type.String(),
  owned_by: Type.String(),
  context_length: nullable(Type.Integer()),
  max_output_tokens: nullable(Type.Integer()),
  embedding: nullable(ModelEmbedding),
  capabilities: ModelCapabilities,
  supported_parameters: Type.Array(Type.String()),
  input_schema: nullable(FreeObject()),
  output_schema: nullable(FreeObject()),
  default_parameters: FreeObject(),
  shutdown_date: nullable(Type.String()),
  prices: ModelPrices,
  backends: Type.Array(ModelBackend),
  created_at: Time(),
  updated_at: Time(),
});
export type ModelRecord = Static<typeof ModelRecord>;

export const ModelDeleted = Type.Object({});

export const ModelList = listOf(ModelRecord);
