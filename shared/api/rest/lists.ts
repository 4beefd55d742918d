// Building blocks of the REST API's lists and records.
import { Type } from 'typebox';
import type { Static, TSchema } from 'typebox';

/** A page of records, and the cursor of the next one. */
export const listOf = <Item extends TSchema>(item: Item) =>
  Type.Object({
    data: Type.Array(item),
    next: Type.String({ description: 'cursor of the next page; empty: the last' }),
  });

export const Id = () => Type.String({ format: 'uuid' });
/** RFC 3339, UTC. */
export const Time = () => Type.String({ format: 'date-time' });
export const Count = (description?: string) =>
  Type.Integer({ minimum: 0, ...(description === undefined ? {} : { description }) });
export const OneOf = <const Value extends string>(values: readonly Value[]) =>
  Type.Unsafe<Value>({ type: 'string', enum: values });

/** Answer of a removal that may take several requests. */
export const Removed = Type.Object({
  removed: Count('entries that are gone'),
  complete: Type.Boolean({ description: 'false: more is left than one request removes; ask again' }),
});
export type Removed = Static<typeof Removed>;
