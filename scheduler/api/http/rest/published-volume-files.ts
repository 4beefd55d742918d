// Addresses of volume files in the form that the published Python client asks for: the answer is the address alone, as
// a JSON string. The client writes a path of its user's disk behind the volume's name, so the path may be absolute.
import { Type } from 'typebox';
import { filePathProblem } from '#shared/domain/volume-file-paths.ts';
import { AppError } from '#shared/errors.ts';
import type { RestRequest, RestRoute } from './route.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { VolumeRouteParts } from './volumes.ts';

/** The client's own volume, which it cannot make. */
const UPLOADS = 'uploads';

const Address = Type.String({ description: 'GET or PUT the bytes here, without a credential' });
const ERRORS = ['volume_not_found', 'volume_without_home', 'volume_is_cache', 'volume_quota_reached', 'invalid_query'];

export function publishedVolumeFileRoutes(parts: VolumeRouteParts): readonly RestRoute[] {
  const addressOf = async ({ workspaceId, params, http }: RestRequest, purpose: 'get' | 'put'): Promise<string> => {
    const { volumeName = '' } = params;
    const path = (params['path'] ?? '').replace(/^\/+/, '');
    // A refused path makes no volume.
    if (purpose === 'put' && volumeName === UPLOADS && filePathProblem(path) === undefined) {
      const made = await parts.volumes.getOrCreate({ workspaceId }, UPLOADS);
      if (made.kind === 'refused') throw new AppError('bad_request', made.text);
    }
    const signed = await parts.volumeFiles.sign(workspaceId, volumeName, path, purpose);
    return `${parts.originOf(http).baseUrl}${signed.path}`;
  };
  const described = { scope: 'full', atRoot: true, tail: 'path', answer: Address, errors: ERRORS } as const;
  return [
    restRoute({
      ...described,
      http: 'GET /volume/{ws}/generate-upload-url/{volumeName}/{path}',
      grants: NOT_LIMITED,
      summary: 'A signed address that uploads a file for a day, as a string; makes the volume uploads, and no other',
      handle: (request) => addressOf(request, 'put'),
    }),
    restRoute({
      ...described,
      http: 'GET /volume/{ws}/generate-download-url/{volumeName}/{path}',
      grants: NOT_LIMITED,
      summary: 'A signed address that downloads a file for a day, as a string',
      handle: (request) => addressOf(request, 'get'),
    }),
  ];
}
