// The event `llm.route`: a request to a model that a backend was asked for. Pure. Source: reference, REST §9.2.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { TokenUsage } from '../../../domain/inference.ts';
import type { EventGiven } from '../../../workspaces/events/writer.ts';

/** Status of a call whose caller went away; no caller reads it. */
export const LEFT_STATUS = 499;

/**
 * Why the backend was asked: the model has a single one, weights drew it, or another gave no answer before.
 */
export type RouteReason = 'only' | 'weight' | 'fallback';

export interface RoutedCall {
  readonly requestId: string;
  /** Workspace of the caller. */
  readonly workspaceId: WorkspaceId;
  /** Id of the catalog. */
  readonly model: string;
  /** Path of the backend below `/v1`. */
  readonly path: string;
  readonly stream: boolean;
  readonly status: number;
  /** undefined: nothing was produced. */
  readonly usage: TokenUsage | undefined;
  /** undefined: no backend answered. */
  readonly route: RouteReason | undefined;
  /** Until a container had the call; undefined: none had it, or the backend is another server. */
  readonly queueWaitMs: number | undefined;
  /** Until the first frame, or the whole answer; undefined: nothing came. */
  readonly firstResponseMs: number | undefined;
  readonly durationMs: number;
}

export const routeEvent = (call: RoutedCall, atMs: number): EventGiven => ({
  workspaceId: call.workspaceId,
  type: 'llm.route',
  atMs,
  data: {
    request_id: call.requestId,
    workspace_id: call.workspaceId,
    model: call.model,
    path: `/v1${call.path}`,
    stream: call.stream,
    status_code: call.status,
    prompt_tokens: call.usage?.promptTokens ?? 0,
    output_tokens: call.usage?.completionTokens ?? 0,
    estimated: call.usage?.estimated ?? false,
    queue_wait_ms: call.queueWaitMs ?? null,
    first_response_ms: call.firstResponseMs ?? null,
    duration_ms: call.durationMs,
    route_reason: call.route ?? 'unanswered',
  },
});
