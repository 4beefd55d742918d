// Original file: shared/protocol/agent.proto

import type { RunTask as _longshore_agent_v1_RunTask, RunTask__Output as _longshore_agent_v1_RunTask__Output } from '../../../longshore/agent/v1/RunTask.ts';
import type { CancelTask as _longshore_agent_v1_CancelTask, CancelTask__Output as _longshore_agent_v1_CancelTask__Output } from '../../../longshore/agent/v1/CancelTask.ts';
import type { AckResult as _longshore_agent_v1_AckResult, AckResult__Output as _longshore_agent_v1_AckResult__Output } from '../../../longshore/agent/v1/AckResult.ts';
import type { AttemptsKnown as _longshore_agent_v1_AttemptsKnown, AttemptsKnown__Output as _longshore_agent_v1_AttemptsKnown__Output } from '../../../longshore/agent/v1/AttemptsKnown.ts';
import type { TaskBatchToAgent as _longshore_agent_v1_TaskBatchToAgent, TaskBatchToAgent__Output as _longshore_agent_v1_TaskBatchToAgent__Output } from '../../../longshore/agent/v1/TaskBatchToAgent.ts';

export interface TaskToAgent {
  'run'?: (_longshore_agent_v1_RunTask | null);
  'cancel'?: (_longshore_agent_v1_CancelTask | null);
  'acked'?: (_longshore_agent_v1_AckResult | null);
  'known'?: (_longshore_agent_v1_AttemptsKnown | null);
  'batch'?: (_longshore_agent_v1_TaskBatchToAgent | null);
  'message'?: "run"|"cancel"|"acked"|"known"|"batch";
}

export interface TaskToAgent__Output {
  'run'?: (_longshore_agent_v1_RunTask__Output | null);
  'cancel'?: (_longshore_agent_v1_CancelTask__Output | null);
  'acked'?: (_longshore_agent_v1_AckResult__Output | null);
  'known'?: (_longshore_agent_v1_AttemptsKnown__Output | null);
  'batch'?: (_longshore_agent_v1_TaskBatchToAgent__Output | null);
  'message'?: "run"|"cancel"|"acked"|"known"|"batch";
}
