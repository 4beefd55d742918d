import { timestampOf } from '#shared/api/fields.ts';
import { FileAddress, FileAddressQuery } from '#shared/api/rest/volumes.ts';
import { AppError } from '#shared/errors.ts';
import type { VolumeFiles } from '../../../fleet/volume-files.ts';
import type { Origin } from '../../operations/operation.ts';
import { restRoute } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';

export interface VolumeRouteParts {
  readonly volumeFiles: Pick<VolumeFiles, 'sign'>;
  readonly originOf: (request: RestRequest['http']) => Origin;
}

/** The signed address of a file in a volume; another workspace's volume is unknown here. */
export const fileUrl = (parts: VolumeRouteParts): RestRoute =>
  restRoute({
    http: 'GET /volume/{ws}/{volumeName}/file-url',
    summary: 'A signed address that downloads or uploads a file of a volume for a day',
    scope: 'full',
    query: FileAddressQuery,
    answer: FileAddress,
    errors: ['volume_not_found', 'volume_without_home'],
    handle: async ({ workspaceId, params, query, http }) => {
      const { path = '', method = 'GET' } = query;
      if (method !== 'GET' && method !== 'PUT') {
        throw new AppError('invalid_query', 'query parameter method must be GET or PUT');
      }
      const purpose = method === 'PUT' ? 'put' : 'get';
      const signed = await parts.volumeFiles.sign(workspaceId, params['volumeName'] ?? '', path, purpose);
      const url = `${parts.originOf(http).baseUrl}${signed.path}`;
      return { url, expires_at: timestampOf(signed.untilMs) };
    },
  });
