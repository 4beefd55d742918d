// Original file: shared/protocol/agent.proto

import type { LiveAttempt as _longshore_agent_v1_LiveAttempt, LiveAttempt__Output as _longshore_agent_v1_LiveAttempt__Output } from '../../../longshore/agent/v1/LiveAttempt.ts';

export interface TaskReport {
  'running'?: (_longshore_agent_v1_LiveAttempt)[];
  'finished'?: (_longshore_agent_v1_LiveAttempt)[];
  'more'?: (boolean);
}

export interface TaskReport__Output {
  'running': (_longshore_agent_v1_LiveAttempt__Output)[];
  'finished': (_longshore_agent_v1_LiveAttempt__Output)[];
  'more': (boolean);
}
