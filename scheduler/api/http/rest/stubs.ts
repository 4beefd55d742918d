// A stub, and its address, for published clients that call one without a deployment or deploy it anew.
import { isUuid } from '#shared/domain/ids.ts';
import type { StubId } from '#shared/domain/ids.ts';
import { DeploymentUrl, DeploymentUrlQuery } from '#shared/api/rest/deployments.ts';
import { OneStub } from '#shared/api/rest/stubs.ts';
import { AppError } from '#shared/errors.ts';
import { urlTargetOf } from '../../../workspaces/deployments/deployments.ts';
import { invokeUrl, urlFormOf } from '../../../workspaces/deployments/urls.ts';
import { isOutside } from '../../../workspaces/identity/confinement.ts';
import type { DeploymentRouteParts } from './deployments.ts';
import { stubRecord } from './records.ts';
import { restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export const oneStub = ({ directory }: Pick<DeploymentRouteParts, 'directory'>): RestRoute =>
  restRoute({
    http: 'GET /stub/{ws}/{stubId}',
    summary: 'One stub, with what makes another one of it',
    grants: { scopes: ['read'], confinesToApp: true },
    answer: OneStub,
    errors: ['stub_not_found'],
    handle: async ({ caller, workspaceId, params }) => {
      const id = (params['stubId'] ?? '').toLowerCase();
      const stub = isUuid(id) ? await directory.stub(id as StubId) : undefined;
      if (stub === undefined || stub.workspaceId !== workspaceId || isOutside(caller, stub.appId)) throw notFound();
      const app = await directory.app(workspaceId, stub.appId);
      return {
        ...stubRecord(stub),
        object: { external_id: stub.objectId ?? '' },
        app: { external_id: stub.appId, name: app?.name ?? '' },
      };
    },
  });

const notFound = (): AppError => new AppError('stub_not_found', 'stub not found');

export const stubUrl = (parts: Pick<DeploymentRouteParts, 'directory' | 'urls' | 'originOf'>): RestRoute =>
  restRoute({
    http: 'GET /stub/{stubId}/url',
    summary: 'Where a stub is invoked: one of the workspace, or a public one',
    grants: { scopes: ['read'], confinesToApp: true },
    query: DeploymentUrlQuery,
    answer: DeploymentUrl,
    errors: ['stub_not_found'],
    handle: async ({ caller, params, query, http }) => {
      const id = (params['stubId'] ?? '').toLowerCase();
      const stub = isUuid(id) ? await parts.directory.stub(id as StubId) : undefined;
      const isSeen = stub !== undefined && (stub.workspaceId === caller.workspaceId || stub.public);
      if (!isSeen || isOutside(caller, stub.appId)) throw notFound();
      const { baseUrl } = parts.originOf(http);
      return {
        url: invokeUrl(baseUrl, urlTargetOf(stub, null), parts.urls, urlFormOf(query.url_type ?? '') || 'path'),
      };
    },
  });
