// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface GpuUse {
  'devices'?: (number);
  'utilizationPct'?: (number | string);
  'memoryUsedBytes'?: (number | string | Long);
  'memoryTotalBytes'?: (number | string | Long);
  'powerWatts'?: (number | string);
  '_utilizationPct'?: "utilizationPct";
  '_memoryUsedBytes'?: "memoryUsedBytes";
  '_powerWatts'?: "powerWatts";
}

export interface GpuUse__Output {
  'devices': (number);
  'utilizationPct'?: (number);
  'memoryUsedBytes'?: (number);
  'memoryTotalBytes': (number);
  'powerWatts'?: (number);
  '_utilizationPct'?: "utilizationPct";
  '_memoryUsedBytes'?: "memoryUsedBytes";
  '_powerWatts'?: "powerWatts";
}
