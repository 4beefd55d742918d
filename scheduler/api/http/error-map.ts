// Error codes to statuses, for every surface: services throw AppError with a
// code and know no HTTP. A code that is not listed is an internal failure: 500.
import type { FastifyReply } from 'fastify';
import { AppError } from '#shared/errors.ts';

/** HTTP status of each error code. Exported for the test that keeps docs/errors.md complete. */
export const HTTP_STATUS: Readonly<Record<string, number>> = {
  bad_request: 400,
  invalid_query: 400,
  invalid_cursor: 400,
  invalid_object: 400,
  upload_incomplete: 400,
  invalid_content_range: 400,
  invalid_webhook: 400,
  invalid_model: 400,
  unauthorized: 401,
  not_found: 404,
  workspace_not_found: 404,
  deployment_not_found: 404,
  stub_not_found: 404,
  task_not_found: 404,
  input_not_kept: 404,
  machine_not_found: 404,
  pool_not_found: 404,
  object_not_found: 404,
  volume_not_found: 404,
  volume_file_not_found: 404,
  upload_not_found: 404,
  secret_not_found: 404,
  container_not_found: 404,
  entry_not_found: 404,
  output_not_found: 404,
  signing_key_not_found: 404,
  setting_not_found: 404,
  recording_not_found: 404,
  provider_not_found: 404,
  token_not_found: 404,
  image_not_found: 404,
  webhook_not_found: 404,
  delivery_not_found: 404,
  model_not_found: 404,
  stack_not_found: 404,
  package_not_found: 404,
  release_not_found: 404,
  upload_refused: 403,
  download_refused: 403,
  value_not_trusted: 403,
  foreign_page: 403,
  path_denied: 403,
  too_many_webhooks: 403,
  too_many_models: 403,
  method_not_allowed: 405,
  body_too_slow: 408,
  deployment_stopped: 409,
  upload_offset_mismatch: 409,
  upload_in_progress: 409,
  recording_under_way: 409,
  volume_without_home: 409,
  volume_file_irregular: 409,
  volume_file_exists: 409,
  volume_folder_not_empty: 409,
  volume_exists: 409,
  volume_in_use: 409,
  workspace_is_administrators: 409,
  workspace_has_machines: 409,
  share_declared: 409,
  container_not_running: 409,
  container_made_by_hand: 409,
  path_conflict: 409,
  volume_is_cache: 409,
  credit_grant_exists: 409,
  secret_exists: 409,
  model_exists: 409,
  signing_key_in_use: 409,
  image_in_use: 409,
  event_gone: 409,
  stack_exists: 409,
  precondition_failed: 412,
  body_too_large: 413,
  range_not_satisfiable: 416,
  invalid_flow_key: 400,
  invalid_flow_priority: 400,
  invalid_idempotency_key: 400,
  idempotency_key_reused: 422,
  too_many_idempotency_keys: 429,
  unsupported_media_type: 415,
  misdirected: 421,
  invalid_body: 422,
  rate_limited: 429,
  flow_rate_exceeded: 429,
  call_skipped: 409,
  too_many_flow_keys: 429,
  too_many_tokens: 429,
  too_many_unjoined: 429,
  too_many_pools: 429,
  too_many_unfinished_uploads: 429,
  too_many_transfers: 429,
  too_many_connections: 429,
  too_many_streams: 429,
  too_many_processes: 429,
  too_many_images: 429,
  queue_bytes_reached: 429,
  queue_full: 429,
  shared_state_full: 429,
  too_many_outputs: 429,
  too_many_stacks: 429,
  not_implemented: 501,
  database_unavailable: 503,
  not_leading: 503,
  recording_failed: 503,
  database_timeout: 503,
  database_outcome_unknown: 503,
  database_busy: 503,
  disk_read_only: 503,
  ledger_behind: 503,
  queues_unavailable: 503,
  call_not_taken: 503,
  redis_nearly_full: 503,
  bodies_full: 503,
  streams_full: 503,
  draining: 503,
  machine_away: 502,
  volume_failed: 502,
  container_failed: 502,
  port_refused: 502,
  machine_silent: 504,
  too_many_pages: 503,
  deadline_exceeded: 504,
  disk_full: 507,
  object_quota_reached: 507,
  volume_quota_reached: 507,
};

