// Rows of webhooks and of the secrets that sign their deliveries.
import { lockCounts } from './workspaces.ts';
import type { WebhookId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf, storableText } from '../rows.ts';

/** Outcome of the last delivery, as the record shows it. */
export interface LastDelivery {
  readonly event_id: string;
  readonly status_code: number | null;
  /** RFC 3339. */
  readonly at: string;
  readonly error: string | null;
}

export interface WebhookRow {
  readonly id: WebhookId;
  readonly workspaceId: WorkspaceId;
  readonly url: string;
  /** Filters as given; an empty list: everything that is eligible. */
  readonly eventTypes: readonly string[];
  readonly description: string;
  readonly active: boolean;
  readonly inactiveReason: string;
  readonly retry: boolean;
  readonly secretHint: string;
  /** Events up to this number are done with. */
  readonly cursorSeq: number;
  /** Number of events that were passed over, because there were too many. */
  readonly skipped: number;
  readonly lastDelivery: LastDelivery | null;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

interface Raw {
  id: string;
  workspace_id: string;
  url: string;
  event_types: readonly string[];
  description: string;
  active: boolean;
  inactive_reason: string;
  retry: boolean;
  secret_hint: string;
  cursor_seq: number | bigint;
  skipped: number | bigint;
  last_delivery: LastDelivery | null;
  created_at: Date;
  updated_at: Date;
}
const NAMES = [
  'id',
  'workspace_id',
  'url',
  'event_types',
  'description',
  'active',
  'inactive_reason',
  'retry',
  'secret_hint',
  'cursor_seq',
  'skipped',
  'last_delivery',
  'created_at',
  'updated_at',
] as const;
const COLUMNS = NAMES.join(', ');
const OF_W = NAMES.map((name) => `w.${name}`).join(', ');
const map = (row: Raw): WebhookRow => ({
  id: row.id as WebhookId,
  workspaceId: row.workspace_id as WorkspaceId,
  url: row.url,
  eventTypes: row.event_types,
  description: row.description,
  active: row.active,
  inactiveReason: row.inactive_reason,
  retry: row.retry,
  secretHint: row.secret_hint,
  cursorSeq: Number(row.cursor_seq),
  skipped: Number(row.skipped),
  lastDelivery: row.last_delivery,
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
});

/** Time of changes, in the precision that cursors of lists have. */
const NOW = "date_trunc('milliseconds', now())";
/** Number of the workspace's last event that is committed. */
const LAST_SEQ = (workspace: string): string =>
  `coalesce((select last_seq from event_counters where workspace_id = ${workspace}), 0)`;

export type NewWebhook = Pick<
  WebhookRow,
  'id' | 'workspaceId' | 'url' | 'eventTypes' | 'description' | 'active' | 'retry' | 'secretHint'
>;

/**
 * Inserts a webhook with its secret; events from now on are its own. Inserts of one workspace wait for each other.
 * @param most - webhooks of the workspace
 * @returns undefined: the workspace has that many already
 */
export async function insertWebhook(
  tx: Queryable,
  webhook: NewWebhook,
  secret: NewSecret,
  most: number,
): Promise<WebhookRow | undefined> {
  await lockCounts(tx, webhook.workspaceId);
  const row = await maybeOne(
    tx,
    `insert into webhooks (id, workspace_id, url, event_types, description, active, retry, secret_hint, cursor_seq)
     select $1::text, $2::text, $3::text, $4::json, $5::text, $6::boolean, $7::boolean, $8::text, ${LAST_SEQ('$2')}
     where (select count(*) from webhooks where workspace_id = $2) < $9
     returning ${COLUMNS}`,
    [
      webhook.id,
      webhook.workspaceId,
      webhook.url,
      JSON.stringify(webhook.eventTypes),
      storableText(webhook.description),
      webhook.active,
      webhook.retry,
      webhook.secretHint,
      most,
    ],
    map,
  );
  if (row !== undefined) await insertSecret(tx, webhook.id, secret);
  return row;
}

export interface NewSecret {
  readonly id: string;
  readonly sealed: Uint8Array;
}

async function insertSecret(tx: Queryable, id: WebhookId, secret: NewSecret): Promise<void> {
  await tx.query('insert into webhook_secrets (id, webhook_id, sealed) values ($1, $2, $3)', [
    secret.id,
    id,
    secret.sealed,
  ]);
}

/** Webhooks of a workspace, the one changed last first. @param after - the last row of the page before */
export function listWebhooks(
  db: Queryable,
  workspaceId: WorkspaceId,
  limit: number,
  after: { readonly atMs: number; readonly id: string } | undefined,
): Promise<WebhookRow[]> {
  return many(
    db,
    `select ${COLUMNS} from webhooks
     where workspace_id = $1 and ($2::timestamptz is null or (updated_at, id) < ($2::timestamptz, $3::text))
     order by updated_at desc, id desc limit $4`,
    [workspaceId, after === undefined ? null : new Date(after.atMs), after?.id ?? '', limit],
    map,
  );
}

export function webhookById(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<WebhookRow | undefined> {
  return maybeOne(db, `select ${COLUMNS} from webhooks where workspace_id = $1 and id = $2`, [workspaceId, id], map);
}

export type WebhookChange = Partial<Pick<WebhookRow, 'url' | 'eventTypes' | 'description' | 'active' | 'retry'>>;

/**
 * Changes the named fields. A webhook that becomes active begins with the events from now on; deliveries that wait end
 * when it becomes inactive.
 * @returns undefined: there is none
 */
export async function changeWebhook(
  tx: Queryable,
  workspaceId: WorkspaceId,
  id: string,
  change: WebhookChange,
): Promise<WebhookRow | undefined> {
  const row = await maybeOne(
    tx,
    `update webhooks set url = coalesce($3, url), event_types = coalesce($4::json, event_types),
       description = coalesce($5, description), active = coalesce($6, active), retry = coalesce($7, retry),
       inactive_reason = case when $6::boolean is null then inactive_reason when $6 then '' else 'switched_off' end,
       cursor_seq = case when $6 and not active then ${LAST_SEQ('$1')} else cursor_seq end,
       updated_at = ${NOW}
     where workspace_id = $1 and id = $2 returning ${COLUMNS}`,
    [
      workspaceId,
      id,
      change.url ?? null,
      change.eventTypes === undefined ? null : JSON.stringify(change.eventTypes),
      change.description === undefined ? null : storableText(change.description),
      change.active ?? null,
      change.retry ?? null,
    ],
    map,
  );
  if (row !== undefined && !row.active) await endWaiting(tx, row.id);
  return row;
}

/**
 * Deactivates a webhook whose receiver asked for it.
 * @param url - of the receiver: a webhook that has another one meanwhile stays as it is
 * @returns whether it was changed
 */
export async function deactivateWebhook(tx: Queryable, id: WebhookId, url: string, reason: string): Promise<boolean> {
  const { rowCount } = await tx.query(
    `update webhooks set active = false, inactive_reason = $3, updated_at = ${NOW} where id = $1 and url = $2 and active`,
    [id, url, reason],
  );
  if (rowCount === 1) await endWaiting(tx, id);
  return rowCount === 1;
}

async function endWaiting(tx: Queryable, id: WebhookId): Promise<void> {
  await tx.query(
    `update webhook_deliveries set state = 'failed', due_at = null, error = 'the webhook is inactive', updated_at = now()
     where webhook_id = $1 and due_at is not null`,
    [id],
  );
}

/** Deletes a webhook with its secrets and deliveries. @returns whether there was one */
export async function deleteWebhook(db: Queryable, workspaceId: WorkspaceId, id: string): Promise<boolean> {
  return (await db.query('delete from webhooks where workspace_id = $1 and id = $2', [workspaceId, id])).rowCount === 1;
}

/**
 * Gives a webhook a new secret; the ones before sign for a while.
 * @param most - secrets of the webhook that are kept; the oldest go
 * @returns undefined: there is no such webhook
 */
export async function rotateSecret(
  tx: Queryable,
  workspaceId: WorkspaceId,
  id: string,
  secret: NewSecret & { readonly hint: string; readonly oldSignsMs: number; readonly most: number },
): Promise<WebhookRow | undefined> {
  const row = await maybeOne(
    tx,
    `update webhooks set secret_hint = $3, updated_at = ${NOW} where workspace_id = $1 and id = $2 returning ${COLUMNS}`,
    [workspaceId, id, secret.hint],
    map,
  );
  if (row === undefined) return undefined;
  await tx.query(
    `update webhook_secrets set signs_until = now() + $2::double precision * interval '1 millisecond'
     where webhook_id = $1 and signs_until is null`,
    [row.id, secret.oldSignsMs],
  );
  await tx.query(
    `delete from webhook_secrets where webhook_id = $1 and (signs_until < now() or id not in (
       select id from webhook_secrets where webhook_id = $1 order by created_at desc limit $2))`,
    [row.id, secret.most - 1],
  );
  await insertSecret(tx, row.id, secret);
  return row;
}

export interface SigningSecret {
  readonly webhookId: WebhookId;
  readonly sealed: Uint8Array;
  /** Epoch milliseconds; null: the newest. */
  readonly signsUntilMs: number | null;
}

/** Secrets of webhooks, the newest first, sealed. */
export function secretsOfWebhooks(db: Queryable, ids: readonly string[]): Promise<SigningSecret[]> {
  return many(
    db,
    `select webhook_id, sealed, signs_until from webhook_secrets
     where webhook_id = any ($1::text[]) and (signs_until is null or signs_until > now())
     order by signs_until desc nulls first, created_at desc`,
    [ids],
    (row: { webhook_id: string; sealed: Uint8Array; signs_until: Date | null }) => ({
      webhookId: row.webhook_id as WebhookId,
      sealed: row.sealed,
      signsUntilMs: row.signs_until === null ? null : msOf(row.signs_until),
    }),
  );
}

/** Number of active webhooks of each workspace that has any. */
export async function activeWebhooks(db: Queryable): Promise<ReadonlyMap<WorkspaceId, number>> {
  const rows = await many(
    db,
    'select workspace_id, count(*)::int as webhooks from webhooks where active group by workspace_id',
    [],
    (row: { workspace_id: string; webhooks: number }) => [row.workspace_id as WorkspaceId, row.webhooks] as const,
  );
  return new Map(rows);
}

/** A webhook, and the last event of its workspace. */
export type WebhookWork = WebhookRow & { readonly lastSeq: number };

const workOf = (row: Raw & { last_seq: number | bigint }): WebhookWork => ({
  ...map(row),
  lastSeq: Number(row.last_seq),
});

/** These webhooks as they are now. */
export function webhooksById(db: Queryable, ids: readonly WebhookId[]): Promise<WebhookWork[]> {
  return many(
    db,
    `select ${OF_W}, coalesce(c.last_seq, 0) as last_seq from webhooks w
     left join event_counters c on c.workspace_id = w.workspace_id where w.id = any ($1::text[])`,
    [ids],
    workOf,
  );
}

/**
 * Active webhooks with events behind their cursor, or with a delivery that is due, in any order: each has its chance
 * where there are more than the limit.
 * @param except - webhooks that are known already
 * @param workspaces - only those of these; undefined: of all
 */
export function webhooksWithWork(
  db: Queryable,
  except: readonly WebhookId[],
  limit: number,
  workspaces?: readonly WorkspaceId[],
): Promise<WebhookWork[]> {
  return many(
    db,
    `select ${OF_W}, coalesce(c.last_seq, 0) as last_seq from webhooks w
     left join event_counters c on c.workspace_id = w.workspace_id
     where w.active and ($3::text[] is null or w.workspace_id = any ($3::text[])) and not w.id = any ($1::text[])
       and (c.last_seq > w.cursor_seq
         or exists (select 1 from webhook_deliveries d where d.webhook_id = w.id and d.due_at <= now()))
     order by random() limit $2`,
    [except, limit, workspaces ?? null],
    workOf,
  );
}
