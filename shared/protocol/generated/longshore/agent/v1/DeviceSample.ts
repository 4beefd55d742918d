// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface DeviceSample {
  'uuid'?: (string);
  'utilizationPermille'?: (number);
  'memoryUsedBytes'?: (number | string | Long);
  'powerWatts'?: (number);
  'temperatureCelsius'?: (number);
  '_utilizationPermille'?: "utilizationPermille";
  '_memoryUsedBytes'?: "memoryUsedBytes";
  '_powerWatts'?: "powerWatts";
  '_temperatureCelsius'?: "temperatureCelsius";
}

export interface DeviceSample__Output {
  'uuid': (string);
  'utilizationPermille'?: (number);
  'memoryUsedBytes'?: (number);
  'powerWatts'?: (number);
  'temperatureCelsius'?: (number);
  '_utilizationPermille'?: "utilizationPermille";
  '_memoryUsedBytes'?: "memoryUsedBytes";
  '_powerWatts'?: "powerWatts";
  '_temperatureCelsius'?: "temperatureCelsius";
}
