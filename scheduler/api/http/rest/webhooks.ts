// Routes of webhooks. Those that change something are closed to restricted tokens. A secret is in the answers of create
// and rotate alone.
import { timestampOf } from '#shared/api/fields.ts';
import {
  ChangeWebhook,
  CreateWebhook,
  DELIVERY_STATES,
  DeliveryList,
  DeliveryListQuery,
  DeliveryRecord,
  WebhookDeleted,
  WebhookList,
  WebhookListQuery,
  WebhookRecord,
  WebhookWithSecret,
} from '#shared/api/rest/webhooks.ts';
import { AppError } from '#shared/errors.ts';
import type { WebhookDeliveryRow } from '../../../stores/store/queries/webhook-deliveries.ts';
import type { WebhookRow } from '../../../stores/store/queries/webhooks.ts';
import type { WebhookService } from '../../../tasks/event-webhooks/service.ts';
import { cursorOf, pageLimit, pageOf } from './paging.ts';
import { actorBehind } from '../origin.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';

export interface WebhookRouteParts {
  readonly webhooks: Pick<
    WebhookService,
    'list' | 'one' | 'create' | 'change' | 'delete' | 'rotate' | 'test' | 'deliveries' | 'redeliver'
  >;
}

const idOf = ({ params }: Pick<RestRequest, 'params'>): string => params['webhookId']?.toLowerCase() ?? '';

export const webhookRoutes = (parts: WebhookRouteParts): readonly RestRoute[] => [
  ...recordRoutes(parts),
  ...deliveryRoutes(parts),
];

const recordRoutes = ({ webhooks }: WebhookRouteParts): readonly RestRoute[] => [
  restRoute({
    http: 'GET /webhook/{ws}',
    grants: NOT_LIMITED,
    summary: 'Webhooks, the one changed last first, without their secrets',
    query: WebhookListQuery,
    answer: WebhookList,
    errors: ['invalid_cursor'],
    handle: async ({ workspaceId, query }) => {
      const limit = pageLimit(query);
      const rows = await webhooks.list(workspaceId, limit + 1, cursorOf(query));
      const { page, next } = pageOf(rows, limit, ({ updatedAtMs, id }) => ({ atMs: updatedAtMs, id }));
      return { data: page.map(recordOf), next };
    },
  }),
  restRoute({
    http: 'POST /webhook/{ws}',
    summary: 'Make a webhook; its secret is shown this once',
    scope: 'full',
    status: 201,
    body: CreateWebhook,
    answer: WebhookWithSecret,
    errors: ['invalid_webhook', 'too_many_webhooks'],
    handle: async (request) => {
      const { workspaceId, body } = request;
      const { webhook, secret } = await webhooks.create(workspaceId, body, actorBehind(request));
      return { ...recordOf(webhook), secret };
    },
  }),
  restRoute({
    http: 'GET /webhook/{ws}/{webhookId}',
    grants: NOT_LIMITED,
    summary: 'A webhook, without its secret',
    answer: WebhookRecord,
    errors: ['webhook_not_found'],
    handle: async (request) => recordOf(await webhooks.one(request.workspaceId, idOf(request))),
  }),
  restRoute({
    http: 'PUT /webhook/{ws}/{webhookId}',
    summary: 'Change the fields that are given',
    scope: 'full',
    body: ChangeWebhook,
    answer: WebhookRecord,
    errors: ['invalid_webhook', 'webhook_not_found'],
    handle: async (request) =>
      recordOf(await webhooks.change(request.workspaceId, idOf(request), request.body, actorBehind(request))),
  }),
  restRoute({
    http: 'DELETE /webhook/{ws}/{webhookId}',
    summary: 'Delete a webhook, with its deliveries',
    scope: 'full',
    answer: WebhookDeleted,
    errors: ['webhook_not_found'],
    handle: async (request) => {
      await webhooks.delete(request.workspaceId, idOf(request), actorBehind(request));
      return {};
    },
  }),
  restRoute({
    http: 'POST /webhook/{ws}/{webhookId}/rotate',
    summary: 'Give a webhook a new secret, shown this once; the one before signs for 24 hours more',
    scope: 'full',
    answer: WebhookWithSecret,
    errors: ['webhook_not_found'],
    handle: async (request) => {
      const { webhook, secret } = await webhooks.rotate(request.workspaceId, idOf(request), actorBehind(request));
      return { ...recordOf(webhook), secret };
    },
  }),
];

const deliveryRoutes = ({ webhooks }: WebhookRouteParts): readonly RestRoute[] => [
  restRoute({
    http: 'POST /webhook/{ws}/{webhookId}/test',
    summary: 'Send an event of the kind webhook.test now, and say what came of it',
    scope: 'full',
    answer: DeliveryRecord,
    errors: ['webhook_not_found', 'draining'],
    handle: async (request) => deliveryOf(await webhooks.test(request.workspaceId, idOf(request))),
  }),
  restRoute({
    http: 'GET /webhook/{ws}/{webhookId}/deliveries',
    grants: NOT_LIMITED,
    summary: 'Deliveries of a webhook, the newest first',
    query: DeliveryListQuery,
    answer: DeliveryList,
    errors: ['webhook_not_found', 'invalid_cursor'],
    handle: async (request) => {
      const { query, workspaceId } = request;
      const limit = pageLimit(query);
      const rows = await webhooks.deliveries(workspaceId, idOf(request), {
        limit: limit + 1,
        after: cursorOf(query),
        state: stateOf(query.state),
      });
      const { page, next } = pageOf(rows, limit, ({ createdAtMs, id }) => ({ atMs: createdAtMs, id }));
      return { data: page.map(deliveryOf), next };
    },
  }),
  restRoute({
    http: 'POST /webhook/{ws}/{webhookId}/deliveries/{deliveryId}/redeliver',
    summary: 'Send the event of a delivery again, now, and say what came of it',
    scope: 'full',
    answer: DeliveryRecord,
    errors: ['webhook_not_found', 'delivery_not_found', 'event_gone', 'draining'],
    handle: async (request) =>
      deliveryOf(
        await webhooks.redeliver(request.workspaceId, idOf(request), request.params['deliveryId']?.toLowerCase() ?? ''),
      ),
  }),
];

/** @throws AppError `invalid_query` */
function stateOf(text: string | undefined): string | undefined {
  if (text === undefined || (DELIVERY_STATES as readonly string[]).includes(text)) return text;
  throw new AppError('invalid_query', `query parameter state must be one of ${DELIVERY_STATES.join(', ')}`);
}

const recordOf = (row: WebhookRow): WebhookRecord => ({
  id: row.id,
  external_id: row.id,
  url: row.url,
  event_types: [...row.eventTypes],
  description: row.description,
  active: row.active,
  inactive_reason: row.inactiveReason,
  retry: row.retry,
  secret_hint: row.secretHint,
  skipped_events: row.skipped,
  last_delivery: row.lastDelivery,
  created_at: timestampOf(row.createdAtMs),
  updated_at: timestampOf(row.updatedAtMs),
});

const deliveryOf = (row: WebhookDeliveryRow): DeliveryRecord => ({
  id: row.id,
  webhook_id: row.webhookId,
  event_id: row.eventId,
  event_type: row.eventType,
  state: row.state,
  attempts: row.attempts,
  status_code: row.statusCode,
  error: row.error === '' ? null : row.error,
  duration_ms: row.durationMs,
  next_attempt_at: timestampOf(row.dueAtMs),
  created_at: timestampOf(row.createdAtMs),
  updated_at: timestampOf(row.updatedAtMs),
});
