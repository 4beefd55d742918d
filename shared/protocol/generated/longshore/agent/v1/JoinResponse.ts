// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface JoinResponse {
  'machineId'?: (string);
  'poolName'?: (string);
  'credential'?: (string);
  'credentialExpiresAtMs'?: (number | string | Long);
  'installationKey'?: (string);
}

export interface JoinResponse__Output {
  'machineId': (string);
  'poolName': (string);
  'credential': (string);
  'credentialExpiresAtMs': (number);
  'installationKey': (string);
}
