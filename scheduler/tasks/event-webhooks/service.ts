// Webhooks as their owners see them: made, changed and deleted; tested; their deliveries listed and sent again. The
// REST routes call it on any replica; deliveries of events are the pump's.
import { timestampOf } from '#shared/api/fields.ts';
import { MOST_DESCRIPTION, MOST_FILTERS } from '#shared/api/rest/webhooks.ts';
import type { Clock } from '#shared/clock.ts';
import { isUuid, newId } from '#shared/domain/ids.ts';
import type { DeliveryId, WebhookId, WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { Db, Transaction } from '../../stores/store/db.ts';
import { SYSTEM, auditEvent } from '../../workspaces/events/audit.ts';
import type { Actor, AuditKind } from '../../workspaces/events/audit.ts';
import type { EventWriter } from '../../workspaces/events/writer.ts';
import {
  deliveryOfWebhook,
  eventBySeq,
  listDeliveries,
  writeDeliveries,
  writeProgress,
} from '../../stores/store/queries/webhook-deliveries.ts';
import type { WebhookDeliveryRow } from '../../stores/store/queries/webhook-deliveries.ts';
import {
  changeWebhook,
  deactivateWebhook,
  deleteWebhook,
  insertWebhook,
  listWebhooks,
  rotateSecret,
  webhookById,
} from '../../stores/store/queries/webhooks.ts';
import type { WebhookChange, WebhookRow } from '../../stores/store/queries/webhooks.ts';
import { cloudEventOf } from '../../workspaces/events/envelope.ts';
import type { ToldEvent } from '../../workspaces/events/envelope.ts';
import { newEventId } from '../../workspaces/events/writer.ts';
import { wordOf } from '../webhooks/decide.ts';
import { urlProblem } from '../webhooks/guard.ts';
import type { DialRules } from '../webhooks/open-networks.ts';
import { NoPlaceError, Places } from '../webhooks/places.ts';
import { errorOf, isGone } from './decide.ts';
import { filtersProblem } from './filters.ts';
import { hintOf, messageOf } from './message.ts';
import type { EventWebhookMetrics } from './metrics.ts';
import type { Receivers } from './receivers.ts';
import type { WebhookSecrets } from './secrets.ts';

/** Kind of the event that a test sends. */
export const TEST_KIND = 'webhook.test';
/** Milliseconds for which the secret before a rotation signs, too. */
const OLD_SIGNS_MS = 24 * 3600_000;
/** Most secrets that sign at once. */
const MOST_SECRETS = 3;
/** Most tests and repetitions at once at this replica, and of one workspace. */
const AT_ONCE = 32;
const OF_ONE_WORKSPACE = 4;
const PLACE_MS = 5_000;

export interface WebhookServiceParts {
  readonly db: Db;
  readonly events: Pick<EventWriter, 'transaction'>;
  readonly rules: DialRules;
  readonly receivers: Pick<Receivers, 'post'>;
  readonly secrets: WebhookSecrets;
  readonly metrics: EventWebhookMetrics;
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  /** Most webhooks of a workspace. */
  readonly mostOf: (workspaceId: WorkspaceId) => number | Promise<number>;
}

export interface WebhookFields {
  readonly url?: string | undefined;
  readonly event_types?: readonly string[] | undefined;
  readonly description?: string | undefined;
  readonly active?: boolean | undefined;
  readonly retry?: boolean | undefined;
}

/** The address without its path and query, which may hold a credential. */
const placeOf = (url: string): string => URL.parse(url)?.origin ?? '';

export class WebhookService {
  readonly #parts: WebhookServiceParts;
  readonly #places = new Places(AT_ONCE, OF_ONE_WORKSPACE);
  readonly #abort = new AbortController();

  constructor(parts: WebhookServiceParts) {
    this.#parts = parts;
  }

  /** Ends tests and repetitions under way. */
  stop(): void {
    this.#abort.abort(new AppError('draining', 'the scheduler stops'));
  }

  list(
    workspaceId: WorkspaceId,
    limit: number,
    after: { readonly atMs: number; readonly id: string } | undefined,
  ): Promise<WebhookRow[]> {
    return listWebhooks(this.#parts.db.reads.of(workspaceId), workspaceId, limit, after);
  }

  /** @throws AppError `webhook_not_found` */
  async one(workspaceId: WorkspaceId, id: string): Promise<WebhookRow> {
    const row = isUuid(id) ? await webhookById(this.#parts.db, workspaceId, id) : undefined;
    if (row === undefined) throw notFound();
    return row;
  }

  /**
   * Makes a webhook.
   * @returns the row, and the secret in the clear, this once
   * @throws AppError `invalid_webhook`, `too_many_webhooks`
   */
  async create(
    workspaceId: WorkspaceId,
    fields: WebhookFields & { readonly url: string },
    by: Actor = SYSTEM,
  ): Promise<{ readonly webhook: WebhookRow; readonly secret: string }> {
    const { url, eventTypes = [], description = '', active = true, retry = false } = this.#checked(fields);
    const id = newId<WebhookId>();
    const secret = this.#parts.secrets.make(id);
    const most = await this.#parts.mostOf(workspaceId);
    const hint = hintOf(secret.text);
    const webhook = await this.#written('audit.webhook.created', by, (tx) =>
      insertWebhook(
        tx,
        { id, workspaceId, url: url ?? '', eventTypes, description, active, retry, secretHint: hint },
        secret,
        most,
      ),
    );
    if (webhook === undefined) {
      throw new AppError('too_many_webhooks', `this workspace may have ${most} webhooks, and has them`);
    }
    return { webhook, secret: secret.text };
  }

  /** Changes the fields that are given. @throws AppError `invalid_webhook`, `webhook_not_found` */
  async change(workspaceId: WorkspaceId, id: string, fields: WebhookFields, by: Actor = SYSTEM): Promise<WebhookRow> {
    const change = this.#checked(fields);
    const row = isUuid(id)
      ? await this.#written('audit.webhook.updated', by, (tx) => changeWebhook(tx, workspaceId, id, change))
      : undefined;
    if (row === undefined) throw notFound();
    return row;
  }

  /** @throws AppError `webhook_not_found` */
  async delete(workspaceId: WorkspaceId, id: string, by: Actor = SYSTEM): Promise<void> {
    const row = isUuid(id)
      ? await this.#written('audit.webhook.deleted', by, async (tx) => {
          const before = await webhookById(tx, workspaceId, id);
          return before !== undefined && (await deleteWebhook(tx, workspaceId, id)) ? before : undefined;
        })
      : undefined;
    if (row === undefined) throw notFound();
  }

  /** Gives a webhook a new secret; the one before signs for a day more. @throws AppError `webhook_not_found` */
  async rotate(
    workspaceId: WorkspaceId,
    id: string,
    by: Actor = SYSTEM,
  ): Promise<{ readonly webhook: WebhookRow; readonly secret: string }> {
    const secret = this.#parts.secrets.make(id as WebhookId);
    const rotation = { ...secret, hint: hintOf(secret.text), oldSignsMs: OLD_SIGNS_MS, most: MOST_SECRETS };
    const webhook = isUuid(id)
      ? await this.#written('audit.webhook.rotated', by, (tx) => rotateSecret(tx, workspaceId, id, rotation))
      : undefined;
    if (webhook === undefined) throw notFound();
    this.#parts.secrets.forget(webhook.id);
    return { webhook, secret: secret.text };
  }

  /** Makes a change together with its event; the address is told, and no secret. */
  #written(
    kind: AuditKind,
    by: Actor,
    write: (tx: Transaction) => Promise<WebhookRow | undefined>,
  ): Promise<WebhookRow | undefined> {
    const { db, events, clock } = this.#parts;
    return events.transaction(db, async (tx, emit) => {
      const row = await write(tx);
      if (row !== undefined) {
        const { workspaceId, id, url, active, eventTypes } = row;
        const target = { type: 'webhook', id, name: placeOf(url) };
        const attrs = { active, event_types: eventTypes.join(',').slice(0, 500) };
        emit(auditEvent(by, kind, { workspaceId, target, attrs }, clock.nowMs()));
      }
      return row;
    });
  }

  /** @throws AppError `webhook_not_found` */
  async deliveries(
    workspaceId: WorkspaceId,
    id: string,
    page: Parameters<typeof listDeliveries>[2],
  ): Promise<WebhookDeliveryRow[]> {
    const { id: webhookId } = await this.one(workspaceId, id);
    return listDeliveries(this.#parts.db.reads.of(workspaceId), webhookId, page);
  }

  /**
   * Sends an event of the kind `webhook.test` now, also for an inactive webhook. An answer 410 ends the webhook.
   * @throws AppError `webhook_not_found`
   */
  async test(workspaceId: WorkspaceId, id: string): Promise<WebhookDeliveryRow> {
    const webhook = await this.one(workspaceId, id);
    const eventId = newEventId(this.#parts.clock.nowMs());
    return await this.#send(webhook, testEvent(webhook, eventId), undefined);
  }

  /**
   * Sends the event of a delivery again, now. An event that waits goes on waiting unless it is delivered. An answer 410
   * ends the webhook.
   * @throws AppError `webhook_not_found`, `delivery_not_found`, `event_gone`
   */
  async redeliver(workspaceId: WorkspaceId, id: string, deliveryId: string): Promise<WebhookDeliveryRow> {
    const webhook = await this.one(workspaceId, id);
    const { db } = this.#parts;
    const before = isUuid(deliveryId) ? await deliveryOfWebhook(db, webhook.id, deliveryId) : undefined;
    if (before === undefined) {
      throw new AppError('delivery_not_found', 'there is no such delivery of this webhook, or it is not kept any more');
    }
    const event =
      before.eventSeq === null
        ? testEvent(webhook, before.eventId)
        : await eventBySeq(db, workspaceId, before.eventSeq);
    if (event === undefined) throw new AppError('event_gone', 'the event of this delivery is not kept any more');
    return await this.#send(webhook, event, before);
  }

  async #send(
    webhook: WebhookRow,
    event: ToldEvent & { readonly seq?: number },
    before: WebhookDeliveryRow | undefined,
  ): Promise<WebhookDeliveryRow> {
    const { db, secrets, receivers, clock, metrics } = this.#parts;
    const leave = await this.#place(webhook.workspaceId);
    try {
      const message = messageOf(cloudEventOf(event), await secrets.of(webhook), clock.nowMs());
      const beganMs = clock.monotonicMs();
      const outcome = await receivers.post(webhook.url, message, webhook, this.#abort.signal);
      metrics.tries.inc({ outcome: wordOf(outcome) });
      const isDelivered = outcome.kind === 'answered' && outcome.status >= 200 && outcome.status < 300;
      const atMs = clock.nowMs();
      const ends = isGone(outcome);
      const waits = !isDelivered && !ends && before?.dueAtMs !== null && before?.dueAtMs !== undefined;
      const statusCode = outcome.kind === 'answered' ? outcome.status : null;
      const error = errorOf(outcome);
      const delivered = {
        id: before?.id ?? newId<DeliveryId>(),
        webhookId: webhook.id,
        eventSeq: before?.eventSeq ?? null,
        eventId: event.id,
        eventType: event.type,
        subject: before?.subject ?? TEST_KIND,
        state: isDelivered ? ('delivered' as const) : waits ? ('waiting' as const) : ('failed' as const),
        attempts: (before?.attempts ?? 0) + 1,
        statusCode,
        error,
        durationMs: Math.round(clock.monotonicMs() - beganMs),
        dueInMs: waits ? Math.max(0, (before?.dueAtMs ?? atMs) - atMs) : null,
        atMs,
      };
      const last = { event_id: event.id, status_code: statusCode, at: timestampOf(atMs), error: error || null };
      const isEnded = await db.transaction(async (tx) => {
        await writeDeliveries(tx, [delivered]);
        await writeProgress(tx, [{ webhookId: webhook.id, cursorSeq: 0, skipped: 0, lastDelivery: last }]);
        return ends && (await deactivateWebhook(tx, webhook.id, webhook.url, 'receiver_gone'));
      });
      if (isEnded) metrics.deactivated.inc();
      const row = await deliveryOfWebhook(db, webhook.id, delivered.id);
      if (row === undefined) throw notFound();
      return row;
    } finally {
      leave();
    }
  }

  async #place(workspaceId: WorkspaceId): Promise<() => void> {
    try {
      return await this.#places.take(PLACE_MS, workspaceId);
    } catch (error) {
      if (!(error instanceof NoPlaceError)) throw error;
      throw new AppError('rate_limited', 'too many tests and repetitions of deliveries are under way', {
        cause: error,
        details: { retryAfterSeconds: 10 },
      });
    }
  }

  /** @throws AppError `invalid_webhook`, naming the field */
  #checked(fields: WebhookFields): WebhookChange {
    const { url, event_types: given, description, active, retry } = fields;
    const problem = url === undefined ? undefined : this.#urlProblem(url);
    if (problem !== undefined) throw invalid(`url ${problem}`);
    if (given !== undefined && given.length > MOST_FILTERS) {
      throw invalid(`event_types must have at most ${MOST_FILTERS} entries`);
    }
    const eventTypes = given === undefined ? undefined : [...new Set(given)];
    const wrong = eventTypes === undefined ? undefined : filtersProblem(eventTypes);
    if (wrong !== undefined) throw invalid(wrong);
    if (description !== undefined && description.length > MOST_DESCRIPTION) {
      throw invalid(`description must have at most ${MOST_DESCRIPTION} characters`);
    }
    return {
      ...(url === undefined ? {} : { url }),
      ...(eventTypes === undefined ? {} : { eventTypes }),
      ...(description === undefined ? {} : { description }),
      ...(active === undefined ? {} : { active }),
      ...(retry === undefined ? {} : { retry }),
    };
  }

  /** Why events are not sent to a URL, as text behind the field's name. HTTP in clear stays on this host. */
  #urlProblem(url: string): string | undefined {
    const { rules } = this.#parts;
    const problem = urlProblem(url, rules);
    if (problem !== undefined) return problem;
    const { protocol, hostname } = new URL(url);
    if (protocol === 'https:') return undefined;
    const addresses = hostname === 'localhost' ? ['127.0.0.1', '::1'] : [hostname.replace(/^\[(.*)\]$/, '$1')];
    const isHere = addresses.some((address) => LOOPBACK.test(address) && rules.names(address));
    return isHere
      ? undefined
      : 'must be an https URL: http is taken for a loopback address alone, where `longshore settings set webhook_allow` names it';
  }
}

/** Loopback addresses, as URLs have them. */
const LOOPBACK = /^(?:127\.[0-9.]+|::1|::ffff:7f[0-9a-f]{2}:[0-9a-f]{1,4})$/;

/** The same event for the same id, whose first bytes are its time. */
const testEvent = (webhook: WebhookRow, id: string): ToldEvent => ({
  workspaceId: webhook.workspaceId,
  id,
  type: TEST_KIND,
  atMs: Number.parseInt(id.slice(0, 8), 16) * 1000,
  data: { webhook_id: webhook.id, message: 'a test of this webhook' },
});

const invalid = (text: string): AppError => new AppError('invalid_webhook', text);
const notFound = (): AppError => new AppError('webhook_not_found', 'there is no such webhook');
