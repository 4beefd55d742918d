// Original file: shared/protocol/agent.proto

import type { Inventory as _longshore_agent_v1_Inventory, Inventory__Output as _longshore_agent_v1_Inventory__Output } from '../../../longshore/agent/v1/Inventory.ts';
import type { ObservedContainer as _longshore_agent_v1_ObservedContainer, ObservedContainer__Output as _longshore_agent_v1_ObservedContainer__Output } from '../../../longshore/agent/v1/ObservedContainer.ts';

export interface Hello {
  'machineId'?: (string);
  'bootId'?: (string);
  'instanceId'?: (string);
  'version'?: (string);
  'protocol'?: (number);
  'inventory'?: (_longshore_agent_v1_Inventory | null);
  'observed'?: (_longshore_agent_v1_ObservedContainer)[];
}

export interface Hello__Output {
  'machineId': (string);
  'bootId': (string);
  'instanceId': (string);
  'version': (string);
  'protocol': (number);
  'inventory': (_longshore_agent_v1_Inventory__Output | null);
  'observed': (_longshore_agent_v1_ObservedContainer__Output)[];
}
