// Original file: shared/protocol/agent.proto

import type { Inventory as _longshore_agent_v1_Inventory, Inventory__Output as _longshore_agent_v1_Inventory__Output } from '../../../longshore/agent/v1/Inventory.ts';
import type { ObservedContainer as _longshore_agent_v1_ObservedContainer, ObservedContainer__Output as _longshore_agent_v1_ObservedContainer__Output } from '../../../longshore/agent/v1/ObservedContainer.ts';
import type { Conditions as _longshore_agent_v1_Conditions, Conditions__Output as _longshore_agent_v1_Conditions__Output } from '../../../longshore/agent/v1/Conditions.ts';
import type { HostDrain as _longshore_agent_v1_HostDrain, HostDrain__Output as _longshore_agent_v1_HostDrain__Output } from '../../../longshore/agent/v1/HostDrain.ts';

export interface Hello {
  'machineId'?: (string);
  'bootId'?: (string);
  'instanceId'?: (string);
  'version'?: (string);
  'protocol'?: (number);
  'inventory'?: (_longshore_agent_v1_Inventory | null);
  'observed'?: (_longshore_agent_v1_ObservedContainer)[];
  'conditions'?: (_longshore_agent_v1_Conditions | null);
  'hostDrain'?: (_longshore_agent_v1_HostDrain | null);
}

export interface Hello__Output {
  'machineId': (string);
  'bootId': (string);
  'instanceId': (string);
  'version': (string);
  'protocol': (number);
  'inventory': (_longshore_agent_v1_Inventory__Output | null);
  'observed': (_longshore_agent_v1_ObservedContainer__Output)[];
  'conditions': (_longshore_agent_v1_Conditions__Output | null);
  'hostDrain': (_longshore_agent_v1_HostDrain__Output | null);
}
