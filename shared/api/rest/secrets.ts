import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Id, Time, listOf } from './lists.ts';

export const SecretRecord = Type.Object({
  id: Id(),
  external_id: Id(),
  name: Type.String(),
  created_at: Time(),
  updated_at: Time(),
});
export type SecretRecord = Static<typeof SecretRecord>;

export const SecretList = listOf(SecretRecord);

/** One variable of a process may have 128 KiB on Linux; all of a stub's secrets travel in one message of at most 1 MiB. */
export const MAX_SECRET_BYTES = 32 * 1024;
export const SECRET_NAME = '^[A-Za-z_][A-Za-z0-9_]{0,127}$';

const value = () => Type.String({ minLength: 1, description: `at most ${MAX_SECRET_BYTES} bytes; never comes back` });

export const ChangeSecret = Type.Object({ value: value() });

export const CreateSecret = Type.Object({
  name: Type.String({
    pattern: SECRET_NAME,
    description: 'of the variable that its containers get',
  }),
  value: value(),
});
