// Rows of the ledger for people who audit a charge: a page of a workspace's, the newest first.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, msOf } from '../rows.ts';
import type { LedgerEntry } from './credits.ts';

export interface LedgerFilter {
  readonly workspaceId: WorkspaceId;
  readonly fromMs: number;
  /** Exclusive. */
  readonly toMs: number;
  /** Absent: every kind. */
  readonly kinds?: readonly LedgerEntry['kind'][];
  readonly model?: string;
  readonly tokenId?: string;
  readonly limit: number;
  /** Last row of the page before. */
  readonly before?: { readonly createdAtMs: number; readonly id: string };
}

/** A row with the number that pages go on from. */
export interface LedgerRowRead extends LedgerEntry {
  readonly id: string;
}

interface Raw {
  id: number | bigint;
  request_id: string;
  kind: LedgerEntry['kind'];
  workspace_id: string;
  token_id: string | null;
  model: string | null;
  type: string | null;
  prompt_tokens: number;
  completion_tokens: number;
  prompt_micros_per_million: number;
  completion_micros_per_million: number;
  request_micros: number;
  cost_micros: number;
  grant_micros: number;
  stream: boolean;
  status: string;
  estimated: boolean;
  container_id: string | null;
  stub_id: string | null;
  container_ms: number;
  gpu_ms: number;
  note: string;
  created_at: Date;
}

const rowOf = (row: Raw): LedgerRowRead => ({
  id: String(row.id),
  requestId: row.request_id,
  kind: row.kind,
  workspaceId: row.workspace_id as WorkspaceId,
  tokenId: row.token_id,
  model: row.model,
  type: row.type,
  promptTokens: row.prompt_tokens,
  completionTokens: row.completion_tokens,
  promptMicrosPerMillion: row.prompt_micros_per_million,
  completionMicrosPerMillion: row.completion_micros_per_million,
  requestMicros: row.request_micros,
  costMicros: row.cost_micros,
  grantMicros: row.grant_micros,
  stream: row.stream,
  status: row.status,
  estimated: row.estimated,
  containerId: row.container_id,
  stubId: row.stub_id,
  containerMs: row.container_ms,
  gpuMs: row.gpu_ms,
  note: row.note,
  createdAtMs: msOf(row.created_at),
});

/** Times of the ledger have whole milliseconds, so that a page goes on exactly behind the one before. */
export function ledgerRows(db: Queryable, filter: LedgerFilter): Promise<LedgerRowRead[]> {
  const { workspaceId, fromMs, toMs, kinds, model, tokenId, limit, before } = filter;
  const values: unknown[] = [workspaceId, new Date(fromMs), new Date(toMs)];
  const place = (value: unknown): string => `$${values.push(value)}`;
  const where = ['workspace_id = $1', 'created_at >= $2', 'created_at < $3'];
  if (kinds !== undefined) where.push(`kind = any (${place(kinds)}::text[])`);
  if (model !== undefined) where.push(`model = ${place(model)}`);
  // The token of a grant is the administrator's.
  if (tokenId !== undefined) where.push(`token_id = ${place(tokenId)} and kind <> 'grant'`);
  if (before !== undefined)
    where.push(`(created_at, id) < (${place(new Date(before.createdAtMs))}::timestamptz, ${place(before.id)}::bigint)`);
  const sql = `select * from credit_ledger where ${where.join(' and ')} order by created_at desc, id desc limit ${place(limit)}`;
  return many(db, sql, values, rowOf);
}
