// Original file: shared/protocol/agent.proto

import type { CachedVolume as _longshore_agent_v1_CachedVolume, CachedVolume__Output as _longshore_agent_v1_CachedVolume__Output } from '../../../longshore/agent/v1/CachedVolume.ts';

export interface CacheUse {
  'volumes'?: (_longshore_agent_v1_CachedVolume)[];
}

export interface CacheUse__Output {
  'volumes': (_longshore_agent_v1_CachedVolume__Output)[];
}
