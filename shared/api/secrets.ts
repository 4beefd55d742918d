import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Flag, Text, Timestamp, nullable } from './fields.ts';

const hosts = () => Type.Array(Text(), { description: 'hosts that alone would get the value; none may be named' });

export const Secret = Type.Object({
  id: Text(),
  name: Text(),
  value: Text({ description: 'empty, unless GetSecret may show it' }),
  createdAt: Timestamp(),
  updatedAt: Timestamp(),
});
export type Secret = Static<typeof Secret>;

export const ListSecretsResponse = Type.Object({ ok: Flag(), errMsg: Text(), secrets: Type.Array(Secret) });
export type ListSecretsResponse = Static<typeof ListSecretsResponse>;

export const CreateSecretRequest = Type.Object({ name: Text(), value: Text(), hosts: hosts() });
export const CreateSecretResponse = Type.Object({ ok: Flag(), errMsg: Text(), id: Text(), name: Text() });
export type CreateSecretResponse = Static<typeof CreateSecretResponse>;

export const UpdateSecretRequest = Type.Object({ name: Text(), value: Text(), hosts: hosts(), clearHosts: Flag() });

export const SecretNameRequest = Type.Object({ name: Text() });
export const GetSecretResponse = Type.Object({ ok: Flag(), errMsg: Text(), secret: nullable(Secret) });
export type GetSecretResponse = Static<typeof GetSecretResponse>;
