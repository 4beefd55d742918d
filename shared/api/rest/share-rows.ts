import { Type } from 'typebox';
import type { Static } from 'typebox';
import { nullable } from '../fields.ts';
import { Count, Id, listOf } from './lists.ts';
import { QueryText } from './query.ts';
import { ShareWarnings } from './shares.ts';

export const ShareQuery = Type.Object({ market: QueryText('a GPU model, or `cpu`; absent: all') });

const Amount = (description: string) => Type.Number({ minimum: 0, description });

/** Use of a market by a workspace beside what would be fair. Amounts are GPUs, or cores in the market `cpu`. */
export const ShareRowRecord = Type.Object({
  market: Type.String({ description: 'GPU model, or `cpu`' }),
  workspace_id: nullable(Id()),
  workspace_name: Type.String({ description: 'empty: the sum of workspaces that are not listed' }),
  used: Amount('held now'),
  fair_share: Amount('what would be fair now, by what all hold and wait for'),
  guaranteed: Amount('guaranteed to it'),
  limit: nullable(Amount('most that it may hold; null: no limit')),
  weight: Type.Number(),
  share: Type.Number({
    description: 'its part of the market above what is guaranteed, divided by its weight: the smallest goes first',
  }),
  waiting: Count('containers that wait'),
  oldest_wait_seconds: Type.Number({ minimum: 0, description: 'of the container that waits longest; 0: none waits' }),
});
export type ShareRowRecord = Static<typeof ShareRowRecord>;

export const ShareRowList = Type.Object({ ...listOf(ShareRowRecord).properties, warnings: ShareWarnings() });
