// Credits of a workspace, and its usage of models. Amounts are integers: micro-units, millionths of the installation's
// currency.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { nullable } from '../fields.ts';
import { Count, OneOf, Time, listOf } from './lists.ts';
import { PAGE, QueryId, QueryList, QueryText, QueryTime } from './query.ts';

export const CREDIT_MODES = ['prepaid', 'postpaid'] as const;
export const MOST_CREDIT_MICROS = 1_000_000_000_000_000;
export const MOST_GRANT_TEXT = 200;

const Micros = (description: string) => Type.Integer({ description: `micro-units; ${description}` });

export const CreditRecord = Type.Object({
  workspace_id: Type.String(),
  mode: OneOf(CREDIT_MODES),
  balance_micros: Micros('grants less costs; below 0: owed'),
  held_micros: Micros('held for requests under way'),
  available_micros: nullable(Micros('left for new requests; null: not bounded')),
  month: Type.String({ description: 'calendar month of UTC, YYYY-MM' }),
  spent_micros: Micros('costs of the month'),
  spend_limit_micros: nullable(Micros('bound of the costs of a month; null: none')),
});
export type CreditRecord = Static<typeof CreditRecord>;

export const ChangeCredit = Type.Object({
  mode: Type.Optional(
    Type.Unsafe<(typeof CREDIT_MODES)[number]>({
      type: 'string',
      enum: CREDIT_MODES,
      description: 'prepaid: requests that the balance does not cover are refused',
    }),
  ),
  spend_limit_micros: Type.Optional(
    nullable(Type.Integer({ minimum: 0, maximum: MOST_CREDIT_MICROS, description: 'of a calendar month; null: none' })),
  ),
});

export const GrantCredit = Type.Object({
  amount_micros: Type.Integer({
    minimum: -MOST_CREDIT_MICROS,
    maximum: MOST_CREDIT_MICROS,
    description: 'added to the balance; below 0: taken back',
  }),
  key: Type.Optional(
    Type.String({ description: `at most ${MOST_GRANT_TEXT} characters; the same key again changes nothing` }),
  ),
  note: Type.Optional(Type.String({ description: `for people; at most ${MOST_GRANT_TEXT} characters` })),
});

export const CreditGranted = Type.Object({
  granted: Type.Boolean({ description: 'false: a grant with this key was there' }),
  account: CreditRecord,
});

export const USAGE_GROUPS = ['day', 'model', 'token', 'app', 'deployment', 'gpu_model'] as const;
export type UsageGroup = (typeof USAGE_GROUPS)[number];

export const UsageQuery = Type.Object({
  from: QueryTime('the begin of the month when absent'),
  to: QueryTime('exclusive; now when absent; at most 400 days after from'),
  by: QueryList('day, model, token, app, deployment, gpu_model: a row for each combination; one row when absent'),
});

const Sums = {
  requests: Count(),
  prompt_tokens: Count(),
  completion_tokens: Count(),
  cost_micros: Micros('of these requests'),
  container_seconds: Type.Number({ description: 'time that containers ran; not of a model or token' }),
  gpu_seconds: Type.Number({ description: 'the same, summed over their GPUs' }),
};

export const UsageRow = Type.Object({
  day: Type.Optional(Type.String({ description: 'of UTC' })),
  model: Type.Optional(Type.String({ description: 'id of the catalog' })),
  token_id: Type.Optional(Type.String()),
  app_id: Type.Optional(Type.String({ description: 'empty: of no container, or not known' })),
  deployment: Type.Optional(Type.String({ description: 'its name; empty: of no deployment, or not known' })),
  gpu_model: Type.Optional(Type.String({ description: 'as the app asked for it; empty: no GPU' })),
  ...Sums,
});

export const UsageRecord = Type.Object({
  from: Type.String({ format: 'date-time' }),
  to: Type.String({ format: 'date-time' }),
  data: Type.Array(UsageRow),
  truncated: Type.Boolean({ description: 'more rows than 10000: the first ones are here, the total counts all' }),
  total: Type.Object(Sums),
});
export type UsageRecord = Static<typeof UsageRecord>;

export const LEDGER_KINDS = ['request', 'grant', 'compute'] as const;
export type LedgerKind = (typeof LEDGER_KINDS)[number];

export const LedgerQuery = Type.Object({
  ...PAGE,
  from: QueryTime('the begin of the month when absent'),
  to: QueryTime('exclusive; now when absent; at most 400 days after from'),
  kind: QueryList('request, grant, compute: all when absent'),
  model: QueryText('id of the catalog, in full'),
  token: QueryId('id of the token that called'),
});

export const LedgerRow = Type.Object({
  request_id: Type.String({ description: 'x-request-id of a request; else grant:… or compute:…' }),
  kind: OneOf(LEDGER_KINDS),
  created_at: Time(),
  status: Type.String({ description: 'complete, aborted, failed or lost' }),
  token_id: nullable(Type.String({ description: 'of the caller of a request' })),
  model: nullable(Type.String()),
  type: nullable(Type.String({ description: 'of the model' })),
  stream: Type.Boolean(),
  prompt_tokens: Count(),
  completion_tokens: Count(),
  estimated: Type.Boolean({ description: 'the model reported no tokens' }),
  prompt_micros_per_million: Micros('price then'),
  completion_micros_per_million: Micros('price then'),
  request_micros: Micros('price then'),
  cost_micros: Micros('taken from the balance'),
  grant_micros: Micros('added to the balance; below 0: taken back'),
  container_id: nullable(Type.String({ description: 'of compute' })),
  stub_id: nullable(Type.String()),
  container_seconds: Type.Number(),
  gpu_seconds: Type.Number({ description: 'summed over the GPUs' }),
  note: Type.String(),
});
export type LedgerRow = Static<typeof LedgerRow>;

export const LedgerList = listOf(LedgerRow);
