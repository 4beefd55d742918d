// Original file: shared/protocol/agent.proto

import type { Long } from '@grpc/proto-loader';

export interface RenewCredentialResponse {
  'credential'?: (string);
  'credentialExpiresAtMs'?: (number | string | Long);
}

export interface RenewCredentialResponse__Output {
  'credential': (string);
  'credentialExpiresAtMs': (number);
}
