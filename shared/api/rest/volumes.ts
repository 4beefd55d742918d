import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Time } from './lists.ts';

export const FileAddressQuery = Type.Object({
  path: Type.Optional(Type.String({ description: 'the file, from the root of the volume, such as models/a.bin' })),
  method: Type.Optional(Type.String({ description: 'GET (the default) or PUT: what the address is for' })),
});

export const FileAddress = Type.Object({
  url: Type.String({ description: 'GET or PUT the bytes here, without a credential; ranges are served' }),
  expires_at: Time(),
});
export type FileAddress = Static<typeof FileAddress>;
