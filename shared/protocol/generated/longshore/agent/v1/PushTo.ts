// Original file: shared/protocol/agent.proto

import type { RegistryAuth as _longshore_agent_v1_RegistryAuth, RegistryAuth__Output as _longshore_agent_v1_RegistryAuth__Output } from '../../../longshore/agent/v1/RegistryAuth.ts';

export interface PushTo {
  'repository'?: (string);
  'tag'?: (string);
  'auth'?: (_longshore_agent_v1_RegistryAuth | null);
}

export interface PushTo__Output {
  'repository': (string);
  'tag': (string);
  'auth': (_longshore_agent_v1_RegistryAuth__Output | null);
}
