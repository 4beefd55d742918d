import { Type } from 'typebox';
import type { Static } from 'typebox';
import { nullable } from '../fields.ts';
import { Count, Id, OneOf, Time, listOf } from './lists.ts';
import { PAGE, QueryText } from './query.ts';

export const MOST_FILTERS = 50;
export const MOST_DESCRIPTION = 500;

const Url = () => Type.String({ description: 'https; http for a loopback address that LONGSHORE_WEBHOOK_ALLOW names' });
const EventTypes = () =>
  Type.Array(Type.String(), {
    description: 'kinds, begins of kinds with * behind them, or *; empty: every kind that webhooks get',
  });
const Description = () => Type.String({ description: `at most ${MOST_DESCRIPTION} characters` });
const Active = () => Type.Boolean({ description: 'false: nothing is sent, and later nothing of that time' });
const Retry = () =>
  Type.Boolean({ description: 'true: a delivery that fails is tried again, for up to 18 hours; false: once' });

export const CreateWebhook = Type.Object({
  url: Url(),
  event_types: Type.Optional(EventTypes()),
  description: Type.Optional(Description()),
  active: Type.Optional(Active()),
  retry: Type.Optional(Retry()),
});

export const ChangeWebhook = Type.Object({
  url: Type.Optional(Url()),
  event_types: Type.Optional(EventTypes()),
  description: Type.Optional(Description()),
  active: Type.Optional(Active()),
  retry: Type.Optional(Retry()),
});

const Fields = {
  id: Id(),
  external_id: Id(),
  url: Type.String(),
  event_types: EventTypes(),
  description: Type.String(),
  active: Type.Boolean(),
  inactive_reason: Type.String({
    description: 'empty; switched_off: by somebody; receiver_gone: its receiver answered 410',
  }),
  retry: Type.Boolean(),
  secret_hint: Type.String({ description: 'the last characters of the secret' }),
  skipped_events: Count('passed over because too many waited, or deleted by age before they were sent'),
  last_delivery: nullable(
    Type.Object({
      event_id: Type.String(),
      status_code: nullable(Type.Integer()),
      at: Time(),
      error: nullable(Type.String()),
    }),
  ),
  created_at: Time(),
  updated_at: Time(),
};

export const WebhookRecord = Type.Object(Fields);
export type WebhookRecord = Static<typeof WebhookRecord>;

export const WebhookWithSecret = Type.Object({
  ...Fields,
  secret: Type.String({ description: 'whsec_…: signs deliveries; shown this once' }),
});

export const WebhookListQuery = Type.Object(PAGE);
export const WebhookList = listOf(WebhookRecord);

export const DELIVERY_STATES = ['delivered', 'failed', 'waiting'] as const;

export const DeliveryRecord = Type.Object({
  id: Id(),
  webhook_id: Id(),
  event_id: Type.String(),
  event_type: Type.String(),
  state: OneOf(DELIVERY_STATES),
  attempts: Count('tries that ended; 0: waits behind an earlier event of the same subject'),
  status_code: nullable(Type.Integer({ description: 'of the last answer' })),
  error: nullable(Type.String()),
  duration_ms: nullable(Count('of the last try')),
  next_attempt_at: nullable(Time()),
  created_at: Time(),
  updated_at: Time(),
});
export type DeliveryRecord = Static<typeof DeliveryRecord>;

export const DeliveryListQuery = Type.Object({
  state: QueryText('delivered, failed or waiting; absent: all'),
  ...PAGE,
});
export const DeliveryList = listOf(DeliveryRecord);

export const WebhookDeleted = Type.Object({});
