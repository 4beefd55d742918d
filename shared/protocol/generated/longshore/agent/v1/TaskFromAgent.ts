// Original file: shared/protocol/agent.proto

import type { TaskReport as _longshore_agent_v1_TaskReport, TaskReport__Output as _longshore_agent_v1_TaskReport__Output } from '../../../longshore/agent/v1/TaskReport.ts';
import type { TaskStarted as _longshore_agent_v1_TaskStarted, TaskStarted__Output as _longshore_agent_v1_TaskStarted__Output } from '../../../longshore/agent/v1/TaskStarted.ts';
import type { TaskChunk as _longshore_agent_v1_TaskChunk, TaskChunk__Output as _longshore_agent_v1_TaskChunk__Output } from '../../../longshore/agent/v1/TaskChunk.ts';
import type { TaskResult as _longshore_agent_v1_TaskResult, TaskResult__Output as _longshore_agent_v1_TaskResult__Output } from '../../../longshore/agent/v1/TaskResult.ts';
import type { TaskRefused as _longshore_agent_v1_TaskRefused, TaskRefused__Output as _longshore_agent_v1_TaskRefused__Output } from '../../../longshore/agent/v1/TaskRefused.ts';
import type { TaskBatchFromAgent as _longshore_agent_v1_TaskBatchFromAgent, TaskBatchFromAgent__Output as _longshore_agent_v1_TaskBatchFromAgent__Output } from '../../../longshore/agent/v1/TaskBatchFromAgent.ts';

export interface TaskFromAgent {
  'report'?: (_longshore_agent_v1_TaskReport | null);
  'started'?: (_longshore_agent_v1_TaskStarted | null);
  'chunk'?: (_longshore_agent_v1_TaskChunk | null);
  'result'?: (_longshore_agent_v1_TaskResult | null);
  'refused'?: (_longshore_agent_v1_TaskRefused | null);
  'batch'?: (_longshore_agent_v1_TaskBatchFromAgent | null);
  'message'?: "report"|"started"|"chunk"|"result"|"refused"|"batch";
}

export interface TaskFromAgent__Output {
  'report'?: (_longshore_agent_v1_TaskReport__Output | null);
  'started'?: (_longshore_agent_v1_TaskStarted__Output | null);
  'chunk'?: (_longshore_agent_v1_TaskChunk__Output | null);
  'result'?: (_longshore_agent_v1_TaskResult__Output | null);
  'refused'?: (_longshore_agent_v1_TaskRefused__Output | null);
  'batch'?: (_longshore_agent_v1_TaskBatchFromAgent__Output | null);
  'message'?: "report"|"started"|"chunk"|"result"|"refused"|"batch";
}
