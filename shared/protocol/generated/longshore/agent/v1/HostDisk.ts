// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface HostDisk {
  'name'?: (string);
  'kind'?: (string);
  'bytes'?: (number | string | Long);
  'model'?: (string);
}

export interface HostDisk__Output {
  'name': (string);
  'kind': (string);
  'bytes': (number);
  'model': (string);
}
