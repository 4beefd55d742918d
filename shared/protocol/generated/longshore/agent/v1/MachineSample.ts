// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface MachineSample {
  'intervalMs'?: (number);
  'cpuMillicores'?: (number);
  'memoryUsedBytes'?: (number | string | Long);
  'memoryTotalBytes'?: (number | string | Long);
  'diskUsedBytes'?: (number | string | Long);
  'diskTotalBytes'?: (number | string | Long);
  'cpuCores'?: (number);
}

export interface MachineSample__Output {
  'intervalMs': (number);
  'cpuMillicores': (number);
  'memoryUsedBytes': (number);
  'memoryTotalBytes': (number);
  'diskUsedBytes': (number);
  'diskTotalBytes': (number);
  'cpuCores': (number);
}
