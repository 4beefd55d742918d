// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface Gpu {
  'uuid'?: (string);
  'model'?: (string);
  'memoryBytes'?: (number | string | Long);
  'numaNode'?: (number);
  'unhealthy'?: (boolean);
  'state'?: (string);
  'pciBusId'?: (string);
  'index'?: (number);
  'parentUuid'?: (string);
  'why'?: (string);
  'computeCap'?: (string);
  'nvlinkIsland'?: (number);
}

export interface Gpu__Output {
  'uuid': (string);
  'model': (string);
  'memoryBytes': (number);
  'numaNode': (number);
  'unhealthy': (boolean);
  'state': (string);
  'pciBusId': (string);
  'index': (number);
  'parentUuid': (string);
  'why': (string);
  'computeCap': (string);
  'nvlinkIsland': (number);
}
