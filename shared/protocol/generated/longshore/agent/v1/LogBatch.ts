// Original file: shared/protocol/agent.proto

import type { LogRecord as _longshore_agent_v1_LogRecord, LogRecord__Output as _longshore_agent_v1_LogRecord__Output } from '../../../longshore/agent/v1/LogRecord.ts';
import type { Long } from '@grpc/proto-loader';

export interface LogBatch {
  'seq'?: (number | string | Long);
  'records'?: (_longshore_agent_v1_LogRecord)[];
  'sender'?: (string);
}

export interface LogBatch__Output {
  'seq': (number);
  'records': (_longshore_agent_v1_LogRecord__Output)[];
  'sender': (string);
}
