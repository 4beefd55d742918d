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

/** Linux allows a process variable 128 KiB; all secrets of a stub travel in one message of at most 1 MiB. */
export const MAX_SECRET_BYTES = 32 * 1024;
export const SECRET_NAME = '^[A-Za-z_][A-Za-z0-9_]{0,127}$';

const value = () => Type.String({ minLength: 1, description: `at most ${MAX_SECRET_BYTES} bytes; never comes back` });

/**
 * Prefix of secrets that hold registry credentials: the workspace's
 * images are pulled with them, and no container gets them.
 */
export const REGISTRY_SECRET_PREFIX = 'LONGSHORE_REGISTRY_';

/** The JSON value of a registry secret. */
export const RegistrySecret = Type.Object(
  {
    registry: Type.String({ minLength: 1, maxLength: 255 }),
    username: Type.String({ maxLength: 1024 }),
    password: Type.String({ minLength: 1, maxLength: 16 * 1024 }),
    repositories: Type.Array(
      Type.String({
        pattern: '^(\\*|[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*(/\\*)?)$',
        maxLength: 255,
        description: 'team/app, team/* (everything below) or *',
      }),
      { minItems: 1, maxItems: 100 },
    ),
  },
  { additionalProperties: false },
);
export type RegistrySecret = Static<typeof RegistrySecret>;

export const ChangeSecret = Type.Object({ value: value() });

export const CreateSecret = Type.Object({
  name: Type.String({
    pattern: SECRET_NAME,
    description: `of the variable that its containers get; ${REGISTRY_SECRET_PREFIX}…: credentials of an image registry, whose value is JSON`,
  }),
  value: value(),
});
