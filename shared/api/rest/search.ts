// Things that a person looks for: `GET /search/{ws}`.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { OneOf } from './lists.ts';
import { QueryText } from './query.ts';

export const SearchQuery = Type.Object({
  q: QueryText('required: a part of a name; the beginning of an id, from 6 characters; the end of a container id'),
});

export const FoundThing = Type.Object({
  kind: OneOf(['deployment', 'task', 'container', 'app']),
  id: Type.String(),
  name: Type.String({ description: 'of a task or container: that of its stub' }),
  detail: Type.String({ description: 'version of a deployment; state of a task or container' }),
});
export type FoundThing = Static<typeof FoundThing>;

export const SearchAnswer = Type.Object({ data: Type.Array(FoundThing, { maxItems: 20 }) });
export type SearchAnswer = Static<typeof SearchAnswer>;
