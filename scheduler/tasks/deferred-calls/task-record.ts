// The task of a call that is answered later, as people read it: a record without a stub. Pure.
import type { StubId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { DEFERRED_CALLS_QUEUE } from '../../domain/inference.ts';
import type { DeferredCallRow } from '../../stores/store/queries/deferred-calls.ts';
import type { RecordRank, TaskRecord } from '../records/task-record.ts';
import { RANK } from '../state.ts';

/** Facts of a call that its record shows. */
export type RecordedCall = Pick<
  DeferredCallRow,
  | 'taskId'
  | 'workspaceId'
  | 'putBy'
  | 'attempt'
  | 'createdAtMs'
  | 'expiresAtMs'
  | 'startedAtMs'
  | 'endedAtMs'
  | 'ending'
>;

/** Record of a call that has not ended. @param why - reason of the last try's end; empty: none */
export const openRecord = (
  call: RecordedCall,
  status: Extract<TaskStatus, 'PENDING' | 'RUNNING' | 'RETRY'>,
  why = '',
): TaskRecord => ({
  taskId: call.taskId,
  workspaceId: call.workspaceId,
  stubId: '' as StubId,
  deploymentId: null,
  queue: DEFERRED_CALLS_QUEUE,
  kind: 'model',
  sync: false,
  status,
  attempt: call.attempt,
  rank: RANK[status] as RecordRank,
  containerId: null,
  failureReason: why,
  createdAtMs: call.createdAtMs,
  startedAtMs: call.startedAtMs,
  endedAtMs: null,
  durationMs: null,
  deadlineMs: call.expiresAtMs,
  ...(call.putBy === undefined ? {} : { putBy: call.putBy }),
});

/** Record of a call that has ended. @returns undefined: it has not */
export function endedRecord(call: RecordedCall): TaskRecord | undefined {
  const { ending, startedAtMs, endedAtMs } = call;
  if (ending === undefined || endedAtMs === null) return undefined;
  const { status, reason, result, resultObjectId } = ending;
  return {
    ...openRecord(call, 'PENDING'),
    status,
    rank: RANK[status] as RecordRank,
    failureReason: reason,
    endedAtMs,
    durationMs: startedAtMs === null ? null : Math.max(0, endedAtMs - startedAtMs),
    ...(result === undefined ? {} : { result }),
    ...(resultObjectId === undefined ? {} : { resultObjectId }),
  };
}
