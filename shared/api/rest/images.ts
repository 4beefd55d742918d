import { Type } from 'typebox';
import type { Static } from 'typebox';
import { nullable } from '../fields.ts';
import { Time, listOf } from './lists.ts';

export const ImageRecord = Type.Object({
  id: Type.String(),
  name: Type.String({ description: 'for the imageId of stubs' }),
  state: Type.String({ description: 'of its last build: PENDING, BUILDING, READY, FAILED' }),
  python_version: Type.String(),
  steps: Type.Array(Type.String()),
  error: Type.String({ description: 'why its last build failed' }),
  machines: Type.Array(Type.Object({ id: Type.String(), size_bytes: Type.Number() })),
  registry: Type.Object(
    { digest: Type.String(), error: Type.String({ description: 'why the last push failed' }) },
    { description: 'where other machines pull it from; an empty digest: it is on its machines alone' },
  ),
  created_at: Time(),
  built_at: nullable(Time()),
  used_at: Time(),
});
export type ImageRecord = Static<typeof ImageRecord>;

export const ImageList = listOf(ImageRecord);

export const ImageOutput = Type.Object({
  output: Type.String({ description: 'of the last build; the end of it, where it is long' }),
});
