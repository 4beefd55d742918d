// Sums of the ledger: usage of models by day, model and token, and the time of containers by day, app, deployment and
// GPU model.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, one } from '../rows.ts';

export interface UsageSums {
  readonly requests: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly costMicros: number;
  readonly containerMs: number;
  /** Summed over the GPUs of each container. */
  readonly gpuMs: number;
}

export interface UsageGroupSums extends UsageSums {
  readonly day?: string;
  readonly model?: string;
  readonly tokenId?: string;
  readonly appId?: string;
  readonly deployment?: string;
  readonly gpuModel?: string;
}

export interface UsageRange {
  readonly workspaceId: WorkspaceId;
  readonly fromMs: number;
  readonly toMs: number;
}

interface RawSums {
  requests: number;
  prompt_tokens: number;
  completion_tokens: number;
  cost_micros: number;
  container_ms: number;
  gpu_ms: number;
}
interface RawGroup extends RawSums {
  day?: string;
  model?: string;
  token_id?: string;
  app_id?: string;
  deployment?: string;
  gpu_model?: string;
}

const SUMS = `count(*) filter (where kind = 'request')::int as requests, coalesce(sum(prompt_tokens), 0)::bigint as prompt_tokens,
  coalesce(sum(completion_tokens), 0)::bigint as completion_tokens, coalesce(sum(cost_micros), 0)::bigint as cost_micros,
  coalesce(sum(container_ms), 0)::bigint as container_ms, coalesce(sum(gpu_ms), 0)::bigint as gpu_ms`;
const WHERE = `from credit_ledger where workspace_id = $1 and created_at >= $2 and created_at < $3 and kind in ('request', 'compute')`;
const GROUPS = {
  day: `to_char(created_at at time zone 'utc', 'YYYY-MM-DD')`,
  model: `coalesce(model, '')`,
  token: `coalesce(token_id, '')`,
  app: `coalesce(app_id, '')`,
  deployment: `coalesce(deployment, '')`,
  gpu_model: `coalesce(gpu_model, '')`,
} as const;
const NAMES = {
  day: 'day',
  model: 'model',
  token: 'token_id',
  app: 'app_id',
  deployment: 'deployment',
  gpu_model: 'gpu_model',
} as const;

const sumsOf = (row: RawSums): UsageSums => ({
  requests: row.requests,
  promptTokens: row.prompt_tokens,
  completionTokens: row.completion_tokens,
  costMicros: row.cost_micros,
  containerMs: row.container_ms,
  gpuMs: row.gpu_ms,
});
const paramsOf = ({ workspaceId, fromMs, toMs }: UsageRange) => [workspaceId, new Date(fromMs), new Date(toMs)];

/** Sums of all requests to models that ended in the range, and of the containers' time in it. */
export const usageTotal = (db: Queryable, range: UsageRange): Promise<UsageSums> =>
  one(db, `select ${SUMS} ${WHERE}`, paramsOf(range), sumsOf);

/** Sums for each combination that occurs, in the order of the groups. */
export function usageBy(
  db: Queryable,
  range: UsageRange,
  by: readonly (keyof typeof GROUPS)[],
  most: number,
): Promise<UsageGroupSums[]> {
  const columns = by.map((group) => `${GROUPS[group]} as ${NAMES[group]}`).join(', ');
  const places = by.map((_, at) => at + 1).join(', ');
  const sql = `select ${columns}, ${SUMS} ${WHERE} group by ${places} order by ${places} limit ${most}`;
  return many(db, sql, paramsOf(range), (row: RawGroup) => ({
    ...(row.day === undefined ? {} : { day: row.day }),
    ...(row.model === undefined ? {} : { model: row.model }),
    ...(row.token_id === undefined ? {} : { tokenId: row.token_id }),
    ...(row.app_id === undefined ? {} : { appId: row.app_id }),
    ...(row.deployment === undefined ? {} : { deployment: row.deployment }),
    ...(row.gpu_model === undefined ? {} : { gpuModel: row.gpu_model }),
    ...sumsOf(row),
  }));
}