/** Failures that a caller or a container made: nobody has to look at the scheduler for them. */
const NOT_OURS: ReadonlySet<string> = new Set([
  'not_implemented',
  'container_failed',
  'port_refused',
  'disk_full',
  'object_quota_reached',
  'volume_quota_reached',
]);
/** Failures that pass by themselves. */
const PASSING: ReadonlySet<string> = new Set(['machine_away', 'machine_silent']);

/** How loud a failure is in the log. */
export const levelOf = ({ code }: Pick<Problem, 'code'>): 'info' | 'warn' | 'error' =>
  NOT_OURS.has(code) ? 'info' : PASSING.has(code) ? 'warn' : 'error';

export interface Problem {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  /** Seconds, sent as Retry-After. */
  readonly retryAfterSeconds?: number;
}

export const INTERNAL: Problem = { status: 500, code: 'internal', message: 'Internal Server Error' };

/** The public form of a thrown value: the message of an AppError that has a status, and nothing of any other value. */
export function problemOf(error: unknown): Problem {
  const status = error instanceof AppError ? HTTP_STATUS[error.code] : undefined;
  if (status !== undefined) {
    const { code, message, details } = error as AppError;
    const { retryAfterSeconds } = details;
    return { status, code, message, ...(typeof retryAfterSeconds === 'number' ? { retryAfterSeconds } : {}) };
  }
  const http = frameworkProblem(error);
  return http ?? INTERNAL;
}

/** Refusals of the HTTP library itself (a body over the limit, a URL that cannot be read) carry a status below 500. */
function frameworkProblem(error: unknown): Problem | null {
  if (!(error instanceof Error) || !('statusCode' in error) || !('code' in error)) return null;
  const { statusCode } = error;
  if (typeof statusCode !== 'number' || statusCode < 400 || statusCode >= 500) return null;
  return { status: statusCode, code: 'bad_request', message: error.message };
}

export function withRetryAfter(reply: FastifyReply, problem: Problem): FastifyReply {
  return problem.retryAfterSeconds === undefined
    ? reply
    : reply.header('retry-after', String(problem.retryAfterSeconds));
}

/** Sends the error body of the workspace REST API and of all surfaces without a shape of their own. */
export function sendProblem(reply: FastifyReply, requestId: string, problem: Problem): FastifyReply {
  return withRetryAfter(reply, problem)
    .code(problem.status)
    .header('content-type', 'application/json')
    .send(JSON.stringify({ message: problem.message, code: problem.code, request_id: requestId }));
}

/** RPC code to HTTP status. */
export const RPC_STATUS = {
  1: 499,
  2: 500,
  3: 400,
  4: 504,
  5: 404,
  6: 409,
  7: 403,
  8: 429,
  9: 400,
  10: 409,
  11: 400,
  12: 501,
  13: 500,
  14: 503,
  15: 500,
  16: 401,
} as const;
export type RpcCode = keyof typeof RPC_STATUS;

/** RPC codes of problems, by their HTTP status. */
const RPC_CODE: Readonly<Record<number, RpcCode>> = {
  400: 3,
  401: 16,
  403: 7,
  404: 5,
  405: 12,
  408: 4,
  409: 6,
  413: 8,
  415: 3,
  422: 3,
  429: 8,
  499: 1,
  501: 12,
  502: 14,
  503: 14,
  504: 4,
  507: 8,
};

/** A status that is not listed is the caller's below 500, as 414 of a path that is too long, and ours from there on. */
export const rpcCodeOf = ({ status }: Problem): RpcCode => RPC_CODE[status] ?? (status < 500 ? 3 : 13);
