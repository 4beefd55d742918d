// Original file: shared/protocol/agent.proto

import type { HostNic as _longshore_agent_v1_HostNic, HostNic__Output as _longshore_agent_v1_HostNic__Output } from '../../../longshore/agent/v1/HostNic.ts';
import type { HostDisk as _longshore_agent_v1_HostDisk, HostDisk__Output as _longshore_agent_v1_HostDisk__Output } from '../../../longshore/agent/v1/HostDisk.ts';
import type { NumaNode as _longshore_agent_v1_NumaNode, NumaNode__Output as _longshore_agent_v1_NumaNode__Output } from '../../../longshore/agent/v1/NumaNode.ts';
import type { HostFileSystem as _longshore_agent_v1_HostFileSystem, HostFileSystem__Output as _longshore_agent_v1_HostFileSystem__Output } from '../../../longshore/agent/v1/HostFileSystem.ts';
import type { HostWarning as _longshore_agent_v1_HostWarning, HostWarning__Output as _longshore_agent_v1_HostWarning__Output } from '../../../longshore/agent/v1/HostWarning.ts';

export interface HostFacts {
  'vendor'?: (string);
  'product'?: (string);
  'virtualization'?: (string);
  'cpuModel'?: (string);
  'nics'?: (_longshore_agent_v1_HostNic)[];
  'disks'?: (_longshore_agent_v1_HostDisk)[];
  'numaNodes'?: (_longshore_agent_v1_NumaNode)[];
  'fileSystems'?: (_longshore_agent_v1_HostFileSystem)[];
  'warnings'?: (_longshore_agent_v1_HostWarning)[];
}

export interface HostFacts__Output {
  'vendor': (string);
  'product': (string);
  'virtualization': (string);
  'cpuModel': (string);
  'nics': (_longshore_agent_v1_HostNic__Output)[];
  'disks': (_longshore_agent_v1_HostDisk__Output)[];
  'numaNodes': (_longshore_agent_v1_NumaNode__Output)[];
  'fileSystems': (_longshore_agent_v1_HostFileSystem__Output)[];
  'warnings': (_longshore_agent_v1_HostWarning__Output)[];
}
