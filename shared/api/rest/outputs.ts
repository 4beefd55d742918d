import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Count, Id, Time } from './lists.ts';

export const SaveOutput = Type.Object({
  task_id: Type.String({ format: 'uuid' }),
  object_id: Type.String({ format: 'uuid', description: 'an uploaded object of the caller' }),
  name: Type.String({ minLength: 1, maxLength: 255, description: 'the name of the file' }),
});

export const OutputRecord = Type.Object({ id: Id(), task_id: Id(), name: Type.String(), created_at: Time() });
export type OutputRecord = Static<typeof OutputRecord>;

export const OutputAddressQuery = Type.Object({
  expires_in: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 604_800, description: 'seconds for which the address works; absent: an hour' }),
  ),
});

export const OutputAddress = Type.Object({
  id: Id(),
  task_id: Id(),
  name: Type.String(),
  url: Type.String({ description: 'GET the bytes here, without a credential' }),
  expires_at: Time(),
  size: Count('bytes'),
  sha256: Type.String(),
});
export type OutputAddress = Static<typeof OutputAddress>;
