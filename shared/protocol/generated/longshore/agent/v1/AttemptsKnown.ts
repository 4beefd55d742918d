// Original file: shared/protocol/agent.proto

import type { LiveAttempt as _longshore_agent_v1_LiveAttempt, LiveAttempt__Output as _longshore_agent_v1_LiveAttempt__Output } from '../../../longshore/agent/v1/LiveAttempt.ts';

export interface AttemptsKnown {
  'adopted'?: (_longshore_agent_v1_LiveAttempt)[];
  'refused'?: (_longshore_agent_v1_LiveAttempt)[];
}

export interface AttemptsKnown__Output {
  'adopted': (_longshore_agent_v1_LiveAttempt__Output)[];
  'refused': (_longshore_agent_v1_LiveAttempt__Output)[];
}
