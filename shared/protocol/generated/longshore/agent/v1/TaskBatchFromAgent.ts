// Original file: shared/protocol/agent.proto

import type { TaskFromAgent as _longshore_agent_v1_TaskFromAgent, TaskFromAgent__Output as _longshore_agent_v1_TaskFromAgent__Output } from '../../../longshore/agent/v1/TaskFromAgent.ts';

export interface TaskBatchFromAgent {
  'messages'?: (_longshore_agent_v1_TaskFromAgent)[];
}

export interface TaskBatchFromAgent__Output {
  'messages': (_longshore_agent_v1_TaskFromAgent__Output)[];
}
