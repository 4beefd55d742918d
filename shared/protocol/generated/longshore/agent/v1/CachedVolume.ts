// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface CachedVolume {
  'workspaceId'?: (string);
  'volumeId'?: (string);
  'bytes'?: (number | string | Long);
}

export interface CachedVolume__Output {
  'workspaceId': (string);
  'volumeId': (string);
  'bytes': (number);
}
