// Original file: shared/protocol/agent.proto

import type { BucketKeys as _longshore_agent_v1_BucketKeys, BucketKeys__Output as _longshore_agent_v1_BucketKeys__Output } from '../../../longshore/agent/v1/BucketKeys.ts';
import type { Long } from '@grpc/proto-loader';

export interface Proceed {
  'assignmentId'?: (string);
  'containerId'?: (string);
  'epoch'?: (number | string | Long);
  'secrets'?: ({[key: string]: string});
  'containerToken'?: (string);
  'bucketKeys'?: (_longshore_agent_v1_BucketKeys)[];
}

export interface Proceed__Output {
  'assignmentId': (string);
  'containerId': (string);
  'epoch': (number);
  'secrets': ({[key: string]: string});
  'containerToken': (string);
  'bucketKeys': (_longshore_agent_v1_BucketKeys__Output)[];
}
