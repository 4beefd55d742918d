// The services of published clients. A call that is not listed is not served.
import { DISK } from './disk.ts';
import { ENDPOINT } from './endpoint.ts';
import { FUNCTION } from './function.ts';
import { GATEWAY } from './gateway.ts';
import { IMAGE } from './image.ts';
import { OUTPUT } from './output.ts';
import { POD } from './pod.ts';
import type { Service } from './service.ts';
import { MAP, SIGNAL, SIMPLE_QUEUE } from './shared-state.ts';
import { SECRET } from './secret.ts';
import { HEALTH, TYPES } from './shared.ts';
import { TASK_QUEUE } from './task-queue.ts';
import { VOLUME } from './volume.ts';

export const SERVICES: readonly Service[] = [
  DISK,
  ENDPOINT,
  FUNCTION,
  GATEWAY,
  HEALTH,
  IMAGE,
  MAP,
  OUTPUT,
  POD,
  SIGNAL,
  SIMPLE_QUEUE,
  SECRET,
  TASK_QUEUE,
  TYPES,
  VOLUME,
];
