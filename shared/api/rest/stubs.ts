import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Count, Id, Time } from './lists.ts';

export const StubRecord = Type.Object({
  id: Id(),
  external_id: Id(),
  name: Type.String(),
  type: Type.String({ description: 'such as endpoint/deployment' }),
  config: Type.String({ description: 'the configuration as JSON text' }),
  config_version: Count(),
  public: Type.Boolean(),
  created_at: Time(),
  updated_at: Time(),
});
export type StubRecord = Static<typeof StubRecord>;

export const OneStub = Type.Object({
  ...StubRecord.properties,
  object: Type.Object({ external_id: Type.String({ description: 'of its code; empty: it has none' }) }),
  app: Type.Object({ external_id: Id(), name: Type.String() }),
});
