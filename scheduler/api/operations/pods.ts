// Pods and sandboxes, as published clients use them: what they run, their files, ports, network and snapshots.
import { lifeOperations } from './pods/life.ts';
import type { LifeParts } from './pods/life.ts';
import { fileOperations } from './pods/files.ts';
import { networkOperations } from './pods/network.ts';
import type { NetworkParts } from './pods/network.ts';
import { portOperations } from './pods/ports.ts';
import type { PortParts } from './pods/ports.ts';
import { processOperations } from './pods/processes.ts';
import { snapshotOperations } from './pods/snapshots.ts';
import type { SnapshotParts } from './pods/snapshots.ts';
import type { Operation } from './operation.ts';

export type PodOperationParts = LifeParts & NetworkParts & PortParts & SnapshotParts;

export const podOperations = (parts: PodOperationParts): readonly Operation[] => [
  ...processOperations(parts),
  ...fileOperations(parts),
  ...portOperations(parts),
  ...lifeOperations(parts),
  ...networkOperations(parts),
  ...snapshotOperations(parts),
];
