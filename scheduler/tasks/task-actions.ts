// Actions of the surfaces on tasks beyond submitting them: the gateway's verbs for external runners and users.
import type { Caller } from '../workspaces/identity/caller.ts';

export type StartOutcome = 'started' | 'refused';
export type EndOutcome = 'ended' | 'unchanged' | 'refused';

export interface EndRequest {
  readonly taskId: string;
  /** Status as given; an unknown one is refused. */
  readonly taskStatus: string;
  /** Container of the attempt; empty: any container that holds the current attempt. */
  readonly containerId: string;
  readonly durationSeconds: number;
  readonly containerHostname: string;
  /** Seconds for which the container stays warm, if longer than the stub's; 0 when absent. */
  readonly keepWarmSeconds: number;
  /** Result of the handler as it came; empty: none. */
  readonly result: Uint8Array;
}

export type StopOutcome =
  | { readonly kind: 'stopped' }
  /** `unknown`: no such task of the caller. `not_cancelled`: the task changed hands again and again meanwhile. */
  | { readonly kind: 'refused'; readonly reason: 'unknown' | 'not_cancelled' };

export interface TaskActions {
  /**
   * Claims and starts in one step (one winner), or repeats the holder's own start.
   * A task that is unknown, foreign, terminal or claimed by another is refused.
   */
  startTask(caller: Caller, taskId: string, containerId: string): Promise<StartOutcome>;
  /**
   * Ends the current attempt. A terminal task is `unchanged` (but for a late COMPLETE
   * of the last attempt); a wrong container or superseded attempt is refused.
   */
  endTask(caller: Caller, request: EndRequest): Promise<EndOutcome>;
  /** Stops tasks in order, up to the first failure; terminal ones count as stopped. */
  stopTasks(caller: Caller, taskIds: readonly string[]): Promise<StopOutcome>;
}
