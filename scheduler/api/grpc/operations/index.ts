// Operations that only published clients call. HTTP has other forms of what they do.
import type { UnroutedOperation } from '../../operations/operation.ts';
import { taskQueueLength, taskQueuePut } from './task-queues.ts';
import type { TaskQueueParts } from './task-queues.ts';

export type UnroutedParts = TaskQueueParts;

export function unroutedOperations(parts: UnroutedParts): readonly UnroutedOperation[] {
  return [taskQueuePut(parts), taskQueueLength(parts)];
}
