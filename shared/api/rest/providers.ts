// Providers of machines: what is known of each, and the answer of a check.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Timestamp, nullable } from '../fields.ts';
import { Count, OneOf, Time, listOf } from './lists.ts';

export const PROVIDER_KINDS = ['command'] as const;
export const PROVIDER_VERBS = ['create', 'list', 'terminate'] as const;

export const ProviderCallRecord = Type.Object({
  verb: OneOf(PROVIDER_VERBS),
  called_at: Time(),
  ok: Type.Boolean(),
  failure: Type.String({ description: 'of the last call; empty: it succeeded' }),
  failures: Count('calls in a row that failed'),
});
export type ProviderCallRecord = Static<typeof ProviderCallRecord>;

export const ProviderPoolRecord = Type.Object({
  name: Type.String(),
  workspace_id: nullable(Type.String({ description: 'owner of the pool; null: shared' })),
  machines: Count('that the provider made and that are not over'),
  back_off_until: Timestamp({ description: 'no machine is made before, because calls failed' }),
  failure: Type.String({ description: 'the failure that caused it' }),
});

export const ProviderRecord = Type.Object({
  name: Type.String(),
  kind: nullable(OneOf(PROVIDER_KINDS)),
  known: Type.Boolean({ description: 'false: the providers file of this scheduler does not name it' }),
  program: Type.String({ description: 'path of the program, without its arguments' }),
  timeout_seconds: Count('deadline of each call'),
  pools: Type.Array(ProviderPoolRecord, { description: 'pools that name it or have its machines; the first 100' }),
  pool_count: Count(),
  machines: Type.Object({ pending: Count(), joined: Count(), leaving: Count() }),
  hourly_cost: Type.Number({ description: 'sum of the known prices of its machines' }),
  calls: Type.Array(ProviderCallRecord, { description: 'the last call of each verb; absent: there was none' }),
  listed_at: Timestamp({ description: 'the last complete listing' }),
  instances: nullable(Count('in that listing')),
});
export type ProviderRecord = Static<typeof ProviderRecord>;

export const ProviderList = listOf(ProviderRecord);

export const ProviderCheckRecord = Type.Object({
  name: Type.String(),
  ok: Type.Boolean(),
  problem: Type.String({ description: 'why it cannot be relied on; empty: it can' }),
  cure: Type.String({ description: 'what to do about the problem' }),
  output: Type.String({ description: 'last lines of the standard error of the program that failed, at most 2 KiB' }),
  host: Type.String({ description: 'host of the scheduler that ran the program' }),
  took_ms: Count('0: the program was not run'),
  instances: nullable(Count('with the tag of this installation; null: there is no complete listing')),
  listed: Type.Array(
    Type.Object({
      instance_id: Type.String(),
      state: OneOf(['pending', 'running', 'stopping', 'gone']),
      address: nullable(Type.String()),
      hourly_cost: nullable(Type.Number()),
      ends_at: Timestamp(),
      machine_id: nullable(Type.String({ description: 'null: it serves no machine' })),
    }),
    { description: 'those without a machine first; at most 100' },
  ),
  missing: Type.Array(
    Type.Object({ machine_id: Type.String(), pool_name: Type.String(), instance_id: Type.String() }),
    { description: 'machines whose instances are not in the listing; at most 100' },
  ),
});
export type ProviderCheckRecord = Static<typeof ProviderCheckRecord>;
