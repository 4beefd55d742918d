// Operations that only published clients call. HTTP has other forms of what they do.
import type { UnroutedOperation } from '../../operations/operation.ts';
import type { ServeParts } from '../../operations/serves.ts';
import { attachToContainer } from './attach.ts';
import type { AttachParts } from './attach.ts';
import { functionInvoke } from './functions.ts';
import type { FunctionParts } from './functions.ts';
import { objectDeltaOperations } from './object-deltas.ts';
import type { ObjectDeltaParts } from './object-deltas.ts';
import { outputOperations } from './outputs.ts';
import type { OutputParts } from './outputs.ts';
import { functionSchedule } from './schedules.ts';
import type { ScheduleParts } from './schedules.ts';
import { secretOperations } from './secrets.ts';
import type { SecretOperationParts } from './secrets.ts';
import { startClientServe } from './serves.ts';
import { sharedStateOperations } from './shared-state.ts';
import type { SharedStateParts } from './shared-state.ts';
import { taskQueueLength, taskQueuePut } from './task-queues.ts';
import type { TaskQueueParts } from './task-queues.ts';
import { volumeFileOperations } from './volumes.ts';
import type { VolumeFileOperationParts } from './volumes.ts';

export type UnroutedParts = AttachParts &
  FunctionParts &
  OutputParts &
  SharedStateParts &
  ObjectDeltaParts &
  ScheduleParts &
  SecretOperationParts &
  TaskQueueParts &
  VolumeFileOperationParts & { readonly serveParts: ServeParts };

export function unroutedOperations(parts: UnroutedParts): readonly UnroutedOperation[] {
  return [
    attachToContainer(parts),
    startClientServe(parts.serveParts),
    functionInvoke(parts),
    functionSchedule(parts),
    ...objectDeltaOperations(parts),
    ...secretOperations(parts),
    taskQueuePut(parts),
    taskQueueLength(parts),
    ...sharedStateOperations(parts),
    ...outputOperations(parts),
    ...volumeFileOperations(parts),
  ];
}
