import { timestampOf } from '#shared/api/fields.ts';
import { GetOrCreateVolumeRequest, GetOrCreateVolumeResponse } from '#shared/api/volumes.ts';
import type { StubId } from '#shared/domain/ids.ts';
import type { Directory } from '../../workspaces/deployments/directory.ts';
import { storedConfig } from '../../domain/stub-config.ts';
import type { Volumes } from '../../workspaces/deployments/volumes.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

/** Gets or creates a volume. A container gets those that its own stub mounts, and creates none. */
export function getOrCreateVolume(volumes: Pick<Volumes, 'getOrCreate' | 'among'>, directory: Directory): Operation {
  return operation({
    name: 'GetOrCreateVolume',
    http: 'POST /volumes',
    scope: 'any',
    containers: true,
    request: GetOrCreateVolumeRequest,
    response: GetOrCreateVolumeResponse,
    handle: async (caller, request) => {
      const { container } = caller;
      const outcome =
        container === undefined
          ? await volumes.getOrCreate(caller, request.name, request.driver)
          : await volumes.among(caller, await mountedBy(directory, container.stubId), request.name);
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

async function mountedBy(directory: Directory, stubId: StubId): Promise<readonly string[]> {
  const stub = await directory.stub(stubId);
  return stub === undefined ? [] : storedConfig(stub.config).volumes.map(({ volumeId }) => volumeId);
}
