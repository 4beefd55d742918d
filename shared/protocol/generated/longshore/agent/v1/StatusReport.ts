// Original file: shared/protocol/agent.proto

import type { ObservedContainer as _longshore_agent_v1_ObservedContainer, ObservedContainer__Output as _longshore_agent_v1_ObservedContainer__Output } from '../../../longshore/agent/v1/ObservedContainer.ts';
import type { Long } from '@grpc/proto-loader';

export interface StatusReport {
  'seq'?: (number | string | Long);
  'full'?: (boolean);
  'containers'?: (_longshore_agent_v1_ObservedContainer)[];
}

export interface StatusReport__Output {
  'seq': (number);
  'full': (boolean);
  'containers': (_longshore_agent_v1_ObservedContainer__Output)[];
}
