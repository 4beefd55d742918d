// Calls of the surfaces as admission takes them, and their outcomes.
import type { PutBy, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { TaskFlow } from '../../domain/flow.ts';
import type { ServingCall } from '../../domain/serving.ts';
import type { Finished } from '../dispatch/replies.ts';

export interface Call {
  /** Body exactly as it came: valid UTF-8, a JSON object or empty (checked by the surface). */
  readonly input: string;
  /** Query parameters; absent: none. */
  readonly query?: Readonly<Record<string, readonly string[]>>;
  /** Takes a generator's items while it runs; `finished` has all of them. */
  readonly onItem?: (taskId: TaskId, event: string) => void;
  /** Told the id of a task whose bytes pass through a stream, before it can be seen. Absent: no stream. */
  readonly onStreamed?: (taskId: TaskId) => void;
  /** Tokens and preference of a call to a model; absent: another call. */
  readonly serving?: ServingCall;
  /** URL that is told how the task ended, instead of the stub's. */
  readonly callbackUrl?: string;
  /** The caller, where it may read only its own tasks: a container's stub, or a token of the scope invoke. */
  readonly putBy?: PutBy;
  /** Workspace of the caller's token, where it is not the deployment's: a call of a public deployment. */
  readonly calledBy?: WorkspaceId;
  /** The task whose input this call has; absent: it is a call of its own. */
  readonly rerunOf?: TaskId;
  /** The dead task that this one stands for: it is committed once, and only while that one is dead. */
  readonly redrivenFrom?: TaskId;
  /** Key of flow control; absent: the input has it, or the deployment has no flow control. */
  readonly key?: string;
  /** Head start in its queue, seconds; absent: the deployment's. */
  readonly priority?: number;
  /** Flow control of the task, as admission read it. */
  readonly flow?: TaskFlow;
  /** Idempotency key; absent: every call is a new task. */
  readonly idempotency?: CallKey;
}

/** Idempotency-Key, as its call sent it. */
export interface CallKey {
  readonly key: string;
  /** Fingerprint of the body and the query parameters: calls that differ in it are not the same. */
  readonly fingerprint: string;
  /** Whether the call names no version. */
  readonly asksNewest: boolean;
  /** Scope of callers who share keys; empty: the workspace's own. */
  readonly callerScope: string;
  /** Whether the caller has a token of the workspace. */
  readonly isOwn: boolean;
}

/** The caller's workspace, where it is not the deployment's own. */
export const calledBy = (
  caller: { readonly workspaceId: WorkspaceId } | null,
  target: { readonly workspaceId: WorkspaceId },
): Pick<Call, 'calledBy'> =>
  caller === null || caller.workspaceId === target.workspaceId ? {} : { calledBy: caller.workspaceId };

export type Submission =
  | {
      readonly kind: 'accepted';
      readonly taskId: TaskId;
      /** Settles exactly once, for synchronous kinds; asynchronous ones never settle it. */
      readonly finished: Promise<Finished>;
      /**
       * Called when the caller hung up. A queued task becomes CANCELLED, a
       * dispatched one runs on; a generator whose items went out is cancelled.
       */
      readonly callerLeft: () => void;
      /** True when `finished` never settles. */
      readonly isAsync?: boolean;
      /** True for the task of an earlier call with the same key. */
      readonly isReplay?: boolean;
    }
  /** The key stands for a call with another body or other query parameters. */
  | { readonly kind: 'key_reused' }
  /** The workspace has its highest number of keys. */
  | { readonly kind: 'keys_exhausted'; readonly most: number }
  /** The call does not fit the deployment's flow control: nothing was left behind. */
  | { readonly kind: 'bad_flow'; readonly why: string; readonly code: BadFlow }
  /** Calls of this key come more often than the deployment takes them: nothing was left behind. */
  | { readonly kind: 'flow_rate_exceeded'; readonly key: string; readonly retryAfterSeconds: number }
  /** The workspace has the highest number of keys that are paced at a time: nothing was left behind. */
  | { readonly kind: 'too_many_flow_keys'; readonly most: number }
  /**
   * Flow control makes no task of the call, as its deployment wants. `rate`: nothing was left behind. `singleton`: its
   * key has that open task. `debounce`: that task of its key has the input now.
   */
  | { readonly kind: 'skipped'; readonly by: 'rate'; readonly taskId: null }
  | { readonly kind: 'skipped'; readonly by: 'singleton' | 'debounce'; readonly taskId: TaskId }
  /** The queue's depth is above its bound: nothing was left behind. */
  | { readonly kind: 'queue_full'; readonly maxPendingTasks: number }
  /** The inputs of the workspace's tasks have reached their quota of bytes: nothing was left behind. */
  | { readonly kind: 'queue_bytes_reached'; readonly limit: number }
  /** The workspace calls too often: nothing was left behind. */
  | { readonly kind: 'rate_limited'; readonly retryAfterSeconds: number }
  /** The call cannot be taken now. */
  | {
      readonly kind: 'unavailable';
      readonly reason: UnavailableReason;
      /** Text of the refusal, where it is data: what no machine has. Absent: the reason's fixed text. */
      readonly detail?: string;
      readonly retryAfterSeconds?: number;
    };

/** Code of a call that does not fit the flow control. */
export type BadFlow = 'invalid_flow_key' | 'invalid_flow_priority';

/** Reason why a call is not taken; api/http/invoke/outcomes.ts has the texts. */
export type UnavailableReason =
  /** The database is behind: too many records wait for it. */
  | 'records_behind'
  /** The database is so slow that asynchronous tasks are refused before they wait for it. */
  | 'commits_failing'
  /** Too many accepted tasks wait for Redis. */
  | 'adds_waiting'
  /** The row of this task could not be committed, or nobody knows yet whether it was. */
  | 'not_recorded'
  | 'redis_nearly_full'
  | 'queue_silent'
  /** No machine has what the deployment asks for. */
  | 'not_servable'
  | 'deployment_stopped'
  /** The claim of the call's key is too old to queue a task under it. */
  | 'queued_too_late'
  /** Another call has the key, and its task is not known yet. */
  | 'key_in_doubt'
  /** Another call of its key of flow control is being taken. */
  | 'single_in_doubt'
  | 'keys_not_kept';

/** Whether the call has a task: a commit that was not answered may have been made. */
export const mayHaveTask = (submission: Submission): boolean =>
  submission.kind === 'accepted' || (submission.kind === 'unavailable' && submission.reason === 'not_recorded');
