import { Type } from 'typebox';
import type { Static } from 'typebox';
import { nullable } from '../fields.ts';
import { Id } from './lists.ts';

const AMOUNTS = 'by GPU model, or `cpu`: whole GPUs, or cores';
const Amount = () => Type.Integer({ minimum: 0, maximum: 1_000_000 });

/** Change of a workspace's share, by an administrator. An absent part stays; null puts it back to its default. */
export const ChangeShare = Type.Object({
  weight: Type.Optional(
    nullable(Type.Number({ minimum: 0.01, maximum: 1000, description: 'beside other workspaces; null: 1' })),
  ),
  guaranteed: Type.Optional(
    nullable(
      Type.Record(Type.String(), nullable(Amount()), {
        description: `what it gets before those that have more than their guarantee, ${AMOUNTS}; null: none`,
      }),
    ),
  ),
  limits: Type.Optional(
    nullable(
      Type.Record(Type.String(), nullable(Amount()), {
        description: `most that it may hold at once, ${AMOUNTS}; null: no limit`,
      }),
    ),
  ),
});

const Amounts = (description: string) => Type.Record(Type.String(), Amount(), { description });

export const GivenShareRecord = Type.Object({
  weight: Type.Number(),
  guaranteed: Amounts(AMOUNTS),
  limits: Amounts(`${AMOUNTS}; absent: no limit`),
});
export type GivenShareRecord = Static<typeof GivenShareRecord>;

export const ShareWarnings = () =>
  Type.Array(Type.String(), {
    description: 'markets of which more is guaranteed than there is, or that no machine has; to an administrator',
  });

export const ShareRecord = Type.Object({
  workspace_id: Id(),
  ...GivenShareRecord.properties,
  declared_in: nullable(
    Type.String({ description: 'pools file that declares the share; null: none, or not an administrator' }),
  ),
  warnings: ShareWarnings(),
});
export type ShareRecord = Static<typeof ShareRecord>;
