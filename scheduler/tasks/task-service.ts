// What the surfaces may ask of tasks. The implementation is service.ts; this file is the door.
import type { StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import type { Target } from '../deployments/stub-config.ts';
import type { TaskRecord } from './records.ts';

export interface Call {
  /** The body exactly as it came: valid UTF-8, a JSON object or empty (checked by the surface). */
  readonly input: string;
  /** Query parameters; absent: none. */
  readonly query?: Readonly<Record<string, readonly string[]>>;
  /** Takes what a generator yields while it runs; `finished` has all of it. */
  readonly onItem?: (taskId: TaskId, event: string) => void;
  /** Where the task's end is told, instead of where its stub says. */
  readonly callbackUrl?: string;
  /** The stub whose container calls; absent: nobody's container does. */
  readonly putBy?: StubId;
  /** Absent: the call stands for itself. */
  readonly idempotency?: CallKey;
}

/** An Idempotency-Key, as its call sent it. */
export interface CallKey {
  readonly key: string;
  /** Of the body and the query parameters: calls that differ in it are not the same. */
  readonly fingerprint: string;
  /** The call names no version. */
  readonly asksNewest: boolean;
  /** Callers whose keys are not each other's; empty: the workspace's own. */
  readonly callerScope: string;
  /** The caller has a token of the workspace. */
  readonly isOwn: boolean;
}

/** How a synchronous task ended, ready for the invoke surface. `body` is JSON text, or a generator's events (`isEventStream`), passed on as bytes. */
export interface Finished {
  readonly status: TaskStatus;
  readonly httpStatus: number;
  readonly body: string;
}

export type Submission =
  | {
      readonly kind: 'accepted';
      readonly taskId: TaskId;
      /** Settles exactly once, for synchronous kinds; asynchronous ones never settle it. */
      readonly finished: Promise<Finished>;
      /** The caller hung up: still queued becomes CANCELLED, dispatched runs on; a generator whose items went out is cancelled. */
      readonly callerLeft: () => void;
      /** `finished` never settles. */
      readonly isAsync?: boolean;
      /** The task of an earlier call with the same key. */
      readonly isReplay?: boolean;
    }
  /** The key stands for a call with another body or other query parameters. */
  | { readonly kind: 'key_reused' }
  /** The workspace has as many keys as it may. */
  | { readonly kind: 'keys_exhausted'; readonly most: number }
  /** Depth above the bound: nothing was left behind. */
  | { readonly kind: 'queue_full'; readonly maxPendingTasks: number }
  /** The inputs of the workspace's tasks take as many bytes as they may: nothing was left behind. */
  | { readonly kind: 'queue_bytes_reached'; readonly limit: number }
  /** The workspace calls more often than it may: nothing was left behind. */
  | { readonly kind: 'rate_limited'; readonly retryAfterSeconds: number }
  /** Redis does not answer, or the records cannot be written: 503. */
  | {
      readonly kind: 'unavailable';
      readonly text: string;
      readonly code?: string;
      readonly retryAfterSeconds?: number;
    };

export interface TaskFilter {
  readonly limit: number;
  readonly statuses?: readonly string[];
  readonly stubIds?: readonly string[];
  readonly stubNames?: readonly string[];
  readonly taskIds?: readonly string[];
  readonly containerIds?: readonly string[];
  readonly stubTypes?: readonly string[];
  readonly appId?: string;
  readonly createdFromMs?: number;
  readonly createdToMs?: number;
  /** From start to end. */
  readonly minDurationMs?: number;
  readonly maxDurationMs?: number;
  readonly offset?: number;
  /** Only older ones than this: the last of the page before. */
  readonly before?: { readonly createdAtMs: number; readonly taskId: string };
}

export interface TaskService {
  submit(target: Target, call: Call): Promise<Submission>;
  /** Redis first, then the database; undefined when unknown or another workspace's. */
  read(workspaceId: WorkspaceId, taskId: string): Promise<TaskRecord | undefined>;
  /** From the database, newest first, with every task whose record Redis had when the list was asked for (`CaughtUp`); a list by task ids reads like single tasks. */
  list(workspaceId: WorkspaceId, filter: TaskFilter): Promise<readonly TaskRecord[]>;
  /** The parsed-as-text result of a task kept outside its record. */
  resultText(record: TaskRecord): Promise<string | undefined>;
}
