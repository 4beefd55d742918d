import { timestampOf } from '#shared/api/fields.ts';
import { GetOrCreateVolumeRequest, GetOrCreateVolumeResponse } from '#shared/api/volumes.ts';
import type { Directory } from '../deployments/directory.ts';
import type { Volumes } from '../deployments/volumes.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export function getOrCreateVolume(volumes: Pick<Volumes, 'getOrCreate'>, directory: Directory): Operation {
  return operation({
    name: 'GetOrCreateVolume',
    http: 'POST /volumes',
    scope: 'any',
    request: GetOrCreateVolumeRequest,
    response: GetOrCreateVolumeResponse,
    handle: async (caller, request) => {
      const outcome = await volumes.getOrCreate(caller, request.name, request.driver);
      if (outcome.kind === 'refused') return { ok: false, volume: null, error: outcome.text };
      const { volume } = outcome;
      return {
        ok: true,
        volume: {
          id: volume.id,
          name: volume.name,
          createdAt: timestampOf(volume.createdAtMs),
          updatedAt: timestampOf(volume.updatedAtMs),
          workspaceId: volume.workspaceId,
          workspaceName: await directory.workspaceName(volume.workspaceId),
        },
        error: '',
      };
    },
  });
}
