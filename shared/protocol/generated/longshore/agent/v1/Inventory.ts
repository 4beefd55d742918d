// Original file: shared/protocol/agent.proto

import type { Gpu as _longshore_agent_v1_Gpu, Gpu__Output as _longshore_agent_v1_Gpu__Output } from '../../../longshore/agent/v1/Gpu.ts';
import type { HostFacts as _longshore_agent_v1_HostFacts, HostFacts__Output as _longshore_agent_v1_HostFacts__Output } from '../../../longshore/agent/v1/HostFacts.ts';
import type { CachedVolume as _longshore_agent_v1_CachedVolume, CachedVolume__Output as _longshore_agent_v1_CachedVolume__Output } from '../../../longshore/agent/v1/CachedVolume.ts';
import type { Long } from '@grpc/proto-loader';

export interface Inventory {
  'hostname'?: (string);
  'os'?: (string);
  'arch'?: (string);
  'cpuMillicores'?: (number);
  'memoryBytes'?: (number | string | Long);
  'diskTotalBytes'?: (number | string | Long);
  'diskFreeBytes'?: (number | string | Long);
  'dockerVersion'?: (string);
  'kernel'?: (string);
  'gpus'?: (_longshore_agent_v1_Gpu)[];
  'images'?: (string)[];
  'volumeDrivers'?: (string)[];
  'gpuDriver'?: (string);
  'conditionWords'?: ({[key: string]: string});
  'volumeBytes'?: ({[key: string]: number | string | Long});
  'host'?: (_longshore_agent_v1_HostFacts | null);
  'builds'?: (boolean);
  'builtImages'?: (string)[];
  'caches'?: (_longshore_agent_v1_CachedVolume)[];
  'registry'?: (boolean);
  'basePythons'?: (string)[];
  'basePythonsKnown'?: (boolean);
  'basePythonsHere'?: (string)[];
  'labels'?: ({[key: string]: string});
}

export interface Inventory__Output {
  'hostname': (string);
  'os': (string);
  'arch': (string);
  'cpuMillicores': (number);
  'memoryBytes': (number);
  'diskTotalBytes': (number);
  'diskFreeBytes': (number);
  'dockerVersion': (string);
  'kernel': (string);
  'gpus': (_longshore_agent_v1_Gpu__Output)[];
  'images': (string)[];
  'volumeDrivers': (string)[];
  'gpuDriver': (string);
  'conditionWords': ({[key: string]: string});
  'volumeBytes': ({[key: string]: number});
  'host': (_longshore_agent_v1_HostFacts__Output | null);
  'builds': (boolean);
  'builtImages': (string)[];
  'caches': (_longshore_agent_v1_CachedVolume__Output)[];
  'registry': (boolean);
  'basePythons': (string)[];
  'basePythonsKnown': (boolean);
  'basePythonsHere': (string)[];
  'labels': ({[key: string]: string});
}
