// Containers that wait for a machine, by deployment: how many, why, and what would help.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { ExplainedGrowth } from '../explain.ts';
import { Timestamp, nullable } from '../fields.ts';
import { Count, Time } from './lists.ts';

export const WaitingGroup = Type.Object({
  workspace_id: Type.String(),
  workspace_name: Type.String(),
  deployment_id: nullable(Type.String()),
  stub_id: Type.String(),
  name: Type.String({ description: 'of the deployment, else of the stub; empty: not known' }),
  containers: Count('that wait, at most 16 of a deployment: its others follow'),
  oldest_at: Time(),
  oldest_id: Type.String({ description: 'the container that has waited longest, for `longshore explain`' }),
  asks: Type.Object({
    gpu: Type.Array(Type.String(), { description: 'models in order of preference; none: no GPU' }),
    gpu_count: Count(),
    cpu_millicores: Count(),
    memory_mib: Count(),
    pool: Type.String({ description: 'the only pool that may serve it; empty: any' }),
  }),
  rejections: Type.Record(Type.String(), Count(), { description: 'machines that refused it, by reason' }),
  text: Type.String({ description: 'why it waits, as a sentence' }),
  step: Type.String({ description: 'what helps; empty: only waiting' }),
  gives_up_at: Time(),
  gives_up_with: Type.String({ description: 'the reason with which the oldest one then fails' }),
  reservation: nullable(
    Type.Object({
      text: Type.String(),
      until: Timestamp({ description: 'when it is free at the latest; null: something there has no bounded end' }),
    }),
  ),
  growth: Type.Array(ExplainedGrowth, { description: 'pools with a provider, and why each makes a machine or not' }),
});
export type WaitingGroup = Static<typeof WaitingGroup>;

export const WaitingList = Type.Object({
  data: Type.Array(WaitingGroup, { description: 'the groups that have waited longest first, at most 200' }),
  next: Type.String(),
  groups: Count('all of them'),
  containers: Count('in all of them'),
  looked_at: Time(),
});
export type WaitingList = Static<typeof WaitingList>;
