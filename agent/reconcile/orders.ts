/**
 * Writes the scheduler's orders into the agent's state, where the loop finds them. Called by the link, for the current
 * session. Must stay true: an empty snapshot is not obeyed while containers run, unless the scheduler confirms it. An
 * order that is not obeyed is answered with a full report.
 */
import type { Log } from '#shared/log.ts';
import type { Desired__Output } from '#shared/protocol/generated/messages.ts';
import type { Conditions } from '../telemetry/conditions.ts';
import type { AgentState, Permission } from './agent-state.ts';

export interface OrdersParts {
  readonly agentState: AgentState;
  readonly conditions: Pick<Conditions, 'set'>;
  readonly log: Log;
  readonly wake: () => void;
  /** Sends the scheduler a full report. */
  readonly reportAll: () => void;
}

export class Orders {
  readonly #parts: OrdersParts;

  constructor(parts: OrdersParts) {
    this.#parts = parts;
  }

  /** A session began. */
  newSession(): void {
    this.#parts.agentState.newSession();
    this.#parts.wake();
  }

  desired(desired: Desired__Output): void {
    const { agentState, conditions, log, wake, reportAll } = this.#parts;
    const emptyRefused =
      desired.full && desired.assignments.length === 0 && !desired.confirmEmpty && agentState.liveCount() > 0;
    conditions.set('EmptySnapshotRefused', emptyRefused);
    if (emptyRefused) {
      log.warn('an empty snapshot without its confirmation is not obeyed while containers run');
      reportAll();
      return;
    }
    // The permission that follows an acknowledgement may have been lost, so the acknowledgement is sent again.
    for (const { assignmentId } of desired.assignments)
      if (!agentState.proceeded.has(assignmentId)) agentState.acked.delete(assignmentId);
    agentState.want(desired.assignments, desired.full);
    wake();
  }

  /** Permits the creation of an assignment's container. */
  proceed(assignmentId: string, { secrets, containerToken, bucketKeys }: Permission): void {
    this.#parts.agentState.proceeded.set(assignmentId, { secrets, containerToken, bucketKeys });
    this.#parts.wake();
  }
}
