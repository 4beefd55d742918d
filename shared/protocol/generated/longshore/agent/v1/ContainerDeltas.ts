// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface ContainerDeltas {
  'intervalMs'?: (number);
  'cpuMicroseconds'?: (number | string | Long);
  'diskReadBytes'?: (number | string | Long);
  'diskWriteBytes'?: (number | string | Long);
  'receivedBytes'?: (number | string | Long);
  'sentBytes'?: (number | string | Long);
  'receivedPackets'?: (number | string | Long);
  'sentPackets'?: (number | string | Long);
}

export interface ContainerDeltas__Output {
  'intervalMs': (number);
  'cpuMicroseconds': (number);
  'diskReadBytes': (number);
  'diskWriteBytes': (number);
  'receivedBytes': (number);
  'sentBytes': (number);
  'receivedPackets': (number);
  'sentPackets': (number);
}
