// What the surfaces may do to tasks beyond submitting them: the verbs of the gateway that runners which are not ours, and people, use.
import type { Caller } from '../identity/caller.ts';

export type StartOutcome = 'started' | 'refused';
export type EndOutcome = 'ended' | 'unchanged' | 'refused';

export interface EndRequest {
  readonly taskId: string;
  /** As given; an unknown one is refused. */
  readonly taskStatus: string;
  /** Empty: whoever holds the current attempt. */
  readonly containerId: string;
  readonly durationSeconds: number;
  readonly containerHostname: string;
  /** The container stays warm for max(stub's, this); 0 when absent. */
  readonly keepWarmSeconds: number;
  /** The handler's result as it came; empty: none. */
  readonly result: Uint8Array;
}

export type StopOutcome = { readonly kind: 'stopped' } | { readonly kind: 'refused'; readonly text: string };

export interface TaskActions {
  /** Claims and starts in one step (one winner), or repeats the holder's own start. Unknown, foreign, terminal or claimed by another: refused. */
  startTask(caller: Caller, taskId: string, containerId: string): Promise<StartOutcome>;
  /** Ends the current attempt; a terminal task is `unchanged` (but for a late COMPLETE of the last attempt); a wrong container or superseded attempt is refused. */
  endTask(caller: Caller, request: EndRequest): Promise<EndOutcome>;
  /** In order, up to the first failure; terminal ones count as stopped. Texts of the gateway (`Task not found`, …). */
  stopTasks(caller: Caller, taskIds: readonly string[]): Promise<StopOutcome>;
}
