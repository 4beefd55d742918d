// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface ContainerSample {
  'containerId'?: (string);
  'cpuMillicores'?: (number);
  'cpuMicroseconds'?: (number | string | Long);
  'memoryBytes'?: (number | string | Long);
  'processes'?: (number);
  'receivedBytes'?: (number | string | Long);
  'sentBytes'?: (number | string | Long);
  'diskBytes'?: (number | string | Long);
  'diskLimitBytes'?: (number | string | Long);
}

export interface ContainerSample__Output {
  'containerId': (string);
  'cpuMillicores': (number);
  'cpuMicroseconds': (number);
  'memoryBytes': (number);
  'processes': (number);
  'receivedBytes': (number);
  'sentBytes': (number);
  'diskBytes': (number);
  'diskLimitBytes': (number);
}
