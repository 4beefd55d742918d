// The second upload of a folder: the files that changed, joined with the object that was uploaded before.
import {
  CommitObjectDeltaRequest,
  CommitObjectDeltaResponse,
  CreateObjectDeltaRequest,
  CreateObjectDeltaResponse,
} from '#shared/api/objects.ts';
import { ObjectDeltas } from '../../../stores/objects/deltas.ts';
import type { Objects } from '../../../stores/objects/service.ts';
import { unrouted } from '../../operations/operation.ts';
import type { UnroutedOperation } from '../../operations/operation.ts';

export interface ObjectDeltaParts {
  readonly objects: Pick<Objects, 'find' | 'create' | 'open' | 'receive'>;
}

/** Time for two large archives to be read and written. */
const COMMIT_WITHIN_MS = 600_000;
const DIRECT = 'this installation takes uploads by its bucket, where objects are not joined: upload the whole object';
const BASE_MISSING = 'the object that changed is not there any more: upload the whole object';

export function objectDeltaOperations({ objects }: ObjectDeltaParts): readonly UnroutedOperation[] {
  const deltas = new ObjectDeltas(objects);
  return [
    unrouted({
      name: 'CreateObjectDelta',
      scope: 'full',
      request: CreateObjectDeltaRequest,
      response: CreateObjectDeltaResponse,
      handle: async ({ workspaceId }, { hash, baseObjectId, deltaSize }, { baseUrl }) => {
        const made = await deltas.create({ workspaceId }, { hash, baseObjectId, bytes: deltaSize });
        const refused = { ok: false, objectId: '', presignedUrl: '', baseMissing: false };
        switch (made.kind) {
          case 'base_missing':
            return { ...refused, baseMissing: true, errorMsg: BASE_MISSING };
          case 'direct':
            return { ...refused, errorMsg: DIRECT };
          case 'upload': {
            const { objectId, uploadPath } = made;
            const presignedUrl = `${baseUrl}${uploadPath}`;
            return { ok: true, objectId, presignedUrl, baseMissing: false, errorMsg: '' };
          }
        }
      },
    }),
    unrouted({
      name: 'CommitObjectDelta',
      scope: 'full',
      withinMs: COMMIT_WITHIN_MS,
      request: CommitObjectDeltaRequest,
      response: CommitObjectDeltaResponse,
      handle: async ({ workspaceId }, { objectId, baseObjectId, removedPaths }) => {
        const made = await deltas.commit({ workspaceId }, { objectId, baseObjectId, removed: removedPaths });
        return { ok: true, objectId: made.objectId, size: made.size, errorMsg: '' };
      },
    }),
  ];
}
