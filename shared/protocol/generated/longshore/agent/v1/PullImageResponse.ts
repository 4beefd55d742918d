// Original file: shared/protocol/agent.proto

import type { RegistryAuth as _longshore_agent_v1_RegistryAuth, RegistryAuth__Output as _longshore_agent_v1_RegistryAuth__Output } from '../../../longshore/agent/v1/RegistryAuth.ts';

export interface PullImageResponse {
  'waitMs'?: (number);
  'auth'?: (_longshore_agent_v1_RegistryAuth | null);
  'builtFrom'?: (string);
  'place'?: (number);
  'waiting'?: (number);
  'unwanted'?: (boolean);
  'mirror'?: (string);
  'mirrorAuth'?: (boolean);
}

export interface PullImageResponse__Output {
  'waitMs': (number);
  'auth': (_longshore_agent_v1_RegistryAuth__Output | null);
  'builtFrom': (string);
  'place': (number);
  'waiting': (number);
  'unwanted': (boolean);
  'mirror': (string);
  'mirrorAuth': (boolean);
}
