import { timestampOf } from '#shared/api/fields.ts';
import { ImageList, ImageOutput, ImageRecord } from '#shared/api/rest/images.ts';
import { AppError } from '#shared/errors.ts';
import type { ImageCollector } from '../../../fleet/builds/collector.ts';
import { nameOf } from '../../../fleet/builds/image-reads.ts';
import type { ImageReads, ImageView } from '../../../fleet/builds/image-reads.ts';
import { restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface ImageRouteParts {
  readonly imageReads: Pick<ImageReads, 'list' | 'read' | 'output'>;
  readonly imageCollector: Pick<ImageCollector, 'delete'>;
}

/** Routes of images that were built here. */
export const imageRoutes = (parts: ImageRouteParts): readonly RestRoute[] => [
  restRoute({
    http: 'GET /image/{ws}',
    summary: 'Images that were built from definitions, the newest first',
    scope: 'full',
    grants: { scopes: ['read'] },
    answer: ImageList,
    handle: async ({ workspaceId }) => ({ data: (await parts.imageReads.list(workspaceId)).map(recordOf), next: '' }),
  }),
  restRoute({
    http: 'GET /image/{ws}/{imageId}',
    summary: 'An image, its steps and its machines',
    scope: 'full',
    grants: { scopes: ['read'] },
    answer: ImageRecord,
    errors: ['image_not_found'],
    handle: async ({ workspaceId, params }) => {
      const image = await parts.imageReads.read(workspaceId, params['imageId'] ?? '');
      if (image === undefined) throw notFound(params['imageId']);
      return recordOf(image);
    },
  }),
  restRoute({
    http: 'GET /image/{ws}/{imageId}/output',
    summary: 'Output of the last build of an image',
    scope: 'full',
    grants: { scopes: ['read'] },
    answer: ImageOutput,
    errors: ['image_not_found'],
    handle: async ({ workspaceId, params }) => {
      const output = await parts.imageReads.output(workspaceId, params['imageId'] ?? '');
      if (output === undefined) throw notFound(params['imageId']);
      return { output };
    },
  }),
  restRoute({
    http: 'DELETE /image/{ws}/{imageId}',
    summary: 'Delete an image that no deployment has',
    scope: 'full',
    errors: ['image_not_found', 'image_in_use'],
    handle: async ({ workspaceId, params }) => {
      const id = params['imageId'] ?? '';
      if ((await parts.imageReads.read(workspaceId, id)) === undefined) throw notFound(id);
      if (!(await parts.imageCollector.delete(workspaceId, nameOf(id))))
        throw new AppError('image_in_use', `image ${id.slice(0, 80)} is being built, or a deployment has it`);
      return undefined;
    },
  }),
];

const notFound = (id = ''): AppError =>
  new AppError('image_not_found', `this workspace has no image ${JSON.stringify(id.slice(0, 80))}`);

const recordOf = ({ id, row, pythonVersion, steps, places }: ImageView): ImageRecord => ({
  id,
  name: row.id,
  state: row.state,
  python_version: pythonVersion,
  steps: [...steps],
  error: row.error,
  machines: places.map(({ machineId, sizeBytes }) => ({ id: machineId, size_bytes: sizeBytes })),
  registry: { digest: row.digest, error: row.pushError },
  created_at: timestampOf(row.createdAtMs),
  built_at: timestampOf(row.builtAtMs),
  used_at: timestampOf(row.usedAtMs),
});
