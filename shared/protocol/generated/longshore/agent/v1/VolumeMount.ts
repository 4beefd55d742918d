// Original file: shared/protocol/agent.proto

import type { BucketMount as _longshore_agent_v1_BucketMount, BucketMount__Output as _longshore_agent_v1_BucketMount__Output } from '../../../longshore/agent/v1/BucketMount.ts';

export interface VolumeMount {
  'volumeId'?: (string);
  'mountPath'?: (string);
  'driver'?: (string);
  'bucket'?: (_longshore_agent_v1_BucketMount | null);
}

export interface VolumeMount__Output {
  'volumeId': (string);
  'mountPath': (string);
  'driver': (string);
  'bucket': (_longshore_agent_v1_BucketMount__Output | null);
}
