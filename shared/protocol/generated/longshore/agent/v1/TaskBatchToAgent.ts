// Original file: shared/protocol/agent.proto

import type { TaskToAgent as _longshore_agent_v1_TaskToAgent, TaskToAgent__Output as _longshore_agent_v1_TaskToAgent__Output } from '../../../longshore/agent/v1/TaskToAgent.ts';

export interface TaskBatchToAgent {
  'messages'?: (_longshore_agent_v1_TaskToAgent)[];
}

export interface TaskBatchToAgent__Output {
  'messages': (_longshore_agent_v1_TaskToAgent__Output)[];
}
