import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Count, Id, Time } from './lists.ts';

export const DownloadAddress = Type.Object({
  id: Id(),
  url: Type.String({ description: 'GET the bytes here, without a credential; ranges are served' }),
  expires_at: Time(),
  size: Count('bytes'),
  sha256: Type.String({ description: 'of the bytes, in hex' }),
});
export type DownloadAddress = Static<typeof DownloadAddress>;
