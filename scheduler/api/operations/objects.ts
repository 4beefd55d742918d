import {
  CreateObjectRequest,
  CreateObjectResponse,
  HeadObjectRequest,
  HeadObjectResponse,
} from '#shared/api/objects.ts';
import type { Objects } from '../../stores/objects/service.ts';
import { wholeAddress } from '../../stores/objects/signatures.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export function headObject(objects: Pick<Objects, 'head'>): Operation {
  return operation({
    name: 'HeadObject',
    http: 'GET /objects/{hash}',
    scope: 'any',
    containers: true,
    request: HeadObjectRequest,
    response: HeadObjectResponse,
    handle: async (caller, request) => {
      const object = await objects.head(caller, request.hash);
      const common = { ok: true, errorMsg: '', useWorkspaceStorage: true };
      if (object === undefined) return { ...common, exists: false, objectId: '', objectMetadata: null };
      const objectMetadata = { name: object.hash, size: object.size };
      return { ...common, exists: true, objectId: object.id, objectMetadata };
    },
  });
}

export function createObject(objects: Pick<Objects, 'create'>): Operation {
  return operation({
    name: 'CreateObject',
    http: 'POST /objects',
    scope: 'full',
    containers: true,
    request: CreateObjectRequest,
    response: CreateObjectResponse,
    handle: async (caller, request, origin) => {
      const made = await objects.create(caller, request);
      // Clients upload to exactly this address, so it must be absolute.
      const { uploadPath } = made;
      const presignedUrl = uploadPath === null ? '' : wholeAddress(uploadPath, origin.baseUrl);
      return { ok: true, objectId: made.objectId, presignedUrl, errorMsg: '' };
    },
  });
}
