// Operations that only published clients call. HTTP has other forms of what they do.
import type { UnroutedOperation } from '../../operations/operation.ts';
import { objectDeltaOperations } from './object-deltas.ts';
import type { ObjectDeltaParts } from './object-deltas.ts';
import { secretOperations } from './secrets.ts';
import type { SecretOperationParts } from './secrets.ts';
import { taskQueueLength, taskQueuePut } from './task-queues.ts';
import type { TaskQueueParts } from './task-queues.ts';
import { volumeFileOperations } from './volumes.ts';
import type { VolumeFileOperationParts } from './volumes.ts';

export type UnroutedParts = ObjectDeltaParts & SecretOperationParts & TaskQueueParts & VolumeFileOperationParts;

export function unroutedOperations(parts: UnroutedParts): readonly UnroutedOperation[] {
  return [
    ...objectDeltaOperations(parts),
    ...secretOperations(parts),
    taskQueuePut(parts),
    taskQueueLength(parts),
    ...volumeFileOperations(parts),
  ];
}
