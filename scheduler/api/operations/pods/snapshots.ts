// Snapshots of a container: its files become an image. Memory is not kept.
import { PodCheckpointResponse, PodImageResponse, PodStubRequest } from '#shared/api/pods.ts';
import { AppError } from '#shared/errors.ts';
import type { Snapshots } from '../../../fleet/builds/snapshots.ts';
import { podOperation } from './pod-operation.ts';
import type { PodParts } from './pod-operation.ts';
import type { Operation } from '../operation.ts';

export interface SnapshotParts extends PodParts {
  readonly snapshots: Pick<Snapshots, 'take'>;
}

/** Clients wait for 10 minutes. */
const SNAPSHOT_WITHIN_MS = 600_000;
const NO_MEMORY = 'snapshots of memory are not available in this version: create-image-from-filesystem keeps the files';

export function snapshotOperations(parts: SnapshotParts): readonly Operation[] {
  return [
    podOperation(parts, {
      name: 'SandboxSnapshotMemory',
      route: 'POST /snapshot-memory',
      request: PodStubRequest,
      response: PodCheckpointResponse,
      handle: async () => {
        throw new AppError('not_implemented', NO_MEMORY);
      },
    }),
    podOperation(parts, {
      name: 'SandboxCreateImageFromFilesystem',
      route: 'POST /create-image-from-filesystem',
      request: PodStubRequest,
      response: PodImageResponse,
      withinMs: SNAPSHOT_WITHIN_MS,
      handle: async (container) => ({ imageId: await parts.snapshots.take(container) }),
    }),
  ];
}
