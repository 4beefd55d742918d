// Settings of a model server, as the records of apps and stubs show them. Source: reference, REST §2.2.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Count } from './lists.ts';

const Name = () => Type.Optional(Type.String({ description: 'absent: not given' }));

export const ServingRecord = Type.Object({
  app_kind: Name(),
  serving_protocol: Name(),
  llm: Type.Optional(
    Type.Object({
      model_id: Name(),
      engine: Name(),
      served_model_name: Name(),
      context_length: Count('tokens of prompt and answer of one call'),
      cache_tokens: Type.Optional(Count('tokens that one container holds; absent: follows from context_length')),
      tokenizer: Name(),
      metrics_path: Type.String(),
      slo_tier: Name(),
    }),
  ),
});
export type ServingRecord = Static<typeof ServingRecord>;
