import { timestampOf } from '#shared/api/fields.ts';
import { DownloadAddress } from '#shared/api/rest/objects.ts';
import { AppError } from '#shared/errors.ts';
import type { Objects } from '../../../stores/objects/service.ts';
import { wholeAddress } from '../../../stores/objects/signatures.ts';
import type { Origin } from '../../operations/operation.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';

export interface ObjectRouteParts {
  readonly objects: Pick<Objects, 'signDownload'>;
  readonly originOf: (request: RestRequest['http']) => Origin;
}

/** The signed address of an object's bytes; another workspace's object is unknown here. */
export const downloadUrl = (parts: ObjectRouteParts): RestRoute =>
  restRoute({
    http: 'GET /object/{ws}/{objectId}/download-url',
    scope: 'full',
    grants: NOT_LIMITED,
    summary: 'A signed address that gives the bytes of an object for a day',
    answer: DownloadAddress,
    errors: ['object_not_found'],
    handle: async ({ workspaceId, params, http }) => {
      const id = (params['objectId'] ?? '').toLowerCase();
      const signed = await parts.objects.signDownload({ workspaceId }, id);
      if (signed === undefined) throw new AppError('object_not_found', 'object not found');
      const { path, untilMs, size, sha256 } = signed;
      const url = wholeAddress(path, parts.originOf(http).baseUrl);
      return { id, url, expires_at: timestampOf(untilMs), size, sha256 };
    },
  });
