// Original file: shared/protocol/agent.proto

import type { Assignment as _longshore_agent_v1_Assignment, Assignment__Output as _longshore_agent_v1_Assignment__Output } from '../../../longshore/agent/v1/Assignment.ts';
import type { RevokedAttempt as _longshore_agent_v1_RevokedAttempt, RevokedAttempt__Output as _longshore_agent_v1_RevokedAttempt__Output } from '../../../longshore/agent/v1/RevokedAttempt.ts';
import type { Long } from '@grpc/proto-loader';

export interface Desired {
  'revision'?: (number | string | Long);
  'full'?: (boolean);
  'confirmEmpty'?: (boolean);
  'assignments'?: (_longshore_agent_v1_Assignment)[];
  'revokedAttempts'?: (_longshore_agent_v1_RevokedAttempt)[];
}

export interface Desired__Output {
  'revision': (number);
  'full': (boolean);
  'confirmEmpty': (boolean);
  'assignments': (_longshore_agent_v1_Assignment__Output)[];
  'revokedAttempts': (_longshore_agent_v1_RevokedAttempt__Output)[];
}
