// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface CodeArchive {
  'objectId'?: (string);
  'sha256'?: (string);
  'size'?: (number | string | Long);
}

export interface CodeArchive__Output {
  'objectId': (string);
  'sha256': (string);
  'size': (number);
}
