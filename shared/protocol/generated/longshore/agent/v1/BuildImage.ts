// Original file: shared/protocol/agent.proto

import type { BuildStep as _longshore_agent_v1_BuildStep, BuildStep__Output as _longshore_agent_v1_BuildStep__Output } from '../../../longshore/agent/v1/BuildStep.ts';
import type { CodeArchive as _longshore_agent_v1_CodeArchive, CodeArchive__Output as _longshore_agent_v1_CodeArchive__Output } from '../../../longshore/agent/v1/CodeArchive.ts';
import type { PushTo as _longshore_agent_v1_PushTo, PushTo__Output as _longshore_agent_v1_PushTo__Output } from '../../../longshore/agent/v1/PushTo.ts';

export interface BuildImage {
  'streamId'?: (string);
  'image'?: (string);
  'workspaceId'?: (string);
  'pythonVersion'?: (string);
  'steps'?: (_longshore_agent_v1_BuildStep)[];
  'context'?: (_longshore_agent_v1_CodeArchive | null);
  'noCache'?: (boolean);
  'gpus'?: (string)[];
  'push'?: (_longshore_agent_v1_PushTo | null);
}

export interface BuildImage__Output {
  'streamId': (string);
  'image': (string);
  'workspaceId': (string);
  'pythonVersion': (string);
  'steps': (_longshore_agent_v1_BuildStep__Output)[];
  'context': (_longshore_agent_v1_CodeArchive__Output | null);
  'noCache': (boolean);
  'gpus': (string)[];
  'push': (_longshore_agent_v1_PushTo__Output | null);
}
