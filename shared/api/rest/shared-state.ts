import { Type } from 'typebox';
import type { Static } from 'typebox';
import { MAX_LIFE_SECONDS } from '../../domain/shared-life.ts';
import { nullable } from '../fields.ts';
import { PAGE } from './query.ts';
import { Count, OneOf, Time, listOf } from './lists.ts';

/** Characters of a value as it is sent: JSON text, or base64 of a pickled value. */
export const MAX_VALUE_CHARACTERS = 1_000_000;

export const MAX_NAME_CHARACTERS = 200;
export const MAX_KEY_CHARACTERS = 500;
const name = () => Type.String({ minLength: 1, maxLength: MAX_NAME_CHARACTERS });
const key = () => Type.String({ minLength: 1, maxLength: MAX_KEY_CHARACTERS });
const value = () =>
  Type.String({ maxLength: MAX_VALUE_CHARACTERS, description: 'JSON text, or base64; passed on as it is' });
const encoding = () => OneOf(['json', 'pickle']);
const ttl = (text: string) => Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_LIFE_SECONDS, description: text }));

export const MapKeysQuery = Type.Object({
  name: Type.Optional(Type.String({ description: 'of the map' })),
  after: Type.Optional(Type.String({ description: 'the key behind which the list begins' })),
  limit: Type.Optional(Type.Integer({ minimum: 0, maximum: 1_000, description: 'at most 1000, the default' })),
});

export const MapKeys = Type.Object({
  ...listOf(Type.String()).properties,
  count: Count('of all keys'),
});

export const MapEntryQuery = Type.Object({
  name: Type.Optional(Type.String({ description: 'of the map' })),
  key: Type.Optional(Type.String()),
});

export const MapEntry = Type.Object({ key: Type.String(), encoding: encoding(), value: value(), expires_at: Time() });
export type MapEntry = Static<typeof MapEntry>;

export const PutMapEntry = Type.Object({
  name: name(),
  key: key(),
  encoding: encoding(),
  value: value(),
  ttl_seconds: ttl('seconds after which the entry is gone; absent: seven days'),
});

export const SharedNameQuery = Type.Object({
  name: Type.Optional(Type.String({ description: 'of the map, the queue or the signal' })),
});

export const SharedNamesQuery = Type.Object(PAGE);

const SharedName = Type.Object({
  name: Type.String(),
  entries: Count('entries of the map, or items of the queue'),
  bytes: Count('their names, keys and values, as the limit counts them'),
});
export const SharedNames = listOf(SharedName);

export const QueueItem = Type.Object({ encoding: encoding(), value: value(), expires_at: Time() });
export type QueueItem = Static<typeof QueueItem>;

export const QueueState = Type.Object({ size: Count(), first: nullable(QueueItem) });

export const PushQueueItem = Type.Object({
  name: name(),
  encoding: encoding(),
  value: value(),
  max_size: Type.Optional(Type.Integer({ minimum: 1, description: 'refuses the item where the queue has so many' })),
  ttl_seconds: ttl('seconds after which the item is gone; absent: seven days'),
});

export const PopQueueItem = Type.Object({ name: name() });
export const PoppedQueueItem = Type.Object({ item: nullable(QueueItem) });

export const SignalState = Type.Object({
  set: Type.Boolean(),
  revision: Type.Integer({ description: 'another number each time that the signal is set; 0: not set' }),
});

export const SetSignal = Type.Object({
  name: name(),
  ttl_seconds: ttl('seconds after which the signal is cleared; absent: ten minutes'),
});
