// Original file: shared/protocol/agent.proto

import type { RegistryAuth as _longshore_agent_v1_RegistryAuth, RegistryAuth__Output as _longshore_agent_v1_RegistryAuth__Output } from '../../../longshore/agent/v1/RegistryAuth.ts';

export interface PrepareImage {
  'requestId'?: (string);
  'image'?: (string);
  'pythonVersion'?: (string);
  'resolve'?: (boolean);
  'pull'?: (boolean);
  'digest'?: (string);
  'auth'?: (_longshore_agent_v1_RegistryAuth | null);
  'workspaceId'?: (string);
}

export interface PrepareImage__Output {
  'requestId': (string);
  'image': (string);
  'pythonVersion': (string);
  'resolve': (boolean);
  'pull': (boolean);
  'digest': (string);
  'auth': (_longshore_agent_v1_RegistryAuth__Output | null);
  'workspaceId': (string);
}
