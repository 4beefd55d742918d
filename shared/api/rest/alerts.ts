// Alerts that the scheduler knows by itself, without Prometheus.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Timestamp } from '../fields.ts';
import { Count, OneOf, Time } from './lists.ts';

export const AlertRecord = Type.Object({
  rule: Type.String({ description: 'name of the rule in deploy/prometheus/alerts.yml' }),
  severity: OneOf(['critical', 'warning']),
  subject: Type.Object({
    type: OneOf(['installation', 'pool', 'machine', 'gpu', 'deployment']),
    id: Type.String(),
    name: Type.String({ description: 'for people; empty: none' }),
  }),
  text: Type.String({ description: 'what is wrong, as a sentence' }),
  step: Type.String({ description: 'what to do next; commands stand between backticks' }),
  since: Timestamp({ description: 'null: the scheduler does not know since when' }),
});
export type AlertRecord = Static<typeof AlertRecord>;

export const AlertList = Type.Object({
  data: Type.Array(AlertRecord, { description: 'critical ones first, at most 500' }),
  next: Type.String(),
  total: Count('all of them'),
  looked_at: Time(),
});
export type AlertList = Static<typeof AlertList>;
