// Original file: shared/protocol/agent.proto

import type { LiveAttempt as _longshore_agent_v1_LiveAttempt, LiveAttempt__Output as _longshore_agent_v1_LiveAttempt__Output } from '../../../longshore/agent/v1/LiveAttempt.ts';
import type { Long } from '@grpc/proto-loader';

export interface Heartbeat {
  'sentAtMs'?: (number | string | Long);
  'liveAttempts'?: (_longshore_agent_v1_LiveAttempt)[];
  'conditions'?: (string)[];
  'diskFreeBytes'?: (number | string | Long);
  'conditionWords'?: ({[key: string]: string});
}

export interface Heartbeat__Output {
  'sentAtMs': (number);
  'liveAttempts': (_longshore_agent_v1_LiveAttempt__Output)[];
  'conditions': (string)[];
  'diskFreeBytes': (number);
  'conditionWords': ({[key: string]: string});
}
